"""Times the scatters of experiments/scatters.py in Taichi, in the Python of Taichi itself.

    python -m kernelscape.experiments.taichi_scatters p2g_sorted --n 200000 --seed 1

The last line of stdout is one JSON object: the nanoseconds of the fastest of the calls. Needs NumPy and Taichi only.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from inspect import signature
from typing import Any

import numpy as np

GRID = 64  # nodes along each axis of a grid of particles
BINS = 1 << 16  # of a histogram
_CELLS = 4  # sorted particles are in the order of blocks of so many cells
_CALLS = 15


def arrays_of(name: str, n: int, seed: int) -> tuple[Any, ...]:
    """The arguments of a sequence: particles, keys or edges, `n` of them, and what they are added to."""
    rng = np.random.default_rng(seed)
    if name.startswith("p2g"):
        x = (0.3 + 0.4 * rng.random((n, 3))).astype(np.float32)
        if name == "p2g_sorted":
            block = (x * GRID - 0.5).astype(np.int64) // _CELLS
            x = x[np.lexsort(block.T[::-1])]
        q = rng.random((n, 4)).astype(np.float32)
        return x, q, np.zeros((GRID, GRID, GRID, 4), np.float32)
    if name == "histogram":
        return rng.integers(0, BINS, n).astype(np.int32), np.zeros(BINS, np.int32)
    nodes = max(2, n // 3)
    first = np.sort(rng.integers(0, nodes, n))
    near = np.clip(first + rng.integers(-64, 65, n), 0, nodes - 1)
    edge = np.stack([first, near], 1).astype(np.int32)
    return edge, rng.random(nodes).astype(np.float32), np.zeros(nodes, np.float32)


def kernel_of(ti: Any, name: str) -> Callable[..., None]:
    """The kernel as its users write it; iterations of the outermost loop run in parallel, updates are atomic."""

    def p2g(x: Any, q: Any, grid: Any):
        for p in range(x.shape[0]):
            at = ti.Vector([x[p, 0], x[p, 1], x[p, 2]]) * GRID
            base = ti.cast(at - 0.5, ti.i32)
            f = at - base
            w = [0.5 * (1.5 - f) ** 2, 0.75 - (f - 1.0) ** 2, 0.5 * (f - 0.5) ** 2]
            for i, j, k in ti.static(ti.ndrange(3, 3, 3)):
                weight = w[i][0] * w[j][1] * w[k][2]
                for d in ti.static(range(4)):
                    grid[base[0] + i, base[1] + j, base[2] + k, d] += weight * q[p, d]

    def histogram(key: Any, bins: Any):
        for i in range(key.shape[0]):
            bins[key[i]] += 1

    def edges(edge: Any, u: Any, f: Any):
        for e in range(edge.shape[0]):
            s = u[edge[e, 1]] - u[edge[e, 0]]
            f[edge[e, 0]] += s
            f[edge[e, 1]] -= s

    found = {"p2g_sorted": p2g, "p2g_unsorted": p2g, "histogram": histogram, "edges": edges}
    function: Any = found[name]
    function.__annotations__ = {x: ti.types.ndarray() for x in signature(function).parameters}
    kernel: Callable[..., None] = ti.kernel(function)
    return kernel


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--n", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    ti: Any = import_module("taichi")
    ti.init(arch=ti.cpu, offline_cache=False, log_level=ti.ERROR)
    kernel = kernel_of(ti, given.name)
    held = []
    for array in arrays_of(given.name, given.n, given.seed):
        one = ti.ndarray(ti.i32 if array.dtype.kind == "i" else ti.f32, array.shape)
        one.from_numpy(array)
        held.append(one)
    times = []
    for _ in range(_CALLS):
        begun = time.perf_counter_ns()
        kernel(*held)
        ti.sync()
        times.append(time.perf_counter_ns() - begun)
    print(json.dumps({"ns": min(times)}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
