"""Incumbent, budget, tree, ledger and options on their own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernelscape.search import inputs
from kernelscape.search.budget import Budget, Evaluations, Gap, SearchProgress, Seconds
from kernelscape.search.events import (
    AdmissibilityAlarm,
    BoundMoved,
    Evaluated,
    Finished,
    NodeExpanded,
    Outcome,
    Ranked,
)
from kernelscape.search.incumbent import BoundScale, Incumbent
from kernelscape.search.inputs import Guidance, History, Oracle
from kernelscape.search.ledger import Ledger, Request
from kernelscape.search.node import CLOSED_BOUND, CLOSED_EVALUATED, EXPANDED, IN_FLIGHT
from kernelscape.search.options import Batches, Limits, SearchOptions
from kernelscape.search.run import search
from kernelscape.search.tree.tree import SearchTree
from kernelscape.space.candidate import DeadEnd
from kernelscape.tests.search.searching import searched
from kernelscape.tests.search.toy import ToyBench, best_ns, first_open, random_space, toy_bound


def ranked(time_ns: float, key: str = "", spread: float = 0.0) -> Ranked:
    name = (key or str(time_ns)).encode()
    return Ranked(time_ns, spread, name, "M", Outcome("ok", time_ns, spread), None)


class TestIncumbent:
    def test_ranks_distinct_implementations(self) -> None:
        incumbent = Incumbent(n_top=3)
        assert incumbent.cut_ns == math.inf
        assert [incumbent.offer(ranked(t)) for t in (5.0, 7.0, 3.0, 3.0, 9.0, 4.0)] == [
            True,
            False,
            True,
            False,
            False,
            False,
        ]
        assert [r.time_ns for r in incumbent.top(8)] == [3.0, 4.0, 5.0]
        assert incumbent.cut_ns == 3.0

    def test_an_equal_time_does_not_displace(self) -> None:
        incumbent = Incumbent()
        assert incumbent.offer(ranked(5.0, "first"))
        assert not incumbent.offer(ranked(5.0, "second"))
        assert incumbent.best is not None
        assert incumbent.best.key == b"first"

    def test_ties_lie_within_the_spread(self) -> None:
        incumbent = Incumbent()
        for entry in (
            ranked(100.0, spread=0.02),
            ranked(101.0),
            ranked(103.0),
            ranked(104.0, spread=0.03),
        ):
            incumbent.offer(entry)
        assert [r.time_ns for r in incumbent.ties()] == [100.0, 101.0, 104.0]

    def test_gap_and_alarm(self) -> None:
        incumbent = Incumbent()
        assert incumbent.gap(1.0) is None
        incumbent.offer(ranked(100.0))
        assert incumbent.gap(80.0) == pytest.approx(0.2)
        assert incumbent.gap(100.0) == 0.0
        assert incumbent.alarm(b"k")
        assert not incumbent.alarm(b"k")
        assert incumbent.alarms == 1
        assert incumbent.gap(80.0) is None

    def test_a_ratio_ranks_and_neither_cuts_nor_leaves_a_gap(self) -> None:
        """It says how an implementation compares, and not what it takes."""
        incumbent = Incumbent()
        incumbent.offer(ranked(100.0))
        ratio = ranked(90.0)
        assert incumbent.offer(replace(ratio, outcome=replace(ratio.outcome, is_by_ratio=True)))
        assert (incumbent.best_ns, incumbent.cut_ns) == (90.0, 100.0)
        assert incumbent.gap(80.0) is None
        incumbent.offer(ranked(85.0))
        assert (incumbent.cut_ns, incumbent.gap(85.0)) == (85.0, 0.0)

    def test_cut_at_a_gap(self) -> None:
        incumbent = Incumbent(cut_gap=0.1)
        incumbent.offer(ranked(100.0))
        assert incumbent.cut_ns == pytest.approx(90.0)

    def test_a_scale_never_rises(self) -> None:
        scale = BoundScale()
        scale.lower(0.5)
        with pytest.raises(ValueError, match="not in"):
            scale.lower(0.6)
        assert scale.factor == 0.5


class TestBudget:
    def test_the_first_rule_wins(self) -> None:
        budget = Budget(Gap(0.1), Evaluations(3), Seconds(1.0), clock=lambda: 0.0)
        both = SearchProgress(elapsed_s=2.0, evaluations=3, best_ns=20.0, gap=None)
        assert budget.stop_status(both) == "eval_limit"
        none = SearchProgress(elapsed_s=0.5, evaluations=2, best_ns=20.0, gap=None)
        assert budget.stop_status(none) is None
        budget.interrupt.set()
        assert budget.stop_status(none) == "interrupted"

    def test_evaluations_left(self) -> None:
        assert Budget().remaining_evaluations(7) is None
        assert Budget(Evaluations(9), Evaluations(8)).remaining_evaluations(7) == 1
        assert Budget(Evaluations(5)).remaining_evaluations(7) == 0


class TestOutcome:
    @pytest.mark.parametrize(
        "arguments", [("ok",), ("crash", 1.0), ("ok", 0.0), ("ok", math.nan), ("fine", 1.0)]
    )
    def test_nonsense_is_refused(self, arguments: tuple[object, ...]) -> None:
        with pytest.raises(ValueError, match=r"status|time"):
            Outcome(*arguments)  # type: ignore[arg-type]


class TestTree:
    def grown(self, max_held: int = 100) -> SearchTree:
        root = random_space(np.random.default_rng(0), n_forbidden=0).root()
        tree = SearchTree(root, 1.0, max_held=max_held)
        for _ in range(3):
            node = tree.least_open()
            assert node is not None
            candidate = tree.candidate(node)
            choice = first_open(candidate)
            tree.attach(
                node,
                [(v, node.bound_ns + v, c, tree.new_id()) for v, c in candidate.expand(choice)],
                choice,
            )
        return tree

    def test_candidates_are_rebuilt(self) -> None:
        held, rebuilt = self.grown(), self.grown(max_held=1)
        for a, b in zip(held.at_or_above(0.0), rebuilt.at_or_above(0.0), strict=True):
            assert b.candidate is None
            assert held.candidate(a) == rebuilt.candidate(b)

    def test_closing_the_last_child_closes_upwards_and_reopening_opens(self) -> None:
        tree = self.grown()
        nodes = tree.at_or_above(0.0)
        assert tree.n_open == len(nodes)
        for node in nodes:
            tree.close(node, CLOSED_BOUND)
        assert tree.is_closed
        assert tree.n_open == 0
        assert tree.open_bound_ns() == math.inf
        tree.reopen(nodes[-1])
        assert tree.root.state == EXPANDED
        assert tree.n_open == 1
        assert tree.least_open() is nodes[-1]
        tree.close(nodes[-1], CLOSED_EVALUATED)
        assert tree.is_closed

    def test_a_leaf_in_flight_holds_the_bound(self) -> None:
        tree = self.grown()
        least = tree.least_open()
        assert least is not None
        least.state = IN_FLIGHT
        other = tree.least_open()
        assert other is not least
        assert tree.open_bound_ns() == least.bound_ns


class TestLedger:
    def test_waits_reuses_and_knows(self) -> None:
        space = random_space(np.random.default_rng(0), n_forbidden=0)
        rng = np.random.default_rng(1)
        one, two = space.root().random_completion(rng), space.root().random_completion(rng)
        ledger = Ledger(lambda candidate: None, {two.key: Outcome("ok", 7.0)})

        def ask(candidate: object, bound_ns: float = 1.0) -> object:
            return ledger.ask(Request(candidate, ledger.key(candidate), bound_ns, "M", None, False))

        assert ask(one) is None
        assert ask(one, 5.0) is None
        assert ledger.n_waiting == 1
        assert ask(two).origin == "history"
        assert ask(two).origin == "duplicate"
        assert ledger.withdraw(2.0) == []
        assert [t.candidate for t in ledger.trials()] == [one]
        told = {one.key: Outcome("ok", 9.0)}
        assert [a.origin for a in ledger.settle(told)] == ["measured", "duplicate"]
        assert ask(one).origin == "duplicate"
        assert not ledger.trials()
        with pytest.raises(ValueError, match="not asked for"):
            ledger.settle(told)


class TestSearch:
    def arguments(self, **over: object) -> dict[str, object]:
        return {
            "bound": toy_bound(0.9),
            "evaluate": ToyBench(),
            "next_choice": first_open,
            "budget": Budget(clock=lambda: 0.0),
            "rng": np.random.default_rng(0),
            **over,
        }

    def test_a_dead_root_is_infeasible(self) -> None:
        events = list(searched(DeadEnd("c", "because"), **self.arguments()))
        assert isinstance(events[-1], Finished)
        assert events[-1].status == "infeasible"

    @pytest.mark.parametrize(
        ("over", "message"),
        [
            ({"strategy": "luck"}, "strategies are mcts"),
            ({"policy": "luck"}, "policies are threshold_ascent"),
            ({"focus": "luck"}, "it is one of best"),
        ],
    )
    def test_unknown_names_get_a_sentence(self, over: dict[str, object], message: str) -> None:
        root = random_space(np.random.default_rng(0)).root()
        with pytest.raises(ValueError, match=message):
            searched(root, **self.arguments(**over))

    def test_an_open_incumbent_is_refused(self) -> None:
        root = random_space(np.random.default_rng(0)).root()
        with pytest.raises(ValueError, match="leaves choices open"):
            searched(root, **self.arguments(incumbents=[root]))

    def test_cutting_at_the_gap_proves_the_gap(self) -> None:
        space = random_space(np.random.default_rng(2), n_choices=7)
        bench = ToyBench()
        budget = Budget(Gap(0.2), clock=lambda: 0.0)
        arguments = self.arguments(budget=budget, cut_at_gap=True, evaluate=bench)
        last = list(searched(space.root(), **arguments))[-1]
        assert last.status in ("gap_limit", "optimal")
        assert last.best.time_ns * 0.8 <= best_ns(space)

    def test_dives_move_the_bound_where_descents_do_not(self) -> None:
        space = random_space(np.random.default_rng(2), n_choices=10, n_values=4, n_forbidden=20)
        moves = {}
        for focus in ("best", "bound"):
            budget = Budget(Evaluations(20), clock=lambda: 0.0)
            arguments = self.arguments(
                bound=toy_bound(1.0), focus=focus, prune=False, budget=budget
            )
            events = list(searched(space.root(), **arguments))
            moves[focus] = [e.bound_ns for e in events if isinstance(e, BoundMoved)]
        assert max(moves["bound"]) > max(moves["best"], default=0.0)

    def test_a_dive_is_best_first(self) -> None:
        space = random_space(np.random.default_rng(2), n_choices=6)
        events = list(searched(space.root(), **self.arguments(strategy="bound")))
        bounds = [e.bound_ns for e in events if isinstance(e, NodeExpanded)]
        assert bounds == sorted(bounds)

    def test_a_known_time_below_the_root_bound_is_an_alarm(self) -> None:
        space = random_space(np.random.default_rng(2))
        known = {b"old": Outcome("ok", 1.0)}
        events = list(searched(space.root(), **self.arguments(outcomes=known)))
        assert any(isinstance(e, AdmissibilityAlarm) for e in events)
        assert events[-1].status == "exhausted"
        assert events[-1].gap is None

    def test_bounds_lowered_while_measuring_raise_no_alarm(self) -> None:
        space = random_space(np.random.default_rng(2))
        scale, bound, bench = BoundScale(), toy_bound(1.5), ToyBench()

        def evaluate(candidates):
            outcomes = bench(candidates)
            for c, o in zip(candidates, outcomes, strict=True):
                scale.lower(min(scale.factor, o.time_ns / bound(c)))
            return outcomes

        arguments = self.arguments(evaluate=evaluate, bound=bound, scale=scale)
        events = list(searched(space.root(), **arguments))
        assert scale.factor < 1
        assert not any(isinstance(e, AdmissibilityAlarm) for e in events)
        assert events[-1].status == "optimal"
        assert events[-1].best.time_ns == best_ns(space)

    @pytest.mark.parametrize("seed", range(6))
    def test_what_was_wrongly_closed_is_opened_after_an_alarm(self, seed: int) -> None:
        space = random_space(np.random.default_rng(seed))
        arguments = self.arguments(bound=toy_bound(1.9), scale=BoundScale())
        *events, last = list(searched(space.root(), **arguments))
        assert sum(isinstance(e, AdmissibilityAlarm) for e in events) >= 1
        assert last.best.time_ns == best_ns(space)
        assert last.gap is None

    def test_alarms_of_an_earlier_session_stay(self) -> None:
        space = random_space(np.random.default_rng(2))
        last = list(searched(space.root(), **self.arguments(doubted=[b"old"])))[-1]
        assert last.gap is None
        assert last.status == "exhausted"
        assert last.tally.alarms == 1

    def test_batches_are_filled(self) -> None:
        space = random_space(np.random.default_rng(2), n_choices=8, n_forbidden=0)
        bench = ToyBench()
        arguments = self.arguments(
            evaluate=bench,
            batch=4,
            budget=Budget(Evaluations(20), clock=lambda: 0.0),
        )
        events = list(searched(space.root(), **arguments))
        assert bench.batches == [4] * 5
        assert len({e.key for e in events if isinstance(e, Evaluated)}) == 20

    def test_what_is_to_be_measured_is_told_once_and_before(self) -> None:
        """With how many more may come: the last of a batch is measured at once."""
        space = random_space(np.random.default_rng(2), n_choices=8, n_forbidden=0)
        bench, ahead = ToyBench(), []

        def evaluate(candidates: Sequence[Any]) -> list[Outcome]:
            keys = [c.key for c in candidates]
            assert {key for key, _ in ahead} <= set(keys)
            assert [n for _, n in ahead] == [len(keys) - k for k in range(1, len(keys))]
            ahead.clear()
            return bench(candidates)

        arguments = self.arguments(
            evaluate=evaluate,
            ahead=lambda candidate, n: ahead.append((candidate.key, n)),
            key=lambda candidate: candidate.key[:-1],  # some are equal
            batch=4,
            prune=False,
            budget=Budget(Evaluations(20), clock=lambda: 0.0),
        )
        list(searched(space.root(), **arguments))
        assert bench.batches == [4] * 5

    def test_batches_grow_with_what_was_measured(self) -> None:
        space = random_space(np.random.default_rng(2), n_choices=8, n_forbidden=0)
        bench = ToyBench()
        arguments = self.arguments(
            evaluate=bench,
            batch=2,
            largest=4,
            prune=False,
            budget=Budget(Evaluations(50), clock=lambda: 0.0),
        )
        list(searched(space.root(), **arguments))
        known = 0
        for n in bench.batches[:-1]:
            assert n == max(2, min(4, known // 8))
            known += n
        assert sum(bench.batches) == 50 and 4 in bench.batches

    def test_the_first_batch_may_be_smaller(self) -> None:
        space = random_space(np.random.default_rng(2), n_choices=8, n_forbidden=0)
        bench = ToyBench()
        arguments = self.arguments(
            evaluate=bench,
            batch=4,
            first=2,
            prune=False,
            budget=Budget(Evaluations(18), clock=lambda: 0.0),
        )
        list(searched(space.root(), **arguments))
        assert bench.batches == [2, 4, 4, 4, 4]
        with pytest.raises(ValueError, match="first batch of 5 is not in"):
            Batches(size=4, first=5)

    def test_batches_of_what_takes_long_do_not_grow(self) -> None:
        space = random_space(np.random.default_rng(2), n_choices=8, n_forbidden=0)
        bench = ToyBench()

        def slowly(candidates: Sequence[Any]) -> list[Outcome]:
            return [replace(o, spent_s=0.4) for o in bench(candidates)]

        arguments = self.arguments(
            evaluate=slowly,
            batch=2,
            largest=4,
            prune=False,
            budget=Budget(Evaluations(50), clock=lambda: 0.0),
        )
        list(searched(space.root(), **arguments))
        assert bench.batches == [2] * 25


def test_the_first_batch_begins_with_warm_starts_and_has_the_incumbent():
    """A candidate that may be slow is given up early only where a faster one was measured before it."""
    from kernelscape.search.run import _firsts

    made = list(_firsts(["default"], iter(["a", "b", "c", "d"]), 3))
    assert made == [("W", "a"), ("W", "b"), ("W", "c"), ("U", "default"), ("W", "d")]
    assert next(iter(_firsts(["default"], iter(["a"]), 0))) == ("U", "default")


@pytest.mark.parametrize("record", [Oracle, Guidance, History, Batches, Limits, SearchOptions])
def test_what_a_search_is_handed_are_frozen_records_of_few_fields(record: type) -> None:
    assert len(fields(record)) <= 8
    assert record.__dataclass_params__.frozen  # type: ignore[attr-defined]


def test_a_search_takes_records_not_wires() -> None:
    names = list(signature(search).parameters)
    assert names == ["root", "oracle", "guidance", "history", "budget", "rng", "options"]
    text = Path(inputs.__file__).read_text()
    assert "Any" not in text
