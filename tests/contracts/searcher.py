"""The contract of search strategies. Subclass `SearcherContract` and give `strategy` (and
options).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from kernelscape.search.asking import Ask, Tell
from kernelscape.search.budget import (
    Budget,
    Evaluations,
    Gap,
    Interrupt,
    Seconds,
)
from kernelscape.search.events import (
    AdmissibilityAlarm,
    BoundMoved,
    Evaluated,
    Finished,
    NewIncumbent,
    NodeExpanded,
    Outcome,
    Row,
)
from kernelscape.search.incumbent import BoundScale
from kernelscape.tests.search.searching import Answers, searched
from kernelscape.tests.search.toy import (
    ToyBench,
    ToySpace,
    best_ns,
    first_open,
    random_space,
    toy_bound,
)

SEEDS = range(8)


class Stopped:
    """A clock that stands still, so that events do not depend on the machine."""

    def __call__(self) -> float:
        return 0.0


class SearcherContract:
    strategy: str = ""
    options: dict[str, Any] = {}  # noqa: RUF012 - read only
    proves = True  # a search of a small space without limits ends `optimal`

    def run(self, space: ToySpace, bench: ToyBench, *rules: Any, **over: Any) -> list[Any]:
        arguments: dict[str, Any] = {
            "bound": toy_bound(0.9),
            "evaluate": bench,
            "next_choice": first_open,
            "strategy": self.strategy,
            "budget": Budget(*rules, clock=Stopped()),
            "rng": np.random.default_rng(0),
            **self.options,
        }
        return list(searched(space.root(), **{**arguments, **over}))

    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize("batch", [1, 3])
    def test_ends_with_the_best(self, seed: int, batch: int) -> None:
        space = random_space(np.random.default_rng(seed))
        events = self.run(space, ToyBench(), batch=batch)
        last = events[-1]
        assert isinstance(last, Finished)
        assert last.best is not None
        assert last.best.time_ns == best_ns(space)
        assert last.status == ("optimal" if self.proves else "exhausted")
        if self.proves:
            assert last.gap == pytest.approx(0.0)

    @pytest.mark.parametrize("seed", SEEDS)
    def test_without_pruning_everything_is_measured(self, seed: int) -> None:
        space = random_space(np.random.default_rng(seed))
        bench = ToyBench()
        events = self.run(space, bench, prune=False)
        assert sorted(bench.measured) == sorted(space.implementations())
        assert events[-1].tally.pruned_bound == 0

    @pytest.mark.parametrize("seed", SEEDS)
    def test_every_value_a_constraint_forbade_is_counted_with_its_reason(self, seed: int) -> None:
        space = random_space(np.random.default_rng(seed), n_choices=6, n_forbidden=12)
        events = self.run(space, ToyBench())
        in_tree = [
            child.why
            for event in events
            if isinstance(event, NodeExpanded)
            for child in event.children
            if child.pruned == "constraint"
        ]
        tally = events[-1].tally
        assert all(tally.refused[why] >= in_tree.count(why) for why in in_tree)
        assert tally.refused.total() == len(in_tree) + tally.rollout_csp
        assert all("forbids" in why for why in tally.refused)

    def test_pruning_saves_evaluations(self) -> None:
        space = random_space(np.random.default_rng(3), n_choices=6)
        bench = ToyBench()
        self.run(space, bench, bound=toy_bound(1.0))
        assert len(bench.measured) < len(list(space.implementations())) / 2

    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize("batch", [1, 4])
    def test_never_expands_or_measures_above_the_cut(self, seed: int, batch: int) -> None:
        space = random_space(np.random.default_rng(seed), n_choices=6)
        cut_ns = math.inf
        settled_ns = math.inf  # the cut when the batch was handed over
        for event in self.run(space, ToyBench(), batch=batch):
            if isinstance(event, NodeExpanded):
                assert event.bound_ns < cut_ns
                for child in event.children:
                    above = child.bound_ns is not None and child.bound_ns >= cut_ns
                    assert (child.pruned == "bound") == above
            elif isinstance(event, Evaluated) and batch == 1:
                assert event.bound_ns < cut_ns
            elif isinstance(event, NewIncumbent):
                assert event.best.time_ns < settled_ns
                cut_ns = settled_ns = event.best.time_ns

    @pytest.mark.parametrize("batch", [1, 3])
    def test_same_seed_same_events(self, batch: int) -> None:
        space = random_space(np.random.default_rng(1), n_choices=6)
        first = self.run(space, ToyBench(), batch=batch)
        again = self.run(space, ToyBench(), batch=batch)
        assert first == again

    def test_failures_are_answers(self) -> None:
        space = random_space(np.random.default_rng(2))
        kinds = ("crash", "timeout", "wrong", "compile", "launch", "memory", None, None)
        bench = ToyBench(lambda values: kinds[hash(values) % 8])
        last = self.run(space, bench, prune=False)[-1]
        times = [space.time_ns(v) for v in space.implementations() if bench.fails(v) is None]
        assert last.best.time_ns == min(times)
        tally = last.tally
        assert tally.ok == len(times)
        assert tally.evaluations == len(list(space.implementations()))
        parts = (tally.ok, tally.bad, tally.crash, tally.timeout, tally.unbuilt)
        assert sum(parts) == tally.evaluations

    def test_nothing_valid_is_infeasible(self) -> None:
        space = random_space(np.random.default_rng(2))
        last = self.run(space, ToyBench(lambda values: "crash"))[-1]
        assert last.status == ("infeasible" if self.proves else "exhausted")
        assert last.best is None
        assert last.gap is None
        assert last.tally.crash == len(list(space.implementations()))

    def test_only_dead_ends_is_infeasible(self) -> None:
        pairs = frozenset(((0, v), (2, w)) for v in (0, 1) for w in (0, 1))
        space = ToySpace(((1.0, 2.0), (1.0, 2.0), (1.0, 2.0)), pairs)
        bench = ToyBench()
        last = self.run(space, bench)[-1]
        assert last.status == ("infeasible" if self.proves else "exhausted")
        assert last.tally.dead_ends > 0
        assert not bench.measured

    def test_interrupt_keeps_the_best(self) -> None:
        space = random_space(np.random.default_rng(4), n_choices=6)
        interrupt = Interrupt()
        bench = ToyBench()

        def evaluate(candidates: list[Any]) -> list[Outcome]:
            if len(bench.measured) == 3:
                interrupt.set()
            return bench(candidates)

        budget = Budget(clock=Stopped(), interrupt=interrupt)
        last = self.run(space, bench, evaluate=evaluate, budget=budget, prune=False)[-1]
        assert last.status == "interrupted"
        assert last.best.time_ns == min(space.time_ns(v) for v in bench.measured)

    def test_a_batch_that_is_cut_short_keeps_what_was_told(self) -> None:
        """The kind: a finished measurement that is lost because another one of its batch never ends."""
        space = random_space(np.random.default_rng(4), n_choices=6)
        bench = ToyBench()

        def evaluate(candidates: list[Any]) -> list[Outcome]:
            return bench(candidates[:2] if bench.measured else candidates)

        last = self.run(space, bench, evaluate=evaluate, prune=False, batch=4)[-1]
        assert last.status == "interrupted"
        assert last.tally.evaluations == len(bench.measured) == 6
        assert last.best.time_ns == min(space.time_ns(v) for v in bench.measured)

    def test_the_order_of_answers_changes_no_event(self) -> None:
        """The kind: events that depend on which of several machines was the first to answer."""
        space = random_space(np.random.default_rng(1), n_choices=6)

        class Backwards(Answers):
            def __call__(self, ask: Ask) -> Tell | None:
                if ask.trials:
                    self._known.append(super().__call__(ask))
                return self._known.pop()

        backwards = Backwards(ToyBench())
        found = self.run(space, ToyBench(), answer=backwards, batch=3)
        assert found == self.run(space, ToyBench(), batch=3)

    @pytest.mark.parametrize("batch", [1, 3])
    def test_equal_implementations_are_measured_once(self, batch: int) -> None:
        space = random_space(np.random.default_rng(5))
        bench = ToyBench()

        def key(candidate: Any) -> bytes:
            return repr(candidate.assignment()[:-1]).encode()

        last = self.run(space, bench, key=key, prune=False, batch=batch)[-1]
        assert len({v[:-1] for v in bench.measured}) == len(bench.measured)
        assert last.tally.duplicates > 0

    def test_known_outcomes_are_not_measured_again(self) -> None:
        space = random_space(np.random.default_rng(6))
        whole = ToyBench()
        events = self.run(space, whole, prune=False)
        known = {e.key: e.outcome for e in events if isinstance(e, Evaluated)}
        half = dict(list(known.items())[: len(known) // 2])
        bench = ToyBench()
        last = self.run(space, bench, outcomes=half, prune=False)[-1]
        assert last.best.time_ns == best_ns(space)
        assert len(bench.measured) == len(known) - len(half)
        assert last.tally.replayed == len(half)
        assert last.tally.ok == len(known)

    def test_resume_after_the_end_measures_nothing(self) -> None:
        space = random_space(np.random.default_rng(6))
        events = self.run(space, ToyBench())
        known = {e.key: e.outcome for e in events if isinstance(e, Evaluated)}
        bench = ToyBench()
        last = self.run(space, bench, outcomes=known)[-1]
        assert not bench.measured
        assert last.best.time_ns == best_ns(space)

    def test_incumbents_are_measured_first(self) -> None:
        space = random_space(np.random.default_rng(7))
        values = next(space.implementations())
        start = space.root()
        for choice, value in enumerate(values):
            start = start.decide(choice, 1 << value)
        bench = ToyBench()
        events = self.run(space, bench, Evaluations(1), incumbents=[start])
        assert bench.measured == [values]
        first = next(e for e in events if isinstance(e, NewIncumbent))
        assert first.best.tag == "U"
        assert first.best.candidate == start

    @pytest.mark.parametrize("batch", [1, 4])
    def test_evaluation_limit_is_exact(self, batch: int) -> None:
        space = random_space(np.random.default_rng(1), n_choices=6)
        bench = ToyBench()
        options = {"prune": False, "batch": batch}
        last = self.run(space, bench, Evaluations(5), **options)[-1]
        assert last.status == "eval_limit"
        assert len(bench.measured) == last.tally.evaluations == 5

    def test_time_limit(self) -> None:
        space = random_space(np.random.default_rng(1), n_choices=6)
        ticks = iter(range(10**6))
        budget = Budget(Seconds(200), clock=lambda: float(next(ticks)))
        last = self.run(space, ToyBench(), budget=budget, prune=False)[-1]
        assert last.status == "time_limit"

    def test_gap_limit(self) -> None:
        space = random_space(np.random.default_rng(1), n_choices=6)
        last = self.run(space, ToyBench(), Gap(0.99))[-1]
        assert last.status == "gap_limit"
        assert last.gap is not None
        assert last.gap <= 0.99

    def test_a_bound_that_is_too_high_raises_the_alarm(self) -> None:
        space = random_space(np.random.default_rng(1))
        events = self.run(space, ToyBench(), bound=toy_bound(1.5))
        alarm = next(e for e in events if isinstance(e, AdmissibilityAlarm))
        assert alarm.time_ns < alarm.bound_ns
        after = events[events.index(alarm) :]
        assert not any(isinstance(e, BoundMoved) for e in after)
        rows = [e for e in after if isinstance(e, Row | Finished)]
        assert all(row.gap is None and row.bound_ns is None for row in rows)
        assert events[-1].status != "optimal"
        assert events[-1].tally.alarms > 0

    @pytest.mark.parametrize("seed", SEEDS)
    def test_a_scale_lowered_in_time_saves_the_proof(self, seed: int) -> None:
        space = random_space(np.random.default_rng(seed))
        scale = BoundScale()
        events = []
        arguments = {"scale": scale, "bound": toy_bound(1.5)}
        for event in self.iterate(space, ToyBench(), **arguments):
            events.append(event)
            if isinstance(event, AdmissibilityAlarm) and scale.factor > 0.6:
                scale.lower(0.6)
        if self.proves:
            assert events[-1].best.time_ns == best_ns(space)

    def iterate(self, space: ToySpace, bench: ToyBench, **over: Any) -> Any:
        return searched(
            space.root(),
            **{
                "evaluate": bench,
                "next_choice": first_open,
                "strategy": self.strategy,
                "budget": Budget(clock=Stopped()),
                "rng": np.random.default_rng(0),
                **self.options,
                **over,
            },
        )

    @pytest.mark.parametrize("seed", SEEDS)
    def test_bounds_told_are_bounds_and_rise(self, seed: int) -> None:
        space = random_space(np.random.default_rng(seed), n_choices=6)
        true_ns = best_ns(space)
        last_ns = 0.0
        for event in self.run(space, ToyBench()):
            if isinstance(event, Row | Finished | BoundMoved) and event.bound_ns is not None:
                assert event.bound_ns <= true_ns * (1 + 1e-9)
                assert event.bound_ns >= last_ns * (1 - 1e-9)
                last_ns = event.bound_ns

    def test_a_root_that_is_complete(self) -> None:
        last = self.run(ToySpace(((5.0,), (7.0,))), ToyBench())[-1]
        assert last.best.time_ns == 112.0
