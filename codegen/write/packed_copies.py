"""Packs operand blocks: register tile by register tile, in vectors if array and block are both contiguous."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from ...space.backbone import MID, OUTER, Operand
from ..bodies.iteration_point import LoopIndexAt, Point, affine_at, row_strides
from ..passes.storage import CopyLayout
from ..plan.plan import LoopPlan, TaskPlan
from ..text import csyntax as c
from .context import Context
from .emission import Emission
from .strips import length_of, strips

# Loads and stores that are written without a loop: each is then an instruction of its own, whose steps the machine can foresee.
_AT_ONCE = 16

Statements = tuple[c.CStmt, ...]


class _Header(NamedTuple):
    """Header of a C loop: variable, begin, end, step."""

    variable: str
    lo: c.CExpr
    hi: c.CExpr
    step: int

    def around(self, body: Statements) -> Statements:
        return (c.For(self.variable, self.lo, self.hi, self.step, body),)


def pack(
    scene: Emission,
    task: TaskPlan,
    operand: Operand,
    ctx: Context,
    window: Mapping[str, tuple[c.CExpr, c.CExpr | None]],
    half: c.CExpr,
) -> None:
    """Writes the packing of an operand's block for one tile.

    `window`: begin and end of each loop with intra-tile (mid) steps; without an end, only the
    register tile that begins there.
    `half`: index in the buffer at which the block begins.
    """
    _Packing(scene, task, operand, half).write(ctx, window)


class _Packing:
    """Writer of the packing of one block."""

    def __init__(self, scene: Emission, task: TaskPlan, operand: Operand, half: c.CExpr) -> None:
        self.scene, self.w, self.task, self.operand, self.half = scene, scene.w, task, operand, half
        self.buffer, self.layout = scene.copies[task.index, operand.site]
        self.array = scene.plan.problem.array(operand.access.array)
        self.strides = row_strides(self.array.shape)
        self.context = Context()
        self.starts: dict[str, c.CExpr] = {}  # of register tiles, by loop

    def write(self, ctx: Context, window: Mapping[str, tuple[c.CExpr, c.CExpr | None]]) -> None:
        """Writes the loops over intra-tile (mid) steps, and inside the register tiles.

        If tiles may be partial, full tiles are written apart from them: a small constant number of
        moves needs no loop.
        """
        variables = dict(ctx.variables)
        mids: list[tuple[str, _Header]] = []
        for name in self.layout.order:
            p = self.task.loop(name)
            start = variables[self.task.index, name, OUTER]
            if p.mid > 1:
                lo, hi = window.get(name, (start, self.scene.tile_end(p, start)))
                start = lo
                if hi is not None:
                    variable = self.w.fresh(f"{name}1")
                    mids.append((name, _Header(variable, lo, hi, p.inner)))
                    start = c.Id(variable)
                variables[self.task.index, name, MID] = start
            self.starts[name] = start
        self.context = replace(ctx, variables=variables)
        cut = [p for p in map(self.task.loop, self.layout.order) if p.loop.extent % p.inner]
        body = self.tile(is_whole=not cut)
        names = [name for name, _ in mids]
        depth = max((names.index(p.loop.name) + 1 for p in cut if p.loop.name in names), default=0)
        for _, header in reversed(mids[depth:]):
            body = header.around(body)
        if cut:
            whole = self.tile(is_whole=True)
            for _, header in reversed(mids[depth:]):
                whole = header.around(whole)
            body = (c.If(self.are_whole(cut), whole, body),)
        for _, header in reversed(mids[:depth]):
            body = header.around(body)
        for _, header in mids:
            self.w.used.discard(header.variable)
        for statement in body:
            self.w.write(statement)
        self.w.forget(self.buffer.name)

    def are_whole(self, loops: list[LoopPlan]) -> c.CExpr:
        """Returns a C condition: no loop ends inside the current register tile."""
        test: c.CExpr | None = None
        for p in loops:
            end = c.linear(((self.starts[p.loop.name], 1),), p.inner)
            here = c.Bin("<=", end, c.number(p.loop.extent))
            test = here if test is None else c.Bin("&&", test, here)
        assert test is not None
        return test

    def tile(self, is_whole: bool) -> Statements:
        """Returns the code that packs one register tile. `is_whole`: the tile is full."""
        headers: list[_Header] = []
        index: dict[str, LoopIndexAt] = {}
        last = self.layout.inner_order[-1]
        for name in self.layout.inner_order:
            p, start = self.task.loop(name), self.starts[name]
            if p.inner == 1 and name != last:
                index[name] = LoopIndexAt(start)
                continue
            element = self.w.fresh(name)
            end = c.linear(((start, 1),), p.inner)
            if p.loop.extent % p.inner and not is_whole:
                end = c.minimum(end, c.number(p.loop.extent))
            headers.append(_Header(element, start, end, 1))
            index[name] = LoopIndexAt(c.Id(element))
        innermost = headers.pop()
        body = self.row(index, last, innermost)
        for header in reversed(headers):
            body = header.around(body)
        self.w.used -= {header.variable for header in (*headers, innermost)}
        return body

    def row(self, index: Mapping[str, LoopIndexAt], last: str, header: _Header) -> Statements:
        """Returns the code that packs one run of elements along a register tile's innermost loop `last`.

        `index`: indices of the other loops. `header`: range of the run.
        """
        neighbours = Point({**index, last: replace(index[last], lanes=2)})
        _, to_stride = place_in_block(self.scene, self.task, self.layout, neighbours, self.context)
        _, from_stride = affine_at(self.operand.access.axes, self.strides, neighbours)
        is_vector = to_stride == from_stride == 1
        lanes = self.scene.target.lanes(self.array.dtype.size_bytes) if is_vector else 1
        n = length_of(header.lo, header.hi) or 0
        while n and lanes > n:
            lanes //= 2
        if n and n % lanes == 0 and n // lanes <= _AT_ONCE:
            width = lanes if lanes > 1 else 0
            places = (LoopIndexAt(header.lo, k, width) for k in range(0, n, lanes))
            return self.moved([{**index, last: at} for at in places])
        return strips(
            header.variable,
            header.lo,
            header.hi,
            lanes,
            lambda n: self.moved([{**index, last: replace(index[last], lanes=n)}]),
        )

    def moved(self, places: list[dict[str, LoopIndexAt]]) -> Statements:
        """Returns copies of elements or vectors from the array to the block, one per dict of loop indices."""
        with self.w.scope() as made:
            for index in places:
                point = Point(index)
                here, _ = place_in_block(self.scene, self.task, self.layout, point, self.context)
                there, _ = affine_at(self.operand.access.axes, self.strides, point)
                source, dtype = self.scene.global_array(self.array.name), self.array.dtype
                lanes = point.lanes()
                value = self.w.load(self.array.name, source, there, dtype, lanes, 1)
                block, place = c.Id(self.buffer.name), c.add(here, self.half)
                self.w.store(self.buffer.name, block, place, value, dtype, stream=False)
        return tuple(made.statements)


def place_in_block(
    scene: Emission, task: TaskPlan, layout: CopyLayout, point: Point, ctx: Context
) -> tuple[c.CExpr, int]:
    """Returns the index of a point's element in a packed block, and its stride from lane to lane."""
    terms: dict[c.CExpr, int] = {}
    const, lane_stride = 0, 0
    for name in layout.order:
        p, at = task.loop(name), point.index[name]
        tile, outer = scene.start(task, p, ctx), ctx.variables[task.index, name, OUTER]
        if p.mid > 1:
            terms[tile] = terms.get(tile, 0) + layout.outer_strides[name]
            terms[outer] = terms.get(outer, 0) - layout.outer_strides[name]
        inner = layout.inner_strides[name]
        const += at.offset * inner
        if at.variable is not None and at.variable != tile:
            terms[at.variable] = terms.get(at.variable, 0) + inner
            terms[tile] = terms.get(tile, 0) - inner
        if at.lanes:
            lane_stride = inner
    return c.linear(tuple(sorted(terms.items(), key=lambda i: -abs(i[1]))), const), lane_stride
