"""Building ahead: what begins when, what is built where, and that nothing runs once all is asked for."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path

import pytest
from kernelscape.codegen.text.source import Source
from kernelscape.runtime.api.artifact import Artifact
from kernelscape.runtime.api.outcome import Failure
from kernelscape.runtime.building import queue as build_queue
from kernelscape.runtime.building.queue import BuildQueue, build_each
from kernelscape.runtime.cpu import compiler
from kernelscape.runtime.fake.device import FakeBuilder
from kernelscape.runtime.forked import Stopped

LONG_S = 60.0  # no test takes as long, on however busy a machine


class Gated(FakeBuilder):
    """Ends no build before it is let; `groups` are those that were begun, in order."""

    most_together = 8

    def __init__(self) -> None:
        super().__init__()
        self.groups: list[list[str]] = []
        self.n_running = 0
        self._ends = threading.Semaphore(0)
        self._changed = threading.Condition()

    def build_together(self, sources):
        with self._changed:
            self.groups.append([s.key for s in sources])
            self.n_running += 1
            self._changed.notify_all()
        assert self._ends.acquire(timeout=LONG_S)
        with self._changed:
            self.n_running -= 1
        return super().build_together(sources)

    def let(self, n: int = 1000) -> None:
        self._ends.release(n)

    def begun(self, n: int) -> list[int]:
        """Sizes of the groups, once there are n."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.groups) >= n, LONG_S)
            return [len(group) for group in self.groups]

    def let_once_begun(self, n: int, first=lambda: None) -> None:
        """Let all end once there are n groups."""

        def wait() -> None:
            self.begun(n)
            first()
            self.let()

        threading.Thread(target=wait, daemon=True).start()


@pytest.fixture
def device():
    made = Gated()
    yield made
    made.let()


def text(k: int, characters: int = 4000) -> Source:
    return Source(f"/* {k} */".ljust(characters), "run_sequence", (), 1)


def put_all(queue: BuildQueue, sources: list[Source], n: int) -> None:
    """The first of a batch of n."""
    for k, source in enumerate(sources, 1):
        queue.put(source, n - k)


def test_one_compiler_begins_with_a_quarter_of_the_batch(device):
    queue, sources = BuildQueue(device, 2, 1), [text(k) for k in range(16)]
    put_all(queue, sources[:3], 16)
    assert not queue._begun
    for k, source in enumerate(sources[3:15], 4):
        queue.put(source, 16 - k)
        assert len(queue._begun) == 1  # the other core is the search's
    assert device.begun(1) == [4]
    device.let()
    built = queue.take(sources)
    assert [a.source_key for a in built] == [s.key for s in sources]
    assert sorted(key for group in device.groups for key in group) == sorted(s.key for s in sources)


def test_a_compiler_that_is_done_takes_half_of_what_is_left(device):
    queue, sources = BuildQueue(device, 2, 1), [text(k) for k in range(16)]
    put_all(queue, sources[:13], 16)
    device.let(1)
    queue._begun[0].future.result(LONG_S)
    queue.put(sources[13], 2)
    assert device.begun(2) == [4, 6]
    device.let()
    queue.take(sources)


def test_what_is_left_is_shared_out_so_that_all_end_together(device):
    """The compiler that is about four texts takes three of the other twelve, or it would be the last."""
    device.most_together = 16
    queue, sources = BuildQueue(device, 2, 1), [text(k) for k in range(16)]
    put_all(queue, sources[:4], 16)
    device.let_once_begun(2)
    queue.take(sources)
    assert device.begun(3) == [4, 9, 3]


def test_no_compiler_starts_once_more_for_what_another_does_sooner(device):
    queue, sources = BuildQueue(device, 2, 1), [text(k) for k in range(9)]
    put_all(queue, sources[:4], 16)
    device.let_once_begun(2)
    queue.take(sources)
    assert device.begun(2) == [4, 5]


@pytest.mark.parametrize("jobs", [1, 2, 3, 8])
@pytest.mark.parametrize("n", [0, 1, 5, 16, 40])
@pytest.mark.parametrize("n_put", [0, 4, 15])
def test_all_that_is_asked_for_is_built_once(device, jobs, n, n_put):
    device.let()
    queue, sources = BuildQueue(device, jobs, jobs - 1), [text(k, 50 * k) for k in range(n)]
    put_all(queue, sources[:n_put], n)
    put_all(queue, sources[:n_put], n)
    built = queue.take(sources)
    assert [a.source_key for a in built] == [s.key for s in sources]
    assert sum(map(len, device.groups)) == n
    assert max(map(len, device.groups), default=0) <= device.most_together


def test_without_a_core_for_it_nothing_begins_before(device):
    device.let()
    for jobs, ahead in ((1, 1), (2, 0)):
        queue, sources = BuildQueue(device, jobs, ahead), [text(k) for k in range(8)]
        put_all(queue, sources[:7], 8)
        assert not queue._begun
        assert len(queue.take(sources)) == 8


@pytest.mark.parametrize("ends", [BuildQueue.forget, lambda queue: queue.take([])])
def test_what_is_not_asked_for_is_forgotten_and_nothing_runs_any_more(device, ends):
    queue, sources = BuildQueue(device, 2, 1), [text(k) for k in range(16)]
    put_all(queue, sources[:7], 16)
    device.let_once_begun(1, lambda: time.sleep(0.05))
    ends(queue)
    assert device.n_running == 0
    assert device.begun(1) == [4]
    queue.take(sources[4:6])
    assert sum(device.begun(2)[1:]) == 2
    queue.take(sources[:1])  # built before, for nobody
    assert device.groups[-1] == [sources[0].key]


def test_who_wants_to_wait_no_longer_leaves_nothing_running(device, monkeypatch):
    """Sources with which no compiler has begun are never begun."""

    def interrupted(futures, seconds):
        device.begun(2)
        device.let_once_begun(2, lambda: time.sleep(0.05))
        monkeypatch.setattr(build_queue, "wait", wait)
        raise KeyboardInterrupt

    monkeypatch.setattr(build_queue, "wait", interrupted)
    queue = BuildQueue(device, 2, 1)
    with pytest.raises(KeyboardInterrupt):
        queue.take([text(k) for k in range(40)])
    assert device.n_running == 0
    assert len(device.groups) < 6


def test_the_same_source_twice_and_one_that_is_refused(device):
    device.let()
    good, wrong = text(0), Source("#error", "run_sequence", (), 1)
    queue = BuildQueue(device, 2, 1)
    queue.put(wrong, 1)
    built = queue.take([good, wrong, good])
    assert [isinstance(b, Artifact) for b in built] == [True, False, True]
    assert isinstance(built[1], Failure)


def test_a_bug_in_a_build_raises_where_it_is_asked_for(device, monkeypatch):
    def fail(sources):
        raise ZeroDivisionError

    monkeypatch.setattr(device, "build_together", fail)
    queue = BuildQueue(device, 2, 1)
    queue.put(text(0), 1)
    queue.forget()  # by nobody
    queue.put(text(0), 1)
    with pytest.raises(ZeroDivisionError):
        queue.take([text(0), text(1)])
    monkeypatch.undo()
    device.let()
    assert len(queue.take([text(0)])) == 1  # the next batch is another


class Clock:
    """In place of the module `time`."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


def test_when_its_compiler_ran_stands_in_what_was_built(monkeypatch):
    class Compiling(Gated):
        def build(self, source):
            return replace(super().build(source), build_ns=1)

    device, clock = Compiling(), Clock()
    monkeypatch.setattr(build_queue, "time", clock)
    queue, sources = BuildQueue(device, 2, 1), [text(k) for k in range(4)]
    queue.put(sources[0], 3)  # begun at 0
    device.begun(1)
    clock.now_s = 2.0
    device.let(1)
    queue._begun[0].future.result(LONG_S)
    clock.now_s = 3.0  # asked for, and all others begun
    device.let_once_begun(3, lambda: setattr(clock, "now_s", 5.0))
    times = [built.compiling_s for built in queue.take(sources)]
    assert times == [(0.0, 2.0), (3.0, 5.0), (3.0, 5.0), (3.0, 5.0)]


def test_whoever_waits_no_longer_has_compilers_ended():
    class Endless(Gated):
        def end_builds(self):
            self._ends.release(100)

    device = Endless()
    queue = BuildQueue(device, 2, 1, is_over=lambda: device.n_running > 0)
    with pytest.raises(Stopped):
        queue.take([text(k) for k in range(4)])
    assert device.n_running == 0


def test_what_is_built_again_is_ended_again():
    """The kind: ends that last as long as what they end begins anew. Where one of several texts fails, each is built for itself."""

    class Stubborn(FakeBuilder):
        def __init__(self):
            super().__init__()
            self._end = threading.Semaphore(0)

        def build(self, source):
            for _ in range(3):
                self._end.acquire(timeout=LONG_S)
            return super().build(source)

        def end_builds(self):
            self._end.release()

    with pytest.raises(Stopped):
        build_each(Stubborn(), [text(k) for k in range(4)], 1, lambda: True)
    assert not [t for t in threading.enumerate() if t.name.startswith("build")]


@pytest.mark.compiler
def test_a_compiler_is_ended():
    script = [sys.executable, "-c", "import threading; threading.Event().wait()"]
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(compiler.run_compiler, script, LONG_S)
        while not running.done():
            compiler.end_compilers()
            time.sleep(0)
    found = running.result()
    assert isinstance(found, Failure)
    assert "status -9" in found.advice


@pytest.mark.compiler
def test_a_compiler_ends_with_its_program(tmp_path: Path) -> None:
    """The kind: children in groups of their own, which a program that is killed cannot end."""
    waits = "import os, threading; print(os.getpid(), file=open('pid', 'w'), flush=True); threading.Event().wait()"
    program = f"""
from kernelscape.runtime.cpu import compiler
compiler.run_compiler([{sys.executable!r}, "-c", {waits!r}], {LONG_S})
"""
    running = subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path)
    written = tmp_path / "pid"
    while not written.exists() or not written.read_text().endswith("\n"):
        time.sleep(0)
    running.kill()
    running.wait()
    child = int(written.read_text())
    while Path(f"/proc/{child}").exists() and "Z" not in Path(f"/proc/{child}/stat").read_text():
        time.sleep(0)


REAPING = """
import ctypes, os, subprocess, sys
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: orphans come here
read_fd, held_fd = os.pipe()
done = subprocess.run(sys.argv[1:], stdin=read_fd, capture_output=True)
try:
    orphan = os.waitpid(-1, 0)
except ChildProcessError:
    orphan = None
print(done.returncode, done.stdout + done.stderr, orphan)
"""


@pytest.mark.parametrize("shell", ["sh", "bash", "dash"])
@pytest.mark.parametrize("environment", [None, {}, {"PATH": ""}])
def test_a_shell_leaves_no_watcher(shell: str, environment: dict[str, str] | None) -> None:
    """The kind: orphans, of which a process of number 1 that reaps none gets one a compiler, until it may have no more."""
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not here")
    command = [path, "-c", compiler._WATCHED, "sh", path, "-c", "exit 3"]
    program = [sys.executable, "-S", "-E", "-c", REAPING, *command]
    done = subprocess.run(program, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "3 b'' None\n"
