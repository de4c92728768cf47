"""Decided unrolling and prefetch of loops along rows inside a body, such as the rows of a sparse field's leaf."""

from __future__ import annotations

from collections.abc import Sequence

from ...kernels.analysis.prefetch_sites import blocks_of
from ...kernels.ir.unrolling import copies_of, few_rows
from ...space.families.prefetch_distance import DISTANCES
from ...space.families.unrolling import ALL_COPIES, UNROLLED, place_of
from ..plan.plan import Plan, TaskPlan
from ..plan.schedules import BlockPrefetch


def copies_in(plan: Plan, task: TaskPlan, tasks: Sequence[int]) -> dict[str, int]:
    """Returns the unroll factors of loops inside a task's body, by loop.

    `tasks`: all tasks whose bodies are joined in it. Their decisions are equal
    (codegen/passes/joining.py), but loops of the joined body have other names.
    """
    body = task.task.body
    assert body is not None
    values = {place: value for t in tasks for place, value in plan.places("unrolled", t)}
    wanted = UNROLLED[ALL_COPIES]
    if wanted not in values.values():
        return {}
    found = few_rows(body.statements)
    if len(tasks) == 1:
        places = ((x, place_of(task.task, body.trees.name_of(x.loop))) for x in found)
        found = tuple(x for x, place in places if values.get(place) == wanted)
    return copies_of(found)


def prefetch_in(plan: Plan, task: TaskPlan, tasks: Sequence[int]) -> BlockPrefetch | None:
    """Returns the software prefetch of a task's body; None if none was decided. `tasks`: as in `copies_in`."""
    assert task.task.body is not None
    values = (plan.choice("prefetch_distance", t) for t in tasks)
    distance = next((DISTANCES[value] for value in values if value), 0)
    if not distance:
        return None
    found = blocks_of(task.loops[-1].loop.name, task.task.body.statements, plan.problem.array)
    return BlockPrefetch(found, distance) if found is not None else None
