"""sgemv: z = alpha A x + beta y."""

# mypy: disable-error-code="valid-type"

from __future__ import annotations

from typing import Any

import numpy as np

from ..frontend.kernel import kernel, types
from . import MATRIX_SIZES, LibrarySequence, Sizes, signed, zeros


@kernel
def gemv(
    alpha: float,
    a: types.ndarray(),
    x: types.ndarray(),
    beta: float,
    y: types.ndarray(),
    z: types.ndarray(),
) -> None:
    for i in range(a.shape[0]):
        acc = 0.0
        for j in range(a.shape[1]):
            acc += a[i, j] * x[j]
        z[i] = alpha * acc + beta * y[i]


def sgemv(a: Any, x: Any, y: Any, z: Any, alpha: float, beta: float) -> None:
    gemv(alpha, a, x, beta, y, z)


def make_arguments(sizes: Sizes, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    m, n = sizes["m"], sizes["n"]
    return (
        signed(rng, dtype, m, n),
        signed(rng, dtype, n),
        signed(rng, dtype, m),
        zeros(dtype, m),
        1.25,
        -0.75,
    )


def reference(a: Any, x: Any, y: Any, z: Any, alpha: Any, beta: Any) -> None:
    z[:] = alpha * (a @ x) + beta * y


ENTRY = LibrarySequence(
    name="sgemv",
    formula="z = alpha A x + beta y",
    sequence=sgemv,
    sizes={"m": 4096, "n": 4096},
    benchmark_sizes=MATRIX_SIZES,
    make_arguments=make_arguments,
    reference=reference,
    flops=lambda sizes: 2 * sizes["m"] * sizes["n"],
)
