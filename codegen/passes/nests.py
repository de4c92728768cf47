"""Converts a plan to loop IR: the loops of one launch with the bodies of its tasks, without other phases."""

from __future__ import annotations

from ...space.backbone import OUTER
from ..loops.ir import Launch, Loop, Node, TileBody, paths
from ..plan.plan import Plan, PlannedBody, PlannedNode


def nests(plan: Plan, roots: tuple[PlannedNode, ...]) -> Launch:
    """Returns the loops of one launch, all of them sequential; `roots`: its forest in the plan."""
    nodes = tuple(_converted(plan, r) for r in roots)
    return Launch(tuple(task for _, task in paths(nodes)), nodes)


def _converted(plan: Plan, node: PlannedNode) -> Node:
    if isinstance(node, PlannedBody):
        return TileBody(node.task)
    first = node.members[0]
    loop = plan.tasks[first.task].loop(first.loop)
    step = loop.tile if first.level == OUTER else loop.inner
    children = tuple(_converted(plan, c) for c in node.children)
    return Loop(node.members, loop.loop.extent, step, first.level, children)
