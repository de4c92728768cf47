"""Search by components: one tree per component.

Each measured combination contains a candidate of every component.
A program measures the time of each component, so one measurement is an outcome for every tree.
Trees are independent: no constraint spans two components. Effects of neighbouring components show
only in the times of whole combinations, and only these are ranked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from .. import events as ev
from ..asking import Asking, Search, Tell, Trial
from ..budget import Budget
from ..candidate import SearchCandidate
from ..inputs import C, Guidance, History, Oracle
from ..options import Batches, SearchOptions
from ..run import conclude, drain, finish, first_candidates, measure_firsts, opened
from ..tree.exploration import Exploration
from .component_inputs import UNIT_NS, Division
from .tree import LEAST_NS, ComponentTree, WholeIsOver

_COUPLING_EVERY = 3  # rounds there is one of choices that concern all components
_COUPLED = 2  # candidates of it
_BETTER = 0.99  # of the time of the best: another coupling is adopted

# Counts of the trees; all others are of whole combinations.
_OF_TREES = (
    *("explored", "pruned_bound", "pruned_csp", "rollouts", "rollout_bound", "rollout_csp"),
    *("dead_ends", "near_bound", "near_dead", "near_known", "near_worse"),
)


@dataclass(frozen=True, eq=False)
class Combination:
    """A candidate of the sequence: `trials` by number of the tree, and the best candidate of every other component."""

    candidate: SearchCandidate
    trials: dict[int, Trial] = field(default_factory=dict)


def search_components(
    root: C,
    division: Division[C],
    oracle: Oracle[C],
    history: History[C],
    budget: Budget,
    rng: np.random.Generator,
    options: SearchOptions | None = None,
) -> Search:
    """Searches the completions of `root`, a sequence of several components, as `search` of search/run.py does.

    Incumbents and warm starts of `history` are measured first, unchanged. Outcomes have the times
    of components. If a combination fails, or lacks these times, halves of its trials are measured
    separately until the outcome of each trial is known. If the best of all components fail
    together, trials are measured beside as many of these as run together.

    Equal seeds, inputs and outcomes give equal events. Only bounds prove anything: a search that
    ends because all trees are explored has the status `exhausted`.
    """
    options = options or SearchOptions()
    whole = opened(root, oracle, Guidance(next_choice=lambda c: 0), history, budget, rng, options)
    return _Combining(whole, cast(Division[SearchCandidate], division), rng).run()


class _Combining:
    """State of one running search by components."""

    def __init__(
        self, whole: Exploration, division: Division[SearchCandidate], rng: np.random.Generator
    ) -> None:
        self._whole = whole
        self._division = division
        self._rng = rng
        self._trees: list[ComponentTree] = []
        self._seen: dict[bytes, ev.Evaluated] = {}  # by key of the candidate
        self._told: list[dict[bytes, ev.Outcome]] = [
            {} for _ in division.components
        ]  # by key of text
        self._ties: ComponentTree | None = None  # of the choices that concern all components
        self._n_rounds = 0
        self._unit_ns = UNIT_NS  # of the tree above, what the best takes under the present choices
        self._each_s = 0.0  # that a combination took in the last round
        self._beside_ns = 0.0  # of a program, in none of its components
        self._failed_key = b""  # of the best of all components, where they failed together
        self._compatible: list[SearchCandidate] = []  # that run together in their place

    def run(self) -> Search:
        """Yields the events of the search, and its requests (`Ask`)."""
        whole, components = self._whole, self._division.components
        yield ev.Divided(len(components), sum(len(x.places) for x in components))
        yield from self._watched(measure_firsts(whole, first_candidates(whole)))
        try:
            if whole.stop_status() is None:
                self._plant()
            while (status := whole.stop_status()) is None:
                self._account()
                if whole.tree.is_closed or not (yield from self._step()):
                    status = conclude(whole)
                    break
                whole.after_step()
                yield from drain(whole)
            self._account()
        finally:
            self._close()
        yield from drain(whole)
        yield self._table()
        yield from finish(whole, status)

    def _watched(self, search: Search) -> Search:
        """Yields from a search, and records its evaluated candidates."""
        tell: Tell | None = None
        while True:
            try:
                said = search.send(tell)
            except StopIteration:
                return
            if isinstance(said, ev.Evaluated):
                self._seen[said.candidate.key] = said
            tell = yield said

    def _close(self) -> None:
        for tree in (*self._trees, *([] if self._ties is None else [self._ties])):
            tree.close()

    def _step(self) -> Asking[bool]:
        """Measures candidates that the trees propose, and sometimes choices that concern all components.

        Returns False if nothing is left to try.
        """
        self._n_rounds += 1
        has_more = yield from self._round()
        if has_more and self._n_rounds % _COUPLING_EVERY:
            return True
        return (yield from self._couple()) or has_more

    def _plant(self, earlier: Sequence[ComponentTree] = ()) -> None:
        """Creates the trees, each with the known outcomes of its component: from whole candidates, and of equal texts.

        `earlier`: those under other values of the choices that concern all components.
        """
        whole, batches = self._whole, self._whole.options.batches
        size = max(1, batches.size - 1)  # one of a batch has the best of all components
        options = replace(
            whole.options,
            batches=Batches(size=size, largest=batches.largest and max(size, batches.largest - 1)),
        )
        budget = Budget(
            WholeIsOver(lambda: whole.stop_status() is not None), clock=whole.budget.clock
        )
        for k, inputs in enumerate(self._division.components):
            known = self._told[k]
            for seen in self._seen.values():
                part = self._division.part(seen.candidate, k)
                if part is not None and seen.outcome.component_ns:
                    key = inputs.oracle.key(part) or part.key
                    known.setdefault(key, _share(seen.outcome, inputs.places))
            rng = np.random.default_rng(int(self._rng.integers(2**62)))
            before = earlier[k] if earlier else None
            self._trees.append(ComponentTree(inputs, known, budget, rng, options, before))
        coupling = self._division.coupling
        if coupling is not None and self._ties is None:
            options = replace(options, prune=False, batches=Batches(size=_COUPLED))
            rng = np.random.default_rng(int(self._rng.integers(2**62)))
            self._ties = ComponentTree(coupling.inputs, {}, budget, rng, options)

    def _round(self) -> Asking[bool]:
        """Measures a round of trials of all trees, and passes the outcomes to them.

        Returns False if no tree has a trial.
        """
        whole, begun_s = self._whole, self._whole.elapsed_s
        yield from self._reconcile()
        combinations, n_measured = self._proposed(), 0
        told: list[tuple[int, Tell]] = []
        if not combinations:
            return False
        while combinations and whole.stop_status() is None:
            yield from self._measure(combinations)
            n_measured += len(combinations)
            yield from self._reconcile()
            combinations = [half for c in combinations for half in self._judge(c, told)]
        for k, tell in told:
            self._told[k][tell.key] = tell.outcome
            self._trees[k].tell(tell)
        self._each_s = (whole.elapsed_s - begun_s) / n_measured
        return True

    def _couple(self) -> Asking[bool]:
        """Measures the best of all components under other values of the choices that concern all of them.

        Returns False if there are none to try. Their tree receives times relative to the best under
        the present values, since components improve meanwhile.
        """
        whole, ties, coupling = self._whole, self._ties, self._division.coupling
        if ties is None or coupling is None or not ties.trials:
            return False
        base = self._combination({}).candidate
        if base.key not in self._seen:
            yield from self._measure([Combination(base)])
        seen = self._seen.get(base.key)
        base_ns = None if seen is None else seen.outcome.time_ns
        if base_ns is None:
            return False
        trials = ties.trials[:_COUPLED]
        coupled = [Combination(coupling.applied(base, trial.candidate)) for trial in trials]
        yield from self._measure(coupled)
        best, best_ns = None, base_ns * _BETTER
        for trial, c in zip(trials, coupled, strict=True):
            if c.candidate.key not in self._seen:  # nothing more is measured
                return True
            outcome = replace(self._seen[c.candidate.key].outcome, component_ns=(), bound_ns=0.0)
            ns = outcome.time_ns
            if ns is not None:
                outcome = replace(outcome, time_ns=self._unit_ns * ns / base_ns)
                best, best_ns = (c.candidate, ns) if ns < best_ns else (best, best_ns)
            ties.tell(Tell(trial.key, outcome))
        if best is not None and whole.stop_status() is None:
            self._unit_ns *= best_ns / base_ns
            self._adopt(coupling.under(best))
        return True

    def _adopt(self, division: Division[SearchCandidate]) -> None:
        """Creates the trees anew under other values of the choices that concern all components.

        Outcomes of equal texts remain known, and bounds remain lowered.
        """
        earlier = self._trees
        for tree in earlier:
            tree.close()
        self._division, self._trees, self._failed_key = division, [], b""
        self._plant(earlier)

    def _proposed(self) -> list[Combination]:
        """Returns the next combinations: that of the best candidates, if not measured yet, then one per trial.

        Their number is that of the tree with most trials, limited by the budget, which reserves a
        measurement for the final best combination.
        """
        whole, best = self._whole, self._combination({})
        is_new = best.candidate.key not in self._seen
        n_trials = max((len(tree.trials) for tree in self._trees), default=0)
        left = whole.budget.remaining_evaluations(whole.tally.evaluations)
        room = n_trials if left is None else left - 1 - is_new
        if self._each_s:
            left_s = whole.budget.remaining_s(whole.elapsed_s)
            room = int(min(room, left_s / self._each_s - 1 - is_new))
        combinations = [best] if is_new else []
        for j in range(min(n_trials, max(room, 1 - is_new))):
            trials = {k: t.trials[j] for k, t in enumerate(self._trees) if j < len(t.trials)}
            combinations.append(self._combination(trials))
        return combinations

    def _combination(self, trials: dict[int, Trial]) -> Combination:
        best = [tree.best for tree in self._trees]
        has_failed = bool(self._failed_key) and self._division.join(best).key == self._failed_key
        others = self._compatible if has_failed else best
        chosen = [trials[k].candidate if k in trials else x for k, x in enumerate(others)]
        return Combination(self._division.join(chosen), trials)

    def _reconcile(self) -> Asking[None]:
        """Measures which best candidates of components run together, if the combination of all of them fails.

        They replace components of the fastest combination.
        """
        best = [tree.best for tree in self._trees]
        key = self._division.join(best).key
        parts = self._fastest()
        if key == self._failed_key or parts is None or not self._has_failed(key):
            return
        changed = [k for k, x in enumerate(best) if x.key != parts[k].key]
        self._compatible = yield from self._beside(parts, best, changed)
        self._failed_key = key

    def _fastest(self) -> list[SearchCandidate] | None:
        """Returns the candidates by component of the fastest combination; of the default if they are unknown.

        It returns None if nothing ran.
        """
        fastest = self._whole.incumbent.best
        if fastest is None:
            return None
        if fastest.candidate is not None:
            found = [self._division.part(fastest.candidate, k) for k in range(len(self._trees))]
            parts = [x for x in found if x is not None]
            if len(parts) == len(found):
                return parts
        return [tree.default for tree in self._trees]

    def _beside(
        self, parts: list[SearchCandidate], best: Sequence[SearchCandidate], numbers: Sequence[int]
    ) -> Asking[list[SearchCandidate]]:
        """Returns candidates by component that run together, starting from `parts`.

        It replaces the components `numbers` by their best candidates, as far as halving finds that
        they run, else by near-best ones.
        """
        tried = [best[k] if k in numbers else x for k, x in enumerate(parts)]
        if (yield from self._runs(tried)):
            return tried
        if len(numbers) > 1:
            middle = len(numbers) // 2
            for half in (numbers[:middle], numbers[middle:]):
                parts = yield from self._beside(parts, best, half)
            return parts
        for k in numbers:
            for near in self._trees[k].ranking[1:]:
                if near.key == parts[k].key:
                    break
                tried = [*parts[:k], near, *parts[k + 1 :]]
                if (yield from self._runs(tried)):
                    return tried
        return parts

    def _runs(self, parts: Sequence[SearchCandidate]) -> Asking[bool]:
        """Measures the combination of these candidates, unless it was measured. Returns True if it runs."""
        whole = self._division.join(parts)
        if whole.key not in self._seen:
            yield from self._measure([Combination(whole)])
        return whole.key in self._seen and not self._has_failed(whole.key)

    def _has_failed(self, key: bytes) -> bool:
        seen = self._seen.get(key)
        return seen is not None and seen.outcome.time_ns is None

    def _measure(self, combinations: Sequence[Combination]) -> Asking[None]:
        whole = self._whole
        for c in combinations:
            if whole.stop_status() is not None:
                return
            yield from whole.submit(c.candidate, whole.root_bound_ns, "C", None)
        if whole.stop_status() is None:
            yield from whole.flush()
        for event in whole.events:
            if isinstance(event, ev.Evaluated):
                self._seen[event.candidate.key] = event

    def _judge(self, combination: Combination, told: list[tuple[int, Tell]]) -> list[Combination]:
        """Records the outcomes of a combination's trials.

        Returns combinations to measure if some outcome stays unknown.
        """
        seen, trials = self._seen.get(combination.candidate.key), combination.trials
        if seen is None:  # nothing more is measured
            return []
        outcome = seen.outcome
        if outcome.time_ns is not None and outcome.component_ns:
            self._beside_ns = outcome.time_ns - sum(outcome.component_ns)
        again = self._combination(trials) if trials and outcome.time_ns is None else combination
        if again.candidate.key != combination.candidate.key:  # it was beside others that failed
            return [again]
        if not outcome.component_ns and len(trials) > 1 and self._whole.incumbent.best is not None:
            numbers = sorted(trials)
            middle = len(numbers) // 2
            halves = numbers[:middle], numbers[middle:]
            return [self._combination({k: trials[k] for k in half}) for half in halves]
        for k, trial in trials.items():
            told.append((k, Tell(trial.key, self._outcome_of(k, outcome))))
        return []

    def _outcome_of(self, k: int, outcome: ev.Outcome) -> ev.Outcome:
        """Returns the outcome of component `k` from that of a combination."""
        if outcome.component_ns:
            return _share(outcome, self._trees[k].inputs.places)
        alone = replace(outcome, key="", bound_ns=0.0)
        if outcome.time_ns is None:
            return alone
        # Its times were not taken: it takes what the best of all others leave.
        others = [t.ranked for t in self._trees if t is not self._trees[k]]
        others_ns = self._beside_ns + sum(r.time_ns for r in others if r is not None)
        return replace(alone, time_ns=max(LEAST_NS, outcome.time_ns - others_ns))

    def _account(self) -> None:
        """Updates bound and counts of the sequence from those of the trees."""
        whole, trees = self._whole, [tree.exploration for tree in self._trees]
        if not trees:
            return
        bound_ns = self._division.bound_ns([self._bound_ns(t) for t in self._trees])
        whole.tree.rebound_root(max(whole.root_bound_ns, bound_ns / whole.pruning.factor))
        whole.pruning.refresh()
        whole.n_open_below = sum(e.tree.n_open for e in trees)
        for name in _OF_TREES:
            setattr(whole.tally, name, sum(getattr(e.tally, name) for e in trees))
        whole.tally.refused = sum((e.tally.refused for e in trees), Counter())

    def _bound_ns(self, tree: ComponentTree) -> float:
        """Returns a lower bound on a component's time in all implementations of the sequence."""
        if self._division.only_least:
            return tree.inputs.least_ns * tree.factor
        if self._division.coupling is None:
            return tree.bound_ns
        return tree.anywhere_ns * tree.factor  # bounds of a tree may be of the present values alone

    def _table(self) -> ev.Components:
        best = [tree.ranked for tree in self._trees]
        sum_ns = sum(r.time_ns for r in best if r is not None)
        return ev.Components(tuple(tree.row(sum_ns) for tree in self._trees))


def _share(outcome: ev.Outcome, places: Sequence[int]) -> ev.Outcome:
    """Returns the outcome of the component at `places`, from a combination's outcome with times of components."""
    every_ns, own_ns = sum(outcome.component_ns), sum(outcome.component_ns[k] for k in places)
    return ev.Outcome(
        "ok",
        max(LEAST_NS, own_ns),
        outcome.spread,
        spent_s=outcome.spent_s * own_ns / every_ns if every_ns > 0 else 0.0,
        slowness=outcome.slowness,
        is_by_ratio=outcome.is_by_ratio,
    )
