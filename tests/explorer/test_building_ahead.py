"""Compilers begin while a search is still about a batch: nothing is timed beside them, and none outlives it."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import nullcontext

import pytest
from kernelscape.explorer import evaluation, session
from kernelscape.explorer.entry import explore_workload, library_workload
from kernelscape.explorer.evaluation import SearchEvaluator
from kernelscape.explorer.workload import Options
from kernelscape.kernels.library import load
from kernelscape.runtime.cpu.builder import CpuBuilder
from kernelscape.runtime.fake.device import FakeBuilder, FakeDevice, FakeWorker
from kernelscape.runtime.worker import pool
from kernelscape.runtime.worker.forked_inputs import ForkedInputs
from kernelscape.runtime.worker.pool import LocalPool
from kernelscape.runtime.worker.worker import Worker
from kernelscape.testing.memory_journal import MemoryJournal
from kernelscape.tests.explorer.test_machine_state import distinct_candidates, evaluator


class Builder(FakeBuilder):
    """Takes a moment to build; counts what it builds at once, and in all."""

    most_together = 2

    def __init__(self) -> None:
        super().__init__()
        self.n_running, self.n_built, self.lock = 0, 0, threading.Lock()

    def build_together(self, sources):
        with self.lock:
            self.n_running += 1
        time.sleep(0.02)
        with self.lock:
            self.n_running -= 1
            self.n_built += len(sources)
        return super().build_together(sources)


class Watchful(FakeWorker):
    """Runs nothing while something is built."""

    def __init__(self, device) -> None:
        super().__init__(device)
        self.builder = device.builder

    def evaluate(self, artifact, protocol, *, verify=True):
        assert not self.builder.n_running
        return super().evaluate(artifact, protocol, verify=verify)


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setattr(pool, "JOBS", 2)
    monkeypatch.setattr(pool, "JOBS_AHEAD", 1)
    made = FakeDevice()
    made.builder = Builder()
    return made


def test_nothing_is_built_twice_and_nothing_runs_while_compilers_do(device) -> None:
    """Not even where what they are about was overtaken."""
    evaluate = evaluator(device, Watchful(device), MemoryJournal(), [])
    distinct = distinct_candidates(evaluate, device)[:13]
    for batch in (distinct[:6], distinct[6:12]):
        for k, candidate in enumerate(batch[:-1], 1):
            evaluate.ahead(candidate, len(batch) - k)
        assert [o.status for o in evaluate(batch)] == ["ok"] * 6
    assert device.builder.n_built == 12
    evaluate.ahead(distinct[12], 1)  # overtaken
    assert [o.status for o in evaluate(distinct[:1])] == ["ok"]


@pytest.mark.parametrize(("most", "n_begun"), [(0, 4), (1 << 30, 1)])
def test_long_texts_are_compiled_while_others_are_written(
    device, monkeypatch: pytest.MonkeyPatch, most: int, n_begun: int
) -> None:
    """Short ones are announced together. In either case each is built once."""
    monkeypatch.setattr(evaluation, "_LONG_TEXTS", most)
    evaluate = evaluator(device, Watchful(device), MemoryJournal(), [])
    distinct = distinct_candidates(evaluate, device)[:4]
    announced = []
    begin = LocalPool.begin
    monkeypatch.setattr(
        LocalPool, "begin", lambda self, works: (announced.append(len(works)), begin(self, works))
    )
    evaluate.begin([*distinct, distinct[0]], known=())
    assert len([n for n in announced if n]) == n_begun
    assert sum(announced) == 4
    assert [o.status for o in evaluate(distinct)] == ["ok"] * 4
    assert device.builder.n_built == 4


def test_no_compiler_begins_once_the_time_is_over(device) -> None:
    evaluate = evaluator(device, Watchful(device), MemoryJournal(), [])
    distinct = distinct_candidates(evaluate, device)
    evaluate(distinct[:1])
    evaluate.ahead(distinct[1], 1)
    evaluate.leave()
    assert not device.builder.n_running
    assert device.builder.n_built == 2
    evaluate.is_over = lambda: True
    evaluate.ahead(distinct[2], 1)
    evaluate.leave()
    assert device.builder.n_built == 2


def test_the_profile_and_first_builds_do_not_wait_for_the_reference(
    device, tmp_path, monkeypatch
) -> None:
    """The kind: a core that idles while another computes what nothing needs yet."""
    order, is_building = [], threading.Event()
    build, init, result = device.builder.build_together, ForkedInputs.__init__, ForkedInputs.result

    def building(sources):
        is_building.set()
        return build(sources)

    def begun(inputs, *given, **options) -> None:
        order.append("begun")
        init(inputs, *given, **options)

    def waited(inputs, **options):
        assert is_building.wait(60.0)
        order.append("waited")
        return result(inputs, **options)

    monkeypatch.setattr(device.builder, "build_together", building)
    monkeypatch.setattr(ForkedInputs, "__init__", begun)
    monkeypatch.setattr(ForkedInputs, "result", waited)
    monkeypatch.setattr(session, "take_profile", lambda *_: order.append("profile"))
    monkeypatch.setattr(session, "open_device", lambda *_: device)
    workload = library_workload(load("axpydot"), {"n": 64}, "f32", 1)
    options = Options(target="fake", max_evals=4, store=False)
    run = explore_workload(workload, options, directory=tmp_path)
    assert order == ["begun", "profile", "waited"]
    assert run.ended.evaluations == device.builder.n_built == 4


@pytest.mark.parametrize(("most", "n_first"), [(0, 1), (1 << 30, 4)])
def test_a_long_text_is_measured_before_others_are_compiled(
    device, tmp_path, monkeypatch, most: int, n_first: int
) -> None:
    """The default, then as many texts at once as there are compilers."""
    monkeypatch.setattr(evaluation, "_LONG_TEXTS", most)
    monkeypatch.setattr(session, "open_device", lambda *_: device)
    n_built, evaluate = list[int](), FakeWorker.evaluate

    def counted(worker, artifact, protocol, *, verify=True):
        n_built.append(device.builder.n_built)
        return evaluate(worker, artifact, protocol, verify=verify)

    monkeypatch.setattr(FakeWorker, "evaluate", counted)
    workload = library_workload(load("axpydot"), {"n": 64}, "f32", 1)
    options = Options(target="fake", max_evals=4, store=False)
    run = explore_workload(workload, options, directory=tmp_path)
    assert run.ended.evaluations == device.builder.n_built == 4
    assert n_built[0] == n_first
    assert n_first == 4 or n_built[1] == 3


@pytest.fixture
def running(monkeypatch) -> list[int]:
    """Groups that are being built; whatever a worker runs asserts that there are none."""
    found: list[int] = []
    build = CpuBuilder.build_together

    def counted(builder, sources):
        found.append(1)
        try:
            return build(builder, sources)
        finally:
            found.pop()

    def watched(name):
        run = getattr(Worker, name)

        def call(*args, **kwargs):
            assert not found
            return run(*args, **kwargs)

        monkeypatch.setattr(Worker, name, call)

    monkeypatch.setattr(CpuBuilder, "build_together", counted)
    monkeypatch.setattr(pool, "JOBS", 2)
    monkeypatch.setattr(pool, "JOBS_AHEAD", 1)
    for name in ("evaluate", "interleave", "probe", "probe_state", "time_function"):
        watched(name)
    return found


@pytest.mark.compiler
@pytest.mark.parametrize("ends_by", ["time", "signal", "bug"])
def test_a_session_times_nothing_beside_compilers_and_leaves_none(
    running, ends_by, tmp_path, monkeypatch
) -> None:
    ahead, begun_early, signals = SearchEvaluator.ahead, [], [signal.SIGINT]

    def watched(evaluate, candidate, n_to_come) -> None:
        ahead(evaluate, candidate, n_to_come)
        if not evaluate.top(1) or not evaluate._pool._builds._begun:
            return
        begun_early.append(candidate)
        if ends_by == "signal" and signals:  # a second one would end the session at once
            os.kill(os.getpid(), signals.pop())
        elif ends_by == "bug":
            raise ZeroDivisionError

    monkeypatch.setattr(SearchEvaluator, "ahead", watched)
    workload = library_workload(load("atax"), {"m": 64, "n": 48}, "f32", 1)
    limit_s = 4.0 if ends_by == "time" else 60.0
    options = Options(time_limit_s=limit_s, store=False, compiler="gcc")
    with pytest.raises(ZeroDivisionError) if ends_by == "bug" else nullcontext():
        run = explore_workload(workload, options, directory=tmp_path / "run")
        assert run.status == {"time": "time_limit", "signal": "interrupted"}[ends_by]
    assert begun_early
    assert not running
    assert not [t for t in threading.enumerate() if t.name.startswith("build")]
