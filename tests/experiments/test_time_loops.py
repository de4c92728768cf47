"""The table of time loops: its rows, and what a hundred steps cost beside two."""

from __future__ import annotations

from kernelscape.experiments.polybench_kernels import STEPS
from kernelscape.experiments.rows import Job
from kernelscape.experiments.time_loops import FEW, JOBS, Options, make_row, report


def test_a_hundred_steps_have_no_more_choices_than_two() -> None:
    rows = []
    for steps in (FEW, STEPS):
        job = Job("swapped", {"n": 12, "steps": steps}, "f64")
        rows.append({"status": "ok", **job._asdict(), **make_row(job, Options(0.0, descents=2))})
    few, many = rows
    assert many["n_tasks"] == 2
    assert many["n_choices"] <= few["n_choices"]
    text = report({"rows": [*rows, {"status": "failed", "name": "heat_3d", "why": "no end"}]})
    assert "| swapped | 12 | 100 | 2 |" in text
    assert "- heat_3d failed: no end" in text
    assert {job.sizes["steps"] for job in JOBS} == {FEW, STEPS}
