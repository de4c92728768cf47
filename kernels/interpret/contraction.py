"""Sums of products, which the interpreter computes by BLAS.

A matrix product has too many terms to store before they are added.
"""

from __future__ import annotations

from string import ascii_letters
from typing import Any

import numpy as np

from ..ir.kernel import Binary, Expr, For, Load, UpdateLocal

Array = np.ndarray[Any, Any]


Factors = tuple[Load, Load]


def contraction(loop: For) -> tuple[Factors, ...] | None:
    """The pairs of factors of the products that a loop adds up, if it does nothing else; None for other loops.

    All factors are floats. There is one pair for each product in an iteration.
    """
    match loop.body:
        case (UpdateLocal() as update,):
            return factors(update)
        case _:
            return None


def factors(update: UpdateLocal) -> tuple[Factors, ...] | None:
    """The pairs of loads whose products an update adds, all floats of one dtype; None for any other update."""
    return _products(update.value) if update.op == "add" else None


def _products(e: Expr) -> tuple[Factors, ...] | None:
    match e:
        case Binary(op="mul", a=Load() as a, b=Load() as b, dtype=t):
            return ((a, b),) if t.is_float and a.dtype is t and b.dtype is t else None
        case Binary(op="add", a=a, b=b):
            left, right = _products(a), _products(b)
            return None if left is None or right is None else (*left, *right)
        case _:
            return None


def contract(a: Array, b: Array, shape: tuple[int, ...], n_reduced: int) -> Array:
    """The sum of `a * b`, broadcast to `shape`, over its first `n_reduced` axes.

    Axes along which no factor varies have length 1 in the result.
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
    """The sum of products, with named axes of the factors and of the result.

    BLAS runs a product of a matrix and a vector on several threads, which costs more than it saves. einsum uses one core.
    """
    in_a, in_b, kept = axes
    shared = [x for x in in_a if x in in_b]
    formula = f"{''.join(in_a)},{''.join(in_b)}->{''.join(kept)}"
    if {a.ndim, b.ndim} == {1, 2} and shared:
        return np.asarray(np.einsum(formula, a, b))
    if (
        not shared
        or any(x in kept for x in shared)
        or len(kept) + 2 * len(shared) != len(in_a + in_b)
    ):
        return np.asarray(np.einsum(formula, a, b, optimize=True))
    at = [in_a.index(x) for x in shared], [in_b.index(x) for x in shared]
    total = np.asarray(np.tensordot(a, b, at))
    found = [x for x in in_a + in_b if x not in shared]
    return total.transpose([found.index(x) for x in kept])
