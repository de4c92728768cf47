"""Loop shifting (retiming): a consumer runs inside its producer's loop, one iteration behind the producer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...space.backbone import OUTER, Shift
from ..loops.ir import Late, Launch, Loop, Node
from ..plan.plan import Member, Plan


def shift_late(launch: Launch, plan: Plan) -> Launch:
    """Moves the loops of retimed consumers into those of their producers, followed by the consumers' last iterations.

    The shared loop is distributed to threads, so it contains no barrier, and both loops are its
    children (constraints in space/families/shifting.py).
    """
    nodes = launch.nodes
    for t in launch.tasks:
        shift = plan.tasks[t].shift
        if shift is not None:
            nodes = _shifted(nodes, shift)
    return replace(launch, nodes=nodes)


def _shifted(nodes: Sequence[Node], shift: Shift) -> tuple[Node, ...]:
    placed: list[Node] = []
    for n in nodes:
        if not isinstance(n, Loop):
            placed.append(n)
            continue
        ahead = _child(n, shift.producer, shift.inside[0])
        behind = _child(n, shift.consumer, shift.inside[1])
        if ahead is None or behind is None:
            placed.append(replace(n, children=_shifted(n.children, shift)))
            continue
        late = Late(replace(n, children=()), behind.children)
        both = replace(
            ahead, children=(late, *ahead.children), members=(*ahead.members, *behind.members)
        )
        inside = (both if c is ahead else c for c in n.children if c is not behind)
        placed.append(replace(n, children=tuple(inside)))
        placed.append(replace(n, children=(behind,), is_last=True))
    return tuple(placed)


def _child(loop: Loop, task: int, name: str) -> Loop | None:
    """Returns the child node of `loop` that is a level of loop `name` of a task; None if there is none."""
    wanted = Member(task, name, OUTER)
    inside = (n for n in loop.children if isinstance(n, Loop))
    return next((n for n in inside if wanted in n.members), None)
