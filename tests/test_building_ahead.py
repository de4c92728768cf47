"""Compilers begin while a search is still about a batch: nothing is timed beside them."""

from __future__ import annotations

import time
from threading import Lock

from kernelscape.runtime.fake.device import FakeDevice, FakeWorker
from kernelscape.runtime.journal import MemoryJournal
from kernelscape.tests.test_states import distinct_candidates, evaluator


class Builder(FakeDevice):
    """Takes a moment to build; counts what it builds at once, and in all."""

    most_together = 2

    def __init__(self) -> None:
        super().__init__()
        self.n_running, self.n_built, self.lock = 0, 0, Lock()

    def build(self, source):
        with self.lock:
            self.n_running += 1
        time.sleep(0.005)
        with self.lock:
            self.n_running -= 1
            self.n_built += 1
        return super().build(source)


class Watchful(FakeWorker):
    """Runs nothing while something is built."""

    def __init__(self, device) -> None:
        super().__init__(device)
        self.builder = device

    def evaluate(self, artifact, protocol, *, verify=True):
        assert not self.builder.n_running
        return super().evaluate(artifact, protocol, verify=verify)


def test_nothing_runs_while_compilers_do_and_nothing_is_built_twice() -> None:
    device = Builder()
    evaluate = evaluator(device, Watchful(device), MemoryJournal(), [])
    distinct = distinct_candidates(evaluate, device)[:12]
    for batch in (distinct[:6], distinct[6:]):
        for k, candidate in enumerate(batch[:-1], 1):
            evaluate.ahead(candidate, len(batch) - k)
        assert [o.status for o in evaluate(batch)] == ["ok"] * 6
    assert device.n_built == 12
    assert evaluate.builds.ahead_s > 0


def test_a_search_that_ends_leaves_no_compiler_running() -> None:
    device = Builder()
    evaluate = evaluator(device, Watchful(device), MemoryJournal(), [])
    distinct = distinct_candidates(evaluate, device)
    evaluate(distinct[:1])
    evaluate.ahead(distinct[1], 1)
    evaluate.leave()
    assert not device.n_running
    evaluate.is_over = lambda: True  # then none begins
    evaluate.ahead(distinct[2], 1)
    assert device.n_built + device.n_running == 2
