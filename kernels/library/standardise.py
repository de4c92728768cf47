"""standardise: c = X - mean(X); y = max(gamma c / sqrt(mean(c c) + eps) + beta, 0); r = sum(y)."""

# mypy: disable-error-code="valid-type"

from __future__ import annotations

from typing import Any

import numpy as np

from ..frontend.functions import sqrt
from ..frontend.kernel import kernel, types
from ..frontend.recorder import ndarray
from . import MATRIX_SIZES, LibrarySequence, Sizes, signed, zeros


@kernel
def row_means(x: types.ndarray(), mean: types.ndarray()) -> None:
    for i in range(x.shape[0]):
        acc = 0.0
        for j in range(x.shape[1]):
            acc += x[i, j]
        mean[i] = acc / x.shape[1]


@kernel
def centre(x: types.ndarray(), mean: types.ndarray(), c: types.ndarray()) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            c[i, j] = x[i, j] - mean[i]


@kernel
def inverse_deviations(c: types.ndarray(), s: types.ndarray(), epsilon: float) -> None:
    for i in range(c.shape[0]):
        acc = 0.0
        for j in range(c.shape[1]):
            acc += c[i, j] * c[i, j]
        s[i] = 1.0 / sqrt(acc / c.shape[1] + epsilon)


@kernel
def scale(
    c: types.ndarray(),
    s: types.ndarray(),
    gamma: types.ndarray(),
    beta: types.ndarray(),
    y: types.ndarray(),
) -> None:
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            y[i, j] = gamma[j] * (c[i, j] * s[i]) + beta[j]


@kernel
def relu(y: types.ndarray()) -> None:
    for i in range(y.shape[0]):
        for j in range(y.shape[1]):
            y[i, j] = max(y[i, j], 0.0)


@kernel
def total(y: types.ndarray(), r: types.ndarray()) -> None:
    r[0] = 0.0
    for i in range(y.shape[0]):
        for j in range(y.shape[1]):
            r[0] += y[i, j]


def standardise(x: Any, gamma: Any, beta: Any, y: Any, r: Any) -> None:
    mean = ndarray(x.dtype, (x.shape[0],), name="mean")
    c = ndarray(x.dtype, x.shape, name="c")
    s = ndarray(x.dtype, (x.shape[0],), name="s")
    row_means(x, mean)
    centre(x, mean, c)
    inverse_deviations(c, s, 1e-5)
    scale(c, s, gamma, beta, y)
    relu(y)
    total(y, r)


def make_arguments(sizes: Sizes, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    m, n = sizes["m"], sizes["n"]
    return (
        signed(rng, dtype, m, n),
        signed(rng, dtype, n),
        signed(rng, dtype, n),
        zeros(dtype, m, n),
        zeros(dtype, 1),
    )


def reference(x: Any, gamma: Any, beta: Any, y: Any, r: Any) -> None:
    c = x - x.mean(axis=1, keepdims=True)
    s = 1 / np.sqrt((c * c).mean(axis=1, keepdims=True) + x.dtype.type(1e-5))
    y[:] = np.maximum(gamma * (c * s) + beta, 0)
    r[0] = y.sum()


ENTRY = LibrarySequence(
    name="standardise",
    formula="c = X - mean(X); y = max(gamma c / sqrt(mean(c c) + eps) + beta, 0); r = sum(y)",
    sequence=standardise,
    sizes={"m": 4096, "n": 4096},
    benchmark_sizes=MATRIX_SIZES,
    make_arguments=make_arguments,
    reference=reference,
    flops=lambda sizes: 9 * sizes["m"] * sizes["n"],
)
