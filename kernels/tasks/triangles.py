"""Bounding boxes of triangular loops: a range that depends on outer loops becomes a constant range and a branch.

Such ranges are `range(i)` and `range(i, n)`.
Outside of affine bounds (kernels/analysis/domain_bounds.py) the branch is not taken, so writes cover the triangle alone. Loops with
another loop's index as their start begin at 0: their index is again the one that the program names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..ir.affine import Affine, combine, constant, expression, index_range, to_affine, unclamped
from ..ir.body import Closure, Reason
from ..ir.domain import Loop
from ..ir.kernel import Binary, Compare, DType, Expr, For, If, LoopIndex, Stmt
from ..ir.walk import blocks, children, mapped, walk, with_blocks
from .distribute import constant_extent, user_loop
from .guards import conjunction


def boxed(body: tuple[Stmt, ...], steps: tuple[Loop, ...] = ()) -> tuple[Stmt, ...]:
    """Returns `body` with constant extents of loops instead of extents affine in loops and steps around.

    Names of loops are unique.
    """
    return _boxed(body, {loop.name: loop.extent for loop in steps})


def first_range(body: tuple[Stmt, ...]) -> Reason | None:
    """Returns the reason why `body` stays non-affine, its first loop of no constant extent; None without one."""
    for s in body:
        if isinstance(s, For) and constant_extent(s.extent) is None:
            loops = [e.loop for e in walk(s.extent) if isinstance(e, LoopIndex)]
            text = f"that depends on {user_loop(loops[0])}" if loops else "known only at run time"
            return Reason(Closure.RANGE, f"a range {text}", s.where)
        for block in blocks(s):
            found = first_range(block)
            if found is not None:
                return found
    return None


def _boxed(body: tuple[Stmt, ...], extents: Mapping[str, int]) -> tuple[Stmt, ...]:
    made: list[Stmt] = []
    for s in body:
        if isinstance(s, For):
            made += _loop(s, extents)
        else:
            made.append(with_blocks(s, lambda inner: _boxed(inner, extents)))
    return tuple(made)


def _loop(s: For, extents: Mapping[str, int]) -> Iterator[Stmt]:
    """Yields the loop over the bounding box of its index, with a branch inside; nothing if it never runs."""
    extent = to_affine(unclamped(s.extent))
    if extent is None or any(name not in extents for name, _ in extent.terms):
        yield with_blocks(s, lambda inner: _boxed(inner, extents))
        return
    if not extent.terms:
        inside = {**extents, s.loop: max(0, extent.const)}
        yield with_blocks(s, lambda inner: _boxed(inner, inside))
        return
    start = _start(s, extents)
    end = combine([(1, start), (1, extent)])
    most = index_range(end, extents)[1]
    if most <= 0:
        return
    index = LoopIndex(s.loop, _index_type(s))
    conditions: list[Expr] = []
    if start.terms:
        conditions.append(Compare("ge", index, expression(start, index.dtype)))
    if end.terms:
        conditions.append(Compare("lt", index, expression(end, index.dtype)))
    body = s.body
    if start.terms:
        body = tuple(_moved(x, s.loop, start) for x in body)
    body = _boxed(body, {**extents, s.loop: most})
    condition = conjunction(tuple(conditions))
    if condition is not None:
        body = (If(condition, body, (), s.where),)
    yield For(s.loop, expression(constant(most), DType.i64), body, s.where)


def _expressions(body: tuple[Stmt, ...]) -> Iterator[Expr]:
    for s in body:
        for e in children(s):
            yield from walk(e)
        for block in blocks(s):
            yield from _expressions(block)


def _index_type(s: For) -> DType:
    found = (e.dtype for e in _expressions(s.body) if isinstance(e, LoopIndex) and e.loop == s.loop)
    return next(found, DType.i64)


def _start(s: For, extents: Mapping[str, int]) -> Affine:
    """Returns the affine offset, a function of loops, that every use of a loop's index adds; 0 without one."""
    n_uses, starts = 0, list[Affine]()
    for e in _expressions(s.body):
        match e:
            case LoopIndex(loop) if loop == s.loop:
                n_uses += 1
            case Binary("add", LoopIndex(loop), b) if loop == s.loop:
                found = to_affine(b)
                if found is not None and all(name in extents for name, _ in found.terms):
                    starts.append(found)
    is_start = n_uses > 0 and len(starts) == n_uses and len(set(starts)) == 1
    if is_start and starts[0].terms and index_range(starts[0], extents)[0] >= 0:
        return starts[0]
    return constant(0)


def _moved(s: Stmt, loop: str, start: Affine) -> Stmt:
    """Returns statement `s` with the index of `loop` replaced by the index less `start`."""

    def change(e: Expr) -> Expr:
        affine = to_affine(e) if e.dtype.is_index else None
        if affine is not None:
            step = affine.coefficient(loop)
            return expression(combine([(1, affine), (-step, start)]), e.dtype) if step else e
        return mapped(e, change, lambda x: x)

    return mapped(s, change, lambda x: _moved(x, loop, start))
