"""Streaming bandwidth: rates of repeated passes over the same arrays, by kind of access and size.

Calibration and probes of the current state measure them. A cache retains some of the data for the next pass; the amount is
specific to the machine (`Target.streams`).
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping
from pathlib import Path

from ...space.targets.target import StreamCurve
from ..api.backend import AbstractMemoryProbe
from ..host import HostCpu, read_machine
from ..library import load_library
from ..measure.calibration import curve_of, parse_stream, stream_name
from ..measure.timing import DISTURBED, waited_ns

READ, WRITE, WRITE_NT, COPY, COPY_NT, TRIAD_NT, SCALE, READ3_WRITE_NT, TRIAD, READ3_WRITE = range(
    10
)
# Kinds for memory. The others are useful in caches only, where non-temporal stores are useless.
KINDS = {READ: "read", WRITE: "write", WRITE_NT: "write_nt", COPY: "copy", COPY_NT: "copy_nt"}
KINDS |= {TRIAD_NT: "triad_nt", SCALE: "scale", READ3_WRITE_NT: "read3_write_nt"}
ALL_KINDS = KINDS | {TRIAD: "triad", READ3_WRITE: "read3_write"}
N_ARRAYS = (1, 1, 1, 2, 2, 3, 1, 4, 3, 4)  # touched by each kind
_N_READ = (1, 0, 0, 1, 1, 2, 1, 3, 2, 3)  # of them
_N_WRITTEN = (0, 1, 1, 1, 1, 1, 1, 1, 1, 1)

_PASS_BYTES = (
    32 << 20
)  # passed through by a thread for one sample, or all arrays once: 0.2 ms even from L2
_REPEATS = 6  # samples of each point: the first finds other arrays in the caches
_FARTHEST = 6  # times the last cache: beyond, hardly anything stays from pass to pass
_LEAST_BYTES = (
    1 << 20
)  # least arrays of a probe between candidates: smaller ones stay below the last cache


def open_probe(library: Path) -> ctypes.CDLL:
    """Loads the compiled probe.c with declared types of its streaming functions."""
    probe = load_library(library)
    probe.ks_reserve.argtypes = [ctypes.c_int, ctypes.c_int64]
    probe.ks_stream.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int, ctypes.c_int64]
    probe.ks_stream.restype = ctypes.c_double
    return probe


def reserve(probe: ctypes.CDLL, n_threads: int, n_bytes: int) -> None:
    """Reserves `n_bytes` of memory per thread for later samples. Raises MemoryError."""
    if probe.ks_reserve(n_threads, n_bytes) != 0:
        raise MemoryError(f"the probe needs {n_threads} times {n_bytes >> 20} MiB")


def rate(
    probe: ctypes.CDLL, kind: int, n_bytes: int, n_threads: int, passes: int, offset: int = 0
) -> float:
    """Measures a rate, read plus written, in bytes per ns, with arrays of `n_bytes` each in each thread."""
    elapsed_ns = probe.ks_stream(kind, n_bytes, passes, offset)
    assert elapsed_ns > 0, "arrays do not fit the reserve"
    return float((_N_READ[kind] + _N_WRITTEN[kind]) * n_bytes * n_threads * passes / elapsed_ns)


def footprints(own_cache_bytes: int, last_cache_bytes: int, most_bytes: int) -> list[int]:
    """Returns sizes (bytes of all arrays together) from within the private caches to several times the last cache.

    They are closer together around the size at which the last cache begins to miss.
    """
    sizes, size = list[float](), own_cache_bytes / 2
    while size <= min(most_bytes, _FARTHEST * last_cache_bytes):
        sizes.append(size)
        size *= 2**0.25 if last_cache_bytes / 2 <= size < 4 * last_cache_bytes else 2**0.5
    return [int(size) // 4096 * 4096 for size in sizes]


def stream_samples(
    probe: ctypes.CDLL, machine: HostCpu, n_threads: int, arena_bytes: int
) -> dict[str, list[float]]:
    """Measures every kind of access at every size, and returns samples by name.

    `arena_bytes` are reserved for each of `n_threads` threads.
    """
    if len(machine.caches) < 2:
        return {}
    own_bytes = machine.caches[-2].capacity_bytes // machine.cores * n_threads
    most_bytes = arena_bytes * n_threads - n_threads * (1 << 18)
    samples = {}
    for n_bytes in footprints(own_bytes, machine.caches[-1].capacity_bytes, most_bytes):
        for kind, name in ALL_KINDS.items():
            share = n_bytes // (N_ARRAYS[kind] * n_threads)
            passes = max(1, _PASS_BYTES // (share * N_ARRAYS[kind]))
            samples[stream_name(name, n_threads, n_bytes)] = [
                rate(probe, kind, share, n_threads, passes) for _ in range(_REPEATS)
            ]
    return samples


def knee_samples(probe: ctypes.CDLL, n_threads: int, arena_bytes: int) -> dict[str, list[float]]:
    """Measures reads around the size of the last cache, and returns samples by name: they reveal two last caches."""
    caches = read_machine().caches
    if len(caches) < 2:
        return {}
    own_bytes = caches[-2].capacity_bytes // read_machine().cores * n_threads
    last_bytes = caches[-1].capacity_bytes
    sizes = footprints(own_bytes, last_bytes, n_threads * (arena_bytes - (1 << 18)))
    near = [n for n in sizes if 0.9 * last_bytes <= n <= 2.5 * last_bytes][::2]
    return {
        stream_name(ALL_KINDS[READ], n_threads, n_bytes): [
            rate(probe, READ, n_bytes // n_threads, n_threads, 1) for _ in range(3)
        ]
        for n_bytes in near
    }


def curves_from(best: Mapping[str, float]) -> tuple[StreamCurve, ...]:
    """Returns bandwidth curves through the best samples by name. Names that are no streams are ignored."""
    found: dict[tuple[str, int], dict[tuple[int, int], float]] = {}
    kinds = {name: kind for kind, name in ALL_KINDS.items()}
    for name, best_rate in best.items():
        if (point := parse_stream(name)) is not None:
            kind_name, cores, n_bytes = point
            kind = kinds[kind_name]
            size = tuple(n_bytes * n[kind] // N_ARRAYS[kind] for n in (_N_READ, _N_WRITTEN))
            found.setdefault((kind_name, cores), {})[size[0], size[1]] = best_rate
    return tuple(curve_of(kind, cores, rates) for (kind, cores), rates in found.items())


class NowProbe(AbstractMemoryProbe):
    """Probe of the current rate of memory, or of a cache if arrays fit in it, between timed runs.

    A step samples every second kind of access. Arrays have at most the given distinct bytes read and written, and at most several
    times the size of the last cache. `close` frees them.
    """

    def __init__(
        self, library: Path, n_threads: int, read_bytes: float, written_bytes: float
    ) -> None:
        self._probe, self._n_threads = open_probe(library), n_threads
        caches = read_machine().caches
        most_bytes = _FARTHEST * (caches[-1].capacity_bytes if caches else 32 << 20)
        self._shares: dict[int, int] = {}  # bytes of an array of each thread
        for kind in ALL_KINDS:
            n_read, n_written = _N_READ[kind], _N_WRITTEN[kind]
            total = min(
                read_bytes * N_ARRAYS[kind] / n_read if n_read else most_bytes,
                written_bytes * N_ARRAYS[kind] / n_written if n_written else most_bytes,
                most_bytes,
            )
            if total >= _LEAST_BYTES:
                self._shares[kind] = int(total) // (N_ARRAYS[kind] * n_threads) // 4096 * 4096
        self._samples: dict[str, list[float]] = {ALL_KINDS[kind]: [] for kind in self._shares}
        self._disturbed: dict[str, list[float]] = {}
        self._n_steps = 0
        if self._shares:
            arena = max(N_ARRAYS[kind] * share for kind, share in self._shares.items())
            reserve(self._probe, n_threads, arena + (1 << 17))

    def step(self) -> None:
        """Takes one sample of every second kind of access, each after a warming pass over its arrays."""
        self._n_steps += 1
        for kind in list(self._shares)[self._n_steps % 2 :: 2]:
            share = self._shares[kind]
            passes = max(1, _PASS_BYTES // (share * N_ARRAYS[kind]))
            self._probe.ks_stream(kind, share, 1, 0)
            before_ns, started_ns = waited_ns(), time.perf_counter_ns()
            found = rate(self._probe, kind, share, self._n_threads, passes)
            elapsed_ns = time.perf_counter_ns() - started_ns
            is_disturbed = waited_ns() - before_ns > DISTURBED * elapsed_ns
            kept = self._disturbed if is_disturbed else self._samples
            kept.setdefault(ALL_KINDS[kind], []).append(found)

    @property
    def samples(self) -> dict[str, list[float]]:
        """Measured bytes per ns by name of the kind of access.

        Samples that other work disturbed are excluded, as for candidates. If all of a kind were disturbed, its fastest one is
        used.
        """
        return {
            name: found or [max(self._disturbed[name])]
            for name, found in self._samples.items()
            if found or name in self._disturbed
        }

    def close(self) -> None:
        """Frees the memory of the probe."""
        self._probe.ks_release()


def curves_now(rates: Mapping[str, float], cores: int) -> tuple[StreamCurve, ...]:
    """Returns bandwidth curves with one rate for each kind of access, independent of the size."""
    kinds = {name: kind for kind, name in ALL_KINDS.items()}
    return tuple(
        curve_of(name, cores, {(_N_READ[kinds[name]], _N_WRITTEN[kinds[name]]): found})
        for name, found in rates.items()
    )
