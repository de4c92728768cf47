"""Orders of iterations by length: places the sort before the loop of its task."""

from __future__ import annotations

from dataclasses import replace

from ..loops import ir as loop_ir
from ..plan.plan import Plan


def place_length_orders(launch: loop_ir.Launch, plan: Plan) -> loop_ir.Launch:
    """Places the sort of each task whose iterations run by length before the outermost loop around the task."""
    made: list[loop_ir.Node] = []
    for n in launch.nodes:
        bodies = (p.task for p in loop_ir.phases_of(n) if isinstance(p, loop_ir.TileBody))
        made += [loop_ir.SortByLength(t) for t in bodies if plan.tasks[t].by_length is not None]
        made.append(n)
    return replace(launch, nodes=tuple(made))
