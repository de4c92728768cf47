"""sgemvt: x = beta A'y + z; w = alpha A x."""

# mypy: disable-error-code="valid-type"

from __future__ import annotations

from typing import Any

import numpy as np

from ..frontend.kernel import kernel, types
from . import MATRIX_SIZES, LibrarySequence, Sizes, signed, zeros


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


def sgemvt(a: Any, y: Any, z: Any, x: Any, w: Any, alpha: float, beta: float) -> None:
    copy(z, x)
    add_scaled_gemvt(beta, a, y, x)
    scaled_gemv(alpha, a, x, w)


def make_arguments(sizes: Sizes, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    m, n = sizes["m"], sizes["n"]
    return (
        signed(rng, dtype, m, n),
        signed(rng, dtype, m),
        signed(rng, dtype, n),
        zeros(dtype, n),
        zeros(dtype, m),
        1.25,
        -0.75,
    )


def reference(a: Any, y: Any, z: Any, x: Any, w: Any, alpha: Any, beta: Any) -> None:
    x[:] = beta * (y @ a) + z
    w[:] = alpha * (a @ x)


ENTRY = LibrarySequence(
    name="sgemvt",
    formula="x = beta A'y + z; w = alpha A x",
    sequence=sgemvt,
    sizes={"m": 4096, "n": 4096},
    benchmark_sizes=MATRIX_SIZES,
    make_arguments=make_arguments,
    reference=reference,
    flops=lambda sizes: 4 * sizes["m"] * sizes["n"],
)
