"""The functions of one number that kernels call by name, one for each row of `kernels/ir/ops.py`: `from .functions import sqrt`.

Outside a kernel they are NumPy's, so that the undecorated function (`Kernel.fn`) runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ..ir.ops import OPS, functions


@cache
def function(name: str) -> Callable[[Any], Any]:
    """The function of this name; KeyError where the table has none."""
    op = OPS[name]

    def outside(x: Any) -> Any:
        return op.numpy(x)

    outside.__name__ = outside.__qualname__ = name
    outside.__doc__ = op.doc
    return outside


def operation_of(callee: object) -> str | None:
    """The operation that a function of the language, of `math` or of NumPy stands for in a kernel."""
    if callee is abs or callee is np.abs or callee is math.fabs:
        return "abs"
    for op in functions():
        known = (function(op.name), getattr(math, op.name, None), getattr(np, op.name, None))
        if any(callee is f for f in known):
            return op.name
    return None


def __getattr__(name: str) -> Any:
    if name in OPS and OPS[name].doc:
        return function(name)
    raise AttributeError(f"the language has no function {name!r}")
