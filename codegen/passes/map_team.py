"""Maps loops to a CPU's team of threads, and moves serial nodes to one thread, in the team or after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil, lcm

from ...kernels.ir.walk import loads
from ...space.backbone import OUTER
from ...space.targets.target import LINE_BYTES
from ..loops import ir as loop_ir
from ..plan.plan import LoopPlan, Plan

# Of two ways to share out a loop, one leaves the busiest thread with clearly more: work that differs less is not worth longer code.
_UNEVEN = 1.02


def map_team(launch: loop_ir.Launch, plan: Plan) -> loop_ir.Launch:
    """Distributes parallel outer loops to the threads of a team, by the decided schedules."""

    def schedule(p: LoopPlan) -> loop_ir.Schedule:
        return loop_ir.Schedule[p.schedule]

    nodes = scheduled(launch.nodes, plan, schedule)
    is_of_team = any(plan.tasks[t].is_of_team for t in launch.tasks)
    runs = (
        loop_ir.Runs.TEAM
        if is_of_team or any(map(loop_ir.has_parallel, nodes))
        else loop_ir.Runs.ONE_THREAD
    )
    return replace(launch, nodes=nodes, runs=runs)


def scheduled(
    nodes: Sequence[loop_ir.Node], plan: Plan, schedule: Callable[[LoopPlan], loop_ir.Schedule]
) -> tuple[loop_ir.Node, ...]:
    """Returns the nodes with `schedule(loop plan)` set on each loop that the plan distributes."""
    made: list[loop_ir.Node] = []
    for n in nodes:
        if isinstance(n, loop_ir.Loop):
            first = n.members[0]
            p = plan.tasks[first.task].loop(first.loop)
            is_shared = p.is_parallel and n.level == OUTER
            how = schedule(p) if is_shared else loop_ir.Schedule.SEQUENTIAL
            n = replace(n, schedule=how, children=scheduled(n.children, plan, schedule))
        made.append(n)
    return tuple(made)


def share_evenly(launch: loop_ir.Launch, plan: Plan) -> loop_ir.Launch:
    """Sets the unit of each BLOCKED loop: each thread gets a multiple of so many iterations.

    The unit is a tile. If whole tiles give the busiest thread at least 2 % more iterations, a
    smaller unit is used: the least number with whole register tiles of all tasks and whole cache
    lines along vectors.
    """

    def shared(nodes: Sequence[loop_ir.Node]) -> tuple[loop_ir.Node, ...]:
        made: list[loop_ir.Node] = []
        for n in nodes:
            if isinstance(n, loop_ir.Loop):
                unit = _unit(launch, plan, n) if n.schedule is loop_ir.Schedule.BLOCKED else 0
                n = replace(n, children=shared(n.children), unit=unit)
            made.append(n)
        return tuple(made)

    return replace(launch, nodes=shared(launch.nodes))


def _unit(launch: loop_ir.Launch, plan: Plan, loop: loop_ir.Loop) -> int:
    alike = [
        (p, plan.tasks[t].task.dtype)
        for t in launch.tasks
        for p in plan.tasks[t].loops
        if p.is_parallel and (p.loop.extent, p.tile) == (loop.extent, loop.step)
    ]
    lines = (LINE_BYTES // dtype.size_bytes for p, dtype in alike if p.is_vector)
    least = lcm(*(p.inner for p, _ in alike), *lines)
    if loop.step % least:
        return loop.step

    def busiest(unit: int) -> int:
        return ceil(ceil(loop.extent / unit) / plan.cores) * unit

    return least if busiest(loop.step) > _UNEVEN * busiest(least) else loop.step


def end_team(launch: loop_ir.Launch, plan: Plan) -> loop_ir.Launch:
    """Moves small combinations of partial results from the end of a launch behind the team.

    The end of the team replaces the barrier before the combinations.
    """
    nodes = launch.nodes
    k = len(nodes)
    while k and _is_small_combination(plan, launch, nodes[k - 1]):
        k -= 1
    if launch.is_parallel and 0 < k < len(nodes) and isinstance(nodes[k - 1], loop_ir.Barrier):
        return replace(launch, nodes=nodes[: k - 1], after=nodes[k:])
    return launch


def _is_small_combination(plan: Plan, launch: loop_ir.Launch, node: loop_ir.Node) -> bool:
    """True if the node combines so few partial results that one thread does it."""
    if not isinstance(node, loop_ir.CombineSums):
        return False
    finish = plan.tasks[node.task].task.finish
    reads = {x.array for x in loads(finish)} if finish is not None else set()
    held = {
        f.array
        for t in plan.tasks
        for flows in (t.registers, t.shared, t.kept)
        for f in flows
        if f.consumer == node.task
    }
    assert not reads & held, "what a team holds is gone where all its partial results are"
    return launch.accumulators[node.task].is_small


def leave_alone(launch: loop_ir.Launch, plan: Plan) -> loop_ir.Launch:
    """Wraps runs of serial nodes (for one thread of a team) in `Alone`."""
    if not launch.is_parallel:
        return launch
    return replace(launch, nodes=_left_alone(launch, plan, launch.nodes))


def _left_alone(
    launch: loop_ir.Launch, plan: Plan, nodes: Sequence[loop_ir.Node]
) -> tuple[loop_ir.Node, ...]:
    """Returns the nodes, which all threads of a team reach, with runs of serial nodes wrapped in `Alone`."""

    def is_alone(node: loop_ir.Node) -> bool:
        match node:
            case loop_ir.Barrier() | loop_ir.GridBarrier() | loop_ir.Late() | loop_ir.Alone():
                return False
            case loop_ir.Loop() | loop_ir.InBlocks():
                return not loop_ir.has_parallel(node) and all(map(is_alone, node.children))
            case loop_ir.StartBlocks() | loop_ir.ColourBlocks():
                return True
            case loop_ir.CombineSums(task):
                return launch.accumulators[task].is_small
            case loop_ir.TileBody(task):
                return not plan.tasks[task].is_of_team
            case _:
                return not plan.tasks[node.task].is_parallel

    def is_run(node: loop_ir.Node) -> bool:
        # What opens a block declares names for the nodes behind it.
        return is_alone(node) and not isinstance(node, loop_ir.OpenBlock)

    def entered(loop: loop_ir.Loop) -> loop_ir.Loop:
        if loop.is_parallel:
            return loop
        return replace(loop, children=_left_alone(launch, plan, loop.children))

    return grouped(nodes, lambda n: 1 if is_run(n) else None, entered)


def grouped(
    nodes: Sequence[loop_ir.Node],
    threads_of: Callable[[loop_ir.Node], int | None],
    entered: Callable[[loop_ir.Loop], loop_ir.Loop],
) -> tuple[loop_ir.Node, ...]:
    """Returns the nodes with each run of nodes for the same few threads wrapped in `Alone`.

    `threads_of`: number of threads that run a node; None: all. `entered`: the replacement for a
    loop that all threads run.
    """
    made: list[loop_ir.Node] = []
    run: list[loop_ir.Node] = []
    for k, n in enumerate(nodes):
        n_threads = threads_of(n)
        if n_threads is None:
            made.append(entered(n) if isinstance(n, loop_ir.Loop) else n)
            continue
        run.append(n)
        if k + 1 == len(nodes) or threads_of(nodes[k + 1]) != n_threads:
            made.append(loop_ir.Alone(n_threads, tuple(run)))
            run = []
    return tuple(made)
