"""The table of PolyBench's programs: what it compares, and what it says of rows."""

from __future__ import annotations

import numpy as np
import pytest
from kernelscape.experiments.contestants import speed
from kernelscape.experiments.polybench import JOBS, THEIRS, report, take_turns
from kernelscape.experiments.polybench_kernels import SEQUENCES
from kernelscape.experiments.polybench_peers import PEERS, arrays_of
from kernelscape.explorer.workload import make_workload
from kernelscape.kernels.tasks.non_affine import non_affine_tasks


def row(name: str, **times: float) -> dict:
    return {"name": name, "sizes": {"n": 10}, "dtype": "f64", "status": "ok", "times_ns": times} | {
        "stamp": {"machine": "m", "taken": "now", "cores": 2, "load_1min": 0.0}
    }


def test_every_program_has_peers_and_a_row() -> None:
    assert SEQUENCES.keys() == PEERS.keys() == {job.name for job in JOBS}


def test_the_better_of_each_side_counts() -> None:
    assert speed(row("lu", call=4.0, found=2.0, NumPy=3.0, numba=9.0), THEIRS) == 1.5


def test_failures_are_reported() -> None:
    failed = {"name": "lu", "sizes": {"n": 10}, "status": "failed", "why": "no end"}
    assert "- lu 10 failed: no end" in report({"rows": [failed]})


def test_results_that_differ_end_a_row() -> None:
    def one(x: np.ndarray) -> None:
        x += 1.0

    def two(x: np.ndarray) -> None:
        x += 2.0

    given = (np.zeros(3),)
    assert set(take_turns({"call": one, "NumPy": one}, given)) == {"call", "NumPy"}
    with pytest.raises(RuntimeError, match="call and NumPy differ in result 0"):
        take_turns({"call": one, "NumPy": two}, given)


@pytest.mark.parametrize("name", ["syrk", "syr2k", "trmm", "covariance", "correlation"])
def test_loops_over_triangles_are_open(name: str) -> None:
    arrays = arrays_of(name, 9, np.random.default_rng(0))
    workload = make_workload(SEQUENCES[name], list(arrays), sequence=name, name=name)
    assert not non_affine_tasks(workload.problem)
