"""Rescaled sums: their terms contain another running result, and they are corrected when it changes (online softmax).

See kernels/analysis/rescaling.py. Register tiles hold, for each live result of the other reduction,
its "value" so far. For each rescaled sum they hold the value "before", for which the sum was
corrected last, and the present "scale".
"""

from __future__ import annotations

from collections.abc import Callable

from ...kernels.analysis.contraction import FREE
from ...kernels.analysis.rescaling import COUNT, before, now
from ...kernels.ir import kernel as ir
from ...kernels.ir.kernel import DType
from ...kernels.ir.walk import neutral_of
from ...space.backbone import MID, OUTER, Flow
from ..bodies.iteration_point import Point
from ..bodies.memory import Value
from ..bodies.vector_functions import permitted_ulp
from ..plan.plan import TaskPlan
from ..text import csyntax as c
from ..text.constants import constant, neutral
from ..text.types import type_name
from .accumulators import Accumulators
from .context import Context
from .emission import Emission
from .partial_tiles import Flat, Over
from .tile_loops import EmittedTile

_SCALE = "scale"
Leaf = Callable[[ir.Expr], Value]


def begin(sums: Accumulators, task: TaskPlan, ctx: Context) -> None:
    """Declares the tile "value" of a running result, and the tiles "before" and "scale" of sums that depend on it."""
    scene = sums.scene
    others = scene.plan.rescaled_by(task.index)
    if not others:
        return
    assert task.task.op is not None
    array, free = scene.plan.problem.array(task.task.target.array), scene.free_loops(task)
    nothing = Value(neutral(task.task.op, array.dtype), array.dtype)

    def declare(t: TaskPlan, kind: str, stem: str, dtype: DType, first: Value | None) -> None:
        tile = sums.values.tile_of(task, free, ctx, stem, dtype)
        scene.tiles[t.index, kind] = tile
        scene.declare(tile, None if first is None else scene.w.splat(first, tile.lanes).x)

    declare(task, "value", f"{array.name}_value", array.dtype, nothing)
    for t in others:
        stem = t.task.target.array
        declare(t, before(array.name), f"{stem}_before", array.dtype, nothing)
        if _factor(t) is not None:
            declare(t, _SCALE, f"{stem}_scale", t.task.dtype, None)


def advance(sums: Accumulators, task: TaskPlan, ctx: Context) -> None:
    """Computes the running result as if its loop ended here."""
    scene = sums.scene
    tile, free = scene.tiles[task.index, "value"], scene.free_loops(task)
    others = scene.plan.rescaled_by(task.index)
    is_mean = any(t.rescaled is not None and t.rescaled.action.is_mean for t in others)
    with Over(scene, task, free, ctx) as inner:
        for point in scene.points(task, free, inner):
            total = scene.w.name(sums.total(task, point), f"{task.task.target.array}_total")
            if is_mean:
                total = scene.w.combine("mul", total, _share(scene, task, inner))
            value = scene.w.converted(sums.finished(task, point, total, inner), tile.dtype)
            value = scene.w.splat(value, point.lanes())
            scene.w.write(c.Assign(tile.ref(point.copies, point.indices), value.x))


def _share(scene: Emission, task: TaskPlan, ctx: Context) -> Value:
    """Returns the ratio of a reduction loop's extent to its number of iterations so far."""
    start, step, extent = _tile(task, ctx)
    dtype = task.task.dtype
    done = c.CastTo(type_name(dtype, 0), scene.end_of(start, step, extent))
    return Value(c.Bin("/", constant(float(extent), dtype), done), dtype)


def _tile(task: TaskPlan, ctx: Context) -> tuple[c.CExpr, int, int]:
    """Returns start and size of the current tile of a task's only reduction loop, and the extent of this loop."""
    (p,) = (p for p in task.loops if p.loop.is_reduction)
    inner = ctx.variables.get((task.index, p.loop.name, MID))
    if inner is not None:
        return inner, p.inner, p.loop.extent
    return ctx.variables[task.index, p.loop.name, OUTER], p.tile, p.loop.extent


def rescale(sums: Accumulators, task: TaskPlan, ctx: Context) -> None:
    """Corrects all live sums of a task, as the running results in their terms have changed."""
    scene, rescaled = sums.scene, task.rescaled
    assert rescaled is not None
    factor = _factor(task)
    if factor is not None:
        _fill(sums, rescaled.flows[0], _SCALE, factor, ctx)
    if scene.launch.accumulators[task.index].in_memory:
        _in_memory(sums, task, ctx)
    else:
        _in_registers(sums, task, ctx)
    for f in rescaled.flows:
        dtype = scene.plan.problem.array(f.array).dtype
        _fill(sums, f, before(f.array), ir.Local(now(f.array), dtype), ctx)


def _factor(task: TaskPlan) -> ir.Expr | None:
    assert task.rescaled is not None
    return task.rescaled.action.factor


def _fill(sums: Accumulators, flow: Flow, kind: str, value: ir.Expr, ctx: Context) -> None:
    """Sets the tile `kind` ("before" or "scale") of a rescaled task to `value`, a function of the flow's running result."""
    scene = sums.scene
    base, task = scene.plan.tasks[flow.producer], scene.plan.tasks[flow.consumer]
    tiles = _tiles(scene, task)
    into, free = scene.tiles[task.index, kind], scene.free_loops(base)
    with Over(scene, base, free, ctx) as inner:
        for point in scene.points(base, free, inner):

            def leaf(e: ir.Expr, point: Point = point) -> Value:
                assert isinstance(e, ir.Local), e
                tile, _ = tiles[e.name]
                return Value(tile.ref(point.copies, point.indices), tile.dtype, tile.lanes)

            made = _evaluated(sums, task, value, leaf)
            scene.w.write(c.Assign(into.ref(point.copies, point.indices), made.x))


def _tiles(scene: Emission, task: TaskPlan) -> dict[str, tuple[EmittedTile, Flow]]:
    """Returns the register tiles that a task's corrections read, by local, each with the flow of its running result."""
    assert task.rescaled is not None
    found = {}
    for f in task.rescaled.flows:
        found[now(f.array)] = scene.tiles[f.producer, "value"], f
        found[before(f.array)] = scene.tiles[task.index, before(f.array)], f
        if (task.index, _SCALE) in scene.tiles:
            found[_SCALE] = scene.tiles[task.index, _SCALE], f
    return found


def _evaluated(sums: Accumulators, task: TaskPlan, e: ir.Expr, leaf: Leaf) -> Value:
    scene = sums.scene
    with scene.w.rounding(FREE):
        return scene.w.evaluate(e, leaf, permitted_ulp(scene.plan, task))


def _corrected(
    sums: Accumulators, task: TaskPlan, point: Point, e: ir.Expr, old: Value, ctx: Context
) -> Value:
    """Returns the value of the correction expression `e` at a point; `old`: the sum so far, or a vector of sums."""
    tiles = _tiles(sums.scene, task)

    def leaf(x: ir.Expr) -> Value:
        if isinstance(x, ir.Accumulator):
            return old
        assert isinstance(x, ir.Local), x
        if x.name == COUNT:
            start, _, _ = _tile(task, ctx)
            return Value(c.CastTo(type_name(x.dtype, 0), start), x.dtype)
        tile, flow = tiles[x.name]
        return sums.values.read_tile(tile, flow, tile.dtype, point)

    return _evaluated(sums, task, e, leaf)


def _changed(task: TaskPlan) -> ir.Expr:
    """Returns the expression to which a correction changes the sum so far, before the next term is added."""
    assert task.rescaled is not None
    assert task.task.op is not None
    action, dtype = task.rescaled.action, task.task.dtype
    made: ir.Expr = ir.Accumulator(dtype)
    if action.factor is not None:
        made = ir.Binary("mul", made, ir.Local(_SCALE, dtype), dtype)
    if action.is_lost is not None:
        made = ir.Select(action.is_lost, neutral_of(task.task.op, dtype), made, dtype)
    return made


def _in_registers(sums: Accumulators, task: TaskPlan, ctx: Context) -> None:
    scene, free = sums.scene, sums.scene.free_loops(task)
    assert task.rescaled is not None
    changed, added = _changed(task), task.rescaled.action.added
    vector = task.vector
    in_lanes = vector is not None and vector.loop.is_reduction
    with Over(scene, task, free, ctx) as inner:
        for point in scene.points(task, free, inner):
            first, *others = sums.copies(task, point)
            for x in (first, *others) if not isinstance(changed, ir.Accumulator) else ():
                made = _corrected(sums, task, point, changed, x, inner)
                scene.w.write(c.Assign(x.x, scene.w.splat(made, x.lanes).x))
            if added is not None:  # once: copies and lanes of the reduction are added up
                more = _corrected(sums, task, point, added, first, inner)
                once = c.Index(first.x, c.Num("0")) if first.lanes and in_lanes else first.x
                scene.w.write(c.Assign(once, more.x, "+"))


def _in_memory(sums: Accumulators, task: TaskPlan, ctx: Context) -> None:
    scene = sums.scene
    assert task.rescaled is not None
    buffer, _ = scene.accumulators[task.index]
    flat = Flat(scene, task, ctx)
    corrected = _changed(task)
    if task.rescaled.action.added is not None:
        dtype = task.task.dtype
        corrected = ir.Binary("add", corrected, task.rescaled.action.added, dtype)

    def cell(point: Point) -> None:
        index = sums.index(task, point, ctx)
        old = sums.part(buffer, c.Id(buffer.name), index, point)
        made = _corrected(sums, task, point, corrected, old, ctx)
        scene.w.store(buffer.name, c.Id(buffer.name), index, made, buffer.dtype, stream=False)

    flat.write(cell, scene.target.lanes(buffer.dtype.size_bytes))
    scene.w.forget(buffer.name)
