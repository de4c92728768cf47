"""Profitable patterns of a problem: inputs read twice, operands with reuse, prefetches, loop shifting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...kernels.analysis.effects import arrays_written, task_reads
from ...kernels.ir.access import Access, AxisMap, flat_strides, index_loops
from ...kernels.ir.affine import Affine, index_range
from ...kernels.ir.domain import BOX
from ...kernels.ir.on_trees import NO_TREES
from ...kernels.ir.task import Problem, Task
from ...kernels.ir.text import show_affine
from ...kernels.tasks.dependence import Dependence, shared_reads
from . import objects
from .objects import Flow, Merge, Operand, Prefetch, Shift


def rereads(problem: Problem, written: set[str]) -> Iterator[Flow]:
    """Yields flows of inputs from the nearest earlier task that reads exactly the same elements.

    There is at most one for each task and each input indexed by two loops or more.
    """
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
    """Returns the only read of an array in the loops of a structured task, if a single loop indexes each axis.

    Otherwise it returns None.
    """
    reads = [(a, late) for a, late in task_reads(task) if a.array == array]
    if not task.is_structured or task.is_guarded or len(reads) != 1 or reads[0][1]:
        return None
    axes = reads[0][0].axes
    simple = all(a is not None and len(a.terms) == 1 and a.terms[0][1] == 1 for a in axes)
    return reads[0][0] if simple else None


def operands(k: int, task: Task) -> list[Operand]:
    if not task.is_structured or task.is_guarded:
        return list(windows(k, task).values())
    reads, found = task_reads(task), windows(k, task)
    late = {access for access, in_finish in reads if in_finish}
    n_places = Counter(access.array for access in {a for a, _ in reads})
    made, steps = list[Operand](), {loop.name for loop in task.steps}
    for access in dict.fromkeys(a for a, _ in reads if a not in late and a.array not in found):
        used = index_loops(access)
        loops = tuple(loop.name for loop in task.loops if loop.name in used)
        in_axes = [loop for axis in access.axes if axis is not None for loop, _ in axis.terms]
        terms = [loop for loop in in_axes if loop not in steps]
        is_known = None not in access.axes
        # One loop an axis: the copy is a box, indexed by the loops themselves.
        if is_known and 0 < len(loops) < len(task.loops) and len(terms) == len(loops):
            site = access.array if n_places[access.array] == 1 else _site(access)
            made.append(Operand(k, access, loops, f"{task.name}.{site}", site))
    written = arrays_written(task)
    return [o for o in (*made, *found.values()) if o.access.array not in written]


def _site(access: Access) -> str:
    """Returns the text of an access without commas, such as `a[i][k]`, since commas separate names elsewhere."""
    places = (show_affine(axis).replace(" ", "") for axis in access.axes if axis is not None)
    return access.array + "".join(f"[{place}]" for place in places)


@dataclass(frozen=True)
class _Span:
    """Range of the reads along an axis: affine `terms` of the task's loops, plus an offset from `low` to `high`."""

    terms: tuple[tuple[str, int], ...]
    low: int
    high: int


def windows(k: int, task: Task) -> dict[str, Operand]:
    """Returns the windows of a task by array: operands of which each iteration reads neighbouring elements.

    Each axis is indexed by one loop plus a constant, with the same loop in all reads. No iteration
    of an assignment reads an element that another one stores. So an in-place task may read its
    target from a copy, too.
    """
    found = _reads_of_body(task) if task.body is not None else _reads_of_assignment(task)
    made = {array: _window(k, task, array, reads) for array, reads in found.items()}
    return {array: window for array, window in made.items() if window is not None}


_Spans = tuple[_Span | None, ...]


def _reads_of_assignment(task: Task) -> dict[str, list[_Spans]]:
    """Returns the ranges, by axis, of the reads of each array that an assignment reads only in its loops.

    An array indexed by an outer (time) step is left out.
    """
    found: dict[str, list[_Spans]] = {}
    late, steps = set[str](), {loop.name for loop in task.steps}
    for access, in_finish in task_reads(task):
        in_place = [
            a if a is not None and not steps & dict(a.terms).keys() else None for a in access.axes
        ]
        axes = tuple(None if a is None else _Span(a.terms, a.const, a.const) for a in in_place)
        found.setdefault(access.array, []).append(axes)
        late |= {access.array} if in_finish else set()
    return {array: reads for array, reads in found.items() if array not in late}


def _reads_of_body(task: Task) -> dict[str, list[_Spans]]:
    """Returns the ranges, by axis, of the reads of each array that a body of statements only reads.

    Inner loops of constant extent widen the ranges.
    """
    assert task.body is not None
    found: dict[str, list[_Spans]] = {}
    if not task.has_known_extents or task.domain != BOX or task.body.trees != NO_TREES:
        return {}
    own = {loop.name for loop in task.loops}
    for s in task.body.sites:
        inner = {loop.name: loop.extent for loop in s.loops if loop.is_known}
        found.setdefault(s.state.name, []).append(tuple(_span(x, own, inner) for x in s.index))
    written = {s.state.name for s in task.body.sites if s.op != "load"}
    return {array: reads for array, reads in found.items() if array not in written}


def _span(axis: AxisMap, own: set[str], inner: Mapping[str, int]) -> _Span | None:
    """Returns the range of an access along an axis, over all iterations of `inner` loops.

    It returns None if it is not affine in them.
    """
    if axis.plain is None or any(
        name not in inner for name, _ in axis.plain.terms if name not in own
    ):
        return None
    terms = tuple(x for x in axis.plain.terms if x[0] in own)
    rest = tuple(x for x in axis.plain.terms if x[0] not in own)
    return _Span(terms, *index_range(Affine(axis.plain.const, rest), inner))


def _window(k: int, task: Task, array: str, reads: list[_Spans]) -> Operand | None:
    halo, least, loops = dict[str, int](), list[Affine | None](), list[str]()
    for axes in zip(*reads, strict=True):
        known = [a for a in axes if a is not None]
        if len(known) < len(axes) or len({a.terms for a in known}) > 1:
            return None
        terms, low, high = known[0].terms, min(a.low for a in known), max(a.high for a in known)
        if len(terms) > 1 or any(step != 1 for _, step in terms) or (high > low and not terms):
            return None
        halo |= {loop: high - low for loop, _ in terms if high > low}
        loops += [loop for loop, _ in terms]
        least.append(Affine(low, terms))
    if not halo or len(set(loops)) < len(loops):
        return None
    access = Access(array, tuple(least))
    used = tuple(loop.name for loop in task.loops if loop.name in loops)
    return Operand(k, access, used, f"{task.name}.{array}", array, tuple(halo.items()))


def prefetches(problem: Problem, k: int, written: set[str]) -> Iterator[Prefetch]:
    task = problem.tasks[k]
    if not task.is_structured or task.is_guarded:
        return
    for access, in_finish in task_reads(task):
        if in_finish or access.array in written or any(a is None for a in access.axes):
            continue
        strides = flat_strides(access, problem.array(access.array))
        strides = {loop.name: strides[loop.name] for loop in task.loops if loop.name in strides}
        along = [name for name, step in strides.items() if step == 1]
        others = {name: step for name, step in strides.items() if step > 1}
        if along and others:
            ahead = max(others, key=lambda name: others[name])
            yield Prefetch(k, access, along[0], ahead, others[ahead])


def shifts(
    problem: Problem, found: tuple[Dependence, ...], merges: tuple[Merge, ...]
) -> Iterator[Shift]:
    """Yields a shift for each task of two loops on which no other task depends.

    Its producer is the last reduction whose result the task needs.
    """
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
