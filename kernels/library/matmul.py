"""matmul: C = A B."""

# mypy: disable-error-code="valid-type"

from __future__ import annotations

from typing import Any

import numpy as np

from ..frontend.kernel import kernel, types
from . import LibrarySequence, Sizes, signed, zeros


@kernel
def multiply(a: types.ndarray(), b: types.ndarray(), c: types.ndarray()) -> None:
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            acc = 0.0
            for k in range(b.shape[0]):
                acc += a[i, k] * b[k, j]
            c[i, j] = acc


def matmul(a: Any, b: Any, c: Any) -> None:
    multiply(a, b, c)


def make_arguments(sizes: Sizes, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    m, n, k = sizes["m"], sizes["n"], sizes["k"]
    return (
        signed(rng, dtype, m, k),
        signed(rng, dtype, k, n),
        zeros(dtype, m, n),
    )


def reference(a: Any, b: Any, c: Any) -> None:
    np.matmul(a, b, out=c)


ENTRY = LibrarySequence(
    name="matmul",
    formula="C = A B",
    sequence=matmul,
    sizes={"m": 1024, "n": 1024, "k": 1024},
    benchmark_sizes=({"m": 256, "n": 256, "k": 32}, {"m": 1024, "n": 1024, "k": 1024}),
    make_arguments=make_arguments,
    reference=reference,
    flops=lambda sizes: 2 * sizes["m"] * sizes["n"] * sizes["k"],
)
