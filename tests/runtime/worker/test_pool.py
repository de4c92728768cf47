"""Pools give back work that is done, and the bytes of work and outcomes hold all of them.

The kind: work that is lost, done twice, or left behind, where somebody stops in the middle.
"""

from __future__ import annotations

import msgspec
import pytest
from kernelscape.codegen.text.source import Argument, KernelLaunch, Source
from kernelscape.runtime.api.outcome import Disagreement, Failure
from kernelscape.runtime.fake.device import FakeDevice, FakeWorker
from kernelscape.runtime.forked import Stopped
from kernelscape.runtime.worker.messages import Done, Ticket, Work
from kernelscape.runtime.worker.pool import LocalPool
from kernelscape.runtime.worker.worker import Worker, WorkerOptions


def works(n: int) -> list[Work]:
    return [Work(Source(f"text {k}", "run", (), 1)) for k in range(n)]


def pool(device: FakeDevice, worker: FakeWorker | None = None) -> LocalPool:
    return LocalPool(device.builder, worker or FakeWorker(device))


def test_all_that_is_submitted_comes_back_once() -> None:
    """Also what is submitted while others are done, and what one reads with another iterator."""
    local = pool(FakeDevice())
    first, second, third = works(3)
    tickets = [local.submit(first), local.submit(second)]
    found = [next(local.done())]
    tickets.append(local.submit(third))
    found += local.done()
    assert [d.ticket for d in found] == tickets
    assert len({d.measured.time_ns for d in found if d.measured}) == 3
    assert list(local.done()) == []


def test_what_is_over_is_dropped() -> None:
    local = pool(FakeDevice())
    for work in works(3):
        local.submit(work)
    next(local.done())
    local.is_over = lambda: True
    assert list(local.done()) == []
    local.is_over = lambda: False
    assert list(local.done()) == []
    assert local.machine.contenders.n == 1


def test_a_run_that_is_not_waited_for_ends_the_answers() -> None:
    class Hanging(FakeWorker):
        def evaluate(self, artifact, protocol, *, verify=True):
            if self.n_evaluations == 1:
                raise Stopped
            return super().evaluate(artifact, protocol, verify=verify)

    device = FakeDevice()
    local = pool(device, Hanging(device))
    for work in works(3):
        local.submit(work)
    assert len(list(local.done())) == 1


LAUNCH = KernelLaunch("k", (2, 1, 1), (32, 1, 1), 64, (0,), (1, 2), (3,))
SOURCE = Source(
    "text", "run", (Argument("x", "array", "float32", (4,)),), 2, ("-O2",), ("a note",), (LAUNCH,)
)
WRONG = Failure("wrong", "x differs", at=Disagreement(0, "x", (3,), "1.5", "2", 1, 4))


@pytest.mark.parametrize("failed", [None, WRONG])
def test_work_and_outcomes_cross_as_bytes(failed: Failure | None) -> None:
    def crossed(message):
        return msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=type(message))

    built = FakeDevice().builder.build(SOURCE)
    runner = FakeDevice().runner
    measured = runner.measurement(built) if failed is None else None
    done = Done(ticket=Ticket(3), measured=measured, failed=failed, artifact=built, worker=2)
    assert crossed(done) == done
    again = crossed(Work(SOURCE)).source
    assert (again, again.notes, again.key) == (SOURCE, SOURCE.notes, SOURCE.key)


def test_a_worker_that_is_cut_while_it_closes_leaves_no_folder() -> None:
    """The kind: an interruption in the middle of what cleans up."""
    worker = Worker(FakeDevice(), WorkerOptions(runs_candidates=False))
    folder = worker._scratch.path

    def cut() -> None:
        raise Stopped

    worker._channel.kill = cut  # type: ignore[method-assign]
    with pytest.raises(Stopped):
        worker.close()
    assert not folder.exists()
