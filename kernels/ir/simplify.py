"""Constructors of expressions that fold constants and drop neutral operands, and what can be said
of index expressions.

Integer sums are kept as `x + constant` (never `x - constant`), so that an index such as `i + 1 - 1`
becomes `i`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .kernel import (
    Binary,
    BinaryOp,
    Cast,
    Compare,
    CompareOp,
    Const,
    DType,
    Expr,
    Load,
    Local,
    LoopIndex,
    Select,
    Unary,
    UnaryOp,
)
from .ops import OPS
from .walk import walk


def const(value: Any, dtype: DType) -> Const:
    """A constant of `dtype`: floats keep the digits they were written with, integers truncate."""
    if dtype is DType.bool_:
        return Const(bool(value), dtype)
    return Const(float(value) if dtype.is_float else int(value), dtype)


def scalar(c: Const) -> Any:
    """The NumPy scalar a constant stands for."""
    return c.dtype.numpy.type(c.value)


def _folded(op: str, dtype: DType, *operands: Const) -> Const:
    with np.errstate(all="ignore"):
        return const(OPS[op].numpy(*(scalar(c) for c in operands)).item(), dtype)


def cast(x: Expr, dtype: DType) -> Expr:
    if x.dtype is dtype:
        return x
    if isinstance(x, Const) and (dtype.is_float or abs(x.value) < 2**31):
        return const(x.value, dtype)
    return Cast(x, dtype)


def unary(op: UnaryOp, x: Expr) -> Expr:
    if isinstance(x, Const):
        return _folded(op, x.dtype, x)
    if isinstance(x, Unary) and op in ("neg", "not") and x.op == op:
        return x.x
    return Unary(op, x, x.dtype)


def _is(x: Expr, value: float) -> bool:
    return isinstance(x, Const) and x.value == value


def binary(op: BinaryOp, a: Expr, b: Expr) -> Expr:
    """`a op b`; both operands have one dtype, which is the result's."""
    dtype = a.dtype
    if (
        isinstance(a, Const)
        and isinstance(b, Const)
        and not (op in ("floordiv", "mod") and not b.value)
    ):
        return _folded(op, dtype, a, b)
    if op in ("and", "or"):
        return _logical(op, a, b)
    if op == "sub" and isinstance(b, Const) and dtype.is_integer:
        return binary("add", a, const(-b.value, dtype))
    if op == "add" and isinstance(a, Const):
        a, b = b, a
    if op in ("add", "sub") and _is(b, 0):
        return a
    if op == "add" and isinstance(a, Binary) and a.op == "add" and dtype.is_integer:
        if isinstance(a.b, Const) and isinstance(b, Const):
            return binary("add", a.a, const(a.b.value + b.value, dtype))
        if isinstance(a.b, Const):
            return binary("add", binary("add", a.a, b), a.b)
    if op in ("mul", "div", "floordiv") and _is(b, 1):
        return a
    if op == "mul" and _is(a, 1):
        return b
    if op == "mul" and dtype.is_integer and (_is(a, 0) or _is(b, 0)):
        return const(0, dtype)
    if op in ("min", "max") and a == b:
        return a
    return Binary(op, a, b, dtype)


def _logical(op: BinaryOp, a: Expr, b: Expr) -> Expr:
    for x, other in ((a, b), (b, a)):
        if isinstance(x, Const):
            decides = bool(x.value) == (op == "or")
            return x if decides else other
    return Binary(op, a, b, DType.bool_)


def compare(op: CompareOp, a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const) and isinstance(b, Const):
        return _folded(op, DType.bool_, a, b)
    return Compare(op, a, b)


def select(condition: Expr, a: Expr, b: Expr) -> Expr:
    if isinstance(condition, Const):
        return a if condition.value else b
    return a if a == b else Select(condition, a, b, a.dtype)


def is_cheap_and_fixed(x: Expr) -> bool:
    """Whether an expression may be repeated wherever its name is used: no memory, no locals, no
    costly function.
    """
    return not any(
        isinstance(e, (Load, Local)) or (isinstance(e, Unary) and OPS[e.op].flops > 0)
        for e in walk(x)
    )


def linear(x: Expr) -> tuple[int, dict[str, int]] | None:
    """`(constant, {loop: coefficient})` of an integer expression linear in loop indices; None for
    any other.
    """
    match x:
        case Const(value=int(value)):
            return value, {}
        case LoopIndex(loop=loop):
            return 0, {loop: 1}
        case Cast(x=y, dtype=dtype) if dtype.is_integer and y.dtype.is_integer:
            return linear(y)
        case Unary(op="neg", x=y):
            return _combined((0, {}), linear(y), -1)
        case Binary(op="add", a=a, b=b):
            return _combined(linear(a), linear(b), 1)
        case Binary(op="sub", a=a, b=b):
            return _combined(linear(a), linear(b), -1)
        case Binary(op="mul", a=a, b=b):
            left, right = linear(a), linear(b)
            if left is None or right is None:
                return None
            if not left[1]:
                return _combined((0, {}), right, left[0])
            return _combined((0, {}), left, right[0]) if not right[1] else None
    return None


def _combined(
    a: tuple[int, dict[str, int]] | None, b: tuple[int, dict[str, int]] | None, factor: int
) -> tuple[int, dict[str, int]] | None:
    if a is None or b is None:
        return None
    terms = dict(a[1])
    for loop, coefficient in b[1].items():
        terms[loop] = terms.get(loop, 0) + factor * coefficient
    return a[0] + factor * b[0], {loop: c for loop, c in terms.items() if c}


def reach(x: Expr, extents: Mapping[str, int | None]) -> tuple[int, int] | None:
    """The least and the greatest value of a linear index over its loops, both taken; None where not
    known.
    """
    form = linear(x)
    if form is None:
        return None
    low = high = form[0]
    for loop, coefficient in form[1].items():
        extent = extents.get(loop)
        if extent is None or extent < 1:
            return None
        low += min(0, coefficient * (extent - 1))
        high += max(0, coefficient * (extent - 1))
    return low, high


def limits(x: Expr, extents: Mapping[str, int | None]) -> tuple[int, int] | None:
    """Numbers that enclose every value of an integer expression (not always reached); None where
    not known.
    """
    exact = reach(x, extents)
    if exact is not None:
        return exact
    match x:
        case Binary(op=("min" | "max" | "add") as op, a=a, b=b):
            left, right = limits(a, extents), limits(b, extents)
            if left is None or right is None:
                return _one_sided(op, left or right)
            return _merge(op, left[0], right[0]), _merge(op, left[1], right[1])
        case Binary(op="mod", b=Const(value=int(m))) if m > 0:
            return 0, m - 1
        case Binary(op="floordiv", a=a, b=Const(value=int(d))) if d > 0:
            inner = limits(a, extents)
            return None if inner is None else (inner[0] // d, inner[1] // d)
        case Select(a=a, b=b):
            left, right = limits(a, extents), limits(b, extents)
            if left is not None and right is not None:
                return min(left[0], right[0]), max(left[1], right[1])
    return None


def _merge(op: str, a: int, b: int) -> int:
    if op == "add":
        return a + b
    return min(a, b) if op == "min" else max(a, b)


def _one_sided(op: str, known: tuple[int, int] | None) -> tuple[int, int] | None:
    """`min(unknown, k)` is at most k, `max(unknown, k)` at least k; 2**62 stands for no limit."""
    if known is None or op == "add":
        return None
    return (-(2**62), known[1]) if op == "min" else (known[0], 2**62)
