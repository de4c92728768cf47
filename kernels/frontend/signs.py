"""Comparison, minimum and maximum of a signed and an unsigned integer by their true values, as in NumPy."""

from __future__ import annotations

from ..ir.kernel import CompareOp, Const, DType, Expr
from ..ir.simplify import binary, cast, compare, const, select
from .values import Typed

_NEGATIVE_IS: dict[CompareOp, bool] = {
    "lt": True, "le": True, "ne": True, "gt": False, "ge": False, "eq": False,
}  # fmt: skip
_MIRRORED: dict[CompareOp, CompareOp] = {
    "lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne",
}  # fmt: skip


def differ(a: Typed, b: Typed) -> bool:
    """True if one integer is signed, the other is not, and their common type cannot represent all values of both."""
    if a.weak and b.weak:
        return False
    if not a.weak and not b.weak:
        return DType.u64 in (a.dtype, b.dtype) and a.dtype.is_signed is not b.dtype.is_signed
    literal, other = (a, b) if a.weak else (b, a)
    if not isinstance(literal.expr, Const):
        return not other.dtype.is_signed and other.dtype.size_bytes >= 4
    if other.dtype.is_signed:
        return not DType.i64.holds(literal.expr.value)
    return literal.expr.value < 0 and other.dtype.size_bytes >= 4


def _held(x: Expr) -> Expr:
    """Returns a literal as u64 if its own type cannot represent it; any other expression unchanged."""
    if isinstance(x, Const) and not x.dtype.holds(x.value):
        return const(x.value, DType.u64)
    return x


def compare_signs(op: CompareOp, a: Expr, b: Expr) -> Expr:
    """Returns the comparison `a op b` of a signed and an unsigned integer by their true values."""
    a, b = _held(a), _held(b)
    if a.dtype is not DType.u64 and b.dtype is not DType.u64:
        return compare(op, cast(a, DType.i64), cast(b, DType.i64))
    if b.dtype is not DType.u64:
        return compare_signs(_MIRRORED[op], b, a)
    negative = compare("lt", a, const(0, a.dtype))
    among_others = compare(op, cast(a, DType.u64), b)
    if _NEGATIVE_IS[op]:
        return binary("or", negative, among_others)
    return binary("and", compare("ge", a, const(0, a.dtype)), among_others)


def least_of_signs(op: str, a: Expr, b: Expr) -> Expr:
    """Returns the "min" or "max" (`op`) of a signed and an unsigned integer by their true values.

    With a u64 the minimum is an i64 and the maximum a u64: these types can represent it.
    """
    a, b = _held(a), _held(b)
    if DType.u64 not in (a.dtype, b.dtype):
        return binary("min" if op == "min" else "max", cast(a, DType.i64), cast(b, DType.i64))
    signed, unsigned = (b, a) if a.dtype is DType.u64 else (a, b)
    is_first = compare_signs("lt", signed, unsigned)
    if op == "min":
        return select(is_first, cast(signed, DType.i64), cast(unsigned, DType.i64))
    return select(is_first, unsigned, cast(signed, DType.u64))
