"""Builds the backbone of a problem: components, objects, flows of values, and pairs of loops that may merge."""

from __future__ import annotations

from bisect import bisect_left
from itertools import product

from ...kernels.analysis.effects import arrays_written, task_reads
from ...kernels.analysis.rescaling import Base, rescaling
from ...kernels.ir.access import Access, index_loops
from ...kernels.ir.task import Problem, Task
from ...kernels.ir.walk import loads
from ...kernels.tasks.dependence import (
    Dependence,
    SharedRead,
    carried_flows,
    dependences,
    is_kept_apart,
    shared_reads,
)
from . import objects
from .colourings import earlier_colouring
from .objects import INNER, LEVEL_NAMES, MID, OUTER, Backbone, Dim, Flow, Merge, Rescaled
from .patterns import operands, prefetches, rereads, shifts


def build_backbone(problem: Problem) -> Backbone:
    """Returns the backbone of `problem`, which does not depend on the machine."""
    found = dependences(problem)
    flows = _flows(problem, found)
    reads = shared_reads(problem, objects.LAUNCH_TASKS)
    rescaled = _rescaled(problem, found, flows, reads)
    merges = _merges(problem, found, flows, reads, rescaled)
    components = _components(problem, found, merges, flows)
    component_of = [k for k, c in enumerate(components) for _ in c]
    widths = [objects.launch_width(problem.tasks[c.start : c.stop]) for c in components]
    merges = tuple(
        m
        for m in merges
        if component_of[m.a] == component_of[m.b] and m.b - m.a < widths[component_of[m.a]]
    )
    dims, order_names, order_tasks, body_ids = _objects(problem, components)
    written = {name for t in problem.tasks for name in arrays_written(t)}
    return Backbone(
        problem=problem,
        components=components,
        dependences=found,
        dims=dims,
        flows=flows,
        carried=tuple(_carried(problem, d) for d in carried_flows(problem)),
        rereads=tuple(
            f
            for f in rereads(problem, written)
            if component_of[f.producer] == component_of[f.consumer]
        ),
        operands=tuple(o for k, t in enumerate(problem.tasks) for o in operands(k, t)),
        prefetches=tuple(
            p for k in range(len(problem.tasks)) for p in prefetches(problem, k, written)
        ),
        merges=merges,
        rescaled=rescaled,
        shifts=tuple(shifts(problem, found, merges)),
        order_names=order_names,
        order_tasks=order_tasks,
        body_ids=body_ids,
        by_loop={(d.task, d.loop.name, d.level): d for d in dims},
    )


def _components(
    problem: Problem,
    found: tuple[Dependence, ...],
    merges: tuple[Merge, ...],
    flows: tuple[Flow, ...],
) -> tuple[range, ...]:
    """Returns the components: runs of consecutive tasks that possible merges, on-chip values or common colourings connect.

    A task between two tasks of a component belongs to it, since it may have to run before or after both. Two tasks share no loop if
    a third task has to run between them and can share no loop with one of them. The shared loop would contain the third task.
    """
    tasks = problem.tasks
    n_tasks = len(tasks)
    if n_tasks <= objects.launch_width(tasks):
        return _steps(tasks)
    step_of = [step for step in _steps(tasks) for _ in step]
    reach = list(range(n_tasks))  # the last task that each is connected with
    joined = {(m.a, m.b) for m in merges}
    ordered = {(d.source, d.sink) for d in found}

    connected = [(a, b) for a, b in joined if not is_kept_apart(a, b, ordered, joined)]
    for f in flows:
        is_kept = f.is_pointwise or problem.array(f.array).role == "temp"
        if is_kept and tasks[f.producer].is_structured and tasks[f.consumer].is_structured:
            connected.append((f.producer, f.consumer))
    for t in range(n_tasks):
        near = range(max(0, t + 1 - objects.LAUNCH_TASKS), t)
        earlier = earlier_colouring(problem, near, t)
        connected += [(earlier.task, t)] if earlier is not None else []
    for first, last in connected:
        if last - first < objects.LAUNCH_TASKS and last in step_of[first]:
            reach[first] = max(reach[first], last)
    runs, begin, end = [], 0, 0
    for t in range(n_tasks):
        end = max(end, reach[t])
        if end == t:
            runs.append(range(begin, t + 1))
            begin = end = t + 1
    return tuple(runs)


def _steps(tasks: tuple[Task, ...]) -> tuple[range, ...]:
    """Returns the runs of consecutive tasks between which no repeat (outer time loop) begins or ends."""
    runs, begin = [], 0
    for t in range(1, len(tasks) + 1):
        if t == len(tasks) or tasks[t].repeats != tasks[begin].repeats:
            runs.append(range(begin, t))
            begin = t
    return tuple(runs)


def _carried(problem: Problem, d: Dependence) -> Flow:
    producer, consumer = problem.tasks[d.source], problem.tasks[d.sink]
    name = f"{producer.name}=>{consumer.name}.{d.array}"
    return Flow(d.source, d.sink, d.array, d.mapped, False, name, producer.target.axes)


def _objects(
    problem: Problem, components: tuple[range, ...]
) -> tuple[tuple[Dim, ...], tuple[str, ...], tuple[int, ...], tuple[int, ...]]:
    """Returns the dims (loop levels).

    Names and tasks of the objects in the order algebra; and the bodies' object numbers.
    """
    dims: list[Dim] = []
    names: list[str] = []
    owners: list[int] = []
    bodies: list[int] = []
    for component in components:
        for k in component:
            task = problem.tasks[k]
            for loop in task.loops:
                for level in (OUTER, MID, INNER):
                    name = f"{task.name}.{loop.name}.{LEVEL_NAMES[level]}"
                    order_id = -1 if level == INNER else len(names)
                    dims.append(Dim(k, loop, level, name, order_id))
                    if order_id >= 0:
                        names.append(name)
                        owners.append(k)
        for k in component:
            bodies.append(len(names))
            names.append(problem.tasks[k].name)
            owners.append(k)
    return tuple(dims), tuple(names), tuple(owners), tuple(bodies)


def _flows(problem: Problem, found: tuple[Dependence, ...]) -> tuple[Flow, ...]:
    flows = []
    writers: dict[str, list[int]] = {}
    for k, task in enumerate(problem.tasks):
        for name in arrays_written(task):
            writers.setdefault(name, []).append(k)
    for d in found:
        if d.kind != "flow":
            continue
        producer, consumer = problem.tasks[d.source], problem.tasks[d.sink]
        name = f"{producer.name}->{consumer.name}.{d.array}"
        pointwise = (
            producer.is_structured
            and consumer.is_structured
            and writers[d.array][bisect_left(writers[d.array], d.sink) - 1] == d.source
            and _is_pointwise(producer, consumer, d)
        )
        axes = producer.target.axes
        flows.append(Flow(d.source, d.sink, d.array, d.mapped, pointwise, name, axes))
    return tuple(flows)


def _is_pointwise(producer: Task, consumer: Task, d: Dependence) -> bool:
    """True if each read of a value reads, under the mapped loops, exactly the element written in the same iteration.

    Every read of the array counts, also one that never reads the producer's elements: a register
    would give it the producer's value.
    """
    reads = [a for a, _ in task_reads(consumer) if a.array == d.array]
    writes_it = consumer.target.array == d.array
    return (
        _covers(producer)
        and _stores_once(producer)
        and (_stores_once(consumer) or not writes_it)  # else it reads what it has written itself
        and all(_same_element(producer.target, read, dict(d.mapped)) for read in reads)
    )


def _stores_once(task: Task) -> bool:
    """True if no two iterations of the task's loops, reductions aside, store to the same element."""
    along = {loop.name for loop in task.loops if not loop.is_reduction}
    return along <= index_loops(task.target)


def _same_element(write: Access, read: Access, mapped: dict[str, str]) -> bool:
    return all(
        x is not None
        and y is not None
        and x.const == y.const
        and {(mapped.get(loop), k) for loop, k in x.terms} == set(y.terms)
        for x, y in zip(write.axes, read.axes, strict=True)
    )


def _covers(producer: Task) -> bool:
    """True if each axis of the array that the producer stores to is indexed by at most one loop.

    If the producer writes only a part of a value, other elements come from elsewhere, so the value
    must be read from memory.
    """
    axes = producer.target.axes
    return all(a is not None and len(a.terms) <= 1 for a in axes)


def _rescaled(
    problem: Problem,
    found: tuple[Dependence, ...],
    flows: tuple[Flow, ...],
    reads: tuple[SharedRead, ...],
) -> tuple[Rescaled, ...]:
    """Returns the reductions that may be rescaled (corrected when a running result in their terms changes).

    They are in program order. Each such running result is a reduction over values that the terms
    read too. Nothing else connects the two tasks, and the finish of the running result reads inputs
    only. So the end of no other task lies in the loop that they share.
    """
    tasks, made = problem.tasks, list[Rescaled]()
    written = {name for t in tasks for name in arrays_written(t)}
    between: dict[tuple[int, int], set[tuple[str, str]]] = {}
    for d in found:
        between.setdefault((d.source, d.sink), set()).add((d.kind, d.array))
    shared: dict[tuple[int, int], list[SharedRead]] = {}
    for read in reads:
        shared.setdefault((read.first, read.second), []).append(read)
    into: dict[int, list[Flow]] = {}
    for f in flows:
        sides = tasks[f.producer], tasks[f.consumer]
        is_read = any(a.array == f.array and not late for a, late in task_reads(sides[1]))
        is_along = bool({q for _, q in f.index_pairs} & set(_summed(sides[1])))
        if f.is_pointwise and is_read and not is_along and all(t.is_reduction for t in sides):
            into.setdefault(f.consumer, []).append(f)
    for t, held in sorted(into.items()):
        taken = {r.task for r in made}
        finishes = (tasks[f.producer].finish for f in held)
        if taken & {f.producer for f in held} or any(
            between[f.producer, t] != {("flow", f.array)} for f in held
        ):
            continue
        if any(x.array in written for e in finishes if e is not None for x in loads(e)):
            continue
        ways = ([_mapped(f, x) for x in shared.get((f.producer, t), ())] for f in held)
        for way in product(*ways):
            bases = [Base(tasks[f.producer], pairs) for f, pairs in zip(held, way, strict=True)]
            action = rescaling(bases, tasks[t])
            if action is not None:
                summed = (set(_summed(base.task)) for base in bases)
                pairs = (
                    tuple(pair for pair in p.items() if pair[0] in own)
                    for p, own in zip(way, summed, strict=True)
                )
                made.append(Rescaled(tuple(held), tuple(pairs), action))
                break
    return tuple(made)


def _mapped(f: Flow, read: SharedRead) -> dict[str, str]:
    """Returns the map from loops of a flow's producer to loops of its consumer, by the flow and by an array that both read."""
    return dict(read.mapped) | dict(f.index_pairs)


def _merges(
    problem: Problem,
    found: tuple[Dependence, ...],
    flows: tuple[Flow, ...],
    reads: tuple[SharedRead, ...],
    rescaled: tuple[Rescaled, ...],
) -> tuple[Merge, ...]:
    """Returns the pairs of loops that may merge, of tasks near enough for one launch.

    Every dependence between the two tasks must map the loops to each other. Without a dependence,
    the loops must read the same elements. Reduction loops that read the same elements may also
    merge if the second task needs the first task's results only in its finish, or corrects its sums
    whenever these results change.
    """
    pointwise = {(f.producer, f.consumer, f.array) for f in flows if f.is_pointwise}
    between: dict[tuple[int, int], list[Dependence]] = {}
    for d in found:
        between.setdefault((d.source, d.sink), []).append(d)
    shared: dict[tuple[int, int], set[tuple[str, str]]] = {}
    for read in reads:
        shared.setdefault((read.first, read.second), set()).update(read.mapped)
    merges: list[Merge] = []
    n_tasks = len(problem.tasks)
    width = max(objects.LAUNCH_TASKS, objects.LAUNCH_OBJECTS // 3)
    near = [(a, b) for a in range(n_tasks) for b in range(a + 1, min(a + width, n_tasks))]
    for a, b in near:
        if (a, b) not in between:
            pairs = shared.get((a, b), set()) | _looking_up(problem.tasks[a], problem.tasks[b])
            merges += [Merge(a, b, *pair) for pair in sorted(pairs)]
            continue
        pairs = set.intersection(*(set(d.mapped) for d in between[a, b]))
        merges += [Merge(a, b, *pair) for pair in sorted(pairs)]
        if all(
            (a, b, d.array) in pointwise and _waits_to_finish(problem, d) for d in between[a, b]
        ):
            summed = product(_summed(problem.tasks[a]), _summed(problem.tasks[b]))
            together = sorted(shared.get((a, b), set()).intersection(summed))
            merges += [Merge(a, b, *pair, before_finish=True) for pair in together]
    for r in rescaled:
        for base, reduced in zip(r.bases, r.pairs, strict=True):
            merges += [Merge(base, r.task, *pair, rescales=True) for pair in reduced]
    free = {(a, b) for a, b in near if (a, b) not in between}
    return tuple(sorted([*merges, *_through(merges, free)], key=lambda m: (m.a, m.b)))


def _through(merges: list[Merge], free: set[tuple[int, int]]) -> list[Merge]:
    """Returns further mergeable pairs of loops, of independent tasks (`free`): a task between may merge with both.

    Without the pair of the first and the last, three steps of a chain could not be one loop.
    """
    pairs: dict[tuple[int, int], set[tuple[str, str]]] = {}
    for m in merges:
        if not (m.before_finish or m.rescales):
            pairs.setdefault((m.a, m.b), set()).add((m.loop_a, m.loop_b))
    found = []
    for a, b in sorted(free, key=lambda ab: ab[1] - ab[0]):
        known = pairs.get((a, b), set())
        more = {
            (x, z)
            for between in range(a + 1, b)
            for x, y in pairs.get((a, between), ())
            for other, z in pairs.get((between, b), ())
            if other == y
        } - known
        if more:
            pairs[a, b] = known | more
            found += [Merge(a, b, *pair) for pair in sorted(more)]
    return found


def _looking_up(a: Task, b: Task) -> set[tuple[str, str]]:
    """Returns the loop pairs, by position, of two bodies of statements that load from one array at indirect indices."""
    if a.is_structured or b.is_structured:
        return set()
    computed = [
        {access.array for access, _ in task_reads(t) if None in access.axes} for t in (a, b)
    ]
    extents = [[loop.extent for loop in t.loops] for t in (a, b)]
    if extents[0] != extents[1] or not computed[0] & computed[1]:
        return set()
    return {(x.name, y.name) for x, y in zip(a.loops, b.loops, strict=True)}


def _summed(task: Task) -> list[str]:
    return [loop.name for loop in task.loops if loop.is_reduction]


def _waits_to_finish(problem: Problem, d: Dependence) -> bool:
    """True if the second task of a dependence reads the value only in the finish of its reduction."""
    reads = task_reads(problem.tasks[d.sink])
    return d.kind == "flow" and all(in_finish for a, in_finish in reads if a.array == d.array)
