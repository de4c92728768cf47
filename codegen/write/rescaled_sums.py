"""Writes sums that share the loop of their maximum, and are corrected whenever it has grown; see kernels/analysis/rescaling.py.

Three register tiles have an element for each result of the maximum that is live: the "value" so far of the maximum, and of each
rescaled sum the value "before", for which it was corrected last, and its present "scale".
"""

from __future__ import annotations

from collections.abc import Callable

from ...kernels.analysis.contraction import FREE
from ...kernels.analysis.rescaling import BEFORE, NOW
from ...kernels.ir import kernel as ir
from ...kernels.ir.walk import neutral_of
from ..bodies.iteration_point import Point
from ..bodies.memory import Value
from ..bodies.vector_functions import permitted_ulp
from ..plan.plan import TaskPlan
from ..text import csyntax as c
from ..text.constants import neutral
from .accumulators import Accumulators
from .context import Context
from .partial_tiles import Flat, Over

_SCALE = "scale"
Leaf = Callable[[ir.Expr], Value]


def begin(sums: Accumulators, task: TaskPlan, ctx: Context) -> None:
    """Declares the value so far of a maximum by which others are rescaled, and the tiles of these."""
    scene = sums.scene
    others = scene.plan.rescaled_by(task.index)
    if not others:
        return
    assert task.task.op is not None
    array, free = scene.plan.problem.array(task.task.target.array), scene.free_loops(task)
    nothing = Value(neutral(task.task.op, array.dtype), array.dtype)
    kinds = [(task, "value", array.dtype)]
    kinds += [(t, BEFORE, array.dtype) for t in others]
    kinds += [(t, _SCALE, t.task.dtype) for t in others if _factor(t) is not None]
    for t, kind, dtype in kinds:
        stem = f"{array.name if t is task else t.task.target.array}_{kind}"
        tile = sums.values.tile_of(task, free, ctx, stem, dtype)
        scene.tiles[t.index, kind] = tile
        first = scene.w.splat(nothing, tile.lanes).x if kind != _SCALE else None
        scene.declare(tile, first)


def advance(sums: Accumulators, task: TaskPlan, ctx: Context) -> None:
    """Finishes the present maximum, as if its loop ended here."""
    scene = sums.scene
    tile, free = scene.tiles[task.index, "value"], scene.free_loops(task)
    with Over(scene, task, free, ctx) as inner:
        for point in scene.points(task, free, inner):
            total = scene.w.name(sums.total(task, point), f"{task.task.target.array}_total")
            value = scene.w.converted(sums.finished(task, point, total, inner), tile.dtype)
            value = scene.w.splat(value, point.lanes())
            scene.w.write(c.Assign(tile.ref(point.copies, point.indices), value.x))


def rescale(sums: Accumulators, task: TaskPlan, ctx: Context) -> None:
    """Corrects all live sums of a task for the present maximum."""
    scene = sums.scene
    assert task.rescaled is not None
    base = scene.plan.tasks[task.rescaled.flow.producer]
    factor = _factor(task)
    if factor is not None:
        _fill(sums, base, task, _SCALE, factor, ctx)
    if scene.launch.accumulators[task.index].in_memory:
        _in_memory(sums, task, ctx)
    else:
        _in_registers(sums, task, ctx)
    _fill(sums, base, task, BEFORE, ir.Local(NOW, base.task.dtype), ctx)


def _factor(task: TaskPlan) -> ir.Expr | None:
    assert task.rescaled is not None
    return task.rescaled.action.factor


def _fill(
    sums: Accumulators, base: TaskPlan, task: TaskPlan, kind: str, value: ir.Expr, ctx: Context
) -> None:
    """Sets a tile of a rescaled task to what an expression says of the maximum."""
    scene = sums.scene
    tiles = {BEFORE: scene.tiles[task.index, BEFORE], NOW: scene.tiles[base.index, "value"]}
    into, free = scene.tiles[task.index, kind], scene.free_loops(base)
    with Over(scene, base, free, ctx) as inner:
        for point in scene.points(base, free, inner):

            def leaf(e: ir.Expr, point: Point = point) -> Value:
                assert isinstance(e, ir.Local), e
                tile = tiles[e.name]
                return Value(tile.ref(point.copies, point.indices), tile.dtype, tile.lanes)

            made = _evaluated(sums, task, value, leaf)
            scene.w.write(c.Assign(into.ref(point.copies, point.indices), made.x))


def _evaluated(sums: Accumulators, task: TaskPlan, e: ir.Expr, leaf: Leaf) -> Value:
    scene = sums.scene
    with scene.w.rounding(FREE):
        return scene.w.evaluate(e, leaf, permitted_ulp(scene.plan, task))


def _corrected(sums: Accumulators, task: TaskPlan, point: Point, old: Value) -> Value:
    """Returns a sum so far, or a vector of them, for the present maximum."""
    scene, rescaled, dtype = sums.scene, task.rescaled, task.task.dtype
    assert rescaled is not None
    assert task.task.op is not None
    tiles = {
        NOW: scene.tiles[rescaled.flow.producer, "value"],
        BEFORE: scene.tiles[task.index, BEFORE],
    }
    if rescaled.action.factor is not None:
        tiles[_SCALE] = scene.tiles[task.index, _SCALE]

    def leaf(e: ir.Expr) -> Value:
        if isinstance(e, ir.Accumulator):
            return old
        assert isinstance(e, ir.Local), e
        tile = tiles[e.name]
        return sums.values.read_tile(tile, rescaled.flow, tile.dtype, point)

    made: ir.Expr = ir.Accumulator(dtype)
    if rescaled.action.factor is not None:
        made = ir.Binary("mul", made, ir.Local(_SCALE, dtype), dtype)
    nothing = neutral_of(task.task.op, dtype)
    made = ir.Select(rescaled.action.is_lost, nothing, made, dtype)
    return _evaluated(sums, task, made, leaf)


def _in_registers(sums: Accumulators, task: TaskPlan, ctx: Context) -> None:
    scene, free = sums.scene, sums.scene.free_loops(task)
    with Over(scene, task, free, ctx) as inner:
        for point in scene.points(task, free, inner):
            for x in sums.copies(task, point):
                made = _corrected(sums, task, point, x)
                scene.w.write(c.Assign(x.x, scene.w.splat(made, x.lanes).x))


def _in_memory(sums: Accumulators, task: TaskPlan, ctx: Context) -> None:
    scene = sums.scene
    buffer, _ = scene.accumulators[task.index]
    flat = Flat(scene, task, ctx)

    def cell(point: Point) -> None:
        index = sums.index(task, point, ctx)
        old = sums.part(buffer, c.Id(buffer.name), index, point)
        made = _corrected(sums, task, point, old)
        scene.w.store(buffer.name, c.Id(buffer.name), index, made, buffer.dtype, stream=False)

    flat.write(cell, scene.target.lanes(buffer.dtype.size_bytes))
    scene.w.forget(buffer.name)
