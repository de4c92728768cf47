"""Register tiles of vectors that the end of a loop cuts: in place of one element after the other, a last whole tile that ends with
the loop, so that some elements are computed twice.
"""

from __future__ import annotations

from dataclasses import replace

from ...kernels.analysis.effects import arrays_read, arrays_written
from ...space.backbone import MID, OUTER
from ..plan.plan import LoopPlan, TaskPlan
from ..text import csyntax as c
from .context import Context
from .emission import Scene

# Of narrower vectors a cut tile leaves a few elements.
_MANY_LANES = 16


def at_the_end(scene: Scene, task: TaskPlan, ctx: Context) -> tuple[LoopPlan, Context] | None:
    """The loop whose tile is cut here, and the place of the last whole one. None where there is none, where other threads have what
    is before it, or where values are handed over.
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


def may_compute_twice(scene: Scene, task: TaskPlan) -> bool:
    """True if a task finds what it found when it has stored, and does so in vectors of many lanes: neither it nor a later one of
    its launch writes what it reads, nor a later one what it writes.
    """
    keeps = task.shared or any(t == task.index for t, _ in scene.kept)  # where its tile begins
    if scene.lanes(task) <= _MANY_LANES or keeps:
        return False
    own = {task.task.target.array}
    read = set(arrays_read(task.task))
    later = (t for t in scene.launch.tasks if t > task.index)
    written = {x for t in later for x in arrays_written(scene.plan.tasks[t].task)}
    return not read & own and not (read | own) & written
