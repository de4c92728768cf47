"""What was decided of rows inside a body, as those of a leaf of a sparse field."""

from __future__ import annotations

from collections.abc import Sequence

from ...kernels.analysis.prefetch_sites import blocks_of
from ...kernels.ir.unrolling import copies_of, few_rows
from ...space.families.prefetch_distance import DISTANCES
from ...space.families.unrolling import ALL_COPIES, UNROLLED, place_of
from ..plan.plan import Plan, TaskPlan
from ..plan.schedules import BlockPrefetch


def copies_in(plan: Plan, task: TaskPlan, tasks: Sequence[int]) -> dict[str, int]:
    """How often the bodies of loops in a task's body are written out. `tasks`: those of which it is the body; several have been
    decided alike (codegen/passes/joining.py), and loops of it other names than they had.
    """
    assert task.task.body is not None
    values = {place: value for t in tasks for place, value in plan.places("unrolled", t)}
    wanted = UNROLLED[ALL_COPIES]
    if wanted not in values.values():
        return {}
    found = few_rows(task.task.body.statements)
    if len(tasks) == 1:
        found = tuple(x for x in found if values.get(place_of(task.task, x.loop)) == wanted)
    return copies_of(found)


def prefetch_in(plan: Plan, task: TaskPlan, tasks: Sequence[int]) -> BlockPrefetch | None:
    """What a task's body asks for ahead; None where that is nothing. `tasks`: as above."""
    assert task.task.body is not None
    values = (plan.choice("prefetch_distance", t) for t in tasks)
    distance = next((DISTANCES[value] for value in values if value), 0)
    if not distance:
        return None
    found = blocks_of(task.loops[-1].loop.name, task.task.body.statements, plan.problem.array)
    return BlockPrefetch(found, distance) if found is not None else None
