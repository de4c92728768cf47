"""Maps loops to a GPU: some become blocks of a grid, and each node runs on as many threads of a block as its task has.

Conditions of loops and tests are the same for all threads of a block, except the tests around straight-line code. So all threads
reach every barrier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from ..loops import ir as loop_ir
from ..plan.plan import LoopPlan, Plan, TaskPlan
from .map_team import grouped, scheduled

AXES = ("x", "y", "z")  # of blocks and grids
WARP = 32
_ALL, _ANY = -1, 0  # threads of a node: all of the block, or any that need it


def map_grid(launch: loop_ir.Launch, plan: Plan) -> loop_ir.Launch:
    """Maps parallel outer loop levels to the blocks of a grid. All threads of a block run everything else."""
    nodes = scheduled(launch.nodes, plan, lambda p: loop_ir.Schedule.GRID)
    return replace(launch, nodes=nodes, runs=loop_ir.Runs.GRID)


def share_block(launch: loop_ir.Launch, plan: Plan) -> loop_ir.Launch:
    """Restricts nodes to the first threads of a block, where the block has more threads than their tasks."""
    n_threads = prod(block_shape([plan.tasks[t] for t in launch.tasks]))

    def wanted(node: loop_ir.Node) -> int | None:
        n = _threads_of(plan, node)
        return None if n in (_ALL, _ANY, n_threads) else n

    def shared(nodes: Sequence[loop_ir.Node]) -> tuple[loop_ir.Node, ...]:
        return grouped(nodes, wanted, lambda loop: replace(loop, children=shared(loop.children)))

    return replace(launch, nodes=shared(launch.nodes))


def _threads_of(plan: Plan, node: loop_ir.Node) -> int:
    match node:
        case loop_ir.Barrier() | loop_ir.Alone() | loop_ir.Late():
            return _ALL
        case (
            loop_ir.PackBlock()
            | loop_ir.ReduceThreads()
            | loop_ir.StartCopies()
            | loop_ir.AwaitCopies()
            | loop_ir.AdvanceCopies()
        ):
            return _ALL
        case loop_ir.ResetSums():
            return _ANY
        case loop_ir.Loop():
            inside = {_threads_of(plan, n) for n in node.children} - {_ANY}
            return inside.pop() if len(inside) == 1 and not node.is_parallel else _ALL
        case _:
            return plan.tasks[node.task].n_threads


def block_shape(tasks: Sequence[TaskPlan]) -> tuple[int, ...]:
    """Returns the threads of a launch's blocks along x, y and z, with as many axes as needed.

    An axis is a loop that is distributed to threads. All tasks must have these loops in the same sizes, but some may have only the
    first of them. If the sizes differ, or there are more than three axes or fewer threads than a warp, all threads are along x.
    """
    sizes = [tuple(task.loop(name).mid for name in task.threads) for task in tasks]
    widest = max(sizes, key=prod)
    if prod(widest) < WARP:
        return (WARP,)
    has_axes = len(widest) <= len(AXES) and all(widest[: len(own)] == own for own in sizes)
    return widest if has_axes else (prod(widest),)


def blocks_along(p: LoopPlan) -> int:
    """The number of blocks that share a loop."""
    return -(-p.loop.extent // p.tile)


def partial_blocks(task: TaskPlan) -> int:
    """The number of partial results that the blocks leave for each element."""
    reduced = [p for p in task.loops if p.is_parallel and p.loop.is_reduction]
    return prod(map(blocks_along, reduced)) if task.partials else 1
