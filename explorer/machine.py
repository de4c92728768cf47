"""What a session asks of the machine: a worker, its conditions, a time of NumPy, and how fast memory is right now."""

from __future__ import annotations

from dataclasses import replace

from ..runtime.conditions import Conditions, take_conditions
from ..runtime.cpu.device import CpuDevice
from ..runtime.device import AbstractDevice
from ..runtime.outcome import Measurement
from ..runtime.worker import AbstractWorker, Worker, WorkerOptions, Workload
from ..search.incumbent import BoundScale
from ..space.target import Target


def open_worker(device: AbstractDevice) -> AbstractWorker:
    """A worker that evaluates on the device. Raises DeviceError when nothing can be run on it here."""
    device.check()
    from ..runtime.fake.device import FakeDevice, FakeWorker

    return FakeWorker(device) if isinstance(device, FakeDevice) else Worker(device)


def conditions_of(device: AbstractDevice, worker: AbstractWorker) -> Conditions:
    """The conditions now, with the compiler and the speed of memory."""
    if isinstance(device, CpuDevice):
        compiler = device.compiler
        return take_conditions(
            compiler=compiler.version, flags=compiler.flags, memory_bytes_per_ns=worker.probe()
        )
    return take_conditions(compiler=device.compiler_version(), accelerator=device.accelerator())


def time_reference(
    device: AbstractDevice, workload: Workload, reference: tuple[str, str]
) -> float | None:
    """Nanoseconds of a NumPy function, in a child of its own: its threads must not be bound."""
    if not isinstance(device, CpuDevice):
        return None
    worker = Worker(device, WorkerOptions(bind_threads=False))
    with worker:
        worker.prepare(replace(workload, sets=workload.sets[:1]))
        outcome = worker.time_function(*reference)
    return outcome.time_ns if isinstance(outcome, Measurement) else None


def lower_to_memory(scale: BoundScale, target: Target, worker: AbstractWorker) -> None:
    """Lowers the scale of bounds when memory is faster now than in any calibration.

    A virtual machine's cores move between sockets and caches while it runs, so the rates of memory
    change by a factor of two within minutes; a bound has to hold in the fastest state.
    """
    rates = {name: max(samples) for name, samples in worker.probe_mixes().items()}
    if not rates:
        return
    writes = [rate for name, rate in rates.items() if name.startswith("memory_write")]
    known_now = (
        (target.memory_read_bytes_per_ns, rates.get("memory_read", 0.0)),
        (target.memory_write_bytes_per_ns, max(writes, default=0.0)),
        (target.memory_mixed_bytes_per_ns, max(rates.values())),
    )
    factor = min((known / now for known, now in known_now if now > known), default=1.0)
    if factor < scale.factor:
        scale.lower(factor)
