"""gemver: B = A + u1 v1' + u2 v2'; x = beta B'y + z; w = alpha B x."""

# mypy: disable-error-code="valid-type"

from __future__ import annotations

from typing import Any

import numpy as np

from ..frontend.kernel import kernel, types
from . import MATRIX_SIZES, LibrarySequence, Sizes, signed, zeros


@kernel
def add_two_outer(
    a: types.ndarray(),
    u1: types.ndarray(),
    v1: types.ndarray(),
    u2: types.ndarray(),
    v2: types.ndarray(),
    b: types.ndarray(),
) -> None:
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            b[i, j] = a[i, j] + u1[i] * v1[j] + u2[i] * v2[j]


@kernel
def copy(z: types.ndarray(), x: types.ndarray()) -> None:
    for j in range(x.shape[0]):
        x[j] = z[j]


@kernel
def add_scaled_gemvt(
    beta: float, a: types.ndarray(), y: types.ndarray(), x: types.ndarray()
) -> None:
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            x[j] += beta * a[i, j] * y[i]


@kernel
def scaled_gemv(alpha: float, a: types.ndarray(), x: types.ndarray(), y: types.ndarray()) -> None:
    for i in range(a.shape[0]):
        acc = 0.0
        for j in range(a.shape[1]):
            acc += a[i, j] * x[j]
        y[i] = alpha * acc


def gemver(
    a: Any,
    u1: Any,
    v1: Any,
    u2: Any,
    v2: Any,
    y: Any,
    z: Any,
    b: Any,
    x: Any,
    w: Any,
    alpha: float,
    beta: float,
) -> None:
    add_two_outer(a, u1, v1, u2, v2, b)
    copy(z, x)
    add_scaled_gemvt(beta, b, y, x)
    scaled_gemv(alpha, b, x, w)


def make_arguments(sizes: Sizes, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    m, n = sizes["m"], sizes["n"]
    return (
        signed(rng, dtype, m, n),
        signed(rng, dtype, m),
        signed(rng, dtype, n),
        signed(rng, dtype, m),
        signed(rng, dtype, n),
        signed(rng, dtype, m),
        signed(rng, dtype, n),
        zeros(dtype, m, n),
        zeros(dtype, n),
        zeros(dtype, m),
        1.25,
        -0.75,
    )


def reference(
    a: Any,
    u1: Any,
    v1: Any,
    u2: Any,
    v2: Any,
    y: Any,
    z: Any,
    b: Any,
    x: Any,
    w: Any,
    alpha: Any,
    beta: Any,
) -> None:
    b[:] = a + np.outer(u1, v1) + np.outer(u2, v2)
    x[:] = beta * (y @ b) + z
    w[:] = alpha * (b @ x)


ENTRY = LibrarySequence(
    name="gemver",
    formula="B = A + u1 v1' + u2 v2'; x = beta B'y + z; w = alpha B x",
    sequence=gemver,
    sizes={"m": 4096, "n": 4096},
    benchmark_sizes=MATRIX_SIZES,
    make_arguments=make_arguments,
    reference=reference,
    flops=lambda sizes: 8 * sizes["m"] * sizes["n"],
)
