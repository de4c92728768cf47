"""The operations of the language, a row each: all that language, check, interpreters, bound and code generation know of one.

A function of one number is added by a row here and its name in the public table of the package.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

Takes = Literal["numbers", "floats", "integers", "bools"]


@dataclass(frozen=True)
class Op:
    """One operation. Arguments and result have one dtype, of comparisons the result is a bool.

    `numpy` is what it means. `sign` is the operator between its operands in Python. `c` is the function of <math.h> on a double;
    with an f behind it that on a float. `module` is where Python has the function of that name, "" for a builtin. `flops` are
    operations on floats that are surely executed. `neutral` is the value that changes nothing, of those that reduce;
    `combine` says in C how two results `a` and `b` of such a reduction become one, `noun` is what people call it.
    `is_partial`: not defined for all numbers. `doc` makes it a function of the language.
    """

    name: str
    arity: int
    numpy: np.ufunc
    takes: Takes = "numbers"
    sign: str = ""
    c: str = ""
    module: str = "math"
    flops: float = 0.0
    neutral: float | None = None
    combine: str = ""
    noun: str = ""
    is_partial: bool = False
    doc: str = ""


INF = float("inf")
TRANSCENDENTAL = 4.0  # a polynomial of at least this many operations

_FUNCTIONS = (
    Op("sqrt", 1, np.sqrt, "floats", c="sqrt", flops=1.0, is_partial=True, doc="Square root."),
    Op("exp", 1, np.exp, "floats", c="exp", flops=TRANSCENDENTAL, doc="e to the power x."),
    Op(
        "log",
        1,
        np.log,
        "floats",
        c="log",
        flops=TRANSCENDENTAL,
        is_partial=True,
        doc="Natural logarithm.",
    ),
    Op(
        "sin",
        1,
        np.sin,
        "floats",
        c="sin",
        flops=TRANSCENDENTAL,
        doc="Sine of an angle in radians.",
    ),
    Op(
        "cos",
        1,
        np.cos,
        "floats",
        c="cos",
        flops=TRANSCENDENTAL,
        doc="Cosine of an angle in radians.",
    ),
    Op(
        "floor",
        1,
        np.floor,
        "floats",
        c="floor",
        module="numpy",  # Python's own gives an int
        flops=1.0,
        doc="The greatest whole number not above x, as a float.",
    ),
)
_OPERATORS = (
    Op("neg", 1, np.negative, sign="-"),
    Op("not", 1, np.logical_not, "bools", sign="not"),
    Op("abs", 1, np.abs, c="fabs", module=""),
    Op("add", 2, np.add, sign="+", flops=1.0, neutral=0.0, combine="a + b", noun="sum"),
    Op("sub", 2, np.subtract, sign="-", flops=1.0),
    Op("mul", 2, np.multiply, sign="*", flops=1.0, neutral=1.0, combine="a * b", noun="product"),
    Op("div", 2, np.true_divide, "floats", sign="/", flops=1.0, is_partial=True),
    Op("floordiv", 2, np.floor_divide, "integers", sign="//", flops=1.0, is_partial=True),
    Op("mod", 2, np.mod, "integers", sign="%", flops=1.0, is_partial=True),
    Op("min", 2, np.minimum, flops=1.0, neutral=INF, combine="a < b ? a : b", noun="min"),
    Op("max", 2, np.maximum, flops=1.0, neutral=-INF, combine="a > b ? a : b", noun="max"),
    Op("and", 2, np.logical_and, "bools", sign="and"),
    Op("or", 2, np.logical_or, "bools", sign="or"),
)
_COMPARISONS = (
    Op("lt", 2, np.less, sign="<", flops=1.0),
    Op("le", 2, np.less_equal, sign="<=", flops=1.0),
    Op("gt", 2, np.greater, sign=">", flops=1.0),
    Op("ge", 2, np.greater_equal, sign=">=", flops=1.0),
    Op("eq", 2, np.equal, sign="==", flops=1.0),
    Op("ne", 2, np.not_equal, sign="!=", flops=1.0),
)
OPS: dict[str, Op] = {op.name: op for op in (*_FUNCTIONS, *_OPERATORS, *_COMPARISONS)}
COMPARISONS = frozenset(op.name for op in _COMPARISONS)


def functions() -> tuple[Op, ...]:
    """The operations that kernels call by name."""
    return tuple(op for op in OPS.values() if op.doc)


def is_reduction(name: str) -> bool:
    """Whether values can be reduced by an operation: it is associative and has a neutral element."""
    return name in OPS and OPS[name].neutral is not None
