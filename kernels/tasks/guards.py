"""If-conversion: a branch becomes guarded assignments, each of which is made only where its conditions hold.

Method: Allen, Kennedy, Porterfield and Warren, "Conversion of control dependence to data dependence", 1983.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from ..ir.access import ALWAYS, Guard
from ..ir.affine import Affine
from ..ir.body import FAR, guard_where
from ..ir.domain import Loop
from ..ir.kernel import Binary, Compare, CompareOp, Const, DType, Expr, Select, Unary

Conditions = tuple[Expr, ...]
"""All of them hold; () always."""

_NEGATED: dict[CompareOp, CompareOp] = {
    "lt": "ge",
    "ge": "lt",
    "le": "gt",
    "gt": "le",
    "eq": "ne",
    "ne": "eq",
}


def negated(e: Expr) -> Expr:
    """Returns the expression `not e`, simplified."""
    match e:
        case Unary(op="not", x=x):
            return x
        case Compare(op=op, a=a) if not a.dtype.is_float:  # with NaN both may be false
            return replace(e, op=_NEGATED[op])
    return Unary("not", e, DType.bool_)


def conjuncts(e: Expr) -> Conditions:
    """Returns conditions whose conjunction is equivalent to `e`."""
    match e:
        case Binary(op="and", a=a, b=b):
            return (*conjuncts(a), *conjuncts(b))
        case Unary(op="not", x=Binary(op="or", a=a, b=b)):
            return (*conjuncts(negated(a)), *conjuncts(negated(b)))
        case Unary(op="not", x=Unary(op="not", x=x)):
            return conjuncts(x)
        case Const(value=value) if value:
            return ()
    return (e,)


def conjunction(conditions: Conditions) -> Expr | None:
    """Returns the conjunction of conditions as one expression; None if there are none."""
    found: Expr | None = None
    for e in conditions:
        found = e if found is None else Binary("and", found, e, DType.bool_)
    return found


@lru_cache(maxsize=1 << 12)
def guard_of(conditions: Conditions, loops: tuple[Loop, ...]) -> Guard:
    """Returns the guard (bounds on `loops`) under which all conditions hold."""
    e = conjunction(conditions)
    return ALWAYS if e is None else guard_where(e, loops)


def are_opposite(a: Expr, b: Expr) -> bool:
    """True if exactly one of two conditions holds."""
    return negated(a) == b or negated(b) == a


def either(first: Conditions, a: Expr, second: Conditions, b: Expr) -> tuple[Conditions, Expr]:
    """Returns conditions and value of one assignment that replaces two to the same element.

    The first assigns `a` where the conditions `first` hold, then the second `b` where the conditions `second` hold.
    """
    n = 0
    while n < min(len(first), len(second)) and first[n] == second[n]:
        n += 1
    shared = first[:n]
    mine, other = conjunction(first[n:]), conjunction(second[n:])
    if other is None:
        return shared, b
    value = Select(other, b, a, b.dtype)
    if mine is None or are_opposite(mine, other):
        return shared, value
    return (*shared, Binary("or", mine, other, DType.bool_)), value


def box_of(
    loops: Sequence[Loop], conditions: Conditions
) -> tuple[dict[str, tuple[int, int]], Conditions]:
    """Returns the bounds (low <= index < high) of single loops that conditions imply, and the other conditions."""
    bounds = {loop.name: (0, loop.extent) for loop in loops}
    rest: list[Expr] = []
    for e in conditions:
        guard = guard_where(e, loops)
        found = [_of_one_loop(*bound) for bound in guard.bounds]
        found = [x if x is not None and x[0] in bounds else None for x in found]
        if not found or guard.residues or guard.data or not guard.is_exact or None in found:
            rest.append(e)
            continue
        for bound in found:
            assert bound is not None
            name, low, high = bound
            old = bounds[name]
            bounds[name] = (max(old[0], low), max(max(old[0], low), min(old[1], high)))
    return bounds, tuple(rest)


def _of_one_loop(affine: Affine, low: int, high: int) -> tuple[str, int, int] | None:
    match affine:
        case Affine(const=0, terms=((name, 1),)):
            return name, max(low, 0), min(high, FAR)
        case Affine(const=0, terms=((name, -1),)):
            return name, max(1 - high, 0), min(1 - low, FAR)
    return None
