"""Loops of a GPU: some are over blocks, and of the threads of a block as many run a node as its task has.

What loops and tests depend on is the same for all threads of a block, but for the tests around straight-line code: so barriers are
always met by all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from ..loops.ir import (
    AdvanceCopies,
    Alone,
    AwaitCopies,
    Barrier,
    Late,
    Launch,
    Loop,
    Node,
    PackBlock,
    ReduceThreads,
    ResetSums,
    Runs,
    Schedule,
    StartCopies,
)
from ..plan.plan import LoopPlan, Plan, TaskPlan
from .map_team import grouped, scheduled

AXES = ("x", "y", "z")  # of blocks and grids
WARP = 32
_ALL, _ANY = -1, 0  # threads of a node: all of the block, or any that need it


def map_grid(launch: Launch, plan: Plan) -> Launch:
    """Outer dims that the plan shares out are the blocks of a grid; all threads of a block run everything else."""
    nodes = scheduled(launch.nodes, plan, lambda p: Schedule.GRID)
    return replace(launch, nodes=nodes, runs=Runs.GRID)


def share_block(launch: Launch, plan: Plan) -> Launch:
    """Runs of nodes for which a block has more threads than their tasks are left to the first of them."""
    n_threads = prod(block_shape([plan.tasks[t] for t in launch.tasks]))

    def wanted(node: Node) -> int | None:
        n = _threads_of(plan, node)
        return None if n in (_ALL, _ANY, n_threads) else n

    def shared(nodes: Sequence[Node]) -> tuple[Node, ...]:
        return grouped(nodes, wanted, lambda loop: replace(loop, children=shared(loop.children)))

    return replace(launch, nodes=shared(launch.nodes))


def _threads_of(plan: Plan, node: Node) -> int:
    match node:
        case Barrier() | Alone() | Late():
            return _ALL
        case PackBlock() | ReduceThreads() | StartCopies() | AwaitCopies() | AdvanceCopies():
            return _ALL
        case ResetSums():
            return _ANY
        case Loop():
            inside = {_threads_of(plan, n) for n in node.children} - {_ANY}
            return inside.pop() if len(inside) == 1 and not node.is_parallel else _ALL
        case _:
            return plan.tasks[node.task].n_threads


def block_shape(tasks: Sequence[TaskPlan]) -> tuple[int, ...]:
    """Threads of a launch's blocks along x, y and z, as many axes as it takes.

    An axis is a loop that is shared out to threads, where every task takes its loops in the same sizes; some may take the first of
    them only. Where they do not, there are more than three, or fewer threads than a warp, the threads are all along x.
    """
    sizes = [tuple(task.loop(name).mid for name in task.threads) for task in tasks]
    widest = max(sizes, key=prod)
    if prod(widest) < WARP:
        return (WARP,)
    has_axes = len(widest) <= len(AXES) and all(widest[: len(own)] == own for own in sizes)
    return widest if has_axes else (prod(widest),)


def blocks_along(p: LoopPlan) -> int:
    """How many blocks share out a loop."""
    return -(-p.loop.extent // p.tile)


def partial_blocks(task: TaskPlan) -> int:
    """How many partial results the blocks leave of each element."""
    reduced = [p for p in task.loops if p.is_parallel and p.loop.is_reduction]
    return prod(map(blocks_along, reduced)) if task.partials else 1
