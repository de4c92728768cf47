"""What of a problem follows a pattern that pays: inputs read again, operands with reuse, prefetches, loop shifting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...kernels.ir.access import Access, flat_strides, index_loops
from ...kernels.ir.affine import Affine
from ...kernels.ir.effects import arrays_written, task_reads
from ...kernels.ir.task import Problem, Task
from ...kernels.program.dependence import Dependence, shared_reads
from . import objects
from .objects import Flow, Merge, Operand, Prefetch, Shift


def rereads(problem: Problem, written: set[str]) -> Iterator[Flow]:
    """For each task and input of two loops or more, the nearest task before it that reads just the same elements."""
    shared = {
        (r.first, r.second, r.array): r.mapped for r in shared_reads(problem, objects.LAUNCH_TASKS)
    }
    nearest: dict[str, int] = {}
    for k, task in enumerate(problem.tasks):
        arrays = dict.fromkeys(a.array for a, _ in task_reads(task))
        alone = {array: _sole_read(task, array) for array in arrays if array not in written}
        for array, access in alone.items():
            if access is None or array not in nearest:
                continue
            first = nearest[array]
            access = _sole_read(problem.tasks[first], array)
            pairs = shared.get((first, k, array), ())
            if access is not None and len(pairs) == len(index_loops(access)) > 1:
                name = f"{problem.tasks[first].name}->{task.name}.{array}"
                yield Flow(first, k, array, pairs, False, name, access.axes, is_read=True)
        nearest.update((array, k) for array, access in alone.items() if access is not None)


def _sole_read(task: Task, array: str) -> Access | None:
    """The one read of an array in the loops of a structured task, if it is a box, each axis a loop."""
    reads = [(a, late) for a, late in task_reads(task) if a.array == array]
    if not task.is_structured or task.is_guarded or len(reads) != 1 or reads[0][1]:
        return None
    axes = reads[0][0].axes
    simple = all(a is not None and len(a.terms) == 1 and a.terms[0][1] == 1 for a in axes)
    return reads[0][0] if simple else None


def operands(k: int, task: Task) -> list[Operand]:
    if not task.is_structured or task.is_guarded:
        return []
    operands: dict[str, Operand] = {}
    reads = task_reads(task)
    for access, in_finish in reads:
        used = index_loops(access)
        loops = tuple(loop.name for loop in task.loops if loop.name in used)
        single = not in_finish and sum(a.array == access.array for a, _ in reads) == 1
        terms = [loop for axis in access.axes if axis is not None for loop, _ in axis.terms]
        # One loop per axis and one access per array: the copy is a box, indexed by the loops themselves.
        if single and 0 < len(loops) < len(task.loops) and len(terms) == len(loops):
            name = f"{task.name}.{access.array}"
            operands[access.array] = Operand(k, access, loops, name)
    operands |= windows(k, task)
    return [o for a, o in operands.items() if a not in arrays_written(task)]


def windows(k: int, task: Task) -> dict[str, Operand]:
    """Arrays of which each iteration reads neighbours: each axis is a loop plus a constant, in all reads the same loop."""
    found: dict[str, list[Access]] = {}
    late = set[str]()
    for access, in_finish in task_reads(task):
        found.setdefault(access.array, []).append(access)
        late |= {access.array} if in_finish else set()
    return {
        array: window
        for array, reads in found.items()
        if array not in late and (window := _window(k, task, reads)) is not None
    }


def _window(k: int, task: Task, reads: list[Access]) -> Operand | None:
    first, halo, least = reads[0], dict[str, int](), list[Affine | None]()
    loops = [loop for axis in first.axes if axis is not None for loop, _ in axis.terms]
    if len(reads) < 2 or len(set(loops)) < len(loops):
        return None
    for axes in zip(*(r.axes for r in reads), strict=True):
        known = [a for a in axes if a is not None]
        if len(known) < len(axes) or len({a.terms for a in known}) > 1:
            return None
        terms, places = known[0].terms, [a.const for a in known]
        low, high = min(places), max(places)
        if len(terms) > 1 or any(step != 1 for _, step in terms) or (high > low and not terms):
            return None
        halo |= {loop: high - low for loop, _ in terms if high > low}
        least.append(replace(known[0], const=low))
    access = Access(first.array, tuple(least))
    used = tuple(loop.name for loop in task.loops if loop.name in loops)
    return Operand(k, access, used, f"{task.name}.{first.array}", tuple(halo.items()))


def prefetches(problem: Problem, k: int, written: set[str]) -> Iterator[Prefetch]:
    task = problem.tasks[k]
    if not task.is_structured or task.is_guarded:
        return
    for access, in_finish in task_reads(task):
        if in_finish or access.array in written or any(a is None for a in access.axes):
            continue
        strides = flat_strides(access, problem.array(access.array))
        along = [name for name, step in strides.items() if step == 1]
        others = {name: step for name, step in strides.items() if step > 1}
        if along and others:
            ahead = max(others, key=lambda name: others[name])
            yield Prefetch(k, access, along[0], ahead, others[ahead])


def shifts(
    problem: Problem, found: tuple[Dependence, ...], merges: tuple[Merge, ...]
) -> Iterator[Shift]:
    """For each task of two loops on which nothing depends, the last reduction whose result it waits for."""
    awaited = {d.source for d in found}
    values: dict[int, list[Dependence]] = {}
    for d in found:
        if d.kind == "flow":
            values.setdefault(d.sink, []).append(d)
    known = set(merges)
    for k, task in enumerate(problem.tasks):
        is_open = task.is_structured and not task.is_guarded
        if k in awaited or not is_open or len(task.loops) != 2:
            continue
        possible = []
        for d in values.get(k, ()):
            producer = problem.tasks[d.source]
            kinds = sorted(loop.is_reduction for loop in producer.loops)
            if producer.is_structured and kinds == [False, True]:
                shift = _shift(problem, d.source, k, known)
                possible += [shift] if shift is not None else []
        if possible:
            yield max(possible, key=lambda s: s.producer)


def _shift(problem: Problem, t: int, u: int, merges: set[Merge]) -> Shift | None:
    producer, consumer = problem.tasks[t], problem.tasks[u]
    free, reduced = sorted(producer.loops, key=lambda loop: loop.is_reduction)
    for first, second in (consumer.loops, consumer.loops[::-1]):
        # A sum over the other loop alone would be finished in each iteration of the shared one, which is over by then.
        finishes_inside = consumer.is_reduction and not first.is_reduction
        may_merge = Merge(t, u, free.name, first.name) in merges
        if may_merge and not finishes_inside and second.extent == reduced.extent:
            pairs = (free.name, first.name), (reduced.name, second.name)
            return Shift(t, u, *pairs, name=f"{producer.name}->{consumer.name}")
    return None
