"""Building ahead: what begins when, what is built where, and that nothing runs once all is asked for."""

from __future__ import annotations

import threading
import time

import pytest
from kernelscape.codegen.source import Source
from kernelscape.runtime.build import Artifact
from kernelscape.runtime.build_queue import BuildQueue
from kernelscape.runtime.fake.device import FakeDevice
from kernelscape.runtime.outcome import Failure


class Slow(FakeDevice):
    """Builds nothing until it is let; `groups` are those that were begun, in order."""

    most_together = 8

    def __init__(self) -> None:
        super().__init__()
        self.groups: list[list[str]] = []
        self.may_end = threading.Event()
        self.n_running = 0

    def build_together(self, sources):
        self.groups.append([s.key for s in sources])
        self.n_running += 1
        assert self.may_end.wait(60)
        self.n_running -= 1
        return super().build_together(sources)


@pytest.fixture
def device():
    made = Slow()
    yield made
    made.may_end.set()


def text(k: int, characters: int = 4000) -> Source:
    return Source(f"/* {k} */".ljust(characters), "run_sequence", (), 1)


def put_all(queue: BuildQueue, sources: list[Source], n: int) -> None:
    """The first of a batch of n: the last is never put."""
    for k, source in enumerate(sources, 1):
        queue.put(source, n - k)


def begun(device: Slow, n: int) -> list[int]:
    """Sizes of the groups, once there are n."""
    end_s = time.monotonic() + 60
    while len(device.groups) < n and time.monotonic() < end_s:
        time.sleep(0.001)
    return [len(group) for group in device.groups]


def test_one_of_two_compilers_begins_with_a_quarter_of_the_batch(device):
    queue, sources = BuildQueue(device, 2), [text(k) for k in range(16)]
    put_all(queue, sources[:3], 16)
    assert device.groups == []
    put_all(queue, sources[:4], 16)
    assert begun(device, 1) == [4]
    for k, source in enumerate(sources[4:15], 5):
        queue.put(source, 16 - k)
    time.sleep(0.01)
    assert begun(device, 1) == [4]  # the other core is the search's
    device.may_end.set()
    built = queue.take(sources)
    assert [a.source_key for a in built] == [s.key for s in sources]
    assert sorted(key for group in device.groups for key in group) == sorted(s.key for s in sources)


def test_a_compiler_that_is_done_takes_half_of_what_is_left(device):
    queue, sources = BuildQueue(device, 2), [text(k) for k in range(16)]
    put_all(queue, sources[:13], 16)
    assert begun(device, 1) == [4]
    device.may_end.set()
    end_s = time.monotonic() + 60
    while device.n_running and time.monotonic() < end_s:
        time.sleep(0.001)
    while len(device.groups) < 2 and time.monotonic() < end_s:
        queue.put(sources[13], 2)
    assert begun(device, 2) == [4, 6]
    queue.take(sources)


def test_what_is_left_is_shared_out_so_that_all_end_together(device):
    """With 4 texts being built, the free compiler takes more of the other 12."""
    queue, sources = BuildQueue(device, 2), [text(k) for k in range(16)]
    put_all(queue, sources[:4], 16)
    assert begun(device, 1) == [4]
    threading.Timer(0.05, device.may_end.set).start()
    queue.take(sources)
    assert [len(group) for group in device.groups] == [4, 8, 4]


@pytest.mark.parametrize("jobs", [1, 2, 3, 8])
@pytest.mark.parametrize("n", [0, 1, 5, 16, 40])
@pytest.mark.parametrize("n_put", [0, 4, 15])
def test_all_that_is_asked_for_is_built_once(jobs, n, n_put):
    device = Slow()
    device.may_end.set()
    queue, sources = BuildQueue(device, jobs), [text(k, 50 * k) for k in range(n)]
    put_all(queue, sources[:n_put], n)
    built = queue.take(sources)
    assert [a.source_key for a in built] == [s.key for s in sources]
    assert sum(map(len, device.groups)) == n
    assert max(map(len, device.groups), default=0) <= device.most_together


def test_one_compiler_leaves_the_only_core_alone():
    device = Slow()
    device.may_end.set()
    queue, sources = BuildQueue(device, 1), [text(k) for k in range(8)]
    put_all(queue, sources[:7], 8)
    assert device.groups == []
    queue.take(sources)
    assert begun(device, 1) == [8]


def test_what_is_not_asked_for_is_forgotten_and_nothing_runs_any_more(device):
    queue, sources = BuildQueue(device, 2), [text(k) for k in range(16)]
    put_all(queue, sources[:7], 16)
    assert begun(device, 1) == [4]
    threading.Timer(0.05, device.may_end.set).start()
    assert queue.take([]) == []
    assert device.n_running == 0
    assert len(device.groups) == 1
    queue.take(sources[4:6])
    assert sum(map(len, device.groups[1:])) == 2
    queue.take(sources[:1])  # built before, for nobody
    assert device.groups[-1] == [sources[0].key]


def test_the_same_source_twice_and_one_that_is_refused(device):
    device.may_end.set()
    good, wrong = text(0), Source("#error", "run_sequence", (), 1)
    queue = BuildQueue(device, 2)
    queue.put(wrong, 1)
    built = queue.take([good, wrong, good])
    assert [isinstance(b, Artifact) for b in built] == [True, False, True]
    assert isinstance(built[1], Failure)


def test_a_bug_in_a_build_raises_where_all_is_asked_for(device, monkeypatch):
    def fail(sources):
        raise ZeroDivisionError

    monkeypatch.setattr(device, "build_together", fail)
    queue = BuildQueue(device, 2)
    queue.put(text(0), 1)
    with pytest.raises(ZeroDivisionError):
        queue.take([text(0), text(1)])
    monkeypatch.undo()
    device.may_end.set()
    assert len(queue.take([text(0)])) == 1  # and the next batch is another


def test_time_that_nobody_waited_is_counted(device):
    queue, sources = BuildQueue(device, 2), [text(k) for k in range(4)]
    device.may_end.set()
    queue.take(sources)
    assert queue.ahead_s == 0
    device.may_end.clear()
    put_s = time.monotonic()
    put_all(queue, sources[:1], 4)
    time.sleep(0.05)
    assert begun(device, 3)[2:] == [1]
    asked_s = time.monotonic()
    threading.Timer(0.5, device.may_end.set).start()
    queue.take(sources)
    assert 0.05 <= queue.ahead_s < asked_s - put_s + 0.25
