"""Runs that an older version wrote, of a CPU and of a GPU: what is stored in them is still there to be used.

They are as commit d79b1669 wrote them, but for the names of the machine and of folders:

    explore run axpydot --size n=1000 --max-evals 5 --target fake -o axpydot
    explore run matmul --size m=64 --size n=64 --size k=64 --max-evals 6 --target emulator -o matmul
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from kernelscape.codegen.lower import lower, print_source
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.explorer.entry import resume
from kernelscape.explorer.explanation import explain_run
from kernelscape.explorer.results import load, replay_again
from kernelscape.runtime.api.outcome import Measurement
from kernelscape.runtime.measure.conditions import take_conditions
from kernelscape.runtime.records.folder import BEST, HEADER, JOURNAL
from kernelscape.runtime.records.journal import read_journal
from kernelscape.runtime.records.loading import load_header
from kernelscape.runtime.records.record import EvaluationRecord
from kernelscape.runtime.records.replay import (
    StaleError,
    dialect_of,
    rebuild,
    rebuild_problem,
    restore_older,
)
from kernelscape.space.build import build_space

RUNS = Path(__file__).parents[1] / "golden" / "older_runs"
N_EVALUATIONS = {"axpydot": 5, "matmul": 6}


@pytest.fixture(params=sorted(N_EVALUATIONS))
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of such a run, measured on this machine."""
    folder = tmp_path / request.param
    shutil.copytree(RUNS / request.param, folder)
    accelerator = load(folder).device.machine.accelerator()
    machine = take_conditions(accelerator=accelerator).machine
    for name in (HEADER, BEST):
        content = json.loads((folder / name).read_text())
        content["conditions"]["machine"] = machine
        (folder / name).write_text(json.dumps(content))
    return folder


def test_the_best_gives_the_source_that_it_names(run: Path) -> None:
    best = load(run)
    rebuilt = rebuild(best.file, best.device.machine.facts(), dialect_of(best.device))
    assert rebuilt.source.key == best.file.source_key
    assert rebuilt.notes == ("the space has changed since, the source has not",)


def test_each_evaluation_gives_the_source_that_it_names(run: Path) -> None:
    header, device = load_header(run / HEADER), load(run).device
    _, problem = rebuild_problem(header.stored, header.problem_key)
    space = build_space(problem, device.machine.facts())
    evaluations = [r for r in read_journal(run / JOURNAL) if isinstance(r, EvaluationRecord)]
    assert len(evaluations) == N_EVALUATIONS[run.name]
    for record in evaluations:
        source = print_source(
            lower(plan_of(restore_older(space, record.decisions))), dialect_of(device)
        )
        assert source.key == record.source_key


def test_it_is_explained(run: Path) -> None:
    found = explain_run(run)
    assert found.pruned is not None
    assert found.pruned.evaluations == N_EVALUATIONS[run.name]
    assert found.best.time_ns == load(run).time_ns
    assert 0 < found.best.bound_ns < load(run).time_ns
    assert not any("another source" in note for note in found.notes)
    assert "the space has changed since, so counts and bounds are of another one" in found.notes


def test_it_is_replayed() -> None:
    """On the device whose times follow from the text alone."""
    again = replay_again(RUNS / "axpydot")
    assert isinstance(again.outcome, Measurement)
    assert again.outcome.time_ns == again.file.time_ns


def test_why_it_does_not_go_on_is_a_sentence(run: Path) -> None:
    before = (run / JOURNAL).read_bytes()
    with pytest.raises(StaleError, match=r"has changed since .*: start a new run$"):
        resume(run, max_evals=1)
    assert (run / JOURNAL).read_bytes() == before
