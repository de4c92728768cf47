"""Operation table: one row per operation of the language, with all of its properties.

The language, the verifier, interpreters, the bound and code generation use the table. A new function needs a row here and its name
in the public table of the package.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from . import op_semantics
from .kernel import DType

Takes = Literal["numbers", "floats", "integers", "words", "u64", "bools"]


@dataclass(frozen=True)
class Op:
    """Operation of the language. Arguments and result have one dtype; the result of a comparison is a bool.

    `numpy` defines its semantics. `takes`: the types of its operands ("words" are integers of 32 and 64 bits). `gives` is the dtype
    of the result if it is another one. `sign` is the operator between its operands in Python. `c` is the function of <math.h> on a
    double; the function on a float has an f behind that name. `module` is the Python module of the function, "" for a builtin; in
    NumPy the function has the name of `numpy`. `flops` are floating-point operations that are surely executed.

    For reductions, `neutral` is the neutral element. `combine` is the C expression that reduces two results `a` and `b` to one.
    `noun` is the reduction's name. `is_partial`: not defined for all numbers. `doc`: docstring of the public function of the
    language; "" if there is no such function.
    """

    name: str
    arity: int
    numpy: Callable[..., Any]
    takes: Takes = "numbers"
    gives: DType | None = None
    sign: str = ""
    c: str = ""
    module: str = "math"
    flops: float = 0.0
    neutral: float | None = None
    combine: str = ""
    noun: str = ""
    is_partial: bool = False
    doc: str = ""

    @property
    def ufunc(self) -> np.ufunc:
        """The NumPy ufunc that reduces arrays. Precondition: the operation is a reduction."""
        assert isinstance(self.numpy, np.ufunc)
        return self.numpy

    @property
    def is_transcendental(self) -> bool:
        """True if processors have no instruction for the operation: a polynomial computes it."""
        return self.flops >= TRANSCENDENTAL

    @property
    def text(self) -> str:
        """The name of the operation's function in its Python module."""
        return str(self.numpy.__name__) if self.module == "numpy" else self.name

    def accepts(self, dtype: DType) -> bool:
        """True if operands of the operation may have this type."""
        match self.takes:
            case "numbers":
                return dtype is not DType.bool_
            case "floats":
                return dtype.is_float
            case "integers":
                return dtype.is_integer
            case "words":
                return dtype.is_integer and dtype.size_bytes >= 4
            case "u64":
                return dtype is DType.u64
            case "bools":
                return dtype is DType.bool_

    def result(self, dtype: DType) -> DType:
        """The type of the operation's result on operands of this type."""
        return self.gives or dtype


INF = float("inf")
# A transcendental function is a polynomial of at least so many operations; quicker ones than in codegen/bodies/vector_functions.py
# are not called. An element of libmvec's exp takes twice as many (experiments/results/vector_functions.md).
TRANSCENDENTAL = 8.0


def _function(
    name: str, numpy: np.ufunc, doc: str, *, flops: float = TRANSCENDENTAL, **more: Any
) -> Op:
    """Returns the operation of a function of floats that has the same name in <math.h> and Python."""
    return Op(name, numpy.nin, numpy, "floats", c=name, flops=flops, doc=doc, **more)


def _special(
    name: str, meaning: Callable[..., Any], doc: str, *, c: str = "", is_partial: bool = False
) -> Op:
    """Returns the operation of a function of floats that <math.h> and Python have and NumPy does not.

    `meaning`: the function on NumPy values. `is_partial`: it is not defined for all numbers.
    """
    flops = TRANSCENDENTAL
    return Op(name, 1, meaning, "floats", c=c or name, flops=flops, doc=doc, is_partial=is_partial)


_FUNCTIONS = (
    _function("sqrt", np.sqrt, "Square root.", flops=1.0, is_partial=True),
    _function("exp", np.exp, "e to the power x."),
    _function("log", np.log, "Natural logarithm.", is_partial=True),
    _function("sin", np.sin, "Sine of an angle in radians."),
    _function("cos", np.cos, "Cosine of an angle in radians."),
    # Python's own floor, ceil and trunc give an int.
    _function(
        "floor",
        np.floor,
        "The greatest whole number not above x, as a float.",
        flops=1.0,
        module="numpy",
    ),
    _function(
        "ceil",
        np.ceil,
        "The least whole number not below x, as a float.",
        flops=1.0,
        module="numpy",
    ),
    _function(
        "trunc",
        np.trunc,
        "x without what is behind its point, as a float.",
        flops=1.0,
        module="numpy",
    ),
    _function(
        "rint",
        np.rint,
        "The nearest whole number, of two the even one, as a float.",
        flops=1.0,
        module="numpy",
    ),
    Op(
        "round",
        1,
        op_semantics.round_away,
        "floats",
        c="round",
        flops=1.0,
        doc="The nearest whole number, of two the one farther from zero, as a float.",
    ),
    _function("tan", np.tan, "Tangent of an angle in radians."),
    _function("asin", np.arcsin, "The angle in radians whose sine is x.", is_partial=True),
    _function("acos", np.arccos, "The angle in radians whose cosine is x.", is_partial=True),
    _function("atan", np.arctan, "The angle in radians whose tangent is x."),
    _function("sinh", np.sinh, "Hyperbolic sine."),
    _function("cosh", np.cosh, "Hyperbolic cosine."),
    _function("tanh", np.tanh, "Hyperbolic tangent."),
    _function("asinh", np.arcsinh, "The number whose hyperbolic sine is x."),
    _function("acosh", np.arccosh, "The number whose hyperbolic cosine is x.", is_partial=True),
    _function("atanh", np.arctanh, "The number whose hyperbolic tangent is x.", is_partial=True),
    _function("exp2", np.exp2, "2 to the power x.", module="numpy"),
    _function("expm1", np.expm1, "e to the power x, less 1, exact for small x."),
    _function("log2", np.log2, "Logarithm to base 2.", is_partial=True, module="numpy"),
    _function("log10", np.log10, "Logarithm to base 10.", is_partial=True),
    _function("log1p", np.log1p, "Natural logarithm of 1 + x, exact for small x.", is_partial=True),
    _special("erf", op_semantics.erf, "Error function."),
    _special(
        "erfc", op_semantics.erfc, "Complementary error function, 1 - erf(x) without cancellation."
    ),
    _special("gamma", op_semantics.gamma, "Gamma function.", c="tgamma", is_partial=True),
    _special("lgamma", op_semantics.lgamma, "Logarithm of the size of the gamma function."),
    Op("rsqrt", 1, op_semantics.rsqrt, "floats", flops=1.0, is_partial=True, doc="1 / sqrt(x)."),
    Op("isnan", 1, np.isnan, "floats", gives=DType.bool_, doc="Whether x is no number."),
    Op("isinf", 1, np.isinf, "floats", gives=DType.bool_, doc="Whether x is infinite."),
    Op(
        "pow",
        2,
        op_semantics.power,
        c="pow",
        flops=TRANSCENDENTAL,
        is_partial=True,
        doc="x to the power y; of integers modulo what their type holds.",
    ),
    _function("atan2", np.arctan2, "The angle in radians of the point (x, y), given as y, x."),
    _function("hypot", np.hypot, "sqrt(x * x + y * y), without overflow on the way.", flops=3.0),
    Op("popcnt", 1, op_semantics.popcnt, "words", gives=DType.i32, doc="How many bits are 1."),
    Op(
        "clz",
        1,
        op_semantics.clz,
        "words",
        gives=DType.i32,
        doc="How many bits before the first 1.",
    ),
    Op(
        "ctz", 1, op_semantics.ctz, "words", gives=DType.i32, doc="How many bits behind the last 1."
    ),
    Op(
        "bit_shr",
        2,
        op_semantics.bit_shr,
        "integers",
        doc="The bits of x moved down by y, zeros first.",
    ),
    Op(
        "raw_div",
        2,
        op_semantics.raw_div,
        "integers",
        is_partial=True,
        doc="x / y without what is behind the point, as C divides integers.",
    ),
    Op(
        "raw_mod",
        2,
        op_semantics.raw_mod,
        c="fmod",
        is_partial=True,
        doc="What x / y leaves without what is behind its point; it has the sign of x.",
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
    Op("floordiv", 2, np.floor_divide, sign="//", flops=1.0, is_partial=True),
    Op("mod", 2, np.mod, sign="%", flops=1.0, is_partial=True),
    # The % of floats in Taichi's language.
    Op("floor_mod", 2, op_semantics.floor_mod, "floats", flops=4.0, is_partial=True),
    Op("min", 2, np.minimum, flops=1.0, neutral=INF, combine="a < b ? a : b", noun="min"),
    Op("max", 2, np.maximum, flops=1.0, neutral=-INF, combine="a > b ? a : b", noun="max"),
    Op("and", 2, np.logical_and, "bools", sign="and"),
    Op("or", 2, np.logical_or, "bools", sign="or"),
    Op("bit_not", 1, np.invert, "integers", sign="~"),
    Op(
        "bit_and",
        2,
        np.bitwise_and,
        "integers",
        sign="&",
        neutral=-1.0,
        combine="a & b",
        noun="and",
    ),
    Op("bit_or", 2, np.bitwise_or, "integers", sign="|", neutral=0.0, combine="a | b", noun="or"),
    Op(
        "bit_xor", 2, np.bitwise_xor, "integers", sign="^", neutral=0.0, combine="a ^ b", noun="xor"
    ),
    # By amounts from 0 to below the number of bits, as in C.
    Op("shl", 2, np.left_shift, "integers", sign="<<"),
    Op("shr", 2, np.right_shift, "integers", sign=">>"),
    Op("mix64", 1, op_semantics.mix64, "u64"),
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
DIVISIONS = ("floordiv", "mod", "raw_div", "raw_mod")
COMPARISONS = frozenset(op.name for op in _COMPARISONS)


def functions() -> tuple[Op, ...]:
    """Returns the operations that kernels call by name."""
    return tuple(op for op in OPS.values() if op.doc)


def is_reduction(name: str) -> bool:
    """True if the operation is a reduction: it is associative and has a neutral element."""
    return name in OPS and OPS[name].neutral is not None
