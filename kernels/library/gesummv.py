"""gesummv: y = alpha A x + beta B x."""

# mypy: disable-error-code="valid-type"

from __future__ import annotations

from typing import Any

import numpy as np

from ..frontend.kernel import kernel, types
from ..frontend.recorder import ndarray
from . import MATRIX_SIZES, LibrarySequence, Sizes, signed, zeros


@kernel
def scaled_gemv(alpha: float, a: types.ndarray(), x: types.ndarray(), y: types.ndarray()) -> None:
    for i in range(a.shape[0]):
        acc = 0.0
        for j in range(a.shape[1]):
            acc += a[i, j] * x[j]
        y[i] = alpha * acc


@kernel
def add_scaled_gemv(
    beta: float, b: types.ndarray(), x: types.ndarray(), t: types.ndarray(), y: types.ndarray()
) -> None:
    for i in range(b.shape[0]):
        acc = 0.0
        for j in range(b.shape[1]):
            acc += b[i, j] * x[j]
        y[i] = t[i] + beta * acc


def gesummv(a: Any, b: Any, x: Any, y: Any, alpha: float, beta: float) -> None:
    t = ndarray(a.dtype, (a.shape[0],), name="t")
    scaled_gemv(alpha, a, x, t)
    add_scaled_gemv(beta, b, x, t, y)


def make_arguments(sizes: Sizes, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    m, n = sizes["m"], sizes["n"]
    return (
        signed(rng, dtype, m, n),
        signed(rng, dtype, m, n),
        signed(rng, dtype, n),
        zeros(dtype, m),
        1.25,
        -0.75,
    )


def reference(a: Any, b: Any, x: Any, y: Any, alpha: Any, beta: Any) -> None:
    y[:] = alpha * (a @ x) + beta * (b @ x)


ENTRY = LibrarySequence(
    name="gesummv",
    formula="y = alpha A x + beta B x",
    sequence=gesummv,
    sizes={"m": 4096, "n": 4096},
    benchmark_sizes=MATRIX_SIZES,
    make_arguments=make_arguments,
    reference=reference,
    flops=lambda sizes: 4 * sizes["m"] * sizes["n"],
)
