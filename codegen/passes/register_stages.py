"""Register stages: marks the loops whose steps load the operands of the next one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...space.backbone import MID
from ..loops import ir as loop_ir
from ..plan.plan import Plan


def load_ahead(launch: loop_ir.Launch, plan: Plan) -> loop_ir.Launch:
    """Marks the loop of steps of each task with two register stages."""
    tasks = [t for t in launch.tasks if plan.tasks[t].loads_ahead]
    if not tasks:
        return launch
    nodes, marked = _marked(launch.nodes, plan)
    assert sorted(marked) == sorted(tasks), "each task that loads ahead has one loop of steps"
    return replace(launch, nodes=nodes)


def _marked(
    nodes: Sequence[loop_ir.Node], plan: Plan
) -> tuple[tuple[loop_ir.Node, ...], list[int]]:
    """Returns the nodes with their loops of steps marked, and the tasks of these."""
    made: list[loop_ir.Node] = []
    tasks: list[int] = []
    for n in nodes:
        if isinstance(n, loop_ir.Loop | loop_ir.Alone):
            children, inside = _marked(n.children, plan)
            tasks += inside
            n = replace(n, children=children)
        if isinstance(n, loop_ir.Loop) and _is_of_steps(n, plan):
            tasks.append(n.members[0].task)
            n = replace(n, loads_ahead=True)
        made.append(n)
    return tuple(made), tasks


def _is_of_steps(loop: loop_ir.Loop, plan: Plan) -> bool:
    """True for the loop along the sum of a task that loads ahead, around nothing but its register tile."""
    member = loop.members[0]
    task = plan.tasks[member.task]
    is_alone = loop.children == (loop_ir.TileBody(member.task),) and loop.members == (member,)
    is_sum = loop.level == MID and task.loop(member.loop).loop.is_reduction
    return task.loads_ahead and is_alone and is_sum
