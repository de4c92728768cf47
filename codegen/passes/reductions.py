"""Reductions: places their phases (initialisation, flush, finish), and decides where accumulators are kept.

A reduction is initialised just before its outermost reduction loop and finished just after it. If a
loop that indexes the result runs inside that reduction loop, the results of all its iterations are
live at once. They are then accumulated in memory, and registers hold only the part that the
innermost reduction loops work on. On a GPU all accumulators are in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...kernels.analysis.effects import arrays_written, task_reads
from ...kernels.ir.access import flat_strides
from ...kernels.ir.kernel import Accumulator
from ...space.backbone import INNER, MID, OUTER
from ..loops import ir as loop_ir
from ..plan.plan import Plan, TaskPlan
from .insertion import Insertions, Notes


def place_sums(launch: loop_ir.Launch, plan: Plan) -> loop_ir.Launch:
    """Places the phases of reductions on a CPU, with accumulators in registers or in memory."""
    notes, accumulators = Notes(launch.tasks), {}
    for loops, t in loop_ir.paths(launch.nodes):
        task = plan.tasks[t]
        if not task.task.is_reduction:
            continue
        reduced = [
            k for k, n in enumerate(loops) if task.loop(loop_ir.loop_of(n, t)).loop.is_reduction
        ]
        r = reduced[0]
        free_inside = [k for k in range(r, len(loops)) if k not in reduced]
        in_memory = bool(free_inside)
        inner_reduced = [k for k in reduced if not free_inside or k > free_inside[-1]]
        if in_memory and not task.task.fast_math:
            inner_reduced = []  # sums of parts, added up in registers, would be another order
        outermost = notes.at(loops[r])
        if in_memory:
            outermost.before.append(loop_ir.FillSums(t))
        if inner_reduced:
            inside = notes.at(loops[inner_reduced[0]])
            if in_memory and task.asks_for_sums:
                inside.before.append(loop_ir.PrefetchSums(t))
            inside.before.append(loop_ir.ResetSums(t))
            if in_memory or task.partials:
                inside.after.append(loop_ir.FlushSums(t))
        outermost.after.append(loop_ir.CombineSums(t) if task.partials else loop_ir.FinishSums(t))
        is_of_team = any(loops[k].is_parallel for k in free_inside)
        owner = _owner(task, in_memory, is_of_team)
        levels = _levels(loops, task, r)
        made = loop_ir.AccumulatorPlan(
            owner,
            _extents(task, levels),
            levels,
            in_memory,
            not inner_reduced,
            plan.cores if owner is loop_ir.Owner.PARTIALS else 1,
        )
        made = replace(made, in_result=_is_in_result(launch, plan, task, made))
        accumulators[t] = replace(made, padded=_padded(plan, task, made))
    _place_rescaled(launch, plan, notes)
    for beside in notes.loops.values():
        # Partial results first: the barrier before the combinations synchronises them.
        beside.after.sort(key=lambda p: isinstance(p, loop_ir.CombineSums))
    return replace(launch, nodes=notes.placed(launch.nodes), accumulators=accumulators)


def _place_rescaled(launch: loop_ir.Launch, plan: Plan, notes: Notes) -> None:
    """Places each rescaled sum's correction before its part of the innermost loop shared with running results.

    Each running result is advanced behind its own part of that loop.
    """
    around = {t: loops for loops, t in loop_ir.paths(launch.nodes)}

    def part(t: int, depth: int) -> Insertions:
        return notes.at(around[t][depth]) if len(around[t]) > depth else notes.at_body(t)

    deepest: dict[int, int] = {}
    for t in launch.tasks:
        rescaled = plan.tasks[t].rescaled
        if rescaled is None:
            continue
        shared = [zip(around[base], around[t], strict=False) for base in rescaled.bases]
        depths = [sum(a.members == b.members for a, b in pairs) for pairs in shared]
        part(t, min(depths)).before.append(loop_ir.RescaleSums(t))
        for base in rescaled.bases:
            deepest[base] = max(min(depths), deepest.get(base, 0))
    for base, depth in deepest.items():
        part(base, depth).after.append(loop_ir.AdvanceSums(base))


def place_block_sums(launch: loop_ir.Launch, plan: Plan) -> loop_ir.Launch:
    """Places the phases of reductions on a GPU. The threads of a block reduce together.

    Results of several blocks are combined by a kernel of its own or by the last block, or added
    atomically to one result.
    """
    notes, accumulators = Notes(launch.tasks), {}
    for loops, t in loop_ir.paths(launch.nodes):
        task = plan.tasks[t]
        if not task.task.is_reduction:
            continue
        repeated = (n for n in loops if n.repeats)
        reduced = [n for n in repeated if task.loop(loop_ir.loop_of(n, t)).loop.is_reduction]
        after: list[loop_ir.Node] = [loop_ir.ReduceThreads(t)] if task.has_tree else []
        after.append(loop_ir.FlushSums(t) if task.is_split else loop_ir.FinishSums(t))
        beside = notes.at(reduced[0]) if reduced else notes.at_body(t)
        beside.before.append(loop_ir.ResetSums(t))
        beside.after += after
        free = [p for p in task.loops if not p.loop.is_reduction]
        accumulators[t] = loop_ir.AccumulatorPlan(
            owner=loop_ir.Owner.PARTIALS if task.is_split else loop_ir.Owner.REGISTERS,
            extents={p.loop.name: p.loop.extent for p in free},
            levels={p.loop.name: OUTER for p in free},
            in_memory=False,
            flushes_at_body=False,
        )
    return replace(launch, nodes=notes.placed(launch.nodes), accumulators=accumulators)


def _owner(task: TaskPlan, in_memory: bool, is_of_team: bool) -> loop_ir.Owner:
    if task.partials:
        return loop_ir.Owner.PARTIALS
    if is_of_team:
        return loop_ir.Owner.TEAM
    return loop_ir.Owner.THREAD if in_memory else loop_ir.Owner.REGISTERS


def _levels(loops: Sequence[loop_ir.Loop], task: TaskPlan, r: int) -> dict[str, int]:
    """Returns, by loop of the result, its outermost level inside the reduction, which begins with `loops[r]`."""
    levels = {}
    for p in task.loops:
        if p.loop.is_reduction:
            continue
        inside = [n.level for n in loops[r:] if loop_ir.loop_of(n, task.index) == p.loop.name]
        levels[p.loop.name] = min(inside, default=INNER)
    return levels


def _extents(task: TaskPlan, levels: dict[str, int]) -> dict[str, int]:
    return {
        p.loop.name: {OUTER: p.loop.extent, MID: p.tile, INNER: p.inner}[levels[p.loop.name]]
        for p in task.loops
        if not p.loop.is_reduction
    }


def _padded(plan: Plan, task: TaskPlan, made: loop_ir.AccumulatorPlan) -> frozenset[str]:
    """Returns the loops of the result whose last register tile may exceed the end.

    This is legal if every operand that they index is packed with padding. Values computed from
    padding go to padded accumulators, or are dropped at the flush. No loop is padded if only a
    register tile is live: the finish may read registers of a producer whose tile is partial.
    """
    if not made.has_room and (not made.in_memory or made.flushes_at_body):
        return frozenset()
    return frozenset(
        p.loop.name
        for p in task.loops
        if not (p.loop.is_reduction or p.divides)
        and made.levels[p.loop.name] != INNER
        and plan.is_read_from_blocks(task, p.loop.name)
    )


def _is_in_result(
    launch: loop_ir.Launch, plan: Plan, task: TaskPlan, made: loop_ir.AccumulatorPlan
) -> bool:
    """True if the elements of the result serve as accumulators.

    The result must have the layout of accumulators in memory, without padding. No other task of the
    launch may access the array.
    """
    target = task.task.target
    array = plan.problem.array(target.array)
    strides = flat_strides(target, array)
    free = [p for p in task.loops if not p.loop.is_reduction]
    along = min(free, key=lambda p: abs(strides.get(p.loop.name, 0)), default=None)
    if along is None or strides.get(along.loop.name) != 1 or made.levels[along.loop.name] != OUTER:
        return False
    divides = all(p.divides for p in free)
    has_room = made.owner is loop_ir.Owner.TEAM or (made.owner is loop_ir.Owner.THREAD and divides)
    is_plain = isinstance(task.task.finish, Accumulator) and array.dtype is task.task.dtype
    is_only_stored = task.is_stored and not (task.registers or task.shared)
    if not (has_room and is_plain and is_only_stored):
        return False
    touched = {a.array for a, _ in task_reads(task.task)}
    for t in set(launch.tasks) - {task.index}:
        other = plan.tasks[t].task
        touched |= {a.array for a, _ in task_reads(other)} | set(arrays_written(other))
    return target.array not in touched
