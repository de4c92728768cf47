"""Whether what a kernel accesses lies inside its arrays: asked of kernels that come from a file, which no frontend has looked at.

Loops, and conditions around an access, are read as inequalities between loop indices. What depends on data is not decided here:
such an access is refused only where no value could make it right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ..ir.affine import (
    BEYOND,
    Affine,
    Bounds,
    combine,
    constant,
    feasible,
    index_range,
    limits,
    to_affine,
    unclamped,
)
from ..ir.kernel import (
    Binary,
    Cast,
    Compare,
    Expr,
    For,
    If,
    KernelIR,
    Load,
    LocalArray,
    LocalElement,
    SetElement,
    Stmt,
    Store,
    Update,
    While,
)
from ..ir.text import show_expr
from ..ir.walk import children, loads, nested_statements, walk
from ..offload.distribute import constant_extent


@dataclass(frozen=True)
class _Around:
    """What is known of the loop indices at a place. `is_known`: no condition around it depends on data."""

    extents: dict[str, int | None] = field(default_factory=dict)
    bounds: Bounds = field(default_factory=dict)
    equations: tuple[Affine, ...] = ()
    is_known: bool = True

    def at_least_zero(self, x: Affine) -> _Around:
        """The same where `x >= 0`."""
        slack = f"slack {len(self.bounds)}"
        equation = combine([(1, x), (-1, Affine(0, ((slack, 1),)))])
        return replace(
            self,
            bounds={**self.bounds, slack: (0, BEYOND)},
            equations=(*self.equations, equation),
        )

    def may_be(self, x: Affine) -> bool:
        """Whether `x >= 0` in some iteration."""
        more = self.at_least_zero(x)
        return feasible(more.equations, more.bounds)


def first_outside(ir: KernelIR) -> str | None:
    """What is wrong with the first access that leaves its array, in words; None where none is sure to."""
    shapes = {p.name: p.shape for p in ir.arrays}
    shapes |= {s.name: (s.extent,) for s in nested_statements(ir.body) if isinstance(s, LocalArray)}
    for s, array, indices, around in _accesses(ir.body, _Around()):
        for axis, (index, n) in enumerate(zip(indices, shapes[array], strict=True)):
            if _leaves(index, n, around):
                where = f"axis {axis}; kernel {ir.name}, line {s.where.line}"
                shown = show_expr(index.x if isinstance(index, Cast) else index)
                return f"the index `{shown}` of {array} leaves 0..{n - 1} ({where})"
    return None


def _leaves(index: Expr, n: int, around: _Around) -> bool:
    enclosed = limits(index, around.extents)
    if enclosed is not None and enclosed[0] >= 0 and enclosed[1] < n:
        return False
    x = to_affine(index)
    if x is None or any(name not in around.bounds for name, _ in x.terms):
        return False
    before, behind = combine([(-1, x), (1, constant(-1))]), combine([(1, x), (1, constant(-n))])
    if around.is_known:
        return around.may_be(before) or around.may_be(behind)
    low, high = index_range(x, {k: high + 1 for k, (_, high) in around.bounds.items()})
    return low >= n or high < 0


def _accesses(
    body: tuple[Stmt, ...], around: _Around
) -> Iterator[tuple[Stmt, str, tuple[Expr, ...], _Around]]:
    for s in body:
        for e in children(s):
            yield from ((s, x.array, x.indices, around) for x in loads(e) if isinstance(x, Load))
            yield from (
                (s, x.name, (x.index,), around) for x in walk(e) if isinstance(x, LocalElement)
            )
        match s:
            case SetElement():
                yield s, s.name, (s.index,), around
            case Store() | Update():
                yield s, s.array, s.indices, around
            case For():
                inside = _in_loop(s, around)
                if inside is not None:
                    yield from _accesses(s.body, inside)
            case While():
                yield from _accesses(s.body, replace(around, is_known=False))
            case If():
                yield from _accesses(s.then, _where(s.condition, around))
                yield from _accesses(s.orelse, replace(around, is_known=False))


def _in_loop(s: For, around: _Around) -> _Around | None:
    """What is known in a loop; None where it never runs."""
    n = constant_extent(s.extent)
    extents = {**around.extents, s.loop: n}
    if n is not None:
        bounds = {**around.bounds, s.loop: (0, n - 1)}
        return replace(around, extents=extents, bounds=bounds) if n else None
    x = to_affine(unclamped(s.extent))
    if x is None or any(name not in around.bounds for name, _ in x.terms):
        return replace(around, extents=extents)
    _, most = index_range(x, {k: high + 1 for k, (_, high) in around.bounds.items()})
    if most < 1:
        return None
    inside = replace(around, extents=extents, bounds={**around.bounds, s.loop: (0, most - 1)})
    return inside.at_least_zero(combine([(1, x), (-1, Affine(1, ((s.loop, 1),)))]))


def _where(condition: Expr, around: _Around) -> _Around:
    """What is known where a condition holds."""
    match condition:
        case Binary(op="and", a=a, b=b):
            return _where(b, _where(a, around))
        case Compare(op="lt" | "le" | "gt" | "ge" | "eq", a=a, b=b):
            x, y = to_affine(a), to_affine(b)
            if x is None or y is None:
                return replace(around, is_known=False)
            if condition.op in ("gt", "ge"):
                x, y = y, x
            more = combine([(1, y), (-1, x), (1, constant(-(condition.op in ("lt", "gt"))))])
            known = around.at_least_zero(more)
            return known.at_least_zero(combine([(-1, more)])) if condition.op == "eq" else known
    return replace(around, is_known=False)
