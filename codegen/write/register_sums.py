"""Register accumulators of reductions, on CPUs and GPUs: initial values, updates and results."""

from __future__ import annotations

from ...kernels.analysis.domain_bounds import taken
from ...kernels.ir.kernel import Expr
from ..bodies.iteration_point import Point
from ..bodies.memory import Value
from ..plan.plan import TaskPlan
from ..text import csyntax as c
from ..text.constants import neutral
from .accumulators import Accumulators
from .context import Context
from .partial_tiles import Flat, Over
from .tile_loops import EmittedTile


def reset(sums: Accumulators, task: TaskPlan, ctx: Context) -> None:
    """Declares a task's register accumulators, and sets them to the neutral element.

    Each copy of the result has one, for each copy of those reduction loops that have accumulators
    of their own.
    """
    scene = sums.scene
    assert task.task.op is not None
    vector = task.vector
    lanes = scene.lanes(task) if vector is not None and scene.is_full(task, vector, ctx) else 0
    full, slow = [], []
    for p in task.loops:
        name = p.loop.name
        copies = p.inner // scene.lanes(task) if p.is_vector else p.inner
        if p.loop.is_reduction:
            if p.has_lanes and scene.is_full(task, p, ctx):
                full.append((name, copies))
        elif scene.is_named(task, p, ctx):
            full.append((name, copies))
        else:
            slow.append((name, p.inner))
    stem = f"{task.task.target.array}_acc"
    tile = EmittedTile(scene.w.fresh_family(stem), task.task.dtype, lanes, tuple(full), tuple(slow))
    scene.tiles[task.index, "acc"] = tile
    start = neutral(task.task.op, task.task.dtype)
    first = scene.w.splat(Value(start, task.task.dtype), lanes).x
    scene.declare(tile, first)


def update(sums: Accumulators, task: TaskPlan, ctx: Context) -> None:
    """Writes the addition (or other operator) of one register tile of a reduction to its accumulators."""
    scene, values = sums.scene, sums.values
    plan = scene.launch.accumulators[task.index]
    if plan.flushes_at_body:
        _update_memory(sums, task, ctx)
        return
    tile = scene.tiles[task.index, "acc"]
    assert task.task.op is not None
    with Over(scene, task, list(task.loops), ctx) as inner:
        for point in scene.points(task, list(task.loops), inner):
            value = values.value(task, _added(task, ctx), point, inner)
            accumulator = Value(tile.ref(point.copies, point.indices), tile.dtype, tile.lanes)
            if tile.lanes and not point.lanes():
                # A partial tile of the reduction goes to the first lane: the lanes are added up at the end.
                accumulator = Value(c.Index(accumulator.x, c.Num("0")), tile.dtype)
            scene.w.write(sums.added(accumulator, task.task.op, value))


def _added(task: TaskPlan, ctx: Context) -> Expr:
    """Returns the term that one iteration adds.

    If the iteration is surely inside its cuts, their test is left out.
    """
    value = taken(task.task) if task.index in ctx.inside else task.task.value
    assert value is not None
    return value


def _update_memory(sums: Accumulators, task: TaskPlan, ctx: Context) -> None:
    """Writes the reduction of one register tile directly into memory, as no reduction loop is inside the result's loops."""
    scene, values = sums.scene, sums.values
    assert task.task.op is not None
    with Over(scene, task, list(task.loops), ctx) as inner:
        of_results: dict[str, tuple[Point, Value]] = {}
        free = {p.loop.name for p in scene.free_loops(task)}
        folds = task.vector is not None and task.vector.loop.name not in free
        for point in scene.points(task, list(task.loops), inner):
            value = values.value(task, _added(task, ctx), point, inner)
            value = scene.w.splat(value, point.lanes())
            key = str(sorted((k, v) for k, v in point.copies.items() if k in free))
            if key in of_results:
                value = scene.w.combine(task.task.op, of_results[key][1], value)
            of_results[key] = (
                point.first_lane() if folds else point,
                scene.w.name(value, "sum"),
            )
        for point, total in of_results.values():
            # Lanes last, and once: what the copies of a reduction have in common are its lanes.
            if folds and total.lanes:
                total = scene.fold(task.task.op, total)
            add_to_memory(sums, task, point, total, inner)


def add_to_memory(
    sums: Accumulators, task: TaskPlan, point: Point, value: Value, ctx: Context
) -> None:
    scene = sums.scene
    buffer, _ = scene.accumulators[task.index]
    index = sums.index(task, point, ctx)
    assert task.task.op is not None
    old = scene.w.load(buffer.name, c.Id(buffer.name), index, buffer.dtype, value.lanes, 1)
    new = scene.w.combine(task.task.op, old, value)
    scene.w.store(buffer.name, c.Id(buffer.name), index, new, buffer.dtype, stream=False)


def finish(sums: Accumulators, task: TaskPlan, ctx: Context) -> None:
    scene, values = sums.scene, sums.values
    plan = scene.launch.accumulators[task.index]
    if plan.in_result:
        scene.w.forget(task.task.target.array)
        return
    if plan.in_memory:
        buffer, _ = scene.accumulators[task.index]
        flat = Flat(scene, task, ctx)

        def cell(point: Point) -> None:
            index = sums.index(task, point, ctx)
            total = sums.part(buffer, c.Id(buffer.name), index, point)
            values.put(task, point, sums.finished(task, point, total, ctx), ctx)

        flat.write(cell, sums.result_lanes(task, flat))
        scene.w.forget(task.task.target.array)
        return
    if not (task.is_stored or task.shared or scene.read_behind(task)):
        return
    free = scene.free_loops(task)
    values.begin_value(task, free, ctx)
    with Over(scene, task, free, ctx) as inner:
        for point in scene.points(task, free, inner):
            total = scene.w.name(sums.total(task, point), f"{task.task.target.array}_total")
            values.put(task, point, sums.finished(task, point, total, inner), inner)
