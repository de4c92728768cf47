"""Monte-Carlo tree search with bound-weighted rollouts and bound dives (Telamon, arXiv 1904.03383, section 5.1)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from ...space.candidate import DeadEnd
from ..asking import Asking
from ..candidate import SearchCandidate
from ..events import Ranked, Tally
from ..node import EXPANDED, OPEN, SELECTABLE, Node
from .expansion import Live, expand, live_children
from .exploration import RELATIVE_SLACK, AbstractStrategy, Exploration
from .policies import POLICIES, pick_by_bound


@dataclass(frozen=True, slots=True)
class Focus:
    """Frequency of bound dives: every `period`-th step (0: never) opens at most `n_nodes` nodes with the least bounds.

    Dives become rarer after `patience` evaluations by dives (0: never) in which the bound did not
    move.
    """

    period: int
    n_nodes: int
    patience: int


# An expansion is about a hundred times cheaper than an evaluation, so a dive may open several
# nodes.
FOCUS = {"best": Focus(0, 0, 0), "balanced": Focus(4, 16, 8), "bound": Focus(2, 64, 0)}


class Pace:
    """Adaptive frequency of an action that ends in evaluations of given source tags: every `period`-th step (0: never).

    After `patience` evaluations without success (0: never) it becomes half as frequent, and so on
    down to an eighth. A success restores the first period.
    """

    def __init__(self, tags: str, period: int, patience: int) -> None:
        self._tags = tags
        self._first = self.period = period
        self._patience = patience
        self._n_in_vain = 0
        self._credit = 0.0
        self._spent_s = (0.0, 0.0)  # by these tags and by all, when the period became what it is

    @property
    def share(self) -> float:
        """Share of steps that perform the action."""
        return 1 / self.period if self.period else 0.0

    def is_due(self) -> bool:
        """True if the action is due. Called once per step; it remains due until `done` is called."""
        self._credit = min(1.0, self._credit + self.share)
        return self._credit > 1 - 1e-9

    def done(self) -> None:
        self._credit = 0.0

    def is_over(self, tally: Tally) -> bool:
        """True if the action's evaluations took more than its share of all seconds since the period changed.

        They must also have taken more than LEAST_SPENT_S seconds.
        """
        some_s, all_s = tally.spent_by(self._tags)
        return some_s - self._spent_s[0] > max(
            LEAST_SPENT_S, self.share * (all_s - self._spent_s[1])
        )

    def was_in_vain(self, tally: Tally) -> None:
        """Counts one more evaluation without success so far."""
        self._n_in_vain += 1
        if self._patience and self._n_in_vain >= self._patience:
            self._set(min(2 * self.period, 8 * self._first), tally)

    def was_worth_it(self, tally: Tally) -> None:
        self._set(self._first, tally)

    def _set(self, period: int, tally: Tally) -> None:
        self._n_in_vain = 0
        if period != self.period:
            self.period, self._spent_s = period, tally.spent_by(self._tags)


LEAST_SPENT_S = 1.0  # less is noise, and a search of such candidates depends on its seed alone
DESCENT_PERIOD = 4  # of so many steps one descends in the tree; those that do not dive stay near the best, where that is possible
# Evaluations by descents, none of them one of the best, after which descents become rarer.
PATIENCE = 16
N_CENTRES = 4
N_DRAWS = 16  # neighbours or rollouts among which a surrogate chooses; each costs far less than an evaluation
NEAR_TRIES = 3 * N_DRAWS
BLIND = 1 / 8  # of steps take the first draw: what is expected is only a guess
HEAT = 0.1  # a value that is expected to take e ** HEAT times as long as another is taken 1 / e times as often in rollouts

# A complete candidate, its bound, and the key of the implementation that it was made of (b"": of none).
Draw = tuple[SearchCandidate, float, bytes]


class Mcts(AbstractStrategy):
    """Monte-Carlo tree search: selects a path to the frontier, expands a node, rolls out, and backs up the outcome.

    A node whose children are all closed is closed, so a small space ends with a proof. While a
    batch is gathered, the visits of its descents count without their times; leaves without an
    outcome yet cannot be selected.

    Descents and dives have a share of the steps, and no more than that of the time: if a run takes
    milliseconds, one far from the best takes seconds. The share shrinks while they find nothing.
    """

    def __init__(self, policy: str, focus: str) -> None:
        if policy not in POLICIES:
            raise ValueError(f"unknown policy {policy!r}; policies are {', '.join(POLICIES)}")
        if focus not in FOCUS:
            raise ValueError(f"unknown focus {focus!r}; it is one of {', '.join(FOCUS)}")
        self._policy = POLICIES[policy]()
        self._focus = FOCUS[focus]
        self._dives = Pace("D", self._focus.period, self._focus.patience)
        self._descents = Pace("MR", DESCENT_PERIOD, PATIENCE)
        self._bound_ns = 0.0  # not scaled
        self._centres: set[bytes] = set()  # that descents have found
        self._n_since_asked = 0

    def step(self, exploration: Exploration) -> Asking[bool]:
        if exploration.tree.is_closed:
            return False
        if exploration.ledger.n_waiting:
            # Once descents mostly meet known implementations a batch would never fill.
            self._n_since_asked += 1
            if self._n_since_asked > 4 * exploration.batch:
                self._n_since_asked = 0
                yield from exploration.advance()
                return True
        else:
            self._n_since_asked = 0
        self._look_back(exploration)
        is_deep, is_far = self._dives.is_due(), self._descents.is_due()
        if is_deep and (yield from self._dive(exploration)):
            self._dives.done()
            return True
        is_far = is_far and not self._descents.is_over(exploration.tally)
        if is_far or not (yield from self._step_near(exploration)):
            self._descents.done()
            yield from self._descend(exploration)
        return True

    def _look_back(self, exploration: Exploration) -> None:
        """Updates the paces of dives and descents.

        A dive succeeds if the bound has moved, a descent if it has found one of the best
        implementations.
        """
        bound_ns = exploration.bound_ns / exploration.pruning.factor
        if bound_ns > self._bound_ns * (1 + RELATIVE_SLACK):
            self._bound_ns = bound_ns
            self._dives.was_worth_it(exploration.tally)
        best = exploration.incumbent.top(N_CENTRES)
        found = {r.key for r in best if r.tag in ("M", "R")} - self._centres
        if found:
            self._centres |= found
            self._descents.was_worth_it(exploration.tally)

    def _step_near(self, exploration: Exploration) -> Asking[bool]:
        """Submits a new neighbour of one of the best implementations. Returns False if none is found."""
        best = [r for r in exploration.incumbent.top(N_CENTRES) if r.candidate is not None]
        if exploration.guidance.neighbour is None or not best:
            return False
        draws = self._draw_near(exploration, best)
        n_draws = self._n_draws(exploration)
        while drawn := list(islice(draws, n_draws)):
            for n_better, k in enumerate(self._by_promise(exploration, drawn)):
                candidate, bound_ns, parent = drawn[k]
                key = exploration.ledger.key(candidate)
                if not exploration.ledger.is_settled(key):
                    yield from exploration.submit(candidate, bound_ns, "N", None, parent=parent)
                    exploration.tally.near_worse += len(drawn) - n_better - 1
                    return True
                exploration.ledger.pass_over(candidate, key)
                exploration.tally.near_known += 1
        return False

    @staticmethod
    def _n_draws(exploration: Exploration) -> int:
        if exploration.guidance.surrogate is None or not exploration.guidance.surrogate.is_ready:
            return 1
        return 1 if exploration.rng.random() < BLIND else N_DRAWS

    @staticmethod
    def _odds(
        exploration: Exploration, candidates: Sequence[SearchCandidate]
    ) -> list[float] | None:
        """Returns factors on the weights of siblings in a rollout, from a prediction; None without a prediction."""
        expected = None
        if exploration.guidance.surrogate is not None and len(candidates) > 1:
            expected = exploration.guidance.surrogate.expected(candidates)
        if expected is None:
            return None
        odds: list[float] = np.exp((expected.min() - expected) / HEAT).tolist()
        return odds

    @staticmethod
    def _by_promise(exploration: Exploration, drawn: Sequence[Draw]) -> list[int]:
        """Returns the positions of `drawn`, best predicted time first.

        In the order of drawing without a prediction.
        """
        expected = None
        if exploration.guidance.surrogate is not None and len(drawn) > 1:
            expected = exploration.guidance.surrogate.expected(
                [candidate for candidate, _, _ in drawn]
            )
        if expected is None:
            return list(range(len(drawn)))
        return [int(k) for k in np.argsort(expected, kind="stable")]

    @staticmethod
    def _draw_near(exploration: Exploration, best: Sequence[Ranked]) -> Iterator[Draw]:
        """Yields new neighbours whose bounds are below the cut, with these bounds, from a limited number of tries."""
        neighbour = exploration.guidance.neighbour
        assert neighbour is not None
        drawn: set[bytes] = set()
        for _ in range(NEAR_TRIES):
            # The best half of the time, the next half of the rest, and so on.
            centre = best[min(int(exploration.rng.geometric(0.5)) - 1, len(best) - 1)]
            assert centre.candidate is not None
            candidate = neighbour(centre.candidate, exploration.rng)
            if candidate is None:
                continue
            if isinstance(candidate, DeadEnd):
                exploration.tally.near_dead += 1
                continue
            bound_ns = max(exploration.root_bound_ns, float(exploration.oracle.bound(candidate)))
            if bound_ns >= exploration.cut_ns:
                exploration.tally.near_bound += 1
            elif exploration.ledger.was_asked(candidate):
                exploration.tally.near_known += 1
            elif candidate.key not in drawn:
                drawn.add(candidate.key)
                yield candidate, bound_ns, centre.key

    def _dive(self, exploration: Exploration) -> Asking[bool]:
        """Opens nodes with the least bounds.

        Returns False once the dives' share of time is used up by a complete candidate.
        """
        for _ in range(self._focus.n_nodes):
            node = exploration.tree.least_open()
            if node is None:
                yield from exploration.advance()
                return True
            if exploration.tree.candidate(node).is_complete:
                if self._dives.is_over(exploration.tally):
                    return False
                if (yield from exploration.submit_leaf(node, "D")):
                    self._dives.was_in_vain(exploration.tally)
                return True
            expand(exploration, node, "D")
        return True

    def _descend(self, exploration: Exploration) -> Asking[None]:
        path = self._select(exploration)
        node = path[-1]
        if node.state == EXPANDED:  # whatever is below waits for its outcome
            yield from exploration.advance()
            return
        for visited in path:
            visited.visits += 1
        if exploration.tree.candidate(node).is_complete:
            self._note_descent(exploration, (yield from exploration.submit_leaf(node, "M")))
            return
        children = expand(exploration, node, "M")
        if not children:
            return
        at = pick_by_bound(
            [child.bound_ns for child in children], exploration.cut_ns, exploration.rng
        )
        child = children[at]
        child.visits += 1
        if exploration.tree.candidate(child).is_complete:
            self._note_descent(exploration, (yield from exploration.submit_leaf(child, "M")))
        else:
            yield from self._roll_out(exploration, child)

    def _select(self, exploration: Exploration) -> list[Node]:
        """Returns the nodes from the root to a frontier node, or to an expanded node without selectable children."""
        node = exploration.tree.root
        path = [node]
        while node.state == EXPANDED:
            live = [i for i, child in enumerate(node.children) if child.state in SELECTABLE]
            if not live:
                return path
            node = node.children[
                self._policy.select(node.children, live, exploration.cut_ns, exploration.rng)
            ]
            path.append(node)
        return path

    def _roll_out(self, exploration: Exploration, node: Node) -> Asking[None]:
        """Descends at random from a node to complete candidates, and submits the most promising one."""
        drawn: dict[bytes, Draw] = {}
        n_draws = self._n_draws(exploration)
        for _ in range(n_draws):
            draw = self._draw_below(exploration, node, is_blind=n_draws == 1)
            if draw is not None and not exploration.ledger.was_asked(draw[0]):
                drawn[draw[0].key] = draw
            if node.state != OPEN or draw is None:
                break
        if drawn:
            found = list(drawn.values())
            candidate, bound_ns, _ = found[self._by_promise(exploration, found)[0]]
            is_measured = yield from exploration.submit(candidate, bound_ns, "R", node)
            self._note_descent(exploration, is_measured)

    def _note_descent(self, exploration: Exploration, is_measured: bool) -> None:
        if is_measured:
            self._descents.was_in_vain(exploration.tally)

    def _draw_below(self, exploration: Exploration, node: Node, *, is_blind: bool) -> Draw | None:
        """Returns a random complete candidate below a node with its bound; None after a few dead ends."""
        exploration.tally.rollouts += 1
        candidate: SearchCandidate = exploration.tree.candidate(node)
        bound_ns = node.bound_ns
        passed: list[Live] = []  # the siblings not taken, level by level
        retries = exploration.options.limits.rollout_retries
        cut_floor_ns = math.inf
        is_partial = False
        limit = exploration.options.limits.rollout_siblings
        while not candidate.is_complete:
            live = live_children(exploration, candidate, bound_ns, limit)
            cut_floor_ns = min(cut_floor_ns, live.cut_floor_ns)
            is_partial |= live.is_partial
            if not live.candidates:
                exploration.meet_dead_end(node, node.depth + len(passed), "R", live.why)
                if retries == 0:
                    return None
                retries -= 1
                while passed and not live.candidates:
                    live = passed.pop()
                if not live.candidates:
                    if not is_partial:
                        exploration.pruning.close_explored(node, cut_floor_ns)
                    return None
            odds = None if is_blind else self._odds(exploration, live.candidates)
            at = pick_by_bound(live.prices_ns, exploration.cut_ns, exploration.rng, odds)
            live.prices_ns.pop(at)
            bound_ns = live.bounds_ns.pop(at)
            candidate = live.candidates.pop(at)
            passed.append(live)
        assert node.state == OPEN
        return candidate, bound_ns, b""
