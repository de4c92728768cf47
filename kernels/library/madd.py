"""madd: C = A + B."""

# mypy: disable-error-code="valid-type"

from __future__ import annotations

from typing import Any

import numpy as np

from ..frontend.kernel import kernel, types
from . import MATRIX_SIZES, LibrarySequence, Sizes, signed, zeros


@kernel
def add(a: types.ndarray(), b: types.ndarray(), c: types.ndarray()) -> None:
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            c[i, j] = a[i, j] + b[i, j]


def madd(a: Any, b: Any, c: Any) -> None:
    add(a, b, c)


def make_arguments(sizes: Sizes, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    m, n = sizes["m"], sizes["n"]
    return (
        signed(rng, dtype, m, n),
        signed(rng, dtype, m, n),
        zeros(dtype, m, n),
    )


def reference(a: Any, b: Any, c: Any) -> None:
    c[:] = a + b


ENTRY = LibrarySequence(
    name="madd",
    formula="C = A + B",
    sequence=madd,
    sizes={"m": 4096, "n": 4096},
    benchmark_sizes=MATRIX_SIZES,
    make_arguments=make_arguments,
    reference=reference,
    flops=lambda sizes: sizes["m"] * sizes["n"],
)
