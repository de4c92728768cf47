"""Scatters: places the phases for private copies of arrays, and the counting sort of iterations by block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...space.choices import PRIVATE
from ..loops.ir import (
    AddCopies,
    ClearCopies,
    CountIterations,
    InBlocks,
    Launch,
    Loop,
    Node,
    SortIterations,
    StartBlocks,
    phases_of,
)
from ..plan.plan import Plan, TaskPlan


def place_scatters(launch: Launch, plan: Plan) -> Launch:
    """Places the phases of scatters.

    Copies are cleared before the outermost loop around their task and added up behind it. The loop of a sorted task runs in blocks,
    behind the sort.
    """
    if not any(plan.tasks[t].scatters for t in launch.tasks):
        return launch
    made: list[Node] = []
    for n in launch.nodes:
        tasks = [plan.tasks[p.task] for p in phases_of(n)]
        private = [t.index for t in tasks if any(x.how == PRIVATE for x in t.scatters)]
        made += map(ClearCopies, private)
        made += _in_blocks(n, tasks)
        made += map(AddCopies, private)
    return replace(launch, nodes=tuple(made))


def _in_blocks(node: Node, tasks: Sequence[TaskPlan]) -> Sequence[Node]:
    task = next((t for t in tasks if t.sort is not None), None)
    if task is None:
        return [node]
    assert isinstance(node, Loop) and len(tasks) == 1, "iterations that are sorted run alone"
    assert task.sort is not None and task.sort.blocks is not None
    t = task.index
    blocks = InBlocks(t, task.sort.blocks.n_colours, (node,))
    return [CountIterations(t), StartBlocks(t), SortIterations(t), blocks]
