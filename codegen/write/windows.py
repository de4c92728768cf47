"""Halo blocks on CPUs: copies of a tile with the border that its iterations read, made by each thread for itself."""

from __future__ import annotations

from collections.abc import Mapping

from ...kernels.ir.access import Access
from ...space.backbone import OUTER, Operand
from ..bodies.body_values import TilePlace
from ..bodies.iteration_point import LoopIndexAt, Point, affine_at, row_strides
from ..bodies.memory import Value
from ..passes.storage import Buffer, WindowLayout
from ..plan.plan import TaskPlan
from ..text import csyntax as c
from .context import Context
from .domain_cuts import maximum
from .emission import Emission
from .strips import strips


def fill_window(scene: Emission, task: TaskPlan, operand: Operand, ctx: Context) -> None:
    """Copies one tile with its border to the thread's block, row by row.

    In vectors if the array's rows are contiguous.
    """
    buffer, layout = scene.windows[task.index, operand.site]
    array, w = scene.plan.problem.array(operand.access.array), scene.w
    strides = row_strides(array.shape)
    *outer, last = layout.strides
    names = {name: w.fresh(f"{name}_halo") for name in layout.strides}
    index = {name: LoopIndexAt(c.Id(variable)) for name, variable in names.items()}

    inside = operand.inside(array.shape)

    def bounds(name: str) -> tuple[c.CExpr, c.CExpr]:
        start, p = ctx.variables[task.index, name, OUTER], task.loop(name)
        end = c.linear(((scene.tile_end(p, start), 1),), operand.reach(name))
        if not operand.leaves(p.loop, array.shape):
            return start, end
        first, last = map(c.number, inside[name])
        return maximum(start, first), c.minimum(end, last)

    def moved(lanes: int) -> tuple[c.CStmt, ...]:
        point = Point({**index, last: LoopIndexAt(c.Id(names[last]), 0, lanes)})
        with w.scope() as made:
            there, _ = affine_at(operand.access.axes, strides, point)
            source = scene.global_array(array.name)
            value = w.load(array.name, source, there, array.dtype, lanes, 1)
            here, _ = _place(task, layout, point, ctx)
            w.store(buffer.name, c.Id(buffer.name), here, value, array.dtype, stream=False)
        return tuple(made.statements)

    _, along = affine_at(
        operand.access.axes, strides, Point({**index, last: LoopIndexAt(None, 0, 2)})
    )
    lanes = scene.target.lanes(array.dtype.size_bytes) if along == 1 else 1
    body = strips(names[last], *bounds(last), lanes, moved)
    for name in reversed(outer):
        body = (c.For(names[name], *bounds(name), 1, body),)
    for statement in body:
        w.write(statement)
    w.used -= set(names.values())
    w.forget(buffer.name)


def read_window(
    scene: Emission,
    task: TaskPlan,
    window: tuple[Buffer, WindowLayout],
    access: Access,
    point: Point,
    ctx: Context,
) -> Value:
    """Returns the value of an access at a point, read from the thread's halo block."""
    buffer, layout = window
    index, stride = _place(task, layout, point, ctx)
    index = c.linear(((index, 1),), layout.beyond(access.axes))
    return scene.w.load(buffer.name, c.Id(buffer.name), index, buffer.dtype, point.lanes(), stride)


def tile_of_window(
    base: str, extents: Mapping[str, int], task: TaskPlan, operand: Operand, ctx: Context
) -> TilePlace:
    """Returns a halo block of these `extents` as a tile, which statements index as they index the array."""
    shape, firsts = list[int](), list[tuple[tuple[c.CExpr, ...], int]]()
    for axis in operand.access.axes:
        assert axis is not None
        loops = [name for name, _ in axis.terms]  # one, or none
        shape.append(extents[loops[0]] if loops else 1)
        firsts.append((tuple(ctx.variables[task.index, name, OUTER] for name in loops), axis.const))
    terms, const = list[tuple[c.CExpr, int]](), 0
    for (outer, more), stride in zip(firsts, row_strides(tuple(shape)), strict=True):
        terms += [(x, stride) for x in outer]
        const += more * stride
    return TilePlace(c.Id(base), tuple(shape), c.linear(tuple(terms), const))


def _place(task: TaskPlan, layout: WindowLayout, point: Point, ctx: Context) -> tuple[c.CExpr, int]:
    """Returns the index in a halo block of an iteration's first read, and the stride from lane to lane."""
    terms: dict[c.CExpr, int] = {}
    const, lane_stride = 0, 0
    for name, stride in layout.strides.items():
        at, outer = point.index[name], ctx.variables[task.index, name, OUTER]
        const += at.offset * stride
        if at.variable is not None:
            terms[at.variable] = terms.get(at.variable, 0) + stride
        terms[outer] = terms.get(outer, 0) - stride
        if at.lanes:
            lane_stride = stride
    ordered = sorted(((x, k) for x, k in terms.items() if k), key=lambda item: -abs(item[1]))
    return c.linear(tuple(ordered), const), lane_stride
