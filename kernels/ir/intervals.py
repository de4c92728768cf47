"""Interval arithmetic for integer expressions (Moore, "Interval Analysis", 1966)."""

from __future__ import annotations

from collections.abc import Callable

from .kernel import Binary, Cast, Compare, Const, DType, Expr, Select, Unary

Range = tuple[int, int]  # the least and the greatest value

_CORNERS: dict[str, Callable[[int, int], int]] = {
    "add": int.__add__,
    "sub": int.__sub__,
    "mul": int.__mul__,
    "min": min,
    "max": max,
}
_LEAST = {"ge": 0, "gt": 1, "eq": 0}  # the least x for which `x op 0` may hold
_MOST = {"le": 0, "lt": -1, "eq": 0}  # and the greatest
_MONOTONE = {"floordiv": int.__floordiv__, "shr": int.__rshift__, "shl": int.__lshift__}


def range_of(e: Expr, leaf: Callable[[Expr], Range | None] = lambda _: None) -> Range:
    """Returns an interval that contains all values of an integer expression.

    An expression that may wrap around has the interval of its type. `leaf` gives sharper intervals for some expressions.
    """
    least, most = e.dtype.range
    low, high = leaf(e) or _unwrapped(e, leaf)
    return (low, high) if least <= low and high <= most else (least, most)


def _unwrapped(e: Expr, leaf: Callable[[Expr], Range | None]) -> Range:
    def inside(*parts: Expr) -> tuple[Range, ...]:
        return tuple(range_of(x, leaf) for x in parts)

    match e:
        case Const(value):
            return int(value), int(value)
        case Cast(x) if x.dtype is DType.bool_:
            return 0, 1
        case Cast(x) if x.dtype.is_integer:
            return range_of(x, leaf)
        case Select(condition, a, b):
            (low, high), (low2, high2) = _where(condition, a, range_of(a, leaf)), range_of(b, leaf)
            return min(low, low2), max(high, high2)
        case Unary("neg", x):
            low, high = range_of(x, leaf)
            return -high, -low
        case Unary("abs", x):
            low, high = range_of(x, leaf)
            return max(0, low, -high), max(-low, high)
        case Binary(op, a, b) if op in _CORNERS:
            first, second = inside(a, b)
            corners = [_CORNERS[op](x, y) for x in first for y in second]
            return min(corners), max(corners)
        case Binary("mod", _, Const(value)) if value > 0:
            return 0, int(value) - 1
        case Binary("bit_and", _, Const(value)) if value >= 0:
            return 0, int(value)
        case Binary("floordiv" | "shr" | "shl" as op, a, Const(value)) if _is_step(op, value):
            low, high = range_of(a, leaf)
            return _MONOTONE[op](low, int(value)), _MONOTONE[op](high, int(value))
    return e.dtype.range


def _where(condition: Expr, x: Expr, known: Range) -> Range:
    """Returns the interval of an expression where a condition holds. `known`: its interval everywhere."""
    match condition:
        case Binary("and", a, b):
            return _where(b, x, _where(a, x, known))
        case Compare(op, y, Const(value)) if y == x:
            low, high = known
            low = max(low, int(value) + _LEAST[op]) if op in _LEAST else low
            high = min(high, int(value) + _MOST[op]) if op in _MOST else high
            return (low, high) if low <= high else known
    return known


def _is_step(op: str, by: float) -> bool:
    """True if `x op by` (a division or a shift by a constant) is monotone in x."""
    return by > 0 if op == "floordiv" else 0 <= by < 32
