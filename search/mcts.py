"""Monte-Carlo tree search with bound-weighted rollouts and bound dives (Telamon, arXiv 1904.03383,
section 5.1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..space.candidate import DeadEnd
from .expansion import Live, expand, live_children
from .exploration import AbstractStrategy, Exploration
from .policies import POLICIES, pick_by_bound
from .tree import EXPANDED, OPEN, SELECTABLE, Node, SearchCandidate


@dataclass(frozen=True, slots=True)
class Focus:
    """Every `period`-th step (0: never) dives for the bound, over at most `n_nodes` nodes of least
    bound.
    """

    period: int
    n_nodes: int


# An expansion is about a hundred times cheaper than an evaluation, so a dive may open several
# nodes.
FOCUS = {"best": Focus(0, 0), "balanced": Focus(4, 16), "bound": Focus(2, 64)}


NEAR_PERIOD = 3  # of so many steps all but one stay near the best, where that is possible
N_CENTRES = 4
NEAR_TRIES = 20


class Mcts(AbstractStrategy):
    """Select by policy down to the frontier, expand one node, roll out from one of its children,
    back up the outcome.

    A node whose children are all closed is closed, so a small space ends with a proof. While a
    batch is gathered the visits of its descents count without their times; leaves that wait for an
    outcome cannot be selected.

    Descents and dives have a share of the steps, and no more than that of the time: where a run takes
    milliseconds, one far from the best takes seconds.
    """

    def __init__(self, policy: str, focus: str) -> None:
        if policy not in POLICIES:
            raise ValueError(f"unknown policy {policy!r}; policies are {', '.join(POLICIES)}")
        if focus not in FOCUS:
            raise ValueError(f"unknown focus {focus!r}; it is one of {', '.join(FOCUS)}")
        self._policy = POLICIES[policy]()
        self._focus = FOCUS[focus]
        self._n_steps = 0
        self._n_since_asked = 0

    def step(self, world: Exploration) -> bool:
        if world.tree.is_closed:
            return False
        self._n_steps += 1
        if world.ledger.n_waiting:
            # Once descents mostly meet known implementations a batch would never fill.
            self._n_since_asked += 1
            if self._n_since_asked > 4 * world.options.batch:
                self._n_since_asked = 0
                world.flush()
                return True
        else:
            self._n_since_asked = 0
        period = self._focus.period
        dives = 1 / period if period else 0.0
        if period and self._n_steps % period == 0 and self._dive(world, dives):
            return True
        is_near = self._n_steps % NEAR_PERIOD
        is_near = is_near or world.tally.has_spent("MR", (1 - dives) / NEAR_PERIOD)
        if not (is_near and self._step_near(world)):
            self._descend(world)
        return True

    def _step_near(self, world: Exploration) -> bool:
        """Submit a new neighbour of one of the best; False where none is found."""
        best = [r.candidate for r in world.incumbent.top(N_CENTRES) if r.candidate is not None]
        if world.neighbour is None or not best:
            return False
        for _ in range(NEAR_TRIES):
            # The best half of the time, the next half of the rest, and so on.
            centre = best[min(int(world.rng.geometric(0.5)) - 1, len(best) - 1)]
            candidate = world.neighbour(centre, world.rng)
            if candidate is None:
                continue
            if isinstance(candidate, DeadEnd):
                world.tally.near_dead += 1
                continue
            bound_ns = max(world.root_bound_ns, float(world.bound(candidate)))
            if bound_ns >= world.cut_ns:
                world.tally.near_bound += 1
            elif world.ledger.is_settled(world.ledger.key(candidate)):
                world.tally.near_known += 1
            else:
                world.submit(candidate, bound_ns, "N", None)
                return True
        return False

    def _dive(self, world: Exploration, share: float) -> bool:
        """Open nodes of least bound; False where that leads to a candidate and there is no time for one, by its share."""
        for _ in range(self._focus.n_nodes):
            node = world.tree.least_open()
            if node is None:
                world.flush()
                return True
            if world.tree.candidate(node).is_complete:
                if world.tally.has_spent("D", share):
                    return False
                world.submit_leaf(node, "D")
                return True
            expand(world, node, "D")
        return True

    def _descend(self, world: Exploration) -> None:
        path = self._select(world)
        node = path[-1]
        if node.state == EXPANDED:  # whatever is below waits for its outcome
            world.flush()
            return
        for visited in path:
            visited.visits += 1
        if world.tree.candidate(node).is_complete:
            world.submit_leaf(node, "M")
            return
        children = expand(world, node, "M")
        if not children:
            return
        at = pick_by_bound([child.bound_ns for child in children], world.cut_ns, world.rng)
        child = children[at]
        child.visits += 1
        if world.tree.candidate(child).is_complete:
            world.submit_leaf(child, "M")
        else:
            self._roll_out(world, child)

    def _select(self, world: Exploration) -> list[Node]:
        """Nodes from the root to a frontier node, or to an expanded one without selectable
        children.
        """
        node = world.tree.root
        path = [node]
        while node.state == EXPANDED:
            live = [i for i, child in enumerate(node.children) if child.state in SELECTABLE]
            if not live:
                return path
            node = node.children[self._policy.select(node.children, live, world.cut_ns, world.rng)]
            path.append(node)
        return path

    def _roll_out(self, world: Exploration, node: Node) -> None:
        """Go down at random to a complete candidate and submit it; back out of a few dead ends on
        the way.
        """
        world.tally.rollouts += 1
        candidate: SearchCandidate = world.tree.candidate(node)
        bound_ns = node.bound_ns
        passed: list[Live] = []  # the siblings not taken, level by level
        retries = world.options.rollout_retries
        cut_floor_ns = math.inf
        is_partial = False
        limit = world.options.rollout_siblings
        while not candidate.is_complete:
            live = live_children(world, candidate, bound_ns, limit)
            cut_floor_ns = min(cut_floor_ns, live.cut_floor_ns)
            is_partial |= live.is_partial
            if not live.candidates:
                world.meet_dead_end(node, node.depth + len(passed), "R", live.why)
                if retries == 0:
                    return
                retries -= 1
                while passed and not live.candidates:
                    live = passed.pop()
                if not live.candidates:
                    if not is_partial:
                        world.pruning.close_explored(node, cut_floor_ns)
                    return
            at = pick_by_bound(live.prices_ns, world.cut_ns, world.rng)
            live.prices_ns.pop(at)
            bound_ns = live.bounds_ns.pop(at)
            candidate = live.candidates.pop(at)
            passed.append(live)
        assert node.state == OPEN
        world.submit(candidate, bound_ns, "R", node)
