"""The backbone: the objects that choices are made about, common to all candidates and free of facts about the machine.

Telamon (paper section 3.1) gives every instruction its own loop nest and orders the nests pairwise. Here one perfect band per
*task* suffices, because a task is one assignment: where a reduction is initialised and finished follows from the band's order
(just outside its outermost reduction dim), so those statements need no dims and no choices of their own.

Every loop is strip-mined into three levels:

    outer   steps over tiles of mid*inner iterations; a loop, or shared out to the threads
    mid     steps over register tiles inside that tile; absent when its size is 1
    inner   the register tile: unrolled or in vectors, no loop at all; absent when its size is 1

Only outer and mid dims and the bodies of tasks have an order. The register tiles of all loops of a task form one grid of
straight-line code at its body, so nothing can be ordered inside it.

Two tasks may share a launch if they are in one component, less than LAUNCH_TASKS apart. A component is a run of tasks, in program
order, that possible merges and values on chip connect; a sequence that fits into a launch is one component. What tasks that
cannot share a launch have between them is no choice: program order. So objects and constraints grow linearly with the tasks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

from ..kernels.ir.access import Access, flat_strides
from ..kernels.ir.affine import Affine
from ..kernels.ir.domain import Loop
from ..kernels.ir.effects import arrays_written, task_reads
from ..kernels.ir.task import Problem, Task
from ..kernels.program.dependence import Dependence, dependences, shared_reads

OUTER, MID, INNER = 0, 1, 2
LEVEL_NAMES = ("outer", "mid", "inner")
LAUNCH_TASKS = 8  # that follow one another in the program and may be in one launch


@dataclass(frozen=True)
class Dim:
    """One tile level of one loop of one task. `order_id` is its object number in the order algebra; -1: inner dims have none."""

    task: int
    loop: Loop
    level: int
    name: str
    order_id: int


@dataclass(frozen=True)
class Flow:
    """A value that `consumer` reads from the array that `producer` wrote; where `is_read`, an input that `producer` read before.

    `pairs` are the loops (of producer, of consumer) that the value maps point to point; `is_pointwise` says that all loops
    which index the value are among them, so that it can stay in a register. `axes` say which element the producer has, in
    terms of its loops.
    """

    producer: int
    consumer: int
    array: str
    pairs: tuple[tuple[str, str], ...]
    is_pointwise: bool
    name: str
    axes: tuple[Affine | None, ...] = ()
    is_read: bool = False

    @property
    def loops(self) -> set[str]:
        """Loops of the producer that index the array."""
        return {loop for axis in self.axes if axis is not None for loop, _ in axis.terms}


@dataclass(frozen=True)
class Operand:
    """An array that a task reads with reuse (some loop does not index it), so that a packed copy of a block can pay."""

    task: int
    access: Access
    loops: tuple[str, ...]  # of the task, that index the array
    name: str


@dataclass(frozen=True)
class Prefetch:
    """A read of an input that memory may be asked for ahead: contiguous `along` one loop, from line to line along `ahead`."""

    task: int
    access: Access
    along: str
    ahead: str
    stride: int  # elements from one iteration of `ahead` to the next


@dataclass(frozen=True)
class Shift:
    """Two matrix tasks that may meet in both loops if the consumer is one iteration of the shared loop late (loop shifting).

    The producer reduces along the loop that they would share besides, so its result is whole only when that loop has ended:
    in step, the consumer has to run it again. `shared` and `inside` are loops (of producer, of consumer).
    """

    producer: int
    consumer: int
    shared: tuple[str, str]
    inside: tuple[str, str]
    name: str


@dataclass(frozen=True)
class Merge:
    """Two loops, of tasks `a` and `b` (a < b in program order), whose dims of equal level may become one loop.

    Where it is `before_finish`, both are summed over, and the second task needs the results of the first not for its terms, only
    to finish its sums.
    """

    a: int
    b: int
    loop_a: str
    loop_b: str
    before_finish: bool = False


@dataclass(frozen=True)
class Backbone:
    """All objects. `order_names[k]` names object k of the order algebra, of task `order_tasks[k]`: component by component the outer
    and mid dims task by task, then the bodies.
    """

    problem: Problem
    components: tuple[range, ...]  # tasks that choices connect; runs of the program
    dependences: tuple[Dependence, ...]
    dims: tuple[Dim, ...]
    flows: tuple[Flow, ...]
    rereads: tuple[Flow, ...]  # inputs that an earlier task has read
    operands: tuple[Operand, ...]
    prefetches: tuple[Prefetch, ...]
    merges: tuple[Merge, ...]
    shifts: tuple[Shift, ...]  # at most one a consumer
    order_names: tuple[str, ...]
    order_tasks: tuple[int, ...]
    body_ids: tuple[int, ...]  # order object of each task's body

    by_loop: dict[tuple[int, str, int], Dim] = field(repr=False, compare=False)

    def dim(self, task: int, loop: str, level: int) -> Dim:
        return self.by_loop[task, loop, level]

    def dims_of(self, task: int) -> list[Dim]:
        return self._by_task[task]

    @cached_property
    def _by_task(self) -> list[list[Dim]]:
        found: list[list[Dim]] = [[] for _ in self.problem.tasks]
        for d in self.dims:
            found[d.task].append(d)
        return found

    @cached_property
    def neighbours(self) -> tuple[range, ...]:
        """Of each task the tasks with which it may share a launch, itself among them."""
        return tuple(
            range(max(c.start, t - LAUNCH_TASKS + 1), min(c.stop, t + LAUNCH_TASKS))
            for c in self.components
            for t in c
        )

    def may_share_launch(self, t: int, u: int) -> bool:
        return u in self.neighbours[t]

    def launch_pairs(self) -> Iterator[tuple[int, int]]:
        """Tasks t < u that may share a launch."""
        return ((t, u) for t, near in enumerate(self.neighbours) for u in near if u > t)

    @cached_property
    def partners(self) -> dict[Dim, list[Dim]]:
        """Dims of other tasks that a dim may merge with."""
        found: dict[Dim, list[Dim]] = {d: [] for d in self.dims}
        for merge in self.merges:
            for level in (OUTER, MID):
                d, e = (
                    self.dim(merge.a, merge.loop_a, level),
                    self.dim(merge.b, merge.loop_b, level),
                )
                found[d].append(e)
                found[e].append(d)
        return found

    @cached_property
    def near_flows(self) -> tuple[Flow, ...]:
        """Flows between tasks that may share a launch: where their values are is a choice; others are in memory."""
        return tuple(f for f in self.flows if self.may_share_launch(f.producer, f.consumer))

    @cached_property
    def far_flows(self) -> tuple[Flow, ...]:
        """All other flows."""
        return tuple(f for f in self.flows if not self.may_share_launch(f.producer, f.consumer))

    @cached_property
    def flows_into(self) -> Counter[tuple[int, str]]:
        """How many tasks a task has an array from."""
        return Counter((f.consumer, f.array) for f in self.flows)


def build_backbone(problem: Problem) -> Backbone:
    """The backbone of `problem`; depends on nothing about the machine."""
    found = dependences(problem)
    flows = _flows(problem, found)
    merges = _merges(problem, found, flows)
    components = _components(problem, merges, flows)
    dims, order_names, order_tasks, body_ids = _objects(problem, components)
    component_of = [k for k, c in enumerate(components) for _ in c]
    written = {name for t in problem.tasks for name in written_arrays(t)}
    return Backbone(
        problem=problem,
        components=components,
        dependences=found,
        dims=dims,
        flows=flows,
        rereads=tuple(
            f
            for f in _rereads(problem, written)
            if component_of[f.producer] == component_of[f.consumer]
        ),
        operands=tuple(o for k, t in enumerate(problem.tasks) for o in _operands(k, t)),
        prefetches=tuple(
            p for k in range(len(problem.tasks)) for p in _prefetches(problem, k, written)
        ),
        merges=merges,
        shifts=tuple(_shifts(problem, found, merges)),
        order_names=order_names,
        order_tasks=order_tasks,
        body_ids=body_ids,
        by_loop={(d.task, d.loop.name, d.level): d for d in dims},
    )


def _components(
    problem: Problem, merges: tuple[Merge, ...], flows: tuple[Flow, ...]
) -> tuple[range, ...]:
    """Runs of tasks that merges or values on chip connect. What is between two tasks of a component is in it: it may have to
    come before or after both.
    """
    tasks = problem.tasks
    n_tasks = len(tasks)
    if n_tasks <= LAUNCH_TASKS:
        return (range(n_tasks),)
    reach = list(range(n_tasks))  # the last task that each is connected with
    connected = [(m.a, m.b) for m in merges]
    for f in flows:
        is_kept = f.is_pointwise or problem.array(f.array).role == "temp"
        if is_kept and tasks[f.producer].is_structured and tasks[f.consumer].is_structured:
            connected.append((f.producer, f.consumer))
    for first, last in connected:
        if last - first < LAUNCH_TASKS:
            reach[first] = max(reach[first], last)
    found, begin, end = [], 0, 0
    for t in range(n_tasks):
        end = max(end, reach[t])
        if end == t:
            found.append(range(begin, t + 1))
            begin = end = t + 1
    return tuple(found)


def _objects(
    problem: Problem, components: tuple[range, ...]
) -> tuple[tuple[Dim, ...], tuple[str, ...], tuple[int, ...], tuple[int, ...]]:
    """Dims, names and tasks of the objects that have an order, bodies among them."""
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
        for name in written_arrays(task):
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


def _rereads(problem: Problem, written: set[str]) -> Iterator[Flow]:
    """For each task and input of two loops or more, the nearest task before it that reads just the same elements."""
    shared = {(r.first, r.second, r.array): r.mapped for r in shared_reads(problem, LAUNCH_TASKS)}
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
    if not task.is_structured or len(reads) != 1 or reads[0][1]:
        return None
    axes = reads[0][0].axes
    simple = all(a is not None and len(a.terms) == 1 and a.terms[0][1] == 1 for a in axes)
    return reads[0][0] if simple else None


def written_arrays(task: Task) -> set[str]:
    """Names of the arrays that a task writes."""
    return set(arrays_written(task))


def _is_pointwise(producer: Task, consumer: Task, d: Dependence) -> bool:
    """True when every read of the value is, under the mapped loops, exactly the element that was written.

    Reads that never meet the producer's writes count too: in a register they would find its value.
    """
    reads = [a for a, _ in task_reads(consumer) if a.array == d.array]
    return _covers(producer, d.array) and all(
        _same_element(producer.target, read, dict(d.mapped)) for read in reads
    )


def _same_element(write: Access, read: Access, mapped: dict[str, str]) -> bool:
    return all(
        x is not None
        and y is not None
        and x.const == y.const
        and {(mapped.get(loop), k) for loop, k in x.terms} == set(y.terms)
        for x, y in zip(write.axes, read.axes, strict=True)
    )


def _covers(producer: Task, array: str) -> bool:
    """A value that the producer writes only in part must be read from memory: other elements came from elsewhere."""
    axes = producer.target.axes
    return all(a is not None and len(a.terms) <= 1 for a in axes)


def index_loops(access: Access) -> set[str]:
    """Loops that take part in an affine access."""
    return {loop for axis in access.axes if axis is not None for loop, _ in axis.terms}


def _operands(k: int, task: Task) -> list[Operand]:
    if not task.is_structured or len(task.loops) < 2:
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
    return [o for a, o in operands.items() if a not in written_arrays(task)]


def _prefetches(problem: Problem, k: int, written: set[str]) -> Iterator[Prefetch]:
    task = problem.tasks[k]
    if not task.is_structured:
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


def _merges(
    problem: Problem, found: tuple[Dependence, ...], flows: tuple[Flow, ...]
) -> tuple[Merge, ...]:
    """Loop pairs, of tasks near enough for one launch, that may become one loop: mapped by every dependence between their tasks, or
    reading the same elements where there is no dependence, or none before the second task finishes its sums.
    """
    pointwise = {(f.producer, f.consumer, f.array) for f in flows if f.is_pointwise}
    between: dict[tuple[int, int], list[Dependence]] = {}
    for d in found:
        between.setdefault((d.source, d.sink), []).append(d)
    shared: dict[tuple[int, int], set[tuple[str, str]]] = {}
    for read in shared_reads(problem, LAUNCH_TASKS):
        shared.setdefault((read.first, read.second), set()).update(read.mapped)
    merges = []
    n_tasks = len(problem.tasks)
    near = ((a, b) for a in range(n_tasks) for b in range(a + 1, min(a + LAUNCH_TASKS, n_tasks)))
    for a, b in near:
        if (a, b) not in between:
            merges += [Merge(a, b, *pair) for pair in sorted(shared.get((a, b), ()))]
            continue
        pairs = set.intersection(*(set(d.mapped) for d in between[a, b]))
        merges += [Merge(a, b, *pair) for pair in sorted(pairs)]
        if all(
            (a, b, d.array) in pointwise and _waits_to_finish(problem, d) for d in between[a, b]
        ):
            summed = product(_summed(problem.tasks[a]), _summed(problem.tasks[b]))
            together = sorted(shared.get((a, b), set()).intersection(summed))
            merges += [Merge(a, b, *pair, before_finish=True) for pair in together]
    return tuple(merges)


def _summed(task: Task) -> list[str]:
    return [loop.name for loop in task.loops if loop.is_reduction]


def _waits_to_finish(problem: Problem, d: Dependence) -> bool:
    """Whether all that the sink of a dependence has to wait for is a value that it finishes its sums with."""
    reads = task_reads(problem.tasks[d.sink])
    return d.kind == "flow" and all(in_finish for a, in_finish in reads if a.array == d.array)


def _shifts(
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
        if k in awaited or not task.is_structured or len(task.loops) != 2:
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
