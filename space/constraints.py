"""The space of a problem on a target: its choices, and the constraints between them in the order of ARCHITECTURE.md.

Every constraint is declared once, as a predicate over values or a disjunction over domains. The predicate is the truth; the
filters are derived from it (space/model.py), and so is the CP-SAT model (space/cpsat.py). Each block says what it states:
coherence (the order algebra and canonical forms), semantics (what may not change the result) or hardware (what the target has).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import ClassVar

from ..kernels.accesses import flat_strides, overwrites_all
from ..kernels.dependence import task_reads
from ..kernels.tasks import Access, Affine, ArrayInfo, Problem, Task
from . import choices as ch
from . import truths
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
    index_loops,
    written_arrays,
)
from .candidate import Space
from .model import ModelBuilder, Term
from .target import Target

MAX_UNROLLED_COPIES = 64  # of one task's body: more only costs compile time and instruction cache


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
    store: dict[int, int] = field(default_factory=dict)  # by task, temporaries only
    shift: dict[Shift, int] = field(default_factory=dict)


def build_space(problem: Problem, target: Target) -> Space:
    """The space of all implementations of `problem` on `target`."""
    if target.is_gpu:
        from .gpu import GpuSpaceBuilder  # built on this module

        return GpuSpaceBuilder(problem, target).build()
    return SpaceBuilder(problem, target).build()


class SpaceBuilder:
    """Declares the space of a CPU; space/gpu.py says what is different on a GPU."""

    dim_kinds: tuple[str, ...] = ch.DIM_KIND
    staged: tuple[str, ...] = ch.STAGED
    reduction: tuple[str, ...] = ch.REDUCTION
    has_layouts = False  # a CPU packs copies in the order in which they are used
    # How a reduction dim may be reduced, other than in order.
    shared_reductions: ClassVar[Mapping[int, int]] = {OUTER: ch.PARTIALS, INNER: ch.LANES}

    def __init__(self, problem: Problem, target: Target) -> None:
        self.problem, self.target = problem, target
        self.backbone: Backbone = build_backbone(problem)
        self.b = ModelBuilder()
        self.v = Variables()

    def build(self) -> Space:
        self.declare_objects()
        self.declare_choices()
        self.order_within_tasks()
        self.order_between_tasks()
        self.absent_dims()
        self.launches()
        self.merged_dims()
        self.parallel_dims()
        self.sizes_and_kinds()
        self.reductions()
        self.memory_spaces()
        self.stores()
        self.prefetches()
        self.staged_copies()
        self.shifts()
        return Space(
            model=self.b.freeze(),
            problem=self.problem,
            target=self.target,
            backbone=self.backbone,
            variables=self.v,
        )

    # --- objects and choices ---

    def declare_objects(self) -> None:
        n_dims = len(self.backbone.order_names) - len(self.problem.tasks)
        for k, name in enumerate(self.backbone.order_names):
            self.b.add_object(name, leaf=k >= n_dims)

    def declare_choices(self) -> None:
        b, v = self.b, self.v
        for t, u in combinations(range(len(self.problem.tasks)), 2):
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
            v.staged[o] = b.add("staged", (o.name,), self.staged, self.stagings())
            if self.has_layouts:
                v.layout[o] = b.add("layout", (o.name,), ch.LAYOUT)
        for t, task in enumerate(self.problem.tasks):
            if self.may_stream(task):
                v.cache[t] = b.add("cache", (f"{task.name}.{task.target.array}",), ch.CACHE)
            if task.opaque is None and self.array(task.target.array).role == "temp":
                v.store[t] = b.add("store", (f"{task.name}.{task.target.array}",), ch.STORE)
            if self.prefetched(t):
                v.prefetch[t] = b.add("prefetch", (task.name,), ch.PREFETCH)
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
            return bits(ch.LOOP, ch.ABSENT) if task.opaque is None else bits(ch.ABSENT)
        if d.level == OUTER:
            may_split = d.loop.extent > 1 and self.target.cores > 1 and self.is_parallel(task, d)
            return bits(ch.LOOP, ch.PARALLEL) if may_split else bits(ch.LOOP)
        if task.opaque is not None or (d.loop.is_reduction and not task.fast_math):
            return bits(ch.ABSENT)
        vector = {ch.VECTOR} if d.loop.name in self.vector_loops(task) else set()
        return bits(ch.ABSENT, ch.UNROLL, *vector)

    def is_parallel(self, task: Task, d: Dim) -> bool:
        """Whether the iterations of an outer dim may run in any order on several threads."""
        if task.opaque is None:
            return task.fast_math or not d.loop.is_reduction
        accesses = (*task.opaque.reads, *task.opaque.writes)
        return all(
            _own_axis([a.axes for a in accesses if a.array == array], d.loop.name)
            for array in written_arrays(task)
        )

    def has_schedules(self, d: Dim) -> bool:
        """Whether it may matter which tiles of an outer dim run at the same time: they are parts of rows from beyond the cache."""
        task = self.problem.tasks[d.task]
        if (
            task.opaque is not None
            or len(task.loops) < 2
            or not self.kinds_of(d) & bits(ch.PARALLEL)
        ):
            return False
        accesses = (task.target, *(access for access, _ in task_reads(task)))
        return any(self.is_beyond_own_cache(access.array) for access in accesses)

    def sizes_of(self, d: Dim) -> tuple[int, ...]:
        task = self.problem.tasks[d.task]
        if task.opaque is not None:
            return (1,)
        universe = ch.MID_SIZES if d.level == MID else ch.INNER_SIZES
        return tuple(s for s in universe if s == 1 or s <= d.loop.extent)

    def vector_loops(self, task: Task) -> set[str]:
        """Loops along which the task can run in vectors: its store is contiguous there, or it is reduced there."""
        if task.opaque is not None:
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

    def stagings(self) -> int:
        """How operands may be copied."""
        return bits(ch.DIRECT, ch.COPY)

    def may_stream(self, task: Task) -> bool:
        """Whether the stores of a task can go around the caches: on a CPU, vectors that are stored once."""
        return task.opaque is None and not task.is_reduction and bool(self.vector_loops(task))

    def hinted_loads(self, task: Task) -> list[str]:
        """Arrays that a task can read with a hint to the caches; a CPU has none but prefetches."""
        return []

    def spaces_of(self, f: Flow) -> int:
        spaces = {ch.GLOBAL}
        producer, consumer = self.problem.tasks[f.producer], self.problem.tasks[f.consumer]
        sole = (
            sum(g.consumer == f.consumer and g.array == f.array for g in self.backbone.flows) == 1
        )
        structured = producer.opaque is None and consumer.opaque is None
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

    # --- coherence: the loop trees ---

    def order_within_tasks(self) -> None:
        """A task is one band: its dims are nested, levels of one loop from outer to inner, and its body is inside all of them."""
        b = self.b
        for t, task in enumerate(self.problem.tasks):
            dims = self.ordered_dims(t)
            for d in dims:
                b.restrict(b.order(d.order_id, self.backbone.body_ids[t]), bits(ch.OUTSIDE))
            for d, e in combinations(dims, 2):
                same_loop = d.loop == e.loop
                strict = not task.fast_math and d.loop.is_reduction and e.loop.is_reduction
                nested = bits(ch.OUTSIDE) if same_loop or strict else bits(ch.OUTSIDE, ch.INSIDE)
                b.restrict(b.order(d.order_id, e.order_id), nested)

    def order_between_tasks(self) -> None:
        """Bodies follow one another, dependences forwards; a body is in no loop that is not merged with one of its own."""
        b, bodies = self.b, self.backbone.body_ids
        for t, u in combinations(range(len(bodies)), 2):
            b.restrict(b.order(bodies[t], bodies[u]), bits(ch.BEFORE, ch.AFTER))
        for dep in self.backbone.dependences:
            b.restrict(b.order(bodies[dep.source], bodies[dep.sink]), bits(ch.BEFORE))
        partners = self.partners()
        for d in self.backbone.dims:
            if d.order_id < 0:
                continue
            for e in self.backbone.dims:
                if e.order_id >= 0 and e.task > d.task and e not in partners[d]:
                    b.restrict(b.order(d.order_id, e.order_id), bits(*range(4)))
            for t, body in enumerate(bodies):
                if t != d.task:
                    own = [e for e in partners[d] if e.task == t]
                    literals = [(b.order(d.order_id, body), bits(*range(5)) & ~bits(ch.OUTSIDE))]
                    literals += [(b.order(d.order_id, e.order_id), bits(ch.MERGED)) for e in own]
                    b.clause(f"no foreign body in {d.name}", literals)

    def absent_dims(self) -> None:
        """A mid dim without a loop has one canonical place, just inside its outer dim, so equal loop trees are equal vectors."""
        b = self.b
        partners = self.partners()
        for m in self.backbone.dims:
            if m.level != MID:
                continue
            o = self.backbone.dim(m.task, m.loop.name, OUTER)
            kind = self.v.kind[m]
            twins = {e.order_id for e in partners[m]}
            for x in range(len(self.backbone.order_names)):
                if x not in (m.order_id, o.order_id):
                    rule = truths.beside_twin if x in twins else truths.beside_other
                    pair = (b.order(o.order_id, x), b.order(m.order_id, x))
                    b.table3(f"absent {m.name}", kind, *pair, rule, share=rule)
            for e in partners[m]:
                outer = self.backbone.dim(e.task, e.loop.name, OUTER)
                pair = (b.order(o.order_id, outer.order_id), b.order(m.order_id, e.order_id))
                b.table3(
                    f"absent {m.name}",
                    kind,
                    *pair,
                    truths.twins_merge,
                    share=truths.twins_merge,
                )

    def launches(self) -> None:
        """Launches are an equivalence on tasks whose classes are convex; objects of different launches are not nested."""
        b, v, bodies = self.b, self.v, self.backbone.body_ids
        n = len(bodies)
        for t, u, w in combinations(range(n), 3):
            pairs = (v.fused[t, u], v.fused[u, w], v.fused[t, w])
            b.table3(
                "launches are an equivalence", *pairs, truths.equivalence, share=truths.equivalence
            )
        for t, u in combinations(range(n), 2):
            for x in self.objects_of(t):
                for y in self.objects_of(u):
                    b.table2(
                        "separate launches",
                        v.fused[t, u],
                        b.order(x, y),
                        truths.separate,
                        share=truths.separate,
                    )
            for w in range(n):
                if w in (t, u):
                    continue
                for first, last in ((t, u), (u, t)):
                    b.clause(
                        "launches are convex",
                        [
                            (b.order(bodies[first], bodies[w]), bits(ch.AFTER)),
                            (b.order(bodies[w], bodies[last]), bits(ch.AFTER)),
                            (v.fused[t, u], bits(ch.SEPARATE)),
                            (v.fused[min(t, w), max(t, w)], bits(ch.SAME_LAUNCH)),
                        ],
                    )

    def merged_dims(self) -> None:
        """Merged dims are one loop: of one kind, with tiles of one size; mid dims merge only inside merged outer dims."""
        b, v = self.b, self.v
        for merge in self.backbone.merges:
            a, c = self.levels_of(merge)
            outer = b.order(a[OUTER].order_id, c[OUTER].order_id)
            mid = b.order(a[MID].order_id, c[MID].order_id)
            b.table2("mid merges inside outer", outer, mid, truths.mid_merges_inside_outer)
            b.table3(
                "merged kinds",
                outer,
                v.kind[a[OUTER]],
                v.kind[c[OUTER]],
                truths.merged_equal,
                share=truths.merged_equal,
            )
            self.merged_schedules(outer, a[OUTER], c[OUTER])
            for level in (MID, INNER):
                ua, uc = v.universe[a[level]], v.universe[c[level]]
                same = truths.MergedSizes(ua, uc)
                b.table3(
                    "merged sizes", outer, v.size[a[level]], v.size[c[level]], same, share=same
                )

    def merged_schedules(self, order: int, d: Dim, e: Dim) -> None:
        schedules = [self.v.schedule[x] for x in (d, e) if x in self.v.schedule]
        if len(schedules) == 2:
            same = truths.merged_equal
            self.b.table3("merged schedules", order, schedules[0], schedules[1], same, share=same)
        for var in schedules if len(schedules) == 1 else ():
            apart = (order, bits(*range(4)))
            self.b.clause("merged schedules", [apart, (var, bits(ch.BLOCKED))])

    # --- hardware: threads, register tiles ---

    def parallel_dims(self) -> None:
        """The team is one level of threads: parallel dims are not nested."""
        b, v = self.b, self.v
        outer = [d for d in self.backbone.dims if d.level == OUTER]
        for d, e in combinations(outer, 2):
            order = b.order(d.order_id, e.order_id)
            b.table3(
                "one level of threads",
                v.kind[d],
                v.kind[e],
                order,
                truths.not_nested,
                share=truths.not_nested,
            )
        for d, var in v.schedule.items():
            b.clause(
                "schedule of threads", [(var, bits(ch.BLOCKED)), (v.kind[d], bits(ch.PARALLEL))]
            )
            # Each thread fills and finishes one block of the sums that a team keeps.
            around = [x for x in self.ordered_dims(d.task) if x.loop.is_reduction]
            for x in around if not d.loop.is_reduction else ():
                order = b.order(x.order_id, d.order_id)
                b.clause(
                    "sums in blocks", [(var, bits(ch.BLOCKED)), (order, ~bits(ch.OUTSIDE) & 31)]
                )

    def sizes_and_kinds(self) -> None:
        """A dim of size 1 is absent and no other is; vectors are whole registers; register tiles are bounded."""
        b, v = self.b, self.v
        for t, task in enumerate(self.problem.tasks):
            lanes = self.target.lanes(task.dtype.size_bytes)
            copies = []
            inner = [d for d in self.backbone.dims_of(t) if d.level == INNER]
            for d in self.backbone.dims_of(t):
                if d.level == OUTER:
                    continue
                fits = truths.KindFitsSize(v.universe[d], lanes, self.narrowest(lanes))
                b.table2("size of a kind", v.kind[d], v.size[d], fits, share=fits)
                if d.level == INNER:
                    sizes = v.universe[d]
                    copies.append(Term((v.kind[d], bits(ch.UNROLL)), v.size[d], sizes))
                    vectors = self.vectors_in(sizes, lanes)
                    copies.append(Term((v.kind[d], bits(ch.VECTOR)), v.size[d], vectors))
            if copies:
                b.product_at_most(f"unrolled copies of {task.name}", copies, MAX_UNROLLED_COPIES)
            for d, e in combinations(inner, 2):
                b.table2(
                    "one vector dim",
                    v.kind[d],
                    v.kind[e],
                    truths.one_vector,
                    share=truths.one_vector,
                )

    def narrowest(self, lanes: int) -> int:
        """Elements of the narrowest vectors; a CPU has use for whole registers only."""
        return lanes

    def vectors_in(self, sizes: tuple[int, ...], lanes: int) -> tuple[int, ...]:
        """How many vectors make up a dim, for each of its sizes that can be in vectors."""
        return tuple(-(-s // lanes) for s in sizes)

    def reductions(self) -> None:
        """How a reduction dim is reduced follows its kind, but for unrolled dims: one accumulator, or one a copy."""
        for d, var in self.v.reduction.items():
            rule = truths.outer_reduction if d.level == OUTER else truths.inner_reduction
            self.b.table2("reduction of a kind", self.v.kind[d], var, rule, share=rule)

    # --- semantics: where values are ---

    def memory_spaces(self) -> None:
        """A value stays on chip only between iterations of one thread; in a register only between merged dims."""
        for f, var in self.v.mem_space.items():
            self.register_flow(f, var)
            self.on_chip_flow(f, var)
            if f.is_read:
                self.kept_read(f, var)

    def register_flow(self, f: Flow, var: int) -> None:
        b, v = self.b, self.v
        if not f.is_pointwise:
            return
        written = index_loops(self.problem.tasks[f.producer].target)
        free = [(var, bits(ch.REGISTER))]
        for p, c in ((p, c) for p, c in f.pairs if p in written):
            a, e = self.levels(f.producer, p), self.levels(f.consumer, c)
            for level in (OUTER, MID):
                order = b.order(a[level].order_id, e[level].order_id)
                b.table2(
                    "register flow",
                    var,
                    order,
                    truths.register_merged,
                    share=truths.register_merged,
                )
                free.append((order, bits(*range(4))))
            outer = b.order(a[OUTER].order_id, e[OUTER].order_id)
            b.table3(
                "register tiles agree",
                outer,
                v.kind[a[INNER]],
                v.kind[e[INNER]],
                truths.merged_equal,
                share=truths.merged_equal,
            )
            if not self.same_lanes(f):
                vector = (v.kind[a[INNER]], bits(ch.VECTOR))
                others = (v.kind[a[INNER]], bits(*range(5)) & ~bits(ch.VECTOR))
                b.clause(
                    "registers of one width", [(var, ~bits(ch.REGISTER) & bits(*range(3))), others]
                )
                free.append(vector)
        for d in self.backbone.dims_of(f.producer):
            if d in v.reduction and d.level == OUTER:
                b.table2(
                    "register flow",
                    var,
                    v.reduction[d],
                    truths.register_whole,
                    share=truths.register_whole,
                )
                free.append((v.reduction[d], bits(*truths.SPLIT)))
        mapped = {c for p, c in f.pairs if p in written}
        for d in self.backbone.dims_of(f.consumer):
            if d.level == OUTER and d.loop.name not in mapped:
                free.append((v.kind[d], bits(ch.PARALLEL)))
        free += self.further_reasons(f, var)
        # Dominance: a value that can be handed over in a register is.
        for differ in self.other_threads(f, var):
            b.clause(f"register where possible: {f.name}", [*free, *differ])

    def further_reasons(self, f: Flow, var: int) -> list[tuple[int, int]]:
        """What else forbids a register, as literals: a task that is late finds the values of the next iteration there."""
        return [
            (late, bits(ch.LATE)) for s, late in self.v.shift.items() if s.consumer == f.consumer
        ]

    def other_threads(self, f: Flow, var: int) -> list[list[tuple[int, int]]]:
        """Lists of literals of which one in each must hold where other threads want a value than have it; on a CPU none do."""
        return [[]]

    def same_lanes(self, f: Flow) -> bool:
        """Whether a vector of the producer has as many elements as one of the consumer."""
        tasks = self.problem.tasks
        sizes = (tasks[f.producer].dtype.size_bytes, tasks[f.consumer].dtype.size_bytes)
        return self.target.lanes(sizes[0]) == self.target.lanes(sizes[1])

    def on_chip_flow(self, f: Flow, var: int) -> None:
        b, v = self.b, self.v
        fused = v.fused[min(f.producer, f.consumer), max(f.producer, f.consumer)]
        b.table2(
            "flow on chip", var, fused, truths.on_chip_same_launch, share=truths.on_chip_same_launch
        )
        partners = self.partners()
        for here, there in ((f.producer, f.consumer), (f.consumer, f.producer)):
            for d in self.backbone.dims_of(here):
                if d.level != OUTER:
                    continue
                literals = [
                    (var, bits(ch.GLOBAL)),
                    (v.kind[d], bits(*range(5)) & ~bits(ch.PARALLEL)),
                ]
                own = [e for e in partners[d] if e.task == there]
                literals += [(b.order(d.order_id, e.order_id), bits(ch.MERGED)) for e in own]
                b.clause(f"one thread keeps {f.name}", literals)

    def kept_read(self, f: Flow, var: int) -> None:
        """What one task read and keeps for another is there first, whole, and in whole vectors."""
        b, bodies = self.b, self.backbone.body_ids
        kept = (var, bits(ch.GLOBAL))
        b.clause(
            f"read before {f.name}",
            [kept, (b.order(bodies[f.producer], bodies[f.consumer]), bits(ch.BEFORE))],
        )
        strides = flat_strides(Access(f.array, f.axes), self.array(f.array))
        for name, step in strides.items():
            if step != 1:
                inner = self.v.kind[self.backbone.dim(f.producer, name, INNER)]
                others = bits(*range(5)) & ~bits(ch.VECTOR)
                b.clause(f"contiguous vectors of {f.name}", [kept, (inner, others)])

    def stores(self) -> None:
        """A temporary is written exactly when some reader takes it from memory; only contiguous vectors can stream."""
        b, v = self.b, self.v
        for t, var in v.store.items():
            spaces = [v.mem_space[f] for f in self.backbone.flows if f.producer == t]
            for space in spaces:
                b.table2("elided store", var, space, truths.elided, share=truths.elided)
            b.clause(
                "needless store", [(var, bits(ch.ELIDED)), *((s, bits(ch.GLOBAL)) for s in spaces)]
            )
        for t, var in v.cache.items():
            self.streams(t, var)
            if t in v.store:
                b.table2(
                    "streams are kept",
                    var,
                    v.store[t],
                    truths.stream_kept,
                    share=truths.stream_kept,
                )

    def streams(self, t: int, var: int) -> None:
        """A CPU streams whole vectors only."""
        strides = self.vector_loops(self.problem.tasks[t])
        vectors = [
            (self.v.kind[d], bits(ch.VECTOR))
            for d in self.backbone.dims_of(t)
            if d.level == INNER and d.loop.name in strides
        ]
        self.b.clause("streams are vectors", [(var, bits(ch.CACHED)), *vectors])

    def prefetches(self) -> None:
        """Only whole vectors are asked for ahead: elements would ask for each line many times."""
        for t, var in self.v.prefetch.items():
            vectors = {self.backbone.dim(t, p.along, INNER) for p in self.prefetched(t)}
            kinds = [
                (self.v.kind[d], bits(ch.VECTOR)) for d in sorted(vectors, key=lambda d: d.name)
            ]
            self.b.clause("prefetches are vectors", [(var, bits(ch.NO_PREFETCH)), *kinds])

    def staged_copies(self) -> None:
        """A copy holds the block of one outer tile: outer dims of its loops around all mid dims, some mid dim present.

        It is packed at the head of the innermost of these outer dims, from memory: what the task reads has to be there by then.
        """
        b, v = self.b, self.v
        for o, var in v.staged.items():
            loops = [self.levels(o.task, name) for name in o.loops]
            for x in loops:
                for y in loops:
                    if x is not y:
                        order = b.order(x[OUTER].order_id, y[MID].order_id)
                        b.table2(
                            "block of a copy",
                            var,
                            order,
                            truths.copy_outside,
                            share=truths.copy_outside,
                        )
            present = [(v.kind[x[MID]], bits(ch.LOOP)) for x in loops]
            b.clause("copy of a block", [(var, bits(ch.DIRECT)), *present])
            for f, space in v.mem_space.items():
                ends = (f.producer, f.consumer) if f.is_read else (f.consumer,)
                if o.task in ends and f.array == o.access.array:
                    if not f.is_read:
                        body = self.backbone.body_ids[f.producer]
                        done = [(b.order(body, x[OUTER].order_id), bits(ch.BEFORE)) for x in loops]
                        b.clause("copy of finished values", [(var, bits(ch.DIRECT)), *done])
                    b.table2(
                        "copy from memory",
                        var,
                        space,
                        truths.copy_of_memory,
                        share=truths.copy_of_memory,
                    )
            element = self.array(o.access.array).dtype.size_bytes
            terms = [
                Term((var, bits(ch.COPY)), v.size[x[level]], v.universe[x[level]])
                for x in loops
                for level in (MID, INNER)
            ]
            b.product_at_most(
                f"copy of {o.name} in cache", terms, max(1, self.target.last_cache_bytes // element)
            )

    # --- semantics: loop shifting ---

    def shifts(self) -> None:
        """A late task runs inside the loop of its producer, one iteration of their shared loop behind it, on the same thread.

        In each of its iterations it comes first, so what that iteration of the shared loop writes over is still what it
        wants: rows of a panel that its producer's loop fills row by row, and whatever is written after that loop.
        """
        for s, var in self.v.shift.items():
            self.late_loops(s, var)
            self.late_neighbours(s, var)
            self.late_values(s, var)

    def late_loops(self, s: Shift, var: int) -> None:
        b, v = self.b, self.v
        in_step = (var, bits(ch.IN_STEP))
        shared = [
            self.levels(t, x) for t, x in zip((s.producer, s.consumer), s.shared, strict=True)
        ]
        inside = [
            self.levels(t, x) for t, x in zip((s.producer, s.consumer), s.inside, strict=True)
        ]

        def related(d: Dim, e: Dim, value: int) -> tuple[int, int]:
            return b.order(d.order_id, e.order_id), bits(value)

        b.clause(
            "late in one loop", [in_step, related(shared[0][OUTER], shared[1][OUTER], ch.MERGED)]
        )
        b.clause("late on one thread", [in_step, (v.kind[shared[0][OUTER]], bits(ch.PARALLEL))])
        for x, y in zip(shared, inside, strict=True):
            b.clause("late loops are nested", [in_step, related(x[OUTER], y[OUTER], ch.OUTSIDE)])
            b.clause("late in every tile", [in_step, (v.kind[y[MID]], bits(ch.ABSENT))])
            absent = (v.kind[x[MID]], bits(ch.ABSENT))
            between = related(x[MID], y[OUTER], ch.INSIDE)
            b.clause("late loops touch", [in_step, absent, between])
        a, c = inside[0][INNER], inside[1][INNER]
        b.table3(
            "late tiles agree",
            var,
            v.size[a],
            v.size[c],
            truths.LateSizes(v.universe[a], v.universe[c]),
        )

    def late_neighbours(self, s: Shift, var: int) -> None:
        """Nothing else is in the loop that moves, and nothing is packed for it."""
        in_step = (var, bits(ch.IN_STEP))
        moved = self.levels(s.consumer, s.inside[1])[OUTER]
        for e in self.partners()[moved]:
            order = self.b.order(moved.order_id, e.order_id)
            self.b.clause("late alone", [in_step, (order, bits(*range(4)))])
        for o, staged in self.v.staged.items():
            if o.task == s.consumer:
                self.b.clause("late from where it is", [in_step, (staged, bits(ch.DIRECT))])

    def late_values(self, s: Shift, var: int) -> None:
        """What a thread keeps for a late task is filled row by row in the loop that the task runs in, or after that loop."""
        in_step = (var, bits(ch.IN_STEP))
        for f, space in self.v.mem_space.items():
            if s.consumer not in (f.producer, f.consumer):
                continue
            allowed = bits(ch.GLOBAL)
            if f.consumer == s.consumer and self.is_row_by_row(s, f):
                allowed |= bits(ch.SHARED)
            self.b.clause(f"late values of {f.name}", [in_step, (space, allowed)])
            mapped = {c: p for p, c in f.pairs}
            if allowed & bits(ch.SHARED) and f.producer != s.producer:
                filled = self.backbone.dim(f.producer, mapped[s.inside[1]], OUTER)
                runs = self.backbone.dim(s.producer, s.inside[0], OUTER)
                together = (self.b.order(filled.order_id, runs.order_id), bits(ch.MERGED))
                self.b.clause(
                    f"late rows of {f.name}",
                    [in_step, (space, bits(ch.REGISTER, ch.GLOBAL)), together],
                )

    @staticmethod
    def is_row_by_row(s: Shift, f: Flow) -> bool:
        """Whether a flow's rows are the iterations of the loop that a late task runs in, or its values are finished after it."""
        if f.producer == s.producer and not f.is_read:
            return True
        row = {c: p for p, c in f.pairs}.get(s.inside[1])
        return row is not None and (f.producer != s.producer or row == s.inside[0])

    # --- look-ups ---

    def ordered_dims(self, t: int) -> list[Dim]:
        return [d for d in self.backbone.dims_of(t) if d.order_id >= 0]

    def objects_of(self, t: int) -> list[int]:
        return [d.order_id for d in self.ordered_dims(t)] + [self.backbone.body_ids[t]]

    def levels(self, task: int, loop: str) -> tuple[Dim, Dim, Dim]:
        dim = self.backbone.dim
        return dim(task, loop, OUTER), dim(task, loop, MID), dim(task, loop, INNER)

    def levels_of(self, m: Merge) -> tuple[tuple[Dim, Dim, Dim], tuple[Dim, Dim, Dim]]:
        return self.levels(m.a, m.loop_a), self.levels(m.b, m.loop_b)

    def partners(self) -> dict[Dim, list[Dim]]:
        """Dims of other tasks that a dim may merge with."""
        found: dict[Dim, list[Dim]] = {d: [] for d in self.backbone.dims}
        for merge in self.backbone.merges:
            for d, e in zip(*self.levels_of(merge), strict=True):
                if d.order_id >= 0:
                    found[d].append(e)
                    found[e].append(d)
        return found


def _own_axis(accesses: list[tuple[Affine | None, ...]], loop: str) -> bool:
    """True when some axis of all accesses is the same multiple of `loop` alone: each iteration has its own elements."""
    return any(
        axis is not None
        and len(axis.terms) == 1
        and axis.terms[0][0] == loop
        and all(a[k] == axis for a in accesses)
        for k, axis in enumerate(accesses[0])
    )
