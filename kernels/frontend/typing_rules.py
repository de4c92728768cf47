"""Type promotion: the common type of operands.

There are two sets of rules. Without a program (`ks.init`) they are NumPy's. A literal is *weak*: it takes the type of the other
operand. A float and an integer give the float; two types of one kind give the wider one. A signed and an unsigned integer give a
type that holds both. Without any type, floats are the kernel's default float.

Within a program the rules are Taichi's. A literal has the program's `default_ip` or `default_fp`. A local has the type of its first
value. Two integers give the wider type, or the unsigned one; small ones are not widened.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..fields.matrix import Matrix
from ..ir.kernel import Const, DType, Expr, Select
from ..ir.simplify import cast, compare, const, select
from .complex_numbers import complex_value
from .values import ArrayRef, MatrixValue, Static, StructArray, TupleValue, Typed, Value


@dataclass(frozen=True)
class Rules:
    """Typing rules of a kernel: Taichi's if `is_strict`, as in a program, else NumPy's."""

    default_float: DType
    default_int: DType = DType.i64
    is_strict: bool = False


def strong(x: Typed, rules: Rules) -> Typed:
    """Returns a literal in the type that a program gives it; any other value, or without a program, unchanged."""
    if not x.weak or not rules.is_strict or x.dtype is DType.bool_:
        return x
    if x.dtype.is_float:
        literal = adopt(x.expr, rules.default_float)
        return Typed(rounded(literal) if isinstance(literal, Const) else literal)
    wide = isinstance(x.expr, Const) and not rules.default_int.holds(int(x.expr.value))
    return Typed(adopt(x.expr, DType.i64 if wide else rules.default_int))


def rounded(x: Const) -> Const:
    """Returns a float constant rounded to the precision of its type."""
    with np.errstate(over="ignore"):
        return const(float(x.dtype.numpy.type(x.value)), x.dtype)


def lift(x: object) -> Value:
    """Returns the value of a Python object in a kernel; a number is a literal whose type other operands decide."""
    if isinstance(x, (bool, np.bool_)):
        return Typed(const(x, DType.bool_), weak=True)
    if isinstance(x, (int, np.integer)):
        return Typed(const(x, DType.i64), weak=True)
    if isinstance(x, (float, np.floating)):
        return Typed(const(x, DType.f64), weak=True)
    if isinstance(x, (complex, np.complexfloating)):
        return complex_value(*(Typed(const(n, DType.f64), weak=True) for n in (x.real, x.imag)))
    if isinstance(x, (tuple, list)):
        return TupleValue(tuple(lift(item) for item in x))
    return Static(x)


def promote(a: DType, b: DType, is_strict: bool = False) -> DType:
    """Returns the common type of two values that are no literals.

    In a program (`is_strict`) small integers are not widened.
    """
    if a is b:
        return a
    if a is DType.bool_ or b is DType.bool_:
        return b if a is DType.bool_ else a
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if not is_strict and a.is_integer and max(a.size_bytes, b.size_bytes) < DType.i32.size_bytes:
        return DType.i32
    if not is_strict and a.is_integer and a.is_signed is not b.is_signed:
        return _of_both_signs(a, b)
    if a.size_bytes == b.size_bytes:  # an unsigned and a signed integer
        return b if a.is_signed else a
    return a if a.size_bytes > b.size_bytes else b


def _of_both_signs(a: DType, b: DType) -> DType:
    """Returns the type that represents a signed and an unsigned type, as in NumPy; u64 if none represents both."""
    signed, unsigned = (a, b) if a.is_signed else (b, a)
    if signed.size_bytes > unsigned.size_bytes:
        return signed
    return DType.i64 if unsigned.size_bytes < DType.i64.size_bytes else unsigned


def adopt(x: Expr, dtype: DType) -> Expr:
    """Returns a literal expression converted to `dtype`, the type of the other operand."""
    if isinstance(x, Select):
        return select(x.condition, adopt(x.a, dtype), adopt(x.b, dtype))
    return cast(x, dtype)


def settle(x: Typed, default_float: DType) -> Expr:
    """Returns the expression of a value without other operands: a float literal gets the default float type."""
    return adopt(x.expr, default_float) if x.weak and x.dtype.is_float else x.expr


def common_dtype(a: Typed, b: Typed, default_float: DType, is_strict: bool = False) -> DType:
    if a.weak == b.weak:
        return promote(a.dtype, b.dtype, is_strict)
    weak, strong = (a, b) if a.weak else (b, a)
    if strong.dtype.is_float or weak.dtype is DType.bool_:
        return strong.dtype
    if weak.dtype.is_float:
        return default_float
    if isinstance(weak.expr, Const) and strong.dtype.size_bytes < 4:
        value = int(weak.expr.value)
        if strong.dtype is not DType.bool_ and not strong.dtype.holds(value):
            return DType.i32 if DType.i32.holds(value) else DType.i64
    too_wide = isinstance(weak.expr, Const) and abs(weak.expr.value) >= 2**31
    if too_wide and strong.dtype is DType.u64:
        return strong.dtype
    return DType.i64 if too_wide or strong.dtype is DType.bool_ else strong.dtype


def unify(
    a: Typed, b: Typed, default_float: DType, is_strict: bool = False
) -> tuple[Expr, Expr, bool]:
    """Returns both operands in their common type, and True if the result is a literal."""
    dtype = common_dtype(a, b, default_float, is_strict)
    return adopt(a.expr, dtype), adopt(b.expr, dtype), a.weak and b.weak


def truth(x: Typed) -> Expr:
    """Returns the condition that `x` is not zero."""
    if x.dtype is DType.bool_:
        return x.expr
    return compare("ne", x.expr, const(0, x.dtype))


def python_value(x: Value) -> object:
    """Returns the Python value of `x` at compile time; KeyError if it is known only at run time."""
    match x:
        case Typed(expr=Const(value=value)):
            return value
        case TupleValue(items=items):
            return tuple(python_value(item) for item in items)
        case Static(python=python):
            return python
        case MatrixValue(shape=shape, items=items):
            flat = [python_value(item) for item in items]
            return np.array(flat).reshape(shape).tolist()
        case ArrayRef():
            return x.source if x.source is not None else StaticArray(x.shape, x.dtype, x.element)
        case StructArray(source=source) if source is not None:
            return source
    raise KeyError("run-time value")


@dataclass(frozen=True)
class StaticArray:
    """Array argument inside `ks.static(...)`: shape, element type, and the shape of vector or matrix elements."""

    shape: tuple[int, ...]
    dtype: DType
    element: tuple[int, ...] = ()

    def element_shape(self) -> list[int]:
        return list(self.element)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]


@dataclass(frozen=True)
class StaticMatrix:
    """Vector or matrix inside `ks.static(...)` whose numbers are known only at run time; only its shape is known."""

    shape: tuple[int, ...]

    @property
    def n(self) -> int:
        return self.shape[0]

    @property
    def m(self) -> int:
        return self.shape[1] if len(self.shape) == 2 else 1

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def get_shape(self) -> tuple[int, ...]:
        return self.shape

    def __len__(self) -> int:
        return self.shape[0]


def static_value(x: Value) -> object:
    """Returns the Python object for a value inside `ks.static(...)`; KeyError if there is none."""
    if not isinstance(x, MatrixValue):
        return python_value(x)
    try:
        return Matrix(python_value(x))
    except KeyError:
        return StaticMatrix(x.shape)
