"""Overlapping last tiles: a last whole register tile of vectors that ends with its loop replaces a scalar remainder.

Its first elements are computed twice.
"""

from __future__ import annotations

from dataclasses import replace

from ...kernels.analysis.effects import arrays_read, arrays_written
from ...space.backbone import MID, OUTER
from ..plan.plan import LoopPlan, TaskPlan
from ..text import csyntax as c
from .context import Context
from .emission import Emission

# With narrower vectors a cut tile leaves only a few elements.
_MANY_LANES = 16


def at_the_end(scene: Emission, task: TaskPlan, ctx: Context) -> tuple[LoopPlan, Context] | None:
    """Returns the vectorised loop whose tile is partial at this place, and the context of its overlapping last tile.

    It returns None if no tile is partial, if other threads compute the elements in front of it, or if values
    are passed on in registers or blocks.
    """
    p = task.vector
    if p is None or scene.is_full(task, p, ctx) or p.loop.extent < p.inner:
        return None
    handed = any(t == task.index for t, _ in scene.flow_of)
    in_blocks = any(p.loop.name in o.loops for o in task.copies)  # which begin with the loop's tile
    if p.is_parallel or task.registers or handed or in_blocks:
        return None
    level = MID if p.mid > 1 else OUTER
    key = (task.index, p.loop.name)
    last = c.number(p.loop.extent - p.inner)
    return p, replace(
        ctx,
        status={**ctx.status, key: True},
        variables={**ctx.variables, (*key, level): last},
    )


def may_compute_twice(scene: Emission, task: TaskPlan) -> bool:
    """True if computing an element twice gives the same value, and the task's vectors have many lanes.

    So neither the task nor a later task of its launch writes an array that the task reads, and no
    later one writes its target.
    """
    keeps = task.shared or any(t == task.index for t, _ in scene.kept)  # where its tile begins
    if scene.lanes(task) <= _MANY_LANES or keeps:
        return False
    own = {task.task.target.array}
    read = set(arrays_read(task.task))
    later = (t for t in scene.launch.tasks if t > task.index)
    written = {x for t in later for x in arrays_written(scene.plan.tasks[t].task)}
    return not read & own and not (read | own) & written
