"""Monte-Carlo tree search with bound-weighted rollouts and bound dives (Telamon, arXiv 1904.03383,
section 5.1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..space.candidate import DeadEnd
from .expansion import Live, expand, live_children
from .exploration import RELATIVE_SLACK, AbstractStrategy, Exploration
from .policies import POLICIES, pick_by_bound
from .tree import EXPANDED, OPEN, SELECTABLE, Node, SearchCandidate


@dataclass(frozen=True, slots=True)
class Focus:
    """Every `period`-th step (0: never) dives for the bound, over at most `n_nodes` nodes of least
    bound. After `patience` dives (0: for ever) that moved no bound they become rarer.
    """

    period: int
    n_nodes: int
    patience: int


# An expansion is about a hundred times cheaper than an evaluation, so a dive may open several
# nodes.
FOCUS = {"best": Focus(0, 0, 0), "balanced": Focus(4, 16, 8), "bound": Focus(2, 64, 0)}


class Pace:
    """How often something is done: every `period`-th step (0: never), half as often after `patience` evaluations in vain (0: it
    stays so), and so on up to an eighth; as in the beginning once it was worth it.
    """

    def __init__(self, period: int, patience: int) -> None:
        self._first = self.period = period
        self._patience = patience
        self._n_in_vain = 0

    @property
    def share(self) -> float:
        """What part of the steps does it."""
        return 1 / self.period if self.period else 0.0

    def is_due(self, step: int) -> bool:
        return self.period > 0 and step % self.period == 0

    def note(self, *, is_worth_it: bool) -> None:
        """Something was evaluated, or turned out to have been worth it."""
        self._n_in_vain += 1
        if is_worth_it:
            self.period, self._n_in_vain = self._first, 0
        elif self._patience and self._n_in_vain >= self._patience:
            self.period, self._n_in_vain = min(2 * self.period, 8 * self._first), 0


NEAR_PERIOD = 3  # of so many steps all but one stay near the best, where that is possible
PATIENCE = (
    16  # evaluations by descents after which they become rarer, where none was one of the best
)
N_CENTRES = 4
N_DRAWS = 16  # neighbours or rollouts among which a surrogate chooses; each costs a hundredth of an evaluation or less
NEAR_TRIES = 3 * N_DRAWS
BLIND = 1 / 8  # of steps take the first draw: what is expected is only a guess
HEAT = 0.1  # a value that is expected to take e ** HEAT times as long as another is taken 1 / e times as often in rollouts

Draw = tuple[SearchCandidate, float]  # a complete candidate and its bound


class Mcts(AbstractStrategy):
    """Select by policy down to the frontier, expand one node, roll out from one of its children,
    back up the outcome.

    A node whose children are all closed is closed, so a small space ends with a proof. While a
    batch is gathered the visits of its descents count without their times; leaves that wait for an
    outcome cannot be selected.

    Descents and dives have a share of the steps, and no more than that of the time: where a run takes
    milliseconds, one far from the best takes seconds. The share shrinks while they find nothing.
    """

    def __init__(self, policy: str, focus: str) -> None:
        if policy not in POLICIES:
            raise ValueError(f"unknown policy {policy!r}; policies are {', '.join(POLICIES)}")
        if focus not in FOCUS:
            raise ValueError(f"unknown focus {focus!r}; it is one of {', '.join(FOCUS)}")
        self._policy = POLICIES[policy]()
        self._focus = FOCUS[focus]
        self._dives = Pace(self._focus.period, self._focus.patience)
        self._descents = Pace(NEAR_PERIOD, PATIENCE)
        self._bound_ns = 0.0
        self._centres: set[bytes] = set()  # that descents have found
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
        self._look_back(world)
        dives, descents = self._dives, self._descents
        if dives.is_due(self._n_steps) and self._dive(world, dives.share):
            return True
        is_near = not descents.is_due(self._n_steps)
        is_near = is_near or world.tally.has_spent("MR", (1 - dives.share) * descents.share)
        if not (is_near and self._step_near(world)):
            self._descend(world)
        return True

    def _look_back(self, world: Exploration) -> None:
        """Dives were worth it when the bound has moved, descents when they have found one of the best."""
        if world.bound_ns > self._bound_ns * (1 + RELATIVE_SLACK):
            self._bound_ns = world.bound_ns
            self._dives.note(is_worth_it=True)
        best = world.incumbent.top(N_CENTRES)
        found = {r.key for r in best if r.tag in ("M", "R")} - self._centres
        if found:
            self._centres |= found
            self._descents.note(is_worth_it=True)

    def _step_near(self, world: Exploration) -> bool:
        """Submit a new neighbour of one of the best; False where none is found."""
        best = [r.candidate for r in world.incumbent.top(N_CENTRES) if r.candidate is not None]
        if world.neighbour is None or not best:
            return False
        drawn = self._draw_near(world, best, self._n_draws(world))
        for n_better, k in enumerate(self._by_promise(world, drawn)):
            candidate, bound_ns = drawn[k]
            if not world.ledger.is_settled(world.ledger.key(candidate)):
                world.submit(candidate, bound_ns, "N", None)
                world.tally.near_worse += len(drawn) - n_better - 1
                return True
            world.tally.near_known += 1
        return False

    @staticmethod
    def _n_draws(world: Exploration) -> int:
        is_blind = world.surrogate is None or world.rng.random() < BLIND
        return 1 if is_blind else N_DRAWS

    @staticmethod
    def _odds(world: Exploration, candidates: Sequence[SearchCandidate]) -> list[float] | None:
        """What a rollout weighs siblings by, beside their bounds."""
        expected = None
        if world.surrogate is not None and len(candidates) > 1:
            expected = world.surrogate.expected(candidates)
        if expected is None:
            return None
        odds: list[float] = np.exp((expected.min() - expected) / HEAT).tolist()
        return odds

    @staticmethod
    def _by_promise(world: Exploration, drawn: Sequence[Draw]) -> list[int]:
        """Places of draws, the most expected first; as they were drawn where nothing is expected."""
        expected = None
        if world.surrogate is not None and len(drawn) > 1:
            expected = world.surrogate.expected([candidate for candidate, _ in drawn])
        if expected is None:
            return list(range(len(drawn)))
        return [int(k) for k in np.argsort(expected, kind="stable")]

    @staticmethod
    def _draw_near(
        world: Exploration, best: Sequence[SearchCandidate], n_wanted: int
    ) -> list[Draw]:
        """New neighbours that may beat the cut, with their bounds; fewer where not many are found."""
        assert world.neighbour is not None
        drawn: dict[bytes, Draw] = {}
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
            elif world.ledger.was_asked(candidate):
                world.tally.near_known += 1
            else:
                drawn[candidate.key] = candidate, bound_ns
                if len(drawn) == n_wanted:
                    break
        return list(drawn.values())

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
                self._dives.note(is_worth_it=False)
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
        """Go down at random to complete candidates, and submit the one that most is expected of."""
        drawn = []
        n_draws = self._n_draws(world)
        for _ in range(n_draws):
            draw = self._draw_below(world, node, is_blind=n_draws == 1)
            if draw is not None:
                drawn.append(draw)
            if node.state != OPEN or not drawn:
                break
        if drawn:
            candidate, bound_ns = drawn[self._by_promise(world, drawn)[0]]
            world.submit(candidate, bound_ns, "R", node)
            self._descents.note(is_worth_it=False)

    def _draw_below(self, world: Exploration, node: Node, *, is_blind: bool) -> Draw | None:
        """A complete candidate below a node, and its bound; backs out of a few dead ends on the way."""
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
                    return None
                retries -= 1
                while passed and not live.candidates:
                    live = passed.pop()
                if not live.candidates:
                    if not is_partial:
                        world.pruning.close_explored(node, cut_floor_ns)
                    return None
            odds = None if is_blind else self._odds(world, live.candidates)
            at = pick_by_bound(live.prices_ns, world.cut_ns, world.rng, odds)
            live.prices_ns.pop(at)
            bound_ns = live.bounds_ns.pop(at)
            candidate = live.candidates.pop(at)
            passed.append(live)
        assert node.state == OPEN
        return candidate, bound_ns
