"""The table of scatters: its sequences have the choice, and a small row is made."""

from __future__ import annotations

import pytest
from kernelscape.experiments import scatters
from kernelscape.experiments.rows import Job
from kernelscape.kernels.analysis.scatters import scatters as scatters_of

SMALL = Job("histogram", {"n": 4000})


@pytest.mark.parametrize("job", scatters.JOBS, ids=lambda job: job.name)
def test_each_sequence_scatters_to_one_array(job: Job) -> None:
    small = Job(job.name, {"n": 50})
    problem = scatters.SEQUENCES[job.name].workload(small, seed=1).problem
    (found,) = [x for task in problem.tasks for x in scatters_of(task, problem)]
    assert found.op == "add"
    spans = [r.span for r in found.window if r.base is not None]
    assert spans == {"p2g": [3, 3, 3], "histogram": [1], "edges": []}[problem.name]


@pytest.mark.compiler
@pytest.mark.slow
def test_a_small_row_is_made_without_taichi(machine: None) -> None:
    row = scatters.make_row(SMALL, scatters.ScatterOptions(rounds=1, evaluations=2))
    assert row["times_ns"].keys() == {"best", "atomic", "one thread"}
    assert all(ns > 0 for ns in row["times_ns"].values())
    assert len(row["how"]) == 1
    text = scatters.report({"rows": [{"status": "ok", **SMALL._asdict(), **row}]})
    assert "| histogram 4000 |" in text
