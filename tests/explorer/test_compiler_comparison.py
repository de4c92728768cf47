"""The best of a search by other compilers: built again, verified, timed in turn, and saved with the one that wins."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from kernelscape.explorer import compiler_comparison, deadlines
from kernelscape.explorer import stages as st
from kernelscape.explorer.entry import explore_workload, library_workload
from kernelscape.explorer.results import replay_again
from kernelscape.explorer.workload import Options
from kernelscape.kernels.library import load
from kernelscape.runtime.api.outcome import Failure
from kernelscape.runtime.cpu.compiler import find_compiler
from kernelscape.runtime.cpu.device import CpuDevice
from kernelscape.runtime.device import DeviceOptions
from kernelscape.runtime.fake.device import FakeDevice, FakeReporter, FakeWorker, _hashed_ns
from kernelscape.runtime.records.journal import read_journal
from kernelscape.runtime.records.record import EvaluationRecord

needs_clang = pytest.mark.skipif(shutil.which("clang") is None, reason="clang is not installed")


class Another(FakeReporter):
    def version(self) -> str:
        return "another 1.0"


def fake(time_ns, script=None) -> FakeDevice:
    """The fake device with another compiler."""
    device = FakeDevice(time_ns, script)
    device.reporter = Another()
    return device


def explored(folder: Path, monkeypatch, *others: FakeDevice):
    monkeypatch.setattr(FakeDevice, "others", lambda self: list(others))
    told = []
    workload = library_workload(load("axpydot"), {"n": 64}, "f32", 1)
    options = Options(target="fake", max_evals=20, store=False)
    run = explore_workload(workload, options, directory=folder, on_event=told.append)
    times = [
        r.time_ns for r in read_journal(folder / "journal.jsonl") if isinstance(r, EvaluationRecord)
    ]
    return run, min(times), [e for e in told if isinstance(e, st.OtherCompiler)]


def test_the_faster_compiler_is_saved(tmp_path, monkeypatch):
    slower = fake(lambda key: 0.9 * _hashed_ns(key))
    faster = fake(lambda key: 0.5 * _hashed_ns(key))
    run, searched_ns, told = explored(tmp_path, monkeypatch, slower, faster)
    assert run.best.time_ns == pytest.approx(0.5 * searched_ns)
    assert run.best.file.conditions.compiler == run.ended.compiler == "another 1.0"
    assert [e.ratio for e in told] == pytest.approx([0.9, 0.5])
    # What it is compared with is of the same compiler.
    plain, _, _ = explored(tmp_path / "plain", monkeypatch)
    assert run.best.file.baseline_ns == pytest.approx(0.5 * plain.best.file.baseline_ns)


@pytest.mark.parametrize("ratio", [0.99, 1.5])
def test_a_compiler_that_is_hardly_faster_is_not(tmp_path, monkeypatch, ratio):
    other = fake(lambda key: ratio * _hashed_ns(key))
    run, searched_ns, told = explored(tmp_path, monkeypatch, other)
    assert run.best.time_ns == searched_ns
    assert run.best.file.conditions.compiler == run.ended.compiler == ""
    assert [e.ratio for e in told] == pytest.approx([ratio])


def test_what_another_compiler_builds_wrong_is_not_taken(tmp_path, monkeypatch):
    """Those of the best few that fail are left out; where all do, the search's own stands."""
    _, _, _ = explored(tmp_path / "first", monkeypatch)
    records = read_journal(tmp_path / "first" / "journal.jsonl")
    keys = [r.source_key for r in records if isinstance(r, EvaluationRecord)]
    wrong = fake(lambda key: 0.1 * _hashed_ns(key), dict.fromkeys(keys, "wrong"))
    run, searched_ns, told = explored(tmp_path / "second", monkeypatch, wrong)
    assert not told
    assert run.best.time_ns == searched_ns


@pytest.mark.parametrize(("preparing_s", "n_tried"), [(0.0, 1), (60.0, 0)])
def test_where_taking_over_the_arguments_takes_too_long_none_is_tried(
    tmp_path, monkeypatch, preparing_s, n_tried
):
    """Copies of GiB of arguments take seconds, and the time limit is to hold."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(deadlines.time, "monotonic", lambda: clock.now)
    prepare = FakeWorker.prepare

    def slow(self, input_sets):
        clock.now += preparing_s
        prepare(self, input_sets)

    monkeypatch.setattr(FakeWorker, "prepare", slow)
    _, _, told = explored(tmp_path, monkeypatch, fake(lambda key: 0.5 * _hashed_ns(key)))
    assert len(told) == n_tried


@needs_clang
@pytest.mark.compiler
def test_other_compilers_are_tried_where_none_is_named():
    device = CpuDevice(DeviceOptions())
    others = [d.reporter.version() for d in device.others()]
    assert len(others) == 1
    assert device.reporter.version() not in others
    assert find_compiler("clang").version in (*others, device.reporter.version())
    assert CpuDevice(DeviceOptions(compiler="gcc")).others() == []


@needs_clang
@pytest.mark.compiler
def test_what_another_compiler_built_is_replayed_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(compiler_comparison, "_FASTER", float("inf"))
    for name in ("_FINAL_S", "_END_S"):  # on a busy machine, too
        monkeypatch.setattr(deadlines, name, 60.0)
    workload = library_workload(load("sgemv"), {"m": 64, "n": 64}, "f32", 1)
    told = []
    run = explore_workload(
        workload,
        Options(max_evals=3, store=False),
        directory=tmp_path / "run",
        on_event=told.append,
    )
    assert any(isinstance(e, st.OtherCompiler) for e in told)
    assert "clang" in run.best.file.conditions.compiler
    again = replay_again(tmp_path / "run")
    assert not isinstance(again.outcome, Failure), again.outcome
    assert "clang" in run.best.device.builder.compiler.path
