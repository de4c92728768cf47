"""Runs on a device whose compiler reports registers: what is kept of it, what is learned, and what a resumed run knows."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from kernelscape.cli.explain_view import explain_lines
from kernelscape.codegen.text.source import KernelLaunch, Source
from kernelscape.explorer import explanation as explanation_module
from kernelscape.explorer import session as session_module
from kernelscape.explorer.entry import explore_workload, library_workload, resume
from kernelscape.explorer.explanation import explain_run
from kernelscape.explorer.registers import Registers, registers_of_tasks, reported_launches
from kernelscape.explorer.workload import Options
from kernelscape.kernels.library import load
from kernelscape.runtime.api.artifact import BuildReport, LaunchResources
from kernelscape.runtime.fake.device import FakeDevice, FakeMachine, FakeReporter
from kernelscape.runtime.records.journal import read_journal
from kernelscape.runtime.records.record import EvaluationRecord, LaunchRecord
from kernelscape.runtime.records.replay import StaleError, restore_complete
from kernelscape.search.bound.bounder import Bounder
from kernelscape.search.learn.registers import Compiled, RegisterModel
from kernelscape.search.line import line_text
from kernelscape.space.build import build_space, widened
from kernelscape.space.candidate import Candidate
from kernelscape.space.decisions import to_names
from kernelscape.space.values import REGISTER_ROOMS
from kernelscape.tests.search.bound.test_gpu import gpu_target

SIZES = {"m": 256, "n": 256, "k": 256}


class Gpu(FakeMachine):
    def facts(self):
        return replace(gpu_target(), backend="fake")


class Reporter(FakeReporter):
    """A compiler that gives every thread so many registers."""

    reports = True

    def __init__(self, registers):
        self.registers = registers

    def report(self, source):
        launches = tuple(
            LaunchResources(x.kernel, x.block, self.registers, 512, 0, 0, 1, 0.5, "registers")
            for x in source.launches
        )
        return BuildReport(launches, "", 1)


class ReportingDevice(FakeDevice):
    """A GPU that is not there; what runs takes long enough for any bound."""

    def __init__(self, registers):
        super().__init__(time_ns=lambda key: 1e7 + 1e7 * int(key[:6], 16) / 0xFFFFFF)
        self.machine, self.reporter = Gpu(), Reporter(registers)


class Watched(Registers):
    """Keeps every instance, and how wide its space has become."""

    made: list[Watched]

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.rooms = []
        self.made.append(self)

    def widened(self):
        root = super().widened()
        self.rooms += [] if root is None else [self._room]
        return root


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """A function that begins or resumes a run on a device whose kernels take so many registers; its Registers."""
    monkeypatch.setattr(session_module, "Registers", Watched)
    Watched.made = []
    workload = library_workload(load("matmul"), SIZES, "f32", 1)

    def run(registers, n, *, again=False):
        device = ReportingDevice(registers)
        monkeypatch.setattr(session_module, "open_device", lambda *_: device)
        if again:
            resume(tmp_path, max_evals=n)
        else:
            options = Options(target="fake", time_limit_s=None, max_evals=n, store=False)
            explore_workload(workload, options, directory=tmp_path)
        return Watched.made[-1]

    run.folder = tmp_path
    return run


def evaluations(folder):
    records = read_journal(folder / "journal.jsonl")
    return [r for r in records if isinstance(r, EvaluationRecord)]


def test_reports_are_kept_beside_what_the_space_counts(runs):
    runs(40, 6)
    found = evaluations(runs.folder)
    assert len(found) == 6
    space = build_space(library_workload(load("matmul"), SIZES, "f32", 1).problem, gpu_target())
    bounder = Bounder(space)
    for r in found:
        candidate = restore_complete(space, r.decisions)
        own = [x for x in r.launches if x.tasks]
        assert [x.counted for x in own] == list(bounder.registers(candidate))
        assert {(x.registers, x.shared_bytes, x.spill_bytes) for x in r.launches} == {(40, 512, 0)}
        assert reported_launches(found, r.source_key) == r.launches
        known = registers_of_tasks(r.launches, 1)
        assert known == [40.0]
        assert r.bound_ns == pytest.approx(bounder.ns(candidate, registers=known))


def test_launches_that_convert_trees_are_no_tasks_of_the_space():
    space = build_space(library_workload(load("matmul"), SIZES, "f32", 1).problem, gpu_target())
    found = Registers(Reporter(40), space, Bounder(space))
    candidate = space.root().complete()
    launches = [KernelLaunch(f"k{t}", (1, 1, 1), (32, 1, 1), 0, (), (t,)) for t in (0, 1)]
    source = Source("", "entry", (), 1, launches=tuple(launches))
    reported = found.reports(candidate, source)
    assert [x.tasks for x in reported.launches] == [(0,), ()]
    assert found.model.n_reports == 1


def test_a_run_is_explained_with_what_was_reported(runs, monkeypatch):
    runs(40, 6)
    monkeypatch.setattr(explanation_module, "open_device", lambda *_: ReportingDevice(40))
    found = explain_run(runs.folder)
    assert [x.registers for x in found.best.launches] == [40] * len(found.best.launches) != []
    counted = next(x.counted for x in found.best.launches if x.tasks)
    text = "\n".join(explain_lines(found, 1))
    assert f"40 registers each ({counted} counted for its sums), 0 B spilled" in text
    fields = json.loads(line_text(found))
    assert fields["best"]["launches"][0]["registers"] == 40
    assert "launches" not in fields["default"]


def test_a_resumed_run_has_learned_what_the_first_one_learned(runs):
    first = runs(20, 40)
    model, rooms = first.model, first.rooms
    assert model.n_reports >= 40
    assert model.least_ratio < 1
    assert rooms
    assert rooms[-1] == model.room > 1
    second = runs(255, 1, again=True)
    assert second.rooms[0] == rooms[-1]
    known = RegisterModel()
    for r in evaluations(runs.folder)[:40]:
        known.note(Compiled(x.counted, x.registers, x.spill_bytes) for x in r.launches)
    assert (known.line, known.least_ratio) == (model.line, model.least_ratio)
    assert second.model.n_reports > known.n_reports


def test_reports_above_all_counts_widen_nothing(runs):
    found = runs(255, 12)
    assert found.rooms == []
    assert found.model.expected(1) > 200


def test_a_device_that_does_not_report_changes_nothing(runs, monkeypatch):
    monkeypatch.setattr(Reporter, "reports", False)
    found = runs(1, 6)
    assert (found.model.n_reports, found.rooms) == (0, [])
    text = (runs.folder / "journal.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert not any("launches" in line for line in lines)


# --- what the cut leaves out --------------------------------------------------------------------


WIDE_TILE = {
    **{f"dim_kind(multiply0.{x}.mid)": "THREAD" for x in "ij"},
    **{f"size(multiply0.{x}.mid)": n for x, n in (("i", "16"), ("j", "64"))},
    **{f"dim_kind(multiply0.{x}.inner)": "UNROLL" for x in "ij"},
    **{f"size(multiply0.{x}.inner)": "8" for x in "ij"},
}


def outside():
    """A space, and a candidate with 64 sums in each of 1024 threads: one register too many for its blocks."""
    workload = library_workload(load("matmul"), {"m": 1024, "n": 1024, "k": 64}, "f32", 1)
    space = build_space(workload.problem, gpu_target())
    made = widened(space, 2).root()
    for name, value in WIDE_TILE.items():
        var = space.model.positions[name]
        made = made.decide(var, space.choices[var].mask(value))
        assert isinstance(made, Candidate), (name, made)
    return space, made.complete()


def test_room_loosens_the_cut_and_moves_no_choice():
    space, candidate = outside()
    assert isinstance(candidate, Candidate)
    assert not isinstance(space.candidate(candidate.domains.copy()), Candidate)
    for room in REGISTER_ROOMS[1:]:
        wider = widened(space, room)
        assert [c.name for c in wider.choices] == [c.name for c in space.choices]
        assert isinstance(wider.candidate(candidate.domains.copy()), Candidate)
    assert build_space(space.problem, space.target, 1).key == space.key


def test_what_a_widened_space_gave_is_restored():
    space, candidate = outside()
    made = restore_complete(space, to_names(candidate))
    assert np.array_equal(made.domains, candidate.domains)
    wrong = [(n, "4" if n == "size(multiply0.i.inner)" else v) for n, v in to_names(candidate)]
    with pytest.raises(StaleError, match="contradict"):
        restore_complete(space, [*wrong, ("size(multiply0.i.inner)", "8")])


def test_a_report_is_a_record():
    fields = {"kernel": "k", "tasks": (0,), "threads": 32, "counted": 4, "registers": 40}
    record = LaunchRecord(**fields, spill_bytes=0, shared_bytes=16)
    assert registers_of_tasks((record,), 2) == [40.0, 0.0]
