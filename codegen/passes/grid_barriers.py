"""Barriers of a grid that stays: one between two nests whose blocks exchange values, and nowhere else.

Blocks of a nest share its tiles, and those of the next nest share other ones. So an array that one task writes and another one uses
in a later nest is a hazard between blocks, whoever touches which element. Tasks of one nest have the same blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...kernels.analysis.effects import task_reads
from ..loops import ir as loop_ir
from ..plan.plan import Plan
from .barriers import Touch, block_touches


def place_grid_barriers(launch: loop_ir.Launch, plan: Plan) -> loop_ir.Launch:
    """Inserts the barriers between the nests of a grid that stays. Blocks of other launches do not synchronise."""
    if not any(map(plan.stays, launch.tasks)):
        return launch
    placed: list[loop_ir.Node] = []
    pending: list[Touch] = []
    for n in launch.nodes:
        here = list(_touches(plan, n))
        if any(a.conflicts(b) for a in pending for b in here):
            placed.append(loop_ir.GridBarrier())
            pending = []
        placed.append(n)
        pending += here
    return replace(launch, nodes=tuple(placed))


def _touches(plan: Plan, node: loop_ir.Node) -> Iterator[Touch]:
    """Yields a node's touches of arrays of the sequence, by the task that makes them.

    The sum of several blocks is finished behind its flush, which stores there and reads the operands of the finish.
    """
    arrays = {a.name for a in plan.problem.arrays}
    yield from (x for x in block_touches(plan, node) if x.array in arrays)
    for p in loop_ir.phases_of(node):
        if isinstance(p, loop_ir.FlushSums):
            task, by = plan.tasks[p.task].task, frozenset([str(p.task)])
            yield Touch(task.target.array, True, by)
            yield from (Touch(a.array, False, by) for a, late in task_reads(task) if late)
