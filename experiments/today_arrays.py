"""Arrays of the workloads of `experiments/today.py`: sizes are fixed, one within the second cache and one beyond it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
F32, I32 = np.float32, np.int32
PER_ROW = 16  # entries of a row of a sparse matrix, on average
STEPS = 20  # of Gray-Scott, Lattice-Boltzmann and PageRank
RADIUS = 3  # of the bilateral filter
PATHS = 64  # of an option's price by random paths
DAMPING = 0.85
FEED, KILL, SPREAD_U, SPREAD_V = 0.055, 0.062, 0.16, 0.08

# The size n of each row of the page, and the workload that it is of.
ROWS: Mapping[str, tuple[str, tuple[int, int]]] = {
    "softmax": ("softmax", (256, 4096)),
    "layer_norm": ("layer_norm", (256, 4096)),
    "rms_norm": ("rms_norm", (256, 4096)),
    "gelu": ("gelu", (1 << 16, 1 << 22)),
    "attention": ("attention", (256, 1024)),
    "bilateral": ("bilateral", (256, 1024)),
    "convolution_3": ("convolution", (256, 2048)),
    "convolution_5": ("convolution", (256, 2048)),
    "products_of_4": ("batched_product", (2_000, 200_000)),
    "products_of_8": ("batched_product", (500, 50_000)),
    "products_of_16": ("batched_product", (200, 10_000)),
    "products_of_32": ("batched_product", (50, 2_000)),
    "k_means": ("k_means", (4_000, 200_000)),
    "histogram": ("histogram", (1 << 16, 1 << 23)),
    "prefix_sum": ("prefix_sum", (1 << 16, 1 << 23)),
    "even_rows": ("sparse_product", (4_000, 200_000)),
    "uneven_rows": ("sparse_product", (4_000, 200_000)),
    "page_rank": ("page_rank", (4_000, 200_000)),
    "gray_scott": ("gray_scott", (256, 1024)),
    "lattice_boltzmann": ("lattice_boltzmann", (128, 512)),
    "black_scholes": ("black_scholes", (1 << 15, 1 << 21)),
    "monte_carlo": ("monte_carlo", (1 << 10, 1 << 15)),
    "image_pipeline": ("blur_and_edges", (512, 4096)),
    "selective_scan": ("selective_scan", (64, 1024)),
    "floyd_warshall": ("floyd_warshall", (256, 1024)),
}

RESULTS: Mapping[str, tuple[int, ...]] = {
    "layer_norm": (3,),
    "rms_norm": (2,),
    "attention": (3,),
    "k_means": (2, 3, 4),
    "convolution": (2,),
    "blur_and_edges": (1, 2),
    "gray_scott": (2, 3),
    "batched_product": (2,),
    "sparse_product": (4,),
    "page_rank": (4,),
    "selective_scan": (6,),
    "floyd_warshall": (0,),
    "black_scholes": (3, 4),
}
"""The positions of results among the arrays of a workload; of others the second array."""


def results_of(name: str, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """The results of a row among its arrays."""
    workload, _ = ROWS[name]
    return tuple(arrays[k] for k in RESULTS.get(workload, (1,)))


def arrays_of(name: str, n: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """The arguments of a row of the page."""

    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape, dtype=F32)

    def zeros(*shape: int) -> Array:
        return np.zeros(shape, F32)

    workload, _ = ROWS[name]
    match workload:
        case "softmax":
            return 3 * normal(n, 1000), zeros(n, 1000)
        case "layer_norm":
            return normal(n, 768), normal(768), normal(768), zeros(n, 768)
        case "rms_norm":
            return normal(n, 768), normal(768), zeros(n, 768)
        case "gelu":
            return 2 * normal(n), zeros(n)
        case "attention":
            heads = 2048 // n
            return (*(normal(heads, n, 64) for _ in range(3)), zeros(heads, n, 64))
        case "bilateral":
            return rng.random((n, n), dtype=F32), zeros(n, n)
        case "convolution":
            side = int(name[-1])
            return (
                rng.random((n, n), dtype=F32),
                normal(side, side),
                zeros(n - side + 1, n - side + 1),
            )
        case "batched_product":
            side = int(name.rpartition("_")[2])
            return normal(n, side, side), normal(n, side, side), zeros(n, side, side)
        case "k_means":
            centres = normal(32, 16)
            near = centres[rng.integers(0, 32, n)] + 0.3 * normal(n, 16)
            return near, centres, zeros(32, 16), zeros(32), np.zeros(n, I32)
        case "histogram":
            return rng.integers(0, 256, n).astype(I32), np.zeros(256, I32)
        case "prefix_sum":
            return rng.random(n, dtype=F32) / F32(n), zeros(n)
        case "sparse_product" | "page_rank":
            return _sparse(name, n, rng)
        case "gray_scott":
            u, v = np.ones((n, n), F32), zeros(n, n)
            part = slice(n // 2 - 10, n // 2 + 10)
            u[part, part], v[part, part] = 0.5, 0.25
            u += 0.01 * rng.random((n, n), dtype=F32)
            return zeros(n, n), zeros(n, n), u, v
        case "lattice_boltzmann":
            weights = np.array([4 / 9, *[1 / 9] * 4, *[1 / 36] * 4], F32)
            return zeros(9, n, n), weights[:, None, None] * (1 + F32(0.01) * normal(9, n, n))
        case "black_scholes":
            prices = (rng.uniform(10, 50, n).astype(F32) for _ in range(2))
            return (*prices, rng.uniform(0.2, 2, n).astype(F32), zeros(n), zeros(n))
        case "monte_carlo":
            return rng.uniform(80, 120, n).astype(F32), zeros(n)
        case "blur_and_edges":
            image = rng.integers(0, 256, (n, n)).astype(np.uint8)
            return image, np.zeros_like(image), np.zeros_like(image)
        case "selective_scan":
            delta = rng.uniform(0.001, 0.1, (n, 256)).astype(F32)
            a = -np.broadcast_to(np.arange(1, 17, dtype=F32), (256, 16)).copy()
            return (
                normal(n, 256),
                delta,
                a,
                normal(n, 16),
                normal(n, 16),
                zeros(256, 16),
                zeros(n, 256),
            )
        case "floyd_warshall":
            return (rng.integers(1, 1000, (n, n)).astype(F32),)
    raise ValueError(f"no workload {name!r}")


def _sparse(name: str, n: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """A matrix by rows, and its vectors; uneven rows are as long as those of a web graph."""
    if name == "uneven_rows":
        lengths = np.minimum((rng.pareto(1.2, n) * 4).astype(np.int64), n)
    else:
        lengths = rng.integers(0, 2 * PER_ROW + 1, n)
    start = np.concatenate([[0], np.cumsum(lengths)]).astype(I32)
    column = rng.integers(0, n, int(start[-1])).astype(I32)
    if name == "page_rank":
        links = np.bincount(column, minlength=n)
        share = (1.0 / np.maximum(links, 1)).astype(F32)
        return start, column, share, np.zeros(n, F32), np.full(n, 1.0 / n, F32)
    value = rng.standard_normal(len(column), dtype=F32)
    return start, column, value, rng.standard_normal(n, dtype=F32), np.zeros(n, F32)
