"""Conversion of Python values to numbers and arrays of element types."""

from __future__ import annotations

import operator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..ir.errors import ProgramTypeError, ProgramValueError
from ..ir.kernel import DType
from .caller_location import fail


def number(x: Any, dtype: DType, what: str) -> int | float | bool:
    """Returns `x` converted to `dtype`; integers wrap around. `what` names the value in messages.

    LanguageError for a value that is no number, and for a float where an integer is needed.
    """
    try:
        if dtype.is_float:
            value = float(x)
            return value if abs(value) <= _greatest(dtype) else _rounded(value, dtype)
        if dtype is DType.bool_:
            return bool(x)
        return wrapped(operator.index(bool(x) if isinstance(x, np.bool_) else x), dtype)
    except (TypeError, ValueError):
        advice = ": convert it with int(...)" if isinstance(x, (float, np.floating)) else ""
        return fail(
            f"{what} takes a number of type {dtype.name}, not {x!r}{advice}", ProgramTypeError
        )


@cache
def _greatest(dtype: DType) -> float:
    return float(np.finfo(dtype.value).max)


def _rounded(x: float, dtype: DType) -> float:
    """Returns `x` in its float type: an infinity if it exceeds the finite range, without NumPy's warning."""
    with np.errstate(over="ignore"):
        return float(np.float64(x).astype(dtype.numpy))


def wrapped(x: int, dtype: DType) -> int:
    """Returns the lowest bits of `x`, read as an integer of type `dtype`."""
    bits = 8 * dtype.size_bytes
    x &= (1 << bits) - 1
    return x - (1 << bits) if dtype.numpy.kind == "i" and x >> (bits - 1) else x


def array_of(x: Any, what: str) -> NDArray[Any]:
    """Returns nested lists, tuples, vectors or arrays as one array of numbers.

    LanguageError for anything else; `what` names the value in the message.
    """
    try:
        array = np.asarray(x)
    except (TypeError, ValueError):
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        fail(f"{what} takes numbers in lists of one length, not {x!r}", ProgramValueError)
    return array


def element_values(
    x: Any, dtype: np.dtype[Any], shape: tuple[int, ...], what: str, is_exact: bool = False
) -> NDArray[Any]:
    """Returns the components of one element as an array of shape `shape` and type `dtype`.

    LanguageError unless their number fits `shape`; a vector may also be a column. `is_exact`: floats are not accepted as integers.
    """
    values = array_of(x, what)
    if values.shape == (*shape, 1) and len(shape) == 1:
        values = values[:, 0]
    if values.shape != shape:
        wanted = " x ".join(map(str, shape)) + " components" if shape else "one number"
        fail(f"{what} takes {wanted}, not {x!r}", ProgramTypeError)
    if is_exact and values.dtype.kind == "f" and dtype.kind in "iu":
        fail(f"{what} takes whole numbers, not {x!r}: convert them with int(...)", ProgramTypeError)
    with np.errstate(all="ignore"):
        return values.astype(dtype)
