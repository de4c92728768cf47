"""Applies the decided layouts of sparse fields: adds launches that convert on entry and back on exit."""

from __future__ import annotations

from dataclasses import replace

from ...kernels.ir.task import Task
from ...kernels.sparse.hash_index import keyed
from ...kernels.sparse.leaf_layout import LaidOut, laid_out
from ...kernels.sparse.list_records import with_places
from ...kernels.sparse.slot_table import tabled
from ...space.backbone import OUTER
from ...space.build import KINDS
from ...space.families.cell_order import order_of
from ...space.families.directory import DIRECTORY, HASH, TABLE
from ...space.families.leaf_layout import tile_of
from ...space.families.record import CELL, RECORD
from ...space.targets.target import Target
from .plan import LoopPlan, Member, Plan, PlannedBody, PlannedLoop, PlannedNode, TaskPlan

# Threads of a block that converts: sixteen blocks fill a multiprocessor with 2,048.
_CONVERTERS = 128


def with_parts(plan: Plan, target: Target) -> Plan:
    """Returns the plan on the decided layouts of parts of trees."""
    parts, kind = plan.problem.parts, KINDS[target.kind]
    at_once = kind.converted_at_once
    how = {site.name: value for site, value in plan.of_trees("directory")}
    with_keys = [x for x in parts.tables if not x.keys and how.get(x.name) == DIRECTORY[HASH]]
    if with_keys:
        plan = _in_layouts(plan, keyed(plan.problem, with_keys), target)
    with_cells = [x for x in parts.tables if x.keys and how.get(x.name) == DIRECTORY[TABLE]]
    if with_cells:
        plan = _in_layouts(plan, tabled(plan.problem, with_cells, at_once), target)
    values = {site.name: value for site, value in plan.of_trees("leaf_layout")}
    tiles = {
        x: tile_of(values.get(x.name, ""), x, target, kind.threads_at_once) for x in parts.leaves
    }
    in_order = {site.name: value for site, value in plan.of_trees("cell_order")}
    every = ((x, order_of(in_order.get(x.name, ""), x)) for x in parts.leaves)
    orders = {x: order for x, order in every if order is not None}
    tiles = {leaves: tile for leaves, tile in tiles.items() if tile or leaves in orders}
    how = {site.name: value for site, value in plan.of_trees("record")}
    placed = [x for x in parts.lists if how.get(x.name) == RECORD[CELL]]
    if not tiles and not placed:
        return plan
    before = laid_out(plan.problem, tiles, orders, at_once)
    return _in_layouts(plan, with_places(before, placed, at_once), target)


def _in_layouts(plan: Plan, after: LaidOut, target: Target) -> Plan:
    """Returns the plan on parts of trees in other layouts. Launches of their own, which all threads share, convert them."""
    every = after.problem.tasks
    moved = [replace(p, task=t) for p, t in zip(plan.tasks, every, strict=False)]
    in_blocks = KINDS[target.kind].mid_dims_have_threads
    added = [
        _in_threads(t, task) if in_blocks else _shared_out(t, task, plan.cores)
        for t, task in enumerate(every)
        if t >= len(moved)
    ]

    def launches(tasks: tuple[int, ...]) -> list[tuple[PlannedNode, ...]]:
        names = [(t, every[t].loops[0].name) for t in tasks]
        return [(PlannedLoop((Member(t, x, OUTER),), (PlannedBody(t),)),) for t, x in names]

    return replace(
        plan,
        problem=after.problem,
        tasks=(*moved, *added),
        launches=(*launches(after.entering), *plan.launches, *launches(after.leaving)),
    )


def _in_threads(t: int, task: Task) -> TaskPlan:
    """Returns the plan of a body whose one loop goes over blocks of threads."""
    (loop,) = task.loops
    plan = LoopPlan(loop, True, _CONVERTERS, 1, is_vector=False, has_lanes=False, is_thread=True)
    return TaskPlan(t, task, (plan,), False, True, (), (), (), threads=(loop.name,))


def _shared_out(t: int, task: Task, cores: int) -> TaskPlan:
    """Returns the plan of a body whose one loop the threads share in equal parts."""
    loops = tuple(
        LoopPlan(x, cores > 1, 1, 1, is_vector=False, has_lanes=False) for x in task.loops
    )
    return TaskPlan(t, task, loops, False, True, (), (), ())
