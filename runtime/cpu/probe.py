"""Calibration: the highest rates of this machine's cores, caches and memory.

The bound needs the optimistic end of every rate. Memory behind a hypervisor changes its rate within minutes (by a factor of two
between two placements of the same cores), and so do launches and barriers. One calibration is not enough: results are merged over
calibrations. A rate keeps the largest value ever seen, a latency the least, also of those seen during an exploration.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ...space.targets.target import CacheLevel, Target
from ..api.backend import AbstractDevice, AbstractStoredFacts
from ..api.calibration import Calibration
from ..host import HostCpu, read_machine
from ..measure import calibration
from ..measure.timing import DISTURBED, waited_ns
from . import streams
from .function_rates import rates_from

_MORE_ROUNDS = 3  # at most, where other work disturbed the first three
_SAMPLES_A_ROUND = 5  # of a cache
_TURNS_A_ROUND = 4  # of kinds of using memory
_PASS_BYTES = 16 << 20  # read a thread and sample: 30 us even from L1, far above a barrier
# Memory is read a block at a time, each by its own clock: a sample of a whole pass would hardly
# ever be undisturbed on a busy machine, and one block revisited would stay in the last cache.
_N_BLOCKS = 8
_PROBED_BYTES = 512 << 20  # by one look at memory, see `probed_bytes`
_FLOPS_A_ROUND = 10 * 2  # ten independent multiply-adds
_MIXED_A_ROUND = 8 * 2 + 8  # eight multiply-adds and eight additions
_PORTS_A_ROUND = _ATOMICS_A_ROUND = 16
_PEAKS = ("f32", "f64", "scalar_f32", "scalar_f64", "mixed_f32", "mixed_f64")
_PORTS = ("loads", "vector_loads", "stores", "vector_stores")
_GATHERS = "gathers"
_ATOMICS = ("atomic_f32", "atomic_f64", "atomic_i32")


def calibrate(device: AbstractDevice) -> Calibration:
    """Measures this machine, merges with its stored calibration, stores the result and returns it.

    Takes a few seconds in a child process. Raises WorkerError if the probe fails.
    """
    from ..worker.worker import Worker

    worker = Worker(device)
    try:
        samples = worker.calibrate()
    finally:
        worker.close()
    machine = read_machine()
    return calibration.keep(
        calibration.fresh_calibration(machine.key, target_from_samples(machine, samples), samples)
    )


def load_own_calibration(folder: Path | None = None) -> Calibration | None:
    """Returns the stored calibration of this machine; None if there is none or it cannot be read."""
    return calibration.load_calibration(read_machine().key, folder)


def load_target(folder: Path | None = None) -> Target | None:
    """Returns the calibrated facts of this machine; None without a calibration."""
    found = load_own_calibration(folder)
    if found is None:
        return None
    # Calibrations of older versions do not know which threads share a cache, nor its sets.
    facts = {c.name: (c.shared_by, c.ways) for c in read_machine().caches}
    levels = []
    for x in found.target.levels:
        shared_by, ways = facts.get(x.name, (1, 0))
        levels.append(replace(x, shared_by=shared_by, ways=ways))
    return replace(found.target, levels=tuple(levels))


def guess_target() -> Target:
    """Returns uncalibrated facts from the operating system's data, faster than real machines, so that bounds hold.

    Six GHz; per cycle and core four loads or gathered elements, four stores, and two multiply-adds of vectors with four additions
    beside them, or four multiply-adds of single elements; from memory two bytes per cycle and core, and no less than 400 GB/s
    together.
    """
    machine = read_machine()
    per_core = {"L1": 2.0 * machine.vector_bytes, "L2": 64.0, "L3": 64.0}
    ghz_cores = 6.0 * machine.cores
    memory = max(400.0, 2 * ghz_cores)
    flops = 2 * 2 * machine.vector_bytes * ghz_cores
    return Target(
        backend="cpu",
        name=machine.model,
        cores=machine.cores,
        vector_bytes=machine.vector_bytes,
        vector_registers=32 if machine.vector_bytes == 64 else 16,
        levels=tuple(
            CacheLevel(
                name=c.name,
                capacity_bytes=c.capacity_bytes,
                read_bytes_per_ns=per_core.get(c.name, 64.0) * ghz_cores,
                shared_by=c.shared_by,
                ways=c.ways,
            )
            for c in machine.caches
        ),
        memory_read_bytes_per_ns=memory,
        memory_write_bytes_per_ns=memory,
        memory_mixed_bytes_per_ns=2 * memory,
        f32_flops_per_ns=flops / 4,
        f64_flops_per_ns=flops / 8,
        scalar_f32_flops_per_ns=8 * ghz_cores,
        scalar_f64_flops_per_ns=8 * ghz_cores,
        f32_mixed_flops_per_ns=flops / 2,
        f64_mixed_flops_per_ns=flops / 4,
        launch_ns=10.0,
        barrier_ns=2.0,
        call_ns=0.3,
        loads_per_ns=4 * ghz_cores,
        vector_loads_per_ns=4 * ghz_cores,
        stores_per_ns=4 * ghz_cores,
        vector_stores_per_ns=4 * ghz_cores,
        gathers_per_ns=4 * ghz_cores,
    )


def target_from_samples(machine: HostCpu, samples: dict[str, list[float]]) -> Target:
    """Returns facts of the machine from samples by name: the highest rates, the smallest latencies."""
    best = {n: (min if n in calibration.LATENCIES else max)(s) for n, s in samples.items()}
    return Target(
        backend="cpu",
        name=machine.model,
        cores=machine.cores,
        vector_bytes=int(best["vector_bytes"]),
        vector_registers=int(best["vector_registers"]),
        levels=tuple(
            CacheLevel(
                name=c.name,
                capacity_bytes=c.capacity_bytes,
                read_bytes_per_ns=best[f"{c.name}_read"],
                shared_by=c.shared_by,
                ways=c.ways,
            )
            for c in machine.caches
        ),
        memory_read_bytes_per_ns=best["memory_read"],
        memory_write_bytes_per_ns=max(best["memory_write"], best["memory_write_nt"]),
        # Reads alone and writes alone are mixes too.
        memory_mixed_bytes_per_ns=max(v for n, v in best.items() if n.startswith("memory_")),
        f32_flops_per_ns=best["f32_flops"],
        f64_flops_per_ns=best["f64_flops"],
        scalar_f32_flops_per_ns=best["scalar_f32_flops"],
        scalar_f64_flops_per_ns=best["scalar_f64_flops"],
        f32_mixed_flops_per_ns=best["f32_mixed_flops"],
        f64_mixed_flops_per_ns=best["f64_mixed_flops"],
        launch_ns=best["launch_ns"],
        barrier_ns=best["barrier_ns"],
        call_ns=best["call_ns"],
        add_latency_ns=best["add_latency_ns"],
        loads_per_ns=best["loads"],
        vector_loads_per_ns=best["vector_loads"],
        stores_per_ns=best["stores"],
        vector_stores_per_ns=best["vector_stores"],
        gathers_per_ns=best["gathers"],
        atomic_f32_per_ns=best["atomic_f32"],
        atomic_f64_per_ns=best["atomic_f64"],
        atomic_i32_per_ns=best["atomic_i32"],
        calibrated=True,
        streams=streams.curves_from(best),
        functions=rates_from(best),
    )


class OwnCalibration(AbstractStoredFacts):
    """This machine's stored calibration, which runs improve.

    If its folder cannot be written, improvements are dropped.
    """

    def factors(self) -> tuple[float, ...]:
        """Returns the factors of the prediction by resource; () if none are stored."""
        found = load_own_calibration()
        return () if found is None else found.factors

    def learn_factors(self, factors: tuple[float, ...]) -> None:
        """Stores the factors of the prediction, if there is a calibration."""
        with suppress(OSError):
            calibration.keep_factors(read_machine().key, factors)

    def learn_latencies(self, samples: dict[str, list[float]]) -> None:
        """Stores the least of the current launch and barrier latencies, if it is less than in the calibration."""
        now = {name: min(samples[name]) for name in calibration.LATENCIES if samples.get(name)}
        with suppress(OSError):
            calibration.keep_latencies(read_machine().key, now)

    def learn_alarm(self, raised: Target | None) -> None:
        """Counts a measurement below its bound, and stores raised rates, if there is a calibration."""
        with suppress(OSError):
            calibration.keep_alarm(read_machine().key, raised)


# --- in the child --------------------------------------------------------------------------------


def run_state_probe(library: Path, n_threads: int, whole: bool) -> dict[str, list[float]]:
    """Measures the variable state of the machine, and returns samples by name.

    The quick probe measures the read bandwidth of memory, in bytes per ns, in 20 to 60 ms. With `whole` it measures every kind of
    read and write, and the nanoseconds of launches and barriers, in about half a second. With last caches beyond 64 MiB either
    takes longer.
    """
    probe = _open(library)
    total = probed_bytes(_last_cache_bytes(read_machine()), whole)
    n_bytes = max(16 << 20, total // n_threads)
    streams.reserve(probe, n_threads, n_bytes + (1 << 16))
    try:
        samples: dict[str, list[float]] = {}
        for _ in range(
            5 if whole else 3
        ):  # a mix is met once a round: a disturbed one must not count
            for kind, name in streams.KINDS.items():
                if kind == streams.READ or whole:
                    share = n_bytes // streams.N_ARRAYS[kind] // 4096 * 4096
                    found = streams.rate(probe, kind, share, n_threads, 1)
                    samples.setdefault(f"memory_{name}", []).append(found)
        if whole:
            samples |= streams.knee_samples(probe, n_threads, n_bytes)
    finally:
        probe.ks_release()
    return samples | (_teams(probe, n_threads, 10, 200) if whole else {})


def probed_bytes(last_cache_bytes: int, whole: bool) -> int:
    """Returns the bytes of memory that a state probe reads or writes.

    Hits in the last cache raise the rate: by a third in the quick probe, an eighth in the other. For caches of hundreds of MiB
    twice their size must do: touching fresh memory would take seconds of every search.
    """
    wanted = (8 if whole else 3) * last_cache_bytes
    return max(2 * last_cache_bytes, min(wanted, _PROBED_BYTES))


def run_probe(library: Path, n_threads: int) -> dict[str, list[float]]:
    """Measures everything that a calibration needs, and returns samples by name; rates in bytes or flops per ns."""
    probe, machine = _open(library), read_machine()
    # Eight times the last cache: what still hits there raises the rate by an eighth at most.
    total = max(256 << 20, 8 * _last_cache_bytes(machine))
    per_thread = min(total, machine.memory_bytes // 4) // n_threads
    streams.reserve(probe, n_threads, per_thread)
    samples: dict[str, list[float]] = {}
    try:
        _sample_round(probe, machine, n_threads, per_thread, samples)
        curves = streams.stream_samples(probe, machine, n_threads, per_thread)
        _sample_round(probe, machine, n_threads, per_thread, samples)
        _sample_round(probe, machine, n_threads, per_thread, samples)
        for _ in range(_MORE_ROUNDS):
            if min(samples[calibration.OTHER_WORK]) <= DISTURBED and not _unsure(samples):
                break
            _sample_round(probe, machine, n_threads, per_thread, samples)
        # The farthest point of each curve.
        for name in streams.KINDS.values():
            far = calibration.stream_name(name, n_threads, per_thread * n_threads)
            curves[far] = samples[f"memory_{name}"]
        streams.reserve(probe, 1, per_thread * n_threads)
        curves |= streams.stream_samples(probe, machine, 1, per_thread * n_threads)
    finally:
        probe.ks_release()
    vectors = {
        "vector_bytes": [float(probe.ks_vector_bytes())],
        "vector_registers": [float(probe.ks_vector_registers())],
    }
    return samples | curves | vectors


def _unsure(samples: dict[str, list[float]]) -> tuple[str, ...]:
    return calibration.unsure(
        {name: found for name, found in samples.items() if name != calibration.OTHER_WORK}
    )


def _sample_round(
    probe: ctypes.CDLL,
    machine: HostCpu,
    n_threads: int,
    per_thread: int,
    samples: dict[str, list[float]],
) -> None:
    """Adds one round of samples to `samples`, for all facts but the curves.

    Other work disturbs whole rounds, so rounds must be apart in time.
    """
    before_ns, started_ns = waited_ns(), time.perf_counter_ns()
    _sample_caches(probe, machine, n_threads, samples)
    for _ in range(_TURNS_A_ROUND):  # kinds in turn, so that a change of state meets all of them
        for kind, name in streams.KINDS.items():
            block = per_thread // _N_BLOCKS // 4096 * 4096
            n_bytes = block // streams.N_ARRAYS[kind] - (1 << 14)
            samples.setdefault(f"memory_{name}", []).extend(
                streams.rate(probe, kind, n_bytes, n_threads, 1, k * block)
                for k in range(_N_BLOCKS)
            )
    for name, found in _cores(probe, n_threads).items():
        samples.setdefault(name, []).extend(found)
    elapsed_ns = time.perf_counter_ns() - started_ns
    share = (waited_ns() - before_ns) / (elapsed_ns * n_threads)
    samples.setdefault(calibration.OTHER_WORK, []).append(share)


def _sample_caches(
    probe: ctypes.CDLL, machine: HostCpu, n_threads: int, samples: dict[str, list[float]]
) -> None:
    """Adds samples of the rate of each cache to `samples`."""
    inner = 0
    for cache in machine.caches:
        share = cache.capacity_bytes // n_threads
        sizes = [n for n in (share // 8, share // 4, share // 2) if n > 1.5 * inner]
        samples.setdefault(f"{cache.name}_read", []).extend(
            streams.rate(probe, streams.READ, n, n_threads, max(1, _PASS_BYTES // n))
            for n in sizes or [share // 2]
            for _ in range(_SAMPLES_A_ROUND)
        )
        inner = share


def _cores(probe: ctypes.CDLL, n_threads: int) -> dict[str, list[float]]:
    rounds, vector_bytes = 200_000, int(probe.ks_vector_bytes())

    def flops(
        run: Callable[[int, int], float], lanes: int, each: int = _FLOPS_A_ROUND
    ) -> list[float]:
        work = rounds * each * lanes * n_threads
        return [work / run(n_threads, rounds) for _ in range(10)]

    def ports(run: Callable[[int, int], float], n: int = rounds) -> list[float]:
        return [n * _PORTS_A_ROUND * n_threads / run(n_threads, n) for _ in range(10)]

    def atomics(run: Callable[[int, int], float]) -> list[float]:
        n = rounds // 20
        return [n * _ATOMICS_A_ROUND * n_threads / run(n_threads, n) for _ in range(7)]

    return {
        "f32_flops": flops(probe.ks_peak_f32, vector_bytes // 4),
        "f64_flops": flops(probe.ks_peak_f64, vector_bytes // 8),
        "scalar_f32_flops": flops(probe.ks_peak_scalar_f32, 1),
        "scalar_f64_flops": flops(probe.ks_peak_scalar_f64, 1),
        "f32_mixed_flops": flops(probe.ks_peak_mixed_f32, vector_bytes // 4, _MIXED_A_ROUND),
        "f64_mixed_flops": flops(probe.ks_peak_mixed_f64, vector_bytes // 8, _MIXED_A_ROUND),
        **{name: ports(getattr(probe, f"ks_peak_{name}")) for name in _PORTS},
        _GATHERS: ports(probe.ks_peak_gathers, rounds // 8),
        **{name: atomics(getattr(probe, f"ks_{name}")) for name in _ATOMICS},
        "add_latency_ns": [probe.ks_add_latency(20_000) / 20_000 for _ in range(7)],
        "call_ns": [probe.ks_call(10_000) / 10_000 for _ in range(7)],
        **_teams(probe, n_threads, 15, 500),
    }


def _teams(
    probe: ctypes.CDLL, n_threads: int, n_samples: int, rounds: int
) -> dict[str, list[float]]:
    return {
        "launch_ns": [probe.ks_launch(n_threads, rounds) / rounds for _ in range(n_samples)],
        "barrier_ns": [probe.ks_barrier(n_threads, rounds) / rounds for _ in range(n_samples)],
    }


def _open(library: Path) -> ctypes.CDLL:
    probe = streams.open_probe(library)
    named = ("ks_launch", "ks_barrier", *(f"ks_peak_{name}" for name in _PEAKS))
    ports = (f"ks_peak_{port}" for port in (*_PORTS, _GATHERS))
    for name in (*named, *ports, *(f"ks_{atomic}" for atomic in _ATOMICS)):
        getattr(probe, name).argtypes = [ctypes.c_int, ctypes.c_int64]
        getattr(probe, name).restype = ctypes.c_double
    probe.ks_call.argtypes = probe.ks_add_latency.argtypes = [ctypes.c_int64]
    probe.ks_call.restype = probe.ks_add_latency.restype = ctypes.c_double
    return probe


def _last_cache_bytes(machine: HostCpu) -> int:
    return machine.caches[-1].capacity_bytes if machine.caches else 32 << 20
