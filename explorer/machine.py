"""Measurements of the machine for a session: its conditions, a NumPy time to compare with, and its current speed."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace

from ..runtime.api.backend import AbstractDevice
from ..runtime.api.outcome import Measurement
from ..runtime.fleet.remote import RemoteDevice
from ..runtime.forked import Stopped
from ..runtime.measure.calibration import LATENCIES, parse_stream
from ..runtime.measure.conditions import Conditions, take_conditions
from ..runtime.records.record import EvaluationRecord
from ..runtime.worker.worker import AbstractWorker, Worker, WorkerOptions
from ..search.bound.bounder import Bounder
from ..search.bound.streams import at_best
from ..search.incumbent import DOUBTED, BoundScale
from ..space.candidate import Candidate
from ..space.targets.target import Target

_FAR = 4.0  # a hypervisor changes rates by a factor of two, and copies past the caches are by less than two faster than reads


def open_worker(device: AbstractDevice) -> AbstractWorker:
    """Returns a worker that evaluates on the device. Raises DeviceError if the device cannot run anything here."""
    device.runner.check()
    own = device.worker()
    if own is None:
        return Worker(device)
    assert isinstance(own, AbstractWorker)
    return own


def conditions_of(device: AbstractDevice, worker: AbstractWorker) -> Conditions:
    """Returns the current conditions: compiler, flags, memory speed. For a fleet, those of its devices."""
    is_probed = bool(device.machine.probe_libraries())
    if isinstance(device, RemoteDevice):
        return device.conditions(worker.probe() if is_probed else 0.0)
    return take_conditions(
        compiler=device.reporter.version(),
        flags=device.reporter.flags(),
        memory_bytes_per_ns=worker.probe() if is_probed else 0.0,
        accelerator=device.machine.accelerator(),
    )


def time_reference(
    device: AbstractDevice,
    prepared: AbstractWorker,
    reference: tuple[str, str],
    is_over: Callable[[], bool] = lambda: False,
) -> Measurement | None:
    """Times a NumPy function on the inputs of the worker `prepared`, by the same protocol as candidates.

    `reference` is the module and the name of the function. None if it took too long, or if `is_over` became true.

    The function runs in a child process of its own, whose threads are not bound to cores. Threads of a library synchronise all
    the time: where other work has one core for a moment, all of its threads stand still. A product of 12 ms so took 30 ms, with
    30 of 33 samples disturbed.
    """
    if not device.runner.times_functions:
        return None
    worker = Worker(device, WorkerOptions(runs_candidates=False))
    worker.end_when(is_over)
    with worker:
        try:
            worker.prepare_as(prepared, n_sets=1)
            outcome = worker.time_function(*reference)
        except Stopped:
            return None
    return outcome if isinstance(outcome, Measurement) else None


def look_at(device: AbstractDevice, worker: AbstractWorker) -> dict[str, float]:
    """Returns the best current rates by name: each kind of memory access, a launch, a barrier; {} if unknown.

    Values better than any calibration are stored with the calibration, except memory rates: measured after a pass through the
    caches they are a little too high.
    """
    samples = worker.probe_state()
    if samples:
        stored = device.machine.stored_facts()
        if stored is not None:
            stored.learn_latencies(samples)
    return {name: (min if name in LATENCIES else max)(s) for name, s in samples.items()}


def is_far_below(target: Target, worker: AbstractWorker) -> bool:
    """True if an uncalibrated machine is so much slower than the guessed rates that no bound needs lowering.

    A short read probe decides; the full measurement takes half a second. Kinds of memory access differ by less than the factor
    required here, and so does one kind over time. A team of one has no barrier, and its launch may be as quick as guessed.
    """
    if target.calibrated or target.cores == 1:
        return False
    return _FAR * worker.probe() < target.memory_read_bytes_per_ns


def lower_to(scale: BoundScale, target: Target, now: dict[str, float]) -> None:
    """Lowers the scale of bounds if memory, launches or barriers are faster `now` than the target's rates.

    A virtual machine's cores move between sockets and caches while it runs, so the rates of memory
    change by a factor of two within minutes, and the cost of a barrier by more. A bound has to hold in the fastest state. A bound
    combines, by sums and maxima, the times of these and times that do not change. So it falls by no more than the largest change.
    """
    memory = {name: rate for name, rate in now.items() if name.startswith("memory_")}
    writes = [rate for name, rate in memory.items() if name.startswith("memory_write")]
    rates = (
        (target.memory_read_bytes_per_ns, memory.get("memory_read", 0.0)),
        (target.memory_write_bytes_per_ns, max(writes, default=0.0)),
        (target.memory_mixed_bytes_per_ns, max(memory.values(), default=0.0)),
    )
    taken = [(ns, getattr(target, name)) for name, ns in now.items() if name in LATENCIES]
    ratios = [known / rate for known, rate in rates if rate > 0]
    ratios += [ns / known for ns, known in taken if known > 0]
    ratios += _curve_ratios(target, now)
    scale.lower(min([scale.factor, *ratios]))


def bound_now(root: Candidate, rates: Mapping[str, float]) -> float | None:
    """Returns the lower bound of all implementations, in ns, at the current memory `rates`; None if unknown.

    `rates` are bytes per ns by kind of memory access, as `AbstractWorker.interleave_beside` returns them. The bound is reported
    only and prunes nothing.
    """
    target: Target = root.space.target
    if not rates:
        return None
    from ..runtime.cpu.streams import curves_now

    read = rates.get("read", target.memory_read_bytes_per_ns)
    writes = [rate for name, rate in rates.items() if name in ("write", "write_nt")]
    now = replace(
        target,
        streams=curves_now(rates, target.cores),
        memory_read_bytes_per_ns=read,
        memory_write_bytes_per_ns=max(writes, default=target.memory_write_bytes_per_ns),
        memory_mixed_bytes_per_ns=max(rates.values()),
    )
    return Bounder(replace(root.space, target=now)).ns(root)


def believed_now(bound_now_ns: float | None, best_ns: float, spread: float) -> float | None:
    """Returns `bound_now_ns`, a bound for the current machine state; None if `best_ns` is below it beyond `spread`.

    In that case the bound's rates were measured in a slower state of the machine than the best.
    """
    if bound_now_ns is None or bound_now_ns > best_ns * (1 + spread):
        return None
    return bound_now_ns


def _curve_ratios(target: Target, now: dict[str, float]) -> list[float]:
    """Returns the target's rates of repeated reads divided by the rates `now`, for array sizes in both."""
    known = {
        (curve.kind, curve.cores, read + written): rate
        for curve, rates in at_best(target)
        for read, written, rate in zip(curve.read_bytes, curve.written_bytes, rates, strict=True)
    }
    met = ((parse_stream(name), rate) for name, rate in now.items())
    return [float(known[point]) / rate for point, rate in met if point in known]


def lower_to_earlier(
    scale: BoundScale,
    evaluations: Sequence[EvaluationRecord],
    doubted: Container[str],
    bound: Callable[[EvaluationRecord], float],
) -> None:
    """Lowers the scale of bounds to the scale that earlier sessions had reached.

    The machine may have been faster then, or a bound wrong. `doubted`: source keys of implementations measured below their
    bound. `bound` returns the bound of a record in this version, in ns.
    """
    bounded = [r for r in evaluations if r.bound_ns > 0]
    factors = [r.bound_ns / bound(r) for r in bounded[-1:]]
    for r in bounded:
        if r.source_key in doubted and r.time_ns is not None:
            factors.append(DOUBTED * min(1.0, r.time_ns / bound(r)))
    scale.lower(min([scale.factor, *factors]))
