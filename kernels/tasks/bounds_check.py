"""Bounds check: do the accesses of a kernel lie inside its arrays?

It runs before the kernel, and on kernels from files.
Loops, and conditions around an access, are read as inequalities between loop indices. Conditions on data are not decided here.
An access in a file under such a condition is refused only if no value could make it right, one in a program never.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from ..ir import affine, kernel
from ..ir.text import show_expr
from ..ir.walk import children, loads, nested_statements, walk
from .distribute import constant_extent


@dataclass(frozen=True)
class Around:
    """Constraints on the loop indices at a position in a kernel.

    `is_known`: no condition or extent around the position depends on data.
    """

    extents: dict[str, int | None] = field(default_factory=dict)
    bounds: affine.Bounds = field(default_factory=dict)
    equations: tuple[affine.Affine, ...] = ()
    is_known: bool = True

    def at_least_zero(self, x: affine.Affine) -> Around:
        """Returns these constraints and `x >= 0`."""
        slack = f"slack {len(self.bounds)}"
        equation = affine.combine([(1, x), (-1, affine.Affine(0, ((slack, 1),)))])
        return replace(
            self,
            bounds={**self.bounds, slack: (0, affine.BEYOND)},
            equations=(*self.equations, equation),
        )

    def may_be(self, x: affine.Affine) -> bool:
        """True if `x >= 0` in some iteration within the constraints."""
        more = self.at_least_zero(x)
        return affine.feasible(more.equations, more.bounds)

    def may_leave(self, x: affine.Affine, n: int) -> bool:
        """True if index `x` is outside of an axis of n elements in some iteration within the constraints."""
        below = affine.combine([(-1, x), (1, affine.constant(-1))])
        return self.may_be(below) or self.may_be(affine.combine([(1, x), (1, affine.constant(-n))]))

    def has(self, x: affine.Affine) -> bool:
        """True if all loops in `x` have known bounds."""
        return all(name in self.bounds for name, _ in x.terms)


def first_outside(ir: kernel.KernelIR, *, of_file: bool = False) -> str | None:
    """Message on the first access that surely leaves its array; None if there is none.

    `of_file`: an access that leaves its array whenever it runs counts as well, though data may decide that it never runs.
    """
    shapes = {p.name: p.shape for p in ir.arrays}
    shapes |= {
        s.name: (s.extent,) for s in nested_statements(ir.body) if isinstance(s, kernel.LocalArray)
    }
    for s, array, indices, around in _accesses(ir.body, Around()):
        for axis, (index, n) in enumerate(zip(indices, shapes[array], strict=True)):
            if _leaves(index, n, around, of_file):
                where = f"axis {axis}; kernel {ir.name}, line {s.where.line}"
                shown = show_expr(index.x if isinstance(index, kernel.Cast) else index)
                return f"the index `{shown}` of {array} leaves 0..{n - 1} ({where})"
    return None


def _leaves(index: kernel.Expr, n: int, around: Around, of_file: bool) -> bool:
    enclosed = affine.limits(index, around.extents)
    if enclosed is not None and enclosed[0] >= 0 and enclosed[1] < n:
        return False
    x = affine.to_affine(index)
    if x is None or not around.has(x):
        return False
    if around.is_known:
        return around.may_leave(x, n)
    low, high = affine.index_range(x, {k: high + 1 for k, (_, high) in around.bounds.items()})
    return of_file and (low >= n or high < 0)


def _accesses(
    body: tuple[kernel.Stmt, ...], around: Around
) -> Iterator[tuple[kernel.Stmt, str, tuple[kernel.Expr, ...], Around]]:
    for s in body:
        for e in children(s):
            yield from (
                (s, x.array, x.indices, around) for x in loads(e) if isinstance(x, kernel.Load)
            )
            yield from (
                (s, x.name, (x.index,), around)
                for x in walk(e)
                if isinstance(x, kernel.LocalElement)
            )
        match s:
            case kernel.SetElement():
                yield s, s.name, (s.index,), around
            case kernel.Store() | kernel.Update():
                yield s, s.array, s.indices, around
            case kernel.For():
                inside = in_loop(s, around)
                if inside is not None:
                    yield from _accesses(s.body, inside)
            case kernel.While():
                yield from _accesses(s.body, replace(around, is_known=False))
            case kernel.If():
                yield from _accesses(s.then, where(s.condition, around))
                yield from _accesses(s.orelse, where_not(s.condition, around))


def in_loop(s: kernel.For, around: Around) -> Around | None:
    """Returns the constraints inside a loop; None if the loop never runs."""
    n = constant_extent(s.extent)
    extents = {**around.extents, s.loop: n}
    if n is not None:
        bounds = {**around.bounds, s.loop: (0, n - 1)}
        return replace(around, extents=extents, bounds=bounds) if n else None
    x = affine.to_affine(affine.unclamped(s.extent))
    if x is None or not around.has(x):
        return replace(around, extents=extents, is_known=False)
    _, most = affine.index_range(x, {k: high + 1 for k, (_, high) in around.bounds.items()})
    if most < 1:
        return None
    inside = replace(around, extents=extents, bounds={**around.bounds, s.loop: (0, most - 1)})
    return inside.at_least_zero(affine.combine([(1, x), (-1, affine.Affine(1, ((s.loop, 1),)))]))


def where(condition: kernel.Expr, around: Around) -> Around:
    """Returns the constraints `around` and those of a condition that holds."""
    match condition:
        case kernel.Binary(op="and", a=a, b=b):
            return where(b, where(a, around))
        case kernel.Unary(op="not", x=x):
            return where_not(x, around)
        case kernel.Compare(op=op, a=a, b=b):
            left, right = affine.to_affine(a), affine.to_affine(b)
            if left is not None and right is not None and around.has(left) and around.has(right):
                return _compared(op, affine.combine([(1, left), (-1, right)]), around)
    return replace(around, is_known=False)


def where_not(condition: kernel.Expr, around: Around) -> Around:
    """Returns the constraints `around` and those of a condition that does not hold."""
    match condition:
        case kernel.Binary(op="or", a=a, b=b):
            return where_not(b, where_not(a, around))
        case kernel.Unary(op="not", x=x):
            return where(x, around)
        case kernel.Compare(op=op):
            return where(replace(condition, op=_OPPOSITE[op]), around)
    return replace(around, is_known=False)


_OPPOSITE: dict[str, Literal["lt", "le", "gt", "ge", "eq", "ne"]] = {
    "lt": "ge",
    "ge": "lt",
    "gt": "le",
    "le": "gt",
    "eq": "ne",
    "ne": "eq",
}


def _compared(op: str, x: affine.Affine, around: Around) -> Around:
    """Returns the constraints `around` and the comparison `x op 0`."""
    above, below = (
        affine.combine([(1, x), (1, affine.constant(-1))]),
        affine.combine([(-1, x), (1, affine.constant(-1))]),
    )
    match op:
        case "lt":
            return around.at_least_zero(below)
        case "gt":
            return around.at_least_zero(above)
        case "le":
            return around.at_least_zero(affine.combine([(-1, x)]))
        case "ge":
            return around.at_least_zero(x)
        case "eq":
            return around.at_least_zero(x).at_least_zero(affine.combine([(-1, x)]))
    # `!=` is `<` or `>`: decided only if one of them holds in no iteration.
    if not around.may_be(below):
        return around.at_least_zero(above)
    if not around.may_be(above):
        return around.at_least_zero(below)
    return replace(around, is_known=False)
