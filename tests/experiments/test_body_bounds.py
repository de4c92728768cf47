"""The table of bounds of bodies: each of its sequences has a bound above the call, and a small row is made."""

from __future__ import annotations

import pytest
from kernelscape.experiments import body_bounds
from kernelscape.experiments.rows import Job
from kernelscape.search.bound.bounder import Bounder
from kernelscape.space.build import build_space
from kernelscape.testing.machines import root_of, round_target

# Ranges whose ends are computed: without a profile nothing is sure.
OF_VALUES_ALONE = frozenset(["nussinov", "seidel_2d"])


@pytest.mark.parametrize("name", body_bounds.PROGRAMS)
def test_the_bound_of_each_is_above_its_call(name: str) -> None:
    problem = body_bounds.PROGRAMS[name].workload(Job(name, {"n": 20}), seed=1).problem
    space = build_space(problem, round_target(call_ns=0.0, launch_ns=0.0, vector_registers=0))
    found = Bounder(space).bound(root_of(space))
    moved = sum(n for p in found.phases for _, n in (*p.read_bytes, *p.written_bytes))
    assert (found.ns > 0 or moved > 0) is (name not in OF_VALUES_ALONE)


@pytest.mark.compiler
@pytest.mark.slow
def test_a_small_row_is_made(machine: None) -> None:
    job = Job("gathered", {"n": 3000})
    row = body_bounds.make_row(job, body_bounds.BoundOptions(most=3))
    assert row["is_profiled"]
    assert row["call_ns"] <= row["any_ns"] <= row["this_ns"] <= row["best_ns"]
    assert (row["alarms"], 0 < row["nearest"] <= 1) == (0, True)
    text = body_bounds.report({"rows": [{"status": "ok", **job._asdict(), **row}]})
    assert "| gathered 3000 |" in text
