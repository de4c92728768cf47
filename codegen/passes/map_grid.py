"""Maps loops to a GPU: parallel outer loops to blocks of the grid, and each node to the threads that its task has.

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
    """Turns parallel outer loops into blocks of a grid; all threads of a block run the other nodes."""

    def schedule(p: LoopPlan) -> loop_ir.Schedule:
        return loop_ir.Schedule.GRID_STRIDE if p.n_blocks else loop_ir.Schedule.GRID

    nodes = _counted(scheduled(launch.nodes, plan, schedule), plan)
    band = max(plan.tasks[t].band for t in launch.tasks)
    nodes = _in_bands(nodes, band) if band > 1 else nodes
    return replace(launch, nodes=nodes, runs=loop_ir.Runs.GRID)


def _counted(nodes: Sequence[loop_ir.Node], plan: Plan) -> tuple[loop_ir.Node, ...]:
    """Returns the nodes with the number of blocks of each loop whose tiles blocks take in turn."""
    made: list[loop_ir.Node] = []
    for n in nodes:
        if isinstance(n, loop_ir.Loop) and n.is_parallel:
            first = n.members[0]
            n_blocks = plan.tasks[first.task].loop(first.loop).n_blocks
            n = replace(n, children=_counted(n.children, plan), n_blocks=n_blocks)
        made.append(n)
    return tuple(made)


def _in_bands(nodes: Sequence[loop_ir.Node], band: int) -> tuple[loop_ir.Node, ...]:
    """Returns the nodes with the band of the loop of blocks that is around the innermost one."""
    made: list[loop_ir.Node] = []
    for n in nodes:
        if isinstance(n, loop_ir.Loop) and n.is_parallel:
            n_inside = sum(x.is_parallel for x in loop_ir.loops_in(n.children))
            rows = band if n_inside == 1 else 1
            n = replace(n, children=_in_bands(n.children, band), band=rows)
        made.append(n)
    return tuple(made)


def share_block(launch: loop_ir.Launch, plan: Plan) -> loop_ir.Launch:
    """Restricts nodes to the first threads of a block, if the block has more threads than the node's task."""
    n_threads = prod(block_shape([plan.tasks[t] for t in launch.tasks]))

    def wanted(node: loop_ir.Node) -> int | None:
        n = _threads_of(plan, node)
        return None if n in (_ALL, _ANY, n_threads) else n

    def shared(nodes: Sequence[loop_ir.Node]) -> tuple[loop_ir.Node, ...]:
        return grouped(nodes, wanted, lambda loop: replace(loop, children=shared(loop.children)))

    return replace(launch, nodes=shared(launch.nodes))


def _threads_of(plan: Plan, node: loop_ir.Node) -> int:
    match node:
        case loop_ir.Barrier() | loop_ir.GridBarrier() | loop_ir.Alone() | loop_ir.Late():
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
    """Returns the block's number of threads along x, y and z, with as many axes as needed.

    Each axis is a loop that threads share. All tasks must have the same extents of these loops; a
    task may have only the first ones. If extents differ, or there are more than three axes or fewer
    threads than a warp, all threads are along x. So they are if warps of a task are rectangles.
    """
    sizes = [tuple(task.loop(name).mid for name in task.threads) for task in tasks]
    widest = max(sizes, key=prod)
    if prod(widest) < WARP:
        return (WARP,)
    in_rows = not any(task.warp_tile for task in tasks)
    is_one_shape = all(widest[: len(own)] == own for own in sizes)
    has_axes = in_rows and len(widest) <= len(AXES) and is_one_shape
    return widest if has_axes else (prod(widest),)


def blocks_along(p: LoopPlan) -> int:
    """Number of blocks that share a loop."""
    return p.n_blocks or -(-p.loop.extent // p.tile)


def partial_blocks(task: TaskPlan) -> int:
    """Number of blocks that leave a partial result for each element of a reduction's result."""
    reduced = [p for p in task.loops if p.is_parallel and p.loop.is_reduction]
    return prod(map(blocks_along, reduced)) if task.partials else 1
