"""Dynamic loop ends: a loop whose number of iterations is computed at run time, such as one over a list, ends there.

So threads share only the iterations that exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...kernels.analysis.inner_ranges import end_of
from ...kernels.ir.kernel import Expr
from ...space.backbone import OUTER
from ..loops.ir import Late, Launch, Loop, Node, Schedule
from ..plan.plan import Plan


def end_loops(launch: Launch, plan: Plan) -> Launch:
    """Sets the run-time ends of each loop whose bodies all define one, if its step is 1 or its tiles are taken in turn by blocks.

    A merged loop ends at the greatest. Iterations of a tile behind the end test it themselves.
    """
    return replace(launch, nodes=_ended(launch.nodes, plan))


def _ended(nodes: Sequence[Node], plan: Plan) -> tuple[Node, ...]:
    made: list[Node] = []
    for n in nodes:
        if isinstance(n, Loop):
            n = replace(n, children=_ended(n.children, plan))
            ends_anywhere = n.step == 1 or n.schedule is Schedule.GRID_STRIDE
            is_late = any(isinstance(x, Late) for x in n.children)
            if n.level == OUTER and n.repeats and ends_anywhere and not is_late:
                n = replace(n, ends=_ends(n, plan))
        made.append(n)
    return tuple(made)


def _ends(loop: Loop, plan: Plan) -> tuple[Expr, ...]:
    found: list[Expr] = []
    for m in loop.members:
        task = plan.tasks[m.task].task
        body = task.body.statements if task.body is not None else ()
        end = end_of(next(x for x in task.loops if x.name == m.loop), body)
        if end is None:
            return ()
        found.append(end)
    return tuple(dict.fromkeys(found))
