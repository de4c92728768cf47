"""Constructors of expressions that fold constants and drop neutral operands.

Integer sums are kept as `x + constant` (never `x - constant`), so that an index such as `i + 1 - 1` becomes `i`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from . import kernel as ir
from .ops import DIVISIONS, OPS
from .walk import walk


def const(value: Any, dtype: ir.DType) -> ir.Const:
    """Returns a constant of `dtype`: floats keep the digits of their source text, integers are truncated."""
    if dtype is ir.DType.bool_:
        return ir.Const(bool(value), dtype)
    return ir.Const(float(value) if dtype.is_float else int(value), dtype)


def wrapped(value: Any, dtype: ir.DType) -> ir.Const:
    """Returns a constant of `dtype`; integers outside of the type's range wrap around."""
    return const(dtype.wrapped(int(value)) if dtype.is_integer else value, dtype)


def scalar(c: ir.Const) -> Any:
    """Returns the NumPy scalar of a constant."""
    return c.dtype.numpy.type(c.value)


def _folded(op: str, dtype: ir.DType, *operands: ir.Const) -> ir.Expr | None:
    """Returns the result of an operation on constants.

    None if an operand is a literal outside of its type's range.
    """
    if any(c.dtype.is_integer and not c.dtype.holds(c.value) for c in operands):
        return None
    with np.errstate(all="ignore"):
        return const(OPS[op].numpy(*(scalar(c) for c in operands)).item(), dtype)


def cast(x: ir.Expr, dtype: ir.DType) -> ir.Expr:
    if x.dtype is dtype:
        return x
    if isinstance(x, ir.Const) and dtype.is_integer and x.dtype.is_integer:
        return wrapped(x.value, dtype)
    if isinstance(x, ir.Const) and (not dtype.is_integer or dtype.holds(x.value)):
        return const(x.value, dtype)
    return ir.Cast(x, dtype)


def bitcast(x: ir.Expr, dtype: ir.DType) -> ir.Expr:
    """Returns the expression that reinterprets the bits of `x` in a type of the same size."""
    if x.dtype is dtype:
        return x
    if isinstance(x, ir.Const):
        return const(scalar(x).view(dtype.numpy).item(), dtype)
    return bitcast(x.x, dtype) if isinstance(x, ir.Bitcast) else ir.Bitcast(x, dtype)


def unary(op: ir.UnaryOp, x: ir.Expr) -> ir.Expr:
    dtype = OPS[op].result(x.dtype)
    if isinstance(x, ir.Const) and (folded := _folded(op, dtype, x)) is not None:
        return folded
    if isinstance(x, ir.Unary) and op in ("neg", "not", "bit_not") and x.op == op:
        return x.x
    return ir.Unary(op, x, dtype)


def _is(x: ir.Expr, value: float) -> bool:
    return isinstance(x, ir.Const) and x.value == value


def _adds_nothing(op: ir.BinaryOp, b: ir.Expr) -> bool:
    """True if `x op b` equals x for every x.

    For floats the sign of zero matters: adding 0.0 turns -0.0 into 0.0, and so does subtracting -0.0.
    """
    if not _is(b, 0):
        return False
    is_negative = math.copysign(1.0, b.value) < 0  # type: ignore[union-attr]
    return not b.dtype.is_float or is_negative is (op == "add")


def binary(op: ir.BinaryOp, a: ir.Expr, b: ir.Expr) -> ir.Expr:
    """Returns the simplified expression `a op b`; both operands and the result have one dtype."""
    dtype = a.dtype
    if (
        isinstance(a, ir.Const)
        and isinstance(b, ir.Const)
        and not (op in DIVISIONS and not b.value)
        and (folded := _folded(op, dtype, a, b)) is not None
    ):
        return folded
    if op in ("and", "or"):
        return _logical(op, a, b)
    if op == "sub" and isinstance(b, ir.Const) and dtype.is_integer and dtype.holds(-b.value):
        return binary("add", a, const(-b.value, dtype))
    if op == "add" and isinstance(a, ir.Const):
        a, b = b, a
    if op in ("add", "sub") and _adds_nothing(op, b):
        return a
    if op == "add" and isinstance(a, ir.Binary) and a.op == "add" and dtype.is_integer:
        if isinstance(a.b, ir.Const) and isinstance(b, ir.Const):
            return binary("add", a.a, wrapped(a.b.value + b.value, dtype))
        if isinstance(a.b, ir.Const):
            return binary("add", binary("add", a.a, b), a.b)
    if op in ("mul", "div") and _is(b, 1):
        return a
    if op in ("floordiv", "raw_div") and dtype.is_integer and _is(b, 1):
        return a
    if op in ("shl", "shr", "bit_shr", "bit_or", "bit_xor") and _is(b, 0):
        return a
    if op == "mul" and _is(a, 1):
        return b
    if op == "mul" and dtype.is_integer and (_is(a, 0) or _is(b, 0)):
        return const(0, dtype)
    if op in ("min", "max", "bit_and", "bit_or") and a == b:
        return a
    return ir.Binary(op, a, b, dtype)


def _logical(op: ir.BinaryOp, a: ir.Expr, b: ir.Expr) -> ir.Expr:
    for x, other in ((a, b), (b, a)):
        if isinstance(x, ir.Const):
            decides = bool(x.value) == (op == "or")
            return x if decides else other
    return ir.Binary(op, a, b, ir.DType.bool_)


def compare(op: ir.CompareOp, a: ir.Expr, b: ir.Expr) -> ir.Expr:
    if (
        isinstance(a, ir.Const)
        and isinstance(b, ir.Const)
        and (folded := _folded(op, ir.DType.bool_, a, b)) is not None
    ):
        return folded
    return ir.Compare(op, a, b)


def select(condition: ir.Expr, a: ir.Expr, b: ir.Expr) -> ir.Expr:
    if isinstance(condition, ir.Const):
        return a if condition.value else b
    return a if a == b else ir.Select(condition, a, b, a.dtype)


def simplified(e: ir.Expr) -> ir.Expr:
    """Returns the simplified form of an expression whose operands are simplified."""
    match e:
        case ir.Unary(op=op, x=x):
            return unary(op, x)
        case ir.Binary(op=op, a=a, b=b) if a.dtype is b.dtype is e.dtype:
            return binary(op, a, b)
        case ir.Compare(op=op, a=a, b=b):
            return compare(op, a, b)
        case ir.Select(condition=condition, a=a, b=b):
            return select(condition, a, b)
        case ir.Cast(x=x, dtype=dtype):
            return cast(x, dtype)
    return e


def is_cheap_and_fixed(x: ir.Expr) -> bool:
    """True if an expression may replace a local with its value at every use.

    It has no memory access, no locals and no costly function.
    """
    return not any(
        isinstance(e, (ir.Load, ir.Local, ir.LocalElement))
        or (isinstance(e, ir.Unary) and OPS[e.op].flops > 0)
        or (isinstance(e, ir.Binary) and OPS[e.op].flops > 1)
        for e in walk(x)
    )
