"""Where the time of a search went, as its journal says."""

from __future__ import annotations

import msgspec
import pytest
from kernelscape.experiments.run_row import compilers_s, covered_s, spent_s
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
