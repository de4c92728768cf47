"""atax: y = A'(A x)."""

# mypy: disable-error-code="valid-type"

from __future__ import annotations

from typing import Any

import numpy as np

from ..frontend.kernel import kernel, types
from ..frontend.recorder import ndarray
from . import MATRIX_SIZES, LibrarySequence, Sizes, signed, zeros


@kernel
def gemv(a: types.ndarray(), x: types.ndarray(), y: types.ndarray()) -> None:
    for i in range(a.shape[0]):
        acc = 0.0
        for j in range(a.shape[1]):
            acc += a[i, j] * x[j]
        y[i] = acc


@kernel
def clear(s: types.ndarray()) -> None:
    for j in range(s.shape[0]):
        s[j] = 0.0


@kernel
def add_gemvt(a: types.ndarray(), r: types.ndarray(), s: types.ndarray()) -> None:
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            s[j] += a[i, j] * r[i]


def atax(a: Any, x: Any, y: Any) -> None:
    t = ndarray(a.dtype, (a.shape[0],), name="t")
    gemv(a, x, t)
    clear(y)
    add_gemvt(a, t, y)


def make_arguments(sizes: Sizes, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    m, n = sizes["m"], sizes["n"]
    return (
        signed(rng, dtype, m, n),
        signed(rng, dtype, n),
        zeros(dtype, n),
    )


def reference(a: Any, x: Any, y: Any) -> None:
    y[:] = (a @ x) @ a


ENTRY = LibrarySequence(
    name="atax",
    formula="y = A'(A x)",
    sequence=atax,
    sizes={"m": 4096, "n": 4096},
    benchmark_sizes=MATRIX_SIZES,
    make_arguments=make_arguments,
    reference=reference,
    flops=lambda sizes: 4 * sizes["m"] * sizes["n"],
)
