"""Places in a GPU block's shared memory: arrays that are never alive together lie in one.

An array is alive from the first to the last node of the block that has work of its task, or of a task that reads it. Each place is
given to the next array that begins after its last one has ended (interval colouring), so the number of places is the least.
Between two arrays of one place, barrier placement sees a hazard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ..loops import ir as loop_ir
from ..plan.plan import Plan
from .barriers import tasks_in, users_in_shared


def share_places(launch: loop_ir.Launch, plan: Plan) -> loop_ir.Launch:
    """Returns the launch with the places of those arrays in shared memory that have one in common."""
    lives = _lives(launch, plan)
    arrays: list[list[str]] = []  # by place
    for name in sorted(lives, key=lambda x: (lives[x], x)):
        free = (held for held in arrays if lives[held[-1]][1] < lives[name][0])
        held = next(free, None)
        if held is None:
            arrays.append([name])
        else:
            held.append(name)
    shared = [held for held in arrays if len(held) > 1]
    return replace(launch, places={x: k for k, held in enumerate(shared) for x in held})


def _lives(launch: loop_ir.Launch, plan: Plan) -> dict[str, tuple[int, int]]:
    """Returns the numbers of the first and the last node in which each array in shared memory is alive."""
    nodes = _of_block(launch.nodes)
    found: dict[str, tuple[int, int]] = {}
    users = list(users_in_shared(launch, plan))
    n_arrays = Counter(name for name, _ in users)
    for name, tasks in users:
        at = [k for k, n in enumerate(nodes) if tasks & tasks_in(n)]
        # Values of several tasks for one array of the sequence have one name, so each has its own memory.
        if at and n_arrays[name] == 1:
            found[name] = at[0], at[-1]
    return found


def _of_block(nodes: Sequence[loop_ir.Node]) -> Sequence[loop_ir.Node]:
    """Returns the nodes that a block runs one after the other: those in the loops of the grid."""
    while len(nodes) == 1 and isinstance(nodes[0], loop_ir.Loop) and nodes[0].is_parallel:
        nodes = nodes[0].children
    return nodes
