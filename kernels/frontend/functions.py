"""The functions of one or two numbers that kernels call by name, one for each row of `kernels/ir/ops.py`.

Import them as `from .functions import sqrt`. Outside a kernel they are NumPy's, so that the undecorated function (`Kernel.fn`)
runs.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ..fields.matrix import Matrix
from ..ir.ops import OPS, functions


@cache
def function(name: str) -> Callable[..., Any]:
    """Returns the function of this name; KeyError if `kernels/ir/ops.py` has no row of that name."""
    op = OPS[name]

    def of_one(x: Any) -> Any:
        if isinstance(x, Matrix):
            return Matrix(op.numpy(x.entries))
        return op.numpy(np.asarray(x))[()]

    def of_two(x: Any, y: Any) -> Any:
        if isinstance(x, Matrix) or isinstance(y, Matrix):
            return Matrix(of_two(*(v.entries if isinstance(v, Matrix) else v for v in (x, y))))
        return op.numpy(*np.broadcast_arrays(*_alike(x, y)))[()]

    outside = of_one if op.arity == 1 else of_two
    outside.__name__ = outside.__qualname__ = name
    outside.__doc__ = op.doc
    return outside


def _alike(x: Any, y: Any) -> tuple[Any, Any]:
    """Returns both arguments as NumPy arrays of their common type."""
    dtype = np.result_type(x, y)
    return np.asarray(x).astype(dtype), np.asarray(y).astype(dtype)


# Functions of Python and NumPy that have another name than the operation.
_OTHERS: tuple[tuple[object, str], ...] = (
    (abs, "abs"),
    (operator.abs, "abs"),
    (np.abs, "abs"),
    (np.fabs, "abs"),
    (math.fabs, "abs"),
    (round, "rint"),
    (np.round, "rint"),
    (np.around, "rint"),
    (np.fix, "trunc"),
    (np.bitwise_count, "popcnt"),
    (np.power, "pow"),
    (np.fmod, "raw_mod"),
    (math.fmod, "raw_mod"),
)


def operation_of(callee: object) -> str | None:
    """Returns the IR operation for a function of the language, of `math` or of NumPy; None if there is none.

    None for others.
    """
    for other, name in _OTHERS:
        if callee is other:
            return name
    for op in functions():
        if any(callee is f for f in (function(op.name), op.numpy, getattr(math, op.name, None))):
            return op.name
    return None


# Of these Python gives an int.
WHOLE: tuple[object, ...] = (math.floor, math.ceil, math.trunc, round)


def __getattr__(name: str) -> Any:
    if name in OPS and OPS[name].doc:
        return function(name)
    raise AttributeError(f"the language has no function {name!r}")
