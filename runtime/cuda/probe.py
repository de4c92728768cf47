"""Calibration of a GPU: measures those facts of its data sheet that the bound uses.

Rates are the best over several kinds of kernels. Latencies are the time of one more step of a chain, so that launches do
not count. Other facts (capacities, instructions started per cycle) are taken from the data sheet.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import nan
from statistics import median
from typing import Any

import numpy as np

from ...codegen.text.source import Source
from ...space.targets.target import Target
from ..api.backend import AbstractDevice, CallArguments
from ..api.calibration import Calibration
from ..api.errors import DeviceError
from ..api.outcome import Failure
from ..measure.calibration import fresh_calibration, keep, load_calibration
from . import probe_kernels as pk
from .profiles import DataSheet, target_of

_SAMPLES = 12
_TIMES_L2 = 64  # size of the streams from memory: hits in L2 raise the rate by 1/64 at most
_LEAST_TIMES_L2 = 8  # where memory is short
_SHARE_OF_MEMORY = 16
_STREAMS = (
    (1, 0),
    (4, 0),
    (8, 0),
    (4, 8),
    (8, 16),
)  # loads in flight; blocks a multiprocessor, 0: a block for each part
_LAUNCHES = 2000
_LEAST_STEP_NS = 0.1  # less than a clock of any GPU
_PLACES = 64  # slices of L2 are not all as far away


def machine_key(p: DataSheet) -> str:
    """Returns a key usable in file names, equal for GPUs that share calibrations."""
    parts = (p.name, p.architecture, p.multiprocessors, p.l2_bytes, p.memory_bytes)
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=4).hexdigest()
    name = re.sub(r"[^a-z0-9]+", "-", p.name.lower().removesuffix("(data sheet)")).strip("-")
    return f"gpu-{name[:40]}-{p.multiprocessors}c-{digest}"


def load_target(profile: DataSheet) -> Target | None:
    """Returns the measured facts of a GPU of this kind; None if nothing was measured."""
    found = load_calibration(machine_key(profile))
    return None if found is None else found.target


def calibrate(device: AbstractDevice, p: DataSheet) -> Calibration:
    """Measures the GPU, merges with its stored facts, stores and returns the result.

    Takes some seconds in a child process. Raises WorkerError.
    """
    from ..worker.worker import Worker

    with Worker(device) as worker:
        assert isinstance(worker, Worker)
        samples = worker.calibrate()
    target = target_from_samples(target_of(p, device.name), samples)
    return keep(fresh_calibration(machine_key(p), target, samples))


def target_from_samples(sheet: Target, samples: dict[str, list[float]]) -> Target:
    """Returns the data sheet's facts, replaced by the best sample of each measured one."""
    most = {name: max(s) for name, s in samples.items()}
    least = {name: min(s) for name, s in samples.items() if name.endswith("_ns")}
    near, far = sheet.levels
    alone = max(
        most["f32_alone"] * sheet.cores / most["f32_flops"],
        most["f64_alone"] * sheet.cores / most["f64_flops"],
    )
    faster = most["f32_flops"] / sheet.f32_flops_per_ns  # a clock above that of the data sheet
    return replace(
        sheet,
        levels=(
            replace(near, read_bytes_per_ns=most["L1_read"]),
            replace(far, read_bytes_per_ns=most["L2_read"]),
        ),
        memory_read_bytes_per_ns=most["memory_read"],
        memory_write_bytes_per_ns=most["memory_write"],
        memory_mixed_bytes_per_ns=max(most[f"memory_{what}"] for what in ("read", "write", "copy")),
        f32_flops_per_ns=most["f32_flops"],
        f64_flops_per_ns=most["f64_flops"],
        launch_ns=least["launch_ns"],
        barrier_ns=least["barrier_ns"],
        add_latency_ns=least["add_latency_ns"],
        # The chain also computes addresses, which takes an instruction or two.
        load_latency_ns=max(0.0, least["load_latency_ns"] - 2 * least["add_latency_ns"]),
        far_load_latency_ns=max(0.0, least["far_load_latency_ns"] - 2 * least["add_latency_ns"]),
        shared_bytes_per_ns=most["shared_read"],
        core_read_bytes_per_ns=most["core_read"],
        core_boost=max(1.0, alone),
        instructions_per_ns=sheet.instructions_per_ns * max(1.0, faster),
        calibrated=True,
    )


# --- in the child --------------------------------------------------------------------------------


def take_samples(device: AbstractDevice, sheet: DataSheet) -> dict[str, list[float]]:
    """Measures everything and returns samples by name: bytes or operations per ns, latencies in ns.

    Raises DeviceError, MemoryError and RunError.
    """
    return _Probe(device, sheet).samples()


class _Probe:
    def __init__(self, device: AbstractDevice, sheet: DataSheet) -> None:
        self.device, self.sheet = device, sheet
        self.cores = self.sheet.multiprocessors

    def samples(self) -> dict[str, list[float]]:
        """Returns all samples by name; memory is measured last, since it allocates most."""
        found = {**self.arithmetic(), **self.caches(), **self.latencies()}
        return found | {f"memory_{what}": self.stream(what) for what in ("read", "write", "copy")}

    def timer(self, source: Source, values: list[Any]) -> Callable[[int], float]:
        """Returns a function from a number of calls of the kernel to their time in ns.

        A shape in `values` becomes an array of that shape, filled with NaN or with an invalid index.
        """
        from .module import CudaModule
        from .runner import TimedCalls

        built = self.device.builder.build(source)
        module = built if isinstance(built, Failure) else self.device.runner.load(built)
        if isinstance(module, Failure):
            raise DeviceError(f"the probe {source.launches[0].kernel} failed: {module.advice}")
        assert isinstance(module, CudaModule)
        given = [
            self.array(v, np.dtype(a.dtype)) if isinstance(v, tuple) else v
            for a, v in zip(source.arguments, values, strict=True)
        ]
        run = TimedCalls(module, CallArguments(tuple(given))).run
        run(1)  # the first call loads the code
        return run

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        made = self.device.runner.allocate(shape, dtype)
        made.poison()
        return made

    # --- rates ---

    def arithmetic(self) -> dict[str, list[float]]:
        n, found = 4096, {}
        per_thread = 2.0 * pk.CHAINS * n
        for name, dtype in (("f32", "float32"), ("f64", "float64")):
            for suffix, grid, threads in (("flops", 8 * self.cores, 256), ("alone", 1, 1024)):
                source = pk.multiply_add(dtype, grid, threads)
                run = self.timer(source, [(1,), n, 1.0, 0.0, nan])
                work = per_thread * grid * threads
                found[f"{name}_{suffix}"] = [work / run(1) for _ in range(_SAMPLES)]
        return found

    def caches(self) -> dict[str, list[float]]:
        found = {}
        n_passes, grid = 2048, 8 * self.cores
        n_bytes = 16.0 * pk.THREADS * n_passes * grid
        for name, in_shared in (("L1_read", False), ("shared_read", True)):
            source = pk.near_read(grid, in_shared=in_shared)
            run = self.timer(source, [(4 * pk.NEAR_VECTORS,), (1,), n_passes, nan])
            found[name] = [n_bytes / run(1) for _ in range(_SAMPLES)]
        # All multiprocessors from a quarter of L2; one alone from what no L1 holds.
        everyone = (self.sheet.l2_bytes // 4, 8 * self.cores, 256)
        alone = (min(self.sheet.l2_bytes // 4, 4 * self.sheet.l1_bytes), 1, 1024)
        for name, (size, grid, threads) in (("L2_read", everyone), ("core_read", alone)):
            part = 16 * threads * grid  # of which each pass reads a whole number
            size = max(1, size // part) * part
            n_passes = 64
            source = pk.far_read(size // 4, grid, threads)
            run = self.timer(source, [(size // 4,), (1,), n_passes, nan])
            found[name] = [float(size) * n_passes / run(1) for _ in range(_SAMPLES)]
        return found

    def stream(self, what: str) -> list[float]:
        """Returns rates, in bytes per ns, of the best kernel that streams through memory.

        `what`: "read", "write" or "copy".
        """
        moved = 2 if what == "copy" else 1
        x, y, n_floats = self.large_arrays()
        out = self.array((1,), np.dtype(np.float32))
        rates = []
        for unrolled, blocks in _STREAMS:
            grid = blocks * self.cores or -(-n_floats // (4 * pk.THREADS * unrolled))
            run = self.timer(pk.stream(what, n_floats, grid, unrolled), [x, y, out, nan])
            rates.append([4.0 * n_floats * moved * 2 / run(2) for _ in range(_SAMPLES)])
        x.free()
        y.free()
        return max(rates, key=median)

    def large_arrays(self) -> tuple[Any, Any, int]:
        """Returns two arrays far larger than L2, as memory permits, and the number of floats in each."""
        l2_bytes = self.sheet.l2_bytes
        n_bytes = min(_TIMES_L2 * l2_bytes, self.sheet.memory_bytes // _SHARE_OF_MEMORY)
        while True:
            n_floats = n_bytes // 4096 * 1024
            first = None
            try:
                first = self.array((n_floats,), np.dtype(np.float32))
                return first, self.array((n_floats,), np.dtype(np.float32)), n_floats
            except MemoryError:
                if first is not None:
                    first.free()
                n_bytes //= 2
                if n_bytes < _LEAST_TIMES_L2 * l2_bytes:
                    raise

    # --- latencies ---

    def latencies(self) -> dict[str, list[float]]:
        run = self.timer(pk.nothing(), [(1,)])
        chains = {
            "launch_ns": [run(_LAUNCHES) / _LAUNCHES for _ in range(_SAMPLES)],
            "barrier_ns": [
                ns
                for threads in (32, 64)
                for ns in self.steps(pk.barriers(threads), lambda n: [(1,), n])
            ],
            "add_latency_ns": self.steps(pk.additions(), lambda n: [(1,), n, 1.0]),
        }
        chains["load_latency_ns"] = [*self.chase("shared", 1), *self.chase("near", 1)]
        chains["far_load_latency_ns"] = [*self.chase("far", _PLACES)]
        return chains

    def chase(self, where: str, places: int) -> Iterator[float]:
        n = pk.STRIDE * max(places, 4)
        x = self.array((n,), np.dtype(np.int32))
        x.upload(np.arange(n, dtype=np.int32))
        source = pk.chase(where, n)
        for k in range(places):
            start, few = k * pk.STRIDE, 3 if places > 1 else _SAMPLES

            def values(n: int, start: int = start) -> list[Any]:
                return [x, (1,), n, start]

            yield from self.steps(source, values, few)

    def steps(
        self, source: Source, values: Callable[[int], list[Any]], n_samples: int = _SAMPLES
    ) -> list[float]:
        """Returns samples of the time in ns of one step of a chain.

        A sample is the additional time of twice as many steps, so that the launch does not count.
        """
        n = 1 << 14
        short, long = self.timer(source, values(n)), self.timer(source, values(2 * n))
        found = [(long(1) - short(1)) / n for _ in range(n_samples)]
        kept = [ns for ns in found if ns > _LEAST_STEP_NS]
        if not kept:
            kernel = source.launches[0].kernel
            raise DeviceError(f"the probe {kernel} was disturbed: more steps took no longer")
        return kept
