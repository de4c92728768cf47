"""Scatters: places the phases of private copies, and of sorts and colourings of iterations by block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...space.choices import PRIVATE
from ..loops import ir as loop_ir
from ..plan.plan import Plan, TaskPlan


def place_scatters(launch: loop_ir.Launch, plan: Plan) -> loop_ir.Launch:
    """Places the phases of each scatter in a launch.

    Copies are cleared before the outermost loop around their task and added up behind it. The loop of a sorted task runs in blocks,
    behind the sort; that of a coloured task behind the colouring, unless an earlier task has made it.
    """
    if not any(plan.tasks[t].scatters for t in launch.tasks):
        return launch
    made: list[loop_ir.Node] = []
    for n in launch.nodes:
        tasks = [plan.tasks[p.task] for p in loop_ir.phases_of(n)]
        private = [t.index for t in tasks if any(x.how == PRIVATE for x in t.scatters)]
        made += map(loop_ir.ClearCopies, private)
        made += _in_blocks(n, tasks)
        made += map(loop_ir.AddCopies, private)
    return replace(launch, nodes=tuple(made))


def _in_blocks(node: loop_ir.Node, tasks: Sequence[TaskPlan]) -> Sequence[loop_ir.Node]:
    task = next((t for t in tasks if t.sort is not None or t.colouring is not None), None)
    if task is None:
        return [node]
    assert isinstance(node, loop_ir.Loop) and len(tasks) == 1, (
        "iterations that are sorted run alone"
    )
    t = task.index
    if task.sort is None:
        made: list[loop_ir.Node] = []
        if task.colours:
            made += [loop_ir.FindRows(t), loop_ir.ColourBlocks(t)]
        return [*made, loop_ir.InBlocks(t, 0, (node,))]
    assert task.sort.blocks is not None
    blocks = loop_ir.InBlocks(t, task.sort.blocks.n_colours, (node,))
    return [loop_ir.CountIterations(t), loop_ir.StartBlocks(t), loop_ir.SortIterations(t), blocks]
