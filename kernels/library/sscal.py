"""sscal: x = alpha x."""

# mypy: disable-error-code="valid-type"

from __future__ import annotations

from typing import Any

import numpy as np

from ..frontend.kernel import kernel, types
from . import VECTOR_SIZES, LibrarySequence, Sizes, signed


@kernel
def scale(alpha: float, x: types.ndarray()) -> None:
    for i in range(x.shape[0]):
        x[i] *= alpha


def sscal(x: Any, alpha: float) -> None:
    scale(alpha, x)


def make_arguments(sizes: Sizes, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    n = sizes["n"]
    return (
        signed(rng, dtype, n),
        1.25,
    )


def reference(x: Any, alpha: Any) -> None:
    x *= alpha


ENTRY = LibrarySequence(
    name="sscal",
    formula="x = alpha x",
    sequence=sscal,
    sizes={"n": 2**24},
    benchmark_sizes=VECTOR_SIZES,
    make_arguments=make_arguments,
    reference=reference,
    flops=lambda sizes: sizes["n"],
)
