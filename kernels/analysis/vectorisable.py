"""Vectorisation legality: statements that can run in lanes (codegen/bodies/lanes.py).

A lane is one of several iterations of a loop that run at once.
"""

from __future__ import annotations

from ..ir import kernel as ir
from ..ir.task import Problem
from ..ir.walk import children, nested_statements, walk

MOST_ELEMENTS = 512  # of local arrays: each has a vector or two on the stack of the thread


def refusal(body: tuple[ir.Stmt, ...], problem: Problem) -> str:
    """Returns the reason why a body cannot be vectorised, as the end of a sentence; "" if it can be.

    Precondition: the iterations of the body are independent.
    """
    arrays = set[str]()
    n_elements = 0
    for s in nested_statements(body):
        if isinstance(s, ir.Print | ir.Assert):
            return "it prints" if isinstance(s, ir.Print) else "it asserts"
        if isinstance(s, ir.LocalArray):
            n_elements += s.extent
            if s.value.dtype is ir.DType.bool_:
                return "it has local arrays of bools"
        if isinstance(s, ir.Store | ir.Update):
            arrays.add(s.array)
        for e in children(s):
            for x in walk(e):
                if x.dtype is ir.DType.f16:
                    return "it computes in halves"
                if isinstance(x, ir.Load):
                    arrays.add(x.array)
    if n_elements > MOST_ELEMENTS:
        return f"its local arrays have more than {MOST_ELEMENTS} elements"
    for name in sorted(arrays):
        info = problem.array(name)
        if info.dtype in (ir.DType.f16, ir.DType.bool_):
            return f"{name} has elements of {info.dtype.name}"
        n = 1
        for extent in info.shape:
            n *= extent
        if n >= 2**31:
            return f"{name} has more elements than indices of 32 bits"
    return ""
