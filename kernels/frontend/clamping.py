"""Clamped float indices: an index cast from a clamped float is clamped as an integer, too.

A sample between grid points has `i = cast(min(max(x, 0.0), n - 1.001), i32)`. The float clamp covers every number, but not NaN,
which a machine casts to an arbitrary integer. The second clamp covers every x, so no call has to check its data first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..analysis.must_execute import set_in
from ..ir import kernel as ir
from ..ir.ops import OPS
from ..ir.walk import children, locals_read, mapped, nested_statements, rebuild, walk

Range = tuple[float, float]
_ANY: Range = (-math.inf, math.inf)
_RISING = {"floor", "ceil", "trunc", "rint", "round"}  # of a larger number not less


def clamped_indices(body: tuple[ir.Stmt, ...]) -> tuple[ir.Stmt, ...]:
    """Returns the statements with each float that is cast to an index clamped, if the float's range is bounded."""
    changes = set_in(body)
    reaching = _reaching(body, changes)
    if not reaching and not any(map(_indices, nested_statements(body))):
        return body
    return _Clamps(_FloatRanges(changes), reaching).block(body)


def _indices(s: ir.Stmt) -> tuple[ir.Expr, ...]:
    """Returns the index expressions of all accesses in a statement."""
    of_loads = (
        i for e in children(s) for x in walk(e) if isinstance(x, ir.Load) for i in x.indices
    )
    return (*of_loads, *(s.indices if isinstance(s, ir.Store | ir.Update) else ()))


def _reaching(body: tuple[ir.Stmt, ...], changes: Mapping[str, Sequence[ir.Stmt]]) -> set[str]:
    """Returns the names of the locals on which index expressions depend, directly or through other locals."""
    left = [name for s in nested_statements(body) for e in _indices(s) for name in locals_read(e)]
    found: set[str] = set()
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += (x for s in changes.get(name, ()) for e in children(s) for x in locals_read(e))
    return found


class _Clamps:
    def __init__(self, ranges: _FloatRanges, reaching: set[str]) -> None:
        self.ranges, self.reaching = ranges, reaching

    def block(self, body: tuple[ir.Stmt, ...]) -> tuple[ir.Stmt, ...]:
        return tuple(map(self.statement, body))

    def statement(self, s: ir.Stmt) -> ir.Stmt:
        whole = isinstance(s, ir.SetLocal) and s.name in self.reaching
        s = mapped(s, self.clamped if whole else self.inside, self.statement)
        if isinstance(s, ir.Store | ir.Update):
            s = replace(s, indices=tuple(map(self.clamped, s.indices)))
        return s

    def inside(self, e: ir.Expr) -> ir.Expr:
        """Returns an expression in which the indices of all loads are clamped."""
        if isinstance(e, ir.Load):
            return replace(e, indices=tuple(map(self.clamped, e.indices)))
        return _rebuilt(e, self.inside)

    def clamped(self, e: ir.Expr) -> ir.Expr:
        """Returns an index expression in which each cast from a bounded float is clamped to the float's range."""
        e = _rebuilt(e, self.clamped)
        if not isinstance(e, ir.Cast) or not e.x.dtype.is_float or not e.dtype.is_index:
            return e
        (low, high), (least, most) = self.ranges.of(e.x), e.dtype.range
        if not least <= low <= high <= most:
            return e
        first, last = (ir.Const(math.trunc(x), e.dtype) for x in (low, high))
        return ir.Binary("min", ir.Binary("max", e, first, e.dtype), last, e.dtype)


def _rebuilt(e: ir.Expr, change: Callable[[ir.Expr], ir.Expr]) -> ir.Expr:
    old = children(e)
    new = tuple(map(change, old))
    return e if all(x is y for x, y in zip(old, new, strict=True)) else rebuild(e, new)


class _FloatRanges:
    """Value ranges of float expressions, NaN excluded.

    Rounding is monotonic, so only ends of ranges are computed.
    """

    def __init__(self, changes: Mapping[str, Sequence[ir.Stmt]]) -> None:
        self.changes = changes
        self.known: dict[str, Range] = {}

    def of(self, e: ir.Expr) -> Range:
        """Returns the range (least, greatest) of an expression; both ends are infinite if nothing is known."""
        if not e.dtype.is_float:
            return _ANY
        match e:
            case ir.Const(value=value):
                return _ends(e, [value])
            case ir.Local(name=name):
                return self._of_local(name)
            case ir.Cast(x=x):
                return _ends(e, self.of(x))
            case ir.Select(a=a, b=b):
                return _ends(e, [*self.of(a), *self.of(b)])
            case ir.Unary(op=op, x=x) if op in _RISING or op == "neg":
                return _ends(e, [OPS[op].numpy(_number(e, end)) for end in self.of(x)])
            case ir.Binary(op=("min" | "max") as op, a=a, b=b):
                pick = min if op == "min" else max
                return pick(self.of(a)[0], self.of(b)[0]), pick(self.of(a)[1], self.of(b)[1])
            case ir.Binary(op="add" | "sub" | "mul" as op, a=a, b=b):
                pairs = [(_number(e, x), _number(e, y)) for x in self.of(a) for y in self.of(b)]
                with np.errstate(all="ignore"):
                    return _ends(e, [OPS[op].numpy(x, y) for x, y in pairs])
        return _ANY

    def _of_local(self, name: str) -> Range:
        if name not in self.known:
            self.known[name] = _ANY  # also while it is looked at: it may depend on itself
            match self.changes.get(name, ()):
                case [ir.SetLocal(value=value)]:
                    self.known[name] = self.of(value)
        return self.known[name]


def _number(e: ir.Expr, value: float) -> Any:
    return e.dtype.numpy.type(value)


def _ends(e: ir.Expr, values: Sequence[Any]) -> Range:
    """Returns the least and the greatest of `values`, each in the type of `e`; infinite if one of them is NaN."""
    found = [float(_number(e, x)) for x in values]
    return _ANY if any(map(math.isnan, found)) else (min(found), max(found))
