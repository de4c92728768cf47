"""waxpby: w = alpha x + beta y."""

# mypy: disable-error-code="valid-type"

from __future__ import annotations

from typing import Any

import numpy as np

from ..frontend.kernel import kernel, types
from ..frontend.recorder import ndarray
from . import VECTOR_SIZES, LibrarySequence, Sizes, signed, zeros


@kernel
def scale(beta: float, y: types.ndarray(), t: types.ndarray()) -> None:
    for i in range(t.shape[0]):
        t[i] = beta * y[i]


@kernel
def add_scaled(alpha: float, x: types.ndarray(), t: types.ndarray(), w: types.ndarray()) -> None:
    for i in range(w.shape[0]):
        w[i] = alpha * x[i] + t[i]


def waxpby(x: Any, y: Any, w: Any, alpha: float, beta: float) -> None:
    t = ndarray(w.dtype, w.shape, name="t")
    scale(beta, y, t)
    add_scaled(alpha, x, t, w)


def make_arguments(sizes: Sizes, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    n = sizes["n"]
    return (
        signed(rng, dtype, n),
        signed(rng, dtype, n),
        zeros(dtype, n),
        1.25,
        -0.75,
    )


def reference(x: Any, y: Any, w: Any, alpha: Any, beta: Any) -> None:
    w[:] = alpha * x + beta * y


ENTRY = LibrarySequence(
    name="waxpby",
    formula="w = alpha x + beta y",
    sequence=waxpby,
    sizes={"n": 2**24},
    benchmark_sizes=VECTOR_SIZES,
    make_arguments=make_arguments,
    reference=reference,
    flops=lambda sizes: 3 * sizes["n"],
)
