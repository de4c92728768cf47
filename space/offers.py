"""Which choices a problem has on a target, and which values each may have by itself: what needs no other choice to tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from ..kernels.ir.access import flat_strides
from ..kernels.ir.effects import are_independent, overwrites_all, task_reads
from ..kernels.ir.task import ArrayInfo, Problem, Task
from . import choices as ch
from .backbone import (
    INNER,
    MID,
    OUTER,
    Backbone,
    Dim,
    Flow,
    Merge,
    Operand,
    Prefetch,
    Shift,
    build_backbone,
)
from .engine.model import ModelBuilder, Places
from .targets.target import Target


def bits(*values: int) -> int:
    """The domain that holds just `values`."""
    return sum(1 << v for v in set(values))


@dataclass
class Variables:
    """Variable ids of every choice, by the backbone object that it is about."""

    fused: dict[tuple[int, int], int] = field(default_factory=dict)
    kind: dict[Dim, int] = field(default_factory=dict)
    size: dict[Dim, int] = field(default_factory=dict)
    universe: dict[Dim, tuple[int, ...]] = field(default_factory=dict)
    schedule: dict[Dim, int] = field(default_factory=dict)
    reduction: dict[Dim, int] = field(default_factory=dict)
    thread_level: dict[tuple[Dim, Dim], int] = field(default_factory=dict)  # mid dims of one task
    mem_space: dict[Flow, int] = field(default_factory=dict)
    staged: dict[Operand, int] = field(default_factory=dict)
    layout: dict[Operand, int] = field(default_factory=dict)  # of copies in shared memory
    cache: dict[int, int] = field(default_factory=dict)  # of stores, by task
    load_cache: dict[tuple[int, str], int] = field(default_factory=dict)  # by task and array
    prefetch: dict[int, int] = field(default_factory=dict)  # by task
    sums: dict[int, int] = field(default_factory=dict)  # prefetches of sums, by task
    store: dict[int, int] = field(default_factory=dict)  # by task, temporaries only
    shift: dict[Shift, int] = field(default_factory=dict)


class ChoiceBuilder:
    """Declares the choices of a CPU; space/constraints.py adds the constraints, space/gpu.py says what is different on a GPU."""

    dim_kinds: tuple[str, ...] = ch.DIM_KIND
    staged: tuple[str, ...] = ch.CPU_STAGED
    reduction: tuple[str, ...] = ch.REDUCTION
    has_layouts = False  # a CPU packs copies in the order in which they are used
    # How a reduction dim may be reduced, other than in order.
    shared_reductions: ClassVar[Mapping[int, int]] = {OUTER: ch.PARTIALS, INNER: ch.LANES}

    def __init__(self, problem: Problem, target: Target) -> None:
        self.problem, self.target = problem, target
        self.backbone: Backbone = build_backbone(problem)
        near = self.backbone.neighbours
        places = Places(tuple(r.start for r in near), tuple(r.stop - 1 for r in near))
        self.b = ModelBuilder(places)
        self.v = Variables()

    # --- objects and choices ---

    def declare_objects(self) -> None:
        bodies = set(self.backbone.body_ids)
        for k, (name, t) in enumerate(
            zip(self.backbone.order_names, self.backbone.order_tasks, strict=True)
        ):
            self.b.add_object(name, leaf=k in bodies, place=t)

    def declare_choices(self) -> None:
        b, v = self.b, self.v
        for t, u in self.backbone.launch_pairs():
            names = (self.problem.tasks[t].name, self.problem.tasks[u].name)
            v.fused[t, u] = b.add("fused", names, ch.FUSED)
        for d in self.backbone.dims:
            task = self.problem.tasks[d.task]
            v.kind[d] = b.add("dim_kind", (d.name,), self.dim_kinds, self.kinds_of(d))
            if d.level != OUTER:
                universe = self.sizes_of(d)
                v.universe[d] = universe
                v.size[d] = b.add("size", (d.name,), tuple(map(str, universe)))
            if d.level == OUTER and self.has_schedules(d):
                v.schedule[d] = b.add("schedule", (d.name,), ch.SCHEDULE)
            if d.loop.is_reduction and d.level in self.shared_reductions:
                mask = self.reductions_of(d) if task.fast_math else bits(ch.SEQUENTIAL)
                v.reduction[d] = b.add("reduction", (d.name,), self.reduction, mask)
        for d, e in self.thread_pairs():
            v.thread_level[d, e] = b.add("thread_level", (d.name, e.name), ch.THREAD_LEVEL)
        for f in self.backbone.flows:
            v.mem_space[f] = b.add("mem_space", (f.name,), ch.MEM_SPACE, self.spaces_of(f))
        for f in self.backbone.rereads:
            if self.is_beyond_own_cache(f.array):
                either = bits(ch.SHARED, ch.GLOBAL)
                v.mem_space[f] = b.add("mem_space", (f.name,), ch.MEM_SPACE, either)
        for o in self.backbone.operands:
            if not self.may_stage(o):
                continue
            v.staged[o] = b.add("staged", (o.name,), self.staged, self.stagings())
            if self.has_layouts:
                v.layout[o] = b.add("layout", (o.name,), ch.LAYOUT)
        for t, task in enumerate(self.problem.tasks):
            if self.may_stream(task):
                v.cache[t] = b.add("cache", (f"{task.name}.{task.target.array}",), ch.CACHE)
            if task.is_structured and self.array(task.target.array).role == "temp":
                v.store[t] = b.add("store", (f"{task.name}.{task.target.array}",), ch.STORE)
            if self.prefetched(t):
                v.prefetch[t] = b.add("prefetch", (task.name,), ch.PREFETCH)
            if self.may_ask_for_sums(task):
                name = (f"{task.name}.{task.target.array}",)
                v.sums[t] = b.add("prefetch", name, ch.PREFETCH_OF_SUMS)
            for array in self.hinted_loads(task):
                name = (f"{array}->{task.name}",)
                v.load_cache[t, array] = b.add("cache", name, ch.LOAD_CACHE)
        for s in self.backbone.shifts:
            if self.is_shift_worth_it(s):
                v.shift[s] = b.add("shift", (s.name,), ch.SHIFT)

    def kinds_of(self, d: Dim) -> int:
        """Hardware and semantics of one dim alone."""
        task = self.problem.tasks[d.task]
        if d.level == MID:
            return bits(ch.LOOP, ch.ABSENT) if task.is_structured else bits(ch.ABSENT)
        if d.level == OUTER:
            may_split = d.loop.extent > 1 and self.target.cores > 1 and self.is_parallel(task, d)
            return bits(ch.LOOP, ch.PARALLEL) if may_split else bits(ch.LOOP)
        if not task.is_structured or (d.loop.is_reduction and not task.fast_math):
            return bits(ch.ABSENT)
        vector = {ch.VECTOR} if d.loop.name in self.vector_loops(task) else set()
        return bits(ch.ABSENT, ch.UNROLL, *vector)

    def is_parallel(self, task: Task, d: Dim) -> bool:
        """Whether the iterations of an outer dim may run in any order on several threads."""
        if task.is_structured:
            return task.fast_math or not d.loop.is_reduction
        return are_independent(task, d.loop)

    def has_schedules(self, d: Dim) -> bool:
        """Whether it may matter which tiles of an outer dim run at the same time: they are parts of rows from beyond the cache."""
        task = self.problem.tasks[d.task]
        if (
            not task.is_structured
            or len(task.loops) < 2
            or not self.kinds_of(d) & bits(ch.PARALLEL)
        ):
            return False
        accesses = (task.target, *(access for access, _ in task_reads(task)))
        return any(self.is_beyond_own_cache(access.array) for access in accesses)

    @property
    def mid_sizes(self) -> tuple[int, ...]:
        """What a mid dim may have, where its loop is long enough."""
        return ch.MID_SIZES

    def sizes_of(self, d: Dim) -> tuple[int, ...]:
        task = self.problem.tasks[d.task]
        if not task.is_structured:
            return (1,)
        universe = self.mid_sizes if d.level == MID else ch.INNER_SIZES
        return tuple(s for s in universe if s == 1 or s <= d.loop.extent)

    def vector_loops(self, task: Task) -> set[str]:
        """Loops along which the task can run in vectors: its store is contiguous there, or it is reduced there."""
        if not task.is_structured:
            return set()
        strides = flat_strides(task.target, self.array(task.target.array))
        return {
            loop.name
            for loop in task.loops
            if (task.fast_math if loop.is_reduction else strides.get(loop.name, 0) == 1)
        }

    def thread_pairs(self) -> list[tuple[Dim, Dim]]:
        """Mid dims of one task, in order, that may both be shared out to threads."""
        return []

    def reductions_of(self, d: Dim) -> int:
        """How a dim may be reduced where the order of the sum is free."""
        return bits(ch.SEQUENTIAL, self.shared_reductions[d.level])

    def may_ask_for_sums(self, task: Task) -> bool:
        """Whether sums can be in memory, go through registers part by part, and be beyond a core's own cache."""
        n_free = sum(not loop.is_reduction for loop in task.loops)
        is_in_parts = task.is_reduction and task.fast_math and n_free > 0
        return is_in_parts and self.is_beyond_own_cache(task.target.array)

    def may_stage(self, o: Operand) -> bool:
        """Whether a copy of an operand can pay: on a CPU a vector is contiguous and cached as it is."""
        return len(o.loops) > 1

    def stagings(self) -> int:
        """How operands may be copied."""
        team = (ch.TEAM_COPY,) if self.target.cores > 1 else ()
        return bits(ch.DIRECT, ch.COPY, ch.TWO_STAGES, *team)

    def may_stream(self, task: Task) -> bool:
        """Whether the stores of a task can go around the caches: on a CPU, vectors that are stored once."""
        return task.is_structured and not task.is_reduction and bool(self.vector_loops(task))

    def hinted_loads(self, task: Task) -> list[str]:
        """Arrays that a task can read with a hint to the caches; a CPU has none but prefetches."""
        return []

    def spaces_of(self, f: Flow) -> int:
        spaces = {ch.GLOBAL}
        producer, consumer = self.problem.tasks[f.producer], self.problem.tasks[f.consumer]
        if not self.backbone.may_share_launch(f.producer, f.consumer):
            return bits(*spaces)
        sole = self.backbone.flows_into[f.consumer, f.array] == 1
        structured = producer.is_structured and consumer.is_structured
        if f.is_pointwise and sole:
            spaces.add(ch.REGISTER)
        if structured and sole and self.is_worth_keeping(f):
            spaces.add(ch.SHARED)
        return bits(*spaces)

    def is_worth_keeping(self, f: Flow) -> bool:
        """A temporary that one thread keeps need not be written; what is written anyway is worth keeping if no cache does."""
        if self.array(f.array).role == "temp":
            return True
        producer = self.problem.tasks[f.producer]
        return self.is_beyond_own_cache(f.array) and overwrites_all(producer, self.problem, f.array)

    def is_beyond_own_cache(self, array: str) -> bool:
        """Whether an array does not fit into the cache that a core has to itself."""
        return self.array(array).size_bytes > self.target.own_cache_bytes

    def prefetched(self, t: int) -> tuple[Prefetch, ...]:
        """Reads of a task that may be asked for ahead: of inputs beyond the cache, in vectors, with a loop from line to line."""
        return tuple(
            p
            for p in self.backbone.prefetches
            if p.task == t and self.is_beyond_own_cache(p.access.array)
        )

    def is_shift_worth_it(self, s: Shift) -> bool:
        """Whether the consumer reads again what no core's own cache holds, and threads can share out the loop."""
        kinds = [
            self.kinds_of(self.backbone.dim(t, loop, OUTER))
            for t, loop in zip((s.producer, s.consumer), s.shared, strict=True)
        ]
        reads = {access.array for access, _ in task_reads(self.problem.tasks[s.consumer])}
        return all(k & bits(ch.PARALLEL) for k in kinds) and any(
            map(self.is_beyond_own_cache, reads)
        )

    def array(self, name: str) -> ArrayInfo:
        return self.problem.array(name)

    # --- look-ups ---

    @property
    def n_tasks(self) -> int:
        return len(self.problem.tasks)

    def ordered_dims(self, t: int) -> list[Dim]:
        return [d for d in self.backbone.dims_of(t) if d.order_id >= 0]

    def objects_of(self, t: int) -> list[int]:
        return [d.order_id for d in self.ordered_dims(t)] + [self.backbone.body_ids[t]]

    def near_dims(self, t: int) -> Iterator[Dim]:
        """Ordered dims of all tasks that may share a launch with a task, its own among them."""
        return (e for u in self.backbone.neighbours[t] for e in self.ordered_dims(u))

    def near_objects(self, t: int) -> list[int]:
        """All that the dims of a task have an order with, increasing."""
        return sorted(x for u in self.backbone.neighbours[t] for x in self.objects_of(u))

    def levels(self, task: int, loop: str) -> tuple[Dim, Dim, Dim]:
        dim = self.backbone.dim
        return dim(task, loop, OUTER), dim(task, loop, MID), dim(task, loop, INNER)

    def levels_of(self, m: Merge) -> tuple[tuple[Dim, Dim, Dim], tuple[Dim, Dim, Dim]]:
        return self.levels(m.a, m.loop_a), self.levels(m.b, m.loop_b)
