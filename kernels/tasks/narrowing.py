"""Bitwidth narrowing: arithmetic of affine tasks in 16 bits, and comparisons of indices in 32 bits, if all its numbers fit.

Vectors then hold more elements, and masks of f32 need no conversion.
Pixels are added up in a wide type, i32 or that of a literal. Their ranges decide the necessary width: nine bytes are a number of 12
bits (Stephenson, Babb and Amarasinghe, "Bitwidth analysis with application to silicon compilation", 2000).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..ir.intervals import Range, range_of
from ..ir.kernel import Binary, Cast, Compare, Const, DType, Expr, Load, LoopIndex, Select, Unary
from ..ir.simplify import cast
from ..ir.task import Task
from ..ir.walk import children, rebuild

_NARROW = (DType.i16, DType.u16)
_BITS = 16
# Operators whose 16-bit result is exact if the result and the operands fit.
_BINARY = ("add", "sub", "mul", "min", "max", "floordiv", "mod", "bit_and", "bit_or", "bit_xor")
_SHIFTS = ("shl", "shr")


def narrowed_task(task: Task) -> Task:
    """Returns the task with 16-bit arithmetic if more elements then fit into a vector; else unchanged."""
    if task.dtype.size_bytes >= 4 or task.value is None:
        return task
    narrow = replace(
        task,
        value=narrowed(task.value),
        condition=None if task.condition is None else narrowed(task.condition),
    )
    return narrow if narrow.lane_bytes < task.lane_bytes else task


def narrowed(e: Expr) -> Expr:
    """Returns an expression of the same type and value, with 16-bit arithmetic in parts whose operands all fit."""
    if isinstance(e, Load):
        return e
    if isinstance(e, Compare) and _is_wide(e.a.dtype):
        sides = next(
            (s for d in _NARROW if None not in (s := (_within(e.a, d), _within(e.b, d)))), None
        )
        return e if sides is None else Compare(e.op, sides[0], sides[1])  # type: ignore[arg-type]
    if isinstance(e, Cast) and _is_wide(e.x.dtype):
        found = next((x for d in _NARROW if (x := _within(e.x, d)) is not None), None)
        if found is not None:
            return cast(found, e.dtype)
    return rebuild(e, tuple(map(narrowed, children(e)))) if children(e) else e


def _is_wide(dtype: DType) -> bool:
    return dtype.is_integer and dtype.size_bytes > _BITS // 8


def _within(e: Expr, dtype: DType) -> Expr | None:
    """Returns an integer expression computed in `dtype`, a type of 16 bits; None if a number in it does not fit.

    Narrow parts keep their own type, in which they may wrap around.
    """
    least, most = dtype.range
    low, high = range_of(e)
    if low < least or high > most:
        return None
    if not _is_wide(e.dtype):
        return cast(narrowed(e), dtype)
    match e:
        case Const(value):
            return Const(int(value), dtype)
        case Cast(x) if _is_wide(x.dtype):
            return _within(x, dtype)
        case Cast(x):
            return cast(narrowed(x), dtype)
        case Unary("neg" | "abs" as op, x):
            inner = _within(x, dtype)
            return None if inner is None else Unary(op, inner, dtype)
        case Select(condition, a, b):
            sides = _within(a, dtype), _within(b, dtype)
            if sides[0] is None or sides[1] is None:
                return None
            return Select(narrowed(condition), sides[0], sides[1], dtype)
        case Binary(op, a, b) if op in _BINARY or (op in _SHIFTS and _is_amount(b)):
            left, right = _within(a, dtype), _within(b, dtype)
            return None if left is None or right is None else Binary(op, left, right, dtype)
    return None


def _is_amount(e: Expr) -> bool:
    """True if an expression, as the amount of a shift, is less than 16."""
    low, high = range_of(e)
    return low >= 0 and high < _BITS


# --- indices

_MOST_LANES = 64  # by which the last vector of a loop may go beyond its end


def with_narrow_indices(e: Expr, extents: Mapping[str, int]) -> Expr:
    """Returns an expression of the same value in which indices are compared in 32 bits where they fit.

    `extents`: the numbers of iterations of loops, by name. Other comparisons are as they were.
    """
    if isinstance(e, Load):
        return e
    if isinstance(e, Compare) and e.a.dtype is DType.i64:
        a, b = (_of_indices(x, extents) for x in (e.a, e.b))
        if a is not None and b is not None:
            return Compare(e.op, a, b)
    parts = children(e)
    return rebuild(e, tuple(with_narrow_indices(x, extents) for x in parts)) if parts else e


def _of_indices(e: Expr, extents: Mapping[str, int]) -> Expr | None:
    """Returns a sum or product of loop indices and constants in 32 bits; None for others, and if a number does not fit."""

    def known(x: Expr) -> Range | None:
        match x:
            case LoopIndex(loop) if loop in extents:
                return 0, extents[loop] + _MOST_LANES
        return None

    low, high = range_of(e, known)
    least, most = DType.i32.range
    if not (least <= low and high <= most):
        return None
    match e:
        case LoopIndex(loop) if loop in extents:
            return LoopIndex(loop, DType.i32)
        case Const(value):
            return Const(int(value), DType.i32)
        case Binary("add" | "sub" | "mul" | "min" | "max" as op, a, b):
            left, right = (_of_indices(x, extents) for x in (a, b))
            return None if left is None or right is None else Binary(op, left, right, DType.i32)
    return None
