"""axpy: z = alpha x + y."""

# mypy: disable-error-code="valid-type"

from __future__ import annotations

from typing import Any

import numpy as np

from ..frontend.kernel import kernel, types
from . import VECTOR_SIZES, LibrarySequence, Sizes, signed, zeros


@kernel
def add_scaled(alpha: float, x: types.ndarray(), y: types.ndarray(), z: types.ndarray()) -> None:
    for i in range(z.shape[0]):
        z[i] = alpha * x[i] + y[i]


def axpy(x: Any, y: Any, z: Any, alpha: float) -> None:
    add_scaled(alpha, x, y, z)


def make_arguments(sizes: Sizes, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    n = sizes["n"]
    return (
        signed(rng, dtype, n),
        signed(rng, dtype, n),
        zeros(dtype, n),
        1.25,
    )


def reference(x: Any, y: Any, z: Any, alpha: Any) -> None:
    z[:] = alpha * x + y


ENTRY = LibrarySequence(
    name="axpy",
    formula="z = alpha x + y",
    sequence=axpy,
    sizes={"n": 2**24},
    benchmark_sizes=VECTOR_SIZES,
    make_arguments=make_arguments,
    reference=reference,
    flops=lambda sizes: 2 * sizes["n"],
)
