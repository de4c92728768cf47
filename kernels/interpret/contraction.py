"""Sums of products, which the interpreter gives to BLAS: the terms of a matrix product are too many
to be made first and added then.
"""

from __future__ import annotations

from string import ascii_letters
from typing import Any

import numpy as np

from ..ir.kernel import Binary, For, Load, UpdateLocal

Array = np.ndarray[Any, Any]


def contraction(loop: For) -> tuple[Load, Load] | None:
    """The two factors whose products the loop adds up, if that is all it does, in floats."""
    match loop.body:
        case (UpdateLocal() as update,):
            return factors(update)
        case _:
            return None


def factors(update: UpdateLocal) -> tuple[Load, Load] | None:
    """The two loads whose product is added, both floats of its dtype."""
    match update:
        case UpdateLocal(op="add", value=Binary(op="mul", a=Load() as a, b=Load() as b, dtype=t)):
            return (a, b) if t.is_float and a.dtype is t and b.dtype is t else None
        case _:
            return None


def contract(a: Array, b: Array, shape: tuple[int, ...], n_reduced: int) -> Array:
    """The sum of `a * b`, broadcast to `shape`, over its first `n_reduced` axes; axes along which
    nothing differs have length 1 in the result.
    """
    a, b = (x.reshape((1,) * (len(shape) - x.ndim) + x.shape) for x in (a, b))
    letters = ascii_letters[: len(shape)]
    in_a = [x for x, n in zip(letters, a.shape, strict=True) if n > 1]
    in_b = [x for x, n in zip(letters, b.shape, strict=True) if n > 1]
    kept = [x for x in letters[n_reduced:] if x in in_a or x in in_b]
    total = _product(a.squeeze(), b.squeeze(), (in_a, in_b, kept))
    extents = iter(total.shape)
    total = total.reshape([next(extents) if x in kept else 1 for x in letters[n_reduced:]])
    for x, count in zip(letters[:n_reduced], shape, strict=False):
        if x not in in_a and x not in in_b:
            total = total * total.dtype.type(count)  # as many equal terms
    return total


def _product(a: Array, b: Array, axes: tuple[list[str], list[str], list[str]]) -> Array:
    """The sum of products, where the axes of the factors and of the result are named.

    einsum leaves products of a matrix and a vector to loops that may go against the rows: 6 ms for one of 500 x 1,000.
    """
    in_a, in_b, kept = axes
    shared = [x for x in in_a if x in in_b]
    if (
        not shared
        or any(x in kept for x in shared)
        or len(kept) + 2 * len(shared) != len(in_a + in_b)
    ):
        formula = f"{''.join(in_a)},{''.join(in_b)}->{''.join(kept)}"
        return np.asarray(np.einsum(formula, a, b, optimize=True))
    at = [in_a.index(x) for x in shared], [in_b.index(x) for x in shared]
    if {a.ndim, b.ndim} == {1, 2}:
        # A tenth of what it takes as the product of two matrices, one of which has one row.
        matrix, vector, axis = (a, b, at[0][0]) if a.ndim == 2 else (b, a, at[1][0])
        return np.asarray(vector @ matrix if axis == 0 else matrix @ vector)
    total = np.asarray(np.tensordot(a, b, at))
    found = [x for x in in_a + in_b if x not in shared]
    return total.transpose([found.index(x) for x in kept])
