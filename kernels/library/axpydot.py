"""axpydot: z = w - alpha v; r = z'u."""

# mypy: disable-error-code="valid-type"

from __future__ import annotations

from typing import Any

import numpy as np

from ..frontend.kernel import kernel, types
from . import VECTOR_SIZES, LibrarySequence, Sizes, signed, zeros


@kernel
def subtract_scaled(
    w: types.ndarray(), alpha: float, v: types.ndarray(), z: types.ndarray()
) -> None:
    for i in range(z.shape[0]):
        z[i] = w[i] - alpha * v[i]


@kernel
def dot(x: types.ndarray(), y: types.ndarray(), r: types.ndarray()) -> None:
    acc = 0.0
    for i in range(x.shape[0]):
        acc += x[i] * y[i]
    r[0] = acc


def axpydot(w: Any, v: Any, u: Any, z: Any, r: Any, alpha: float) -> None:
    subtract_scaled(w, alpha, v, z)
    dot(z, u, r)


def make_arguments(sizes: Sizes, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    n = sizes["n"]
    return (
        signed(rng, dtype, n),
        signed(rng, dtype, n),
        signed(rng, dtype, n),
        zeros(dtype, n),
        zeros(dtype, 1),
        0.75,
    )


def reference(w: Any, v: Any, u: Any, z: Any, r: Any, alpha: Any) -> None:
    z[:] = w - alpha * v
    r[0] = z @ u


ENTRY = LibrarySequence(
    name="axpydot",
    formula="z = w - alpha v; r = z'u",
    sequence=axpydot,
    sizes={"n": 2**24},
    benchmark_sizes=VECTOR_SIZES,
    make_arguments=make_arguments,
    reference=reference,
    flops=lambda sizes: 4 * sizes["n"],
)
