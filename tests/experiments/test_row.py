"""Rows of tables: the time of a search by its parts, from its journal, and competitors in turn."""

from __future__ import annotations

import msgspec
import pytest
from kernelscape.experiments.row import (
    beside_bound,
    compilers_s,
    covered_s,
    in_turn,
    soon_over_best,
    spent_s,
)
from kernelscape.runtime.records.record import EvaluationRecord, Timing


def record(run_s: float, compiling_s=msgspec.UNSET) -> EvaluationRecord:
    timing = Timing(build_s=0.1, run_s=run_s, compiling_s=compiling_s)
    return EvaluationRecord(
        at_s=1.0, decisions=(), source_key="k", status="ok", time_ns=1.0, timing=timing
    )


def test_compilers_that_run_at_once_are_counted_once():
    records = [record(0.5, (0.0, 2.0)), record(0.5, (0.0, 2.0)), record(1.0, (1.0, 3.0)), record(2)]
    assert spent_s(records) == {"compilers": 3.0, "run": 4.0}


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [([], 0.0), ([(1, 2), (4, 6)], 3.0), ([(4, 6), (1, 2)], 3.0), ([(1, 9), (2, 3), (8, 10)], 9.0)],
)
def test_seconds_that_spans_cover(spans, seconds):
    assert covered_s(spans) == seconds


def test_rows_of_earlier_versions_say_what_was_waited_for_and_what_ran_beside():
    assert compilers_s({"compilers": 3.0, "run": 1.0}) == 3.0
    assert compilers_s({"compile": 2.0, "beside": 1.0, "run": 1.0}) == 3.0
    assert compilers_s({"compile": 2.0}) == 2.0


def test_the_first_two_seconds_count_as_soon():
    timed = [(0.9, 30.0), (2.0, 15.0), (2.1, 10.0), (9.0, 12.0)]
    assert soon_over_best(timed) == 1.5
    assert soon_over_best(timed[2:]) is None


def test_rounds_begin_with_another_competitor_and_who_fails_is_absent():
    order: list[str] = []

    def runner(name: str, lasts: int = 9):
        def run() -> dict[str, float]:
            order.append(name)
            if order.count(name) > lasts:
                raise KeyError(name)
            return {name: float(len(order))}

        return run

    absent: dict[str, str] = {}
    runners = {"a": runner("a"), "b": runner("b", lasts=1), "c": runner("c")}
    times = in_turn(runners, 3, absent, excused=(KeyError,), before=lambda: order.append("-"))
    assert "".join(order) == "-abc-bca-ac"
    assert times == {"a": [2.0, 8.0, 10.0], "c": [4.0, 7.0, 11.0]}
    assert absent == {"b": "'b'"}
    with pytest.raises(KeyError):
        in_turn({"b": runner("b", lasts=0)}, 1, {})


def test_a_time_is_below_an_open_bound_only():
    found = {"bound_ns": 8.0, "search_best_ns": 10.0, "below_bound": 1}
    assert beside_bound(found, 10.0) == {"below_bound": 1, "gap": pytest.approx(0.2)}
    assert beside_bound(found, 7.0) == {"below_bound": 2, "gap": 0.0}
    closed = found | {"search_best_ns": 8.0}
    assert beside_bound(closed, 7.0) == {"below_bound": 1, "gap": 0.0}
    assert beside_bound(found | {"bound_ns": None}, 7.0) == {"below_bound": 1, "gap": None}
