"""vadd: x = w + y + z."""

# mypy: disable-error-code="valid-type"

from __future__ import annotations

from typing import Any

import numpy as np

from ..frontend.kernel import kernel, types
from ..frontend.recorder import ndarray
from . import VECTOR_SIZES, LibrarySequence, Sizes, signed, zeros


@kernel
def add(a: types.ndarray(), b: types.ndarray(), c: types.ndarray()) -> None:
    for i in range(c.shape[0]):
        c[i] = a[i] + b[i]


def vadd(w: Any, y: Any, z: Any, x: Any) -> None:
    t = ndarray(x.dtype, x.shape, name="t")
    add(w, y, t)
    add(t, z, x)


def make_arguments(sizes: Sizes, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    n = sizes["n"]
    return (
        signed(rng, dtype, n),
        signed(rng, dtype, n),
        signed(rng, dtype, n),
        zeros(dtype, n),
    )


def reference(w: Any, y: Any, z: Any, x: Any) -> None:
    x[:] = w + y + z


ENTRY = LibrarySequence(
    name="vadd",
    formula="x = w + y + z",
    sequence=vadd,
    sizes={"n": 2**24},
    benchmark_sizes=VECTOR_SIZES,
    make_arguments=make_arguments,
    reference=reference,
    flops=lambda sizes: 2 * sizes["n"],
)
