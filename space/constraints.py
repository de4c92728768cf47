"""The space of a problem on a target: the constraints between its choices, in the order of ARCHITECTURE.md.

Every constraint is declared once, as a predicate over values or a disjunction over domains. The predicate is the truth; the
filters are derived from it (space/model.py), and so is the CP-SAT model (space/cpsat.py). Each block says what it states:
coherence (the order algebra and canonical forms), semantics (what may not change the result) or hardware (what the target has).
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations, product

from ..kernels.accesses import flat_strides
from ..kernels.tasks import Access, Problem
from . import choices as ch
from . import truths
from .backbone import (
    INNER,
    MID,
    OUTER,
    Dim,
    Flow,
    Operand,
    Shift,
    index_loops,
)
from .candidate import Space
from .model import Term
from .offers import NOT_BY_TEAM, ChoiceBuilder, bits
from .target import Target

# Values of `staged` on a CPU, for clauses.
_COPIED = bits(ch.COPY, ch.TWO_STAGES, ch.TEAM_COPY)
_NOT_AHEAD = bits(ch.DIRECT, ch.COPY, ch.TEAM_COPY)

MAX_UNROLLED_COPIES = 64  # of one task's body: more only costs compile time and instruction cache


def build_space(problem: Problem, target: Target, register_room: int = 1) -> Space:
    """The space of all implementations of `problem` on `target`.

    On a GPU, registers may be counted `register_room` times: one of REGISTER_ROOMS of space/gpu_resources.py.
    """
    if target.is_gpu:
        from .gpu import GpuSpaceBuilder  # built on this module

        builder = GpuSpaceBuilder(problem, target)
        builder.register_room = register_room
        return builder.build()
    return SpaceBuilder(problem, target).build()


@lru_cache(maxsize=4)
def widened(space: Space, register_room: int) -> Space:
    """The same space of a GPU with another limit for the registers counted: choices and their positions are the same."""
    return build_space(space.problem, space.target, register_room)


class SpaceBuilder(ChoiceBuilder):
    """Declares the space of a CPU; space/gpu.py says what is different on a GPU."""

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
        # In a loop that they share otherwise, the reader would want rows that have yet to be read.
        for m in self.backbone.merges:
            if (m.a, m.b) == (f.producer, f.consumer) and (m.loop_a, m.loop_b) not in f.pairs:
                outer = [d[OUTER].order_id for d in self.levels_of(m)]
                b.clause(f"whole {f.name}", [kept, (b.order(*outer), bits(*range(4)))])
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
        """Only vectors of what is read where it lies are asked for ahead: elements would ask for each line many times, and what is
        packed, or kept by a task before, is in a cache.
        """
        unpacked = {
            (o.task, o.access.array): (x, bits(ch.DIRECT)) for o, x in self.v.staged.items()
        }
        unkept = {
            (f.consumer, f.array): (x, bits(ch.GLOBAL))
            for f, x in self.v.mem_space.items()
            if f.is_read
        }
        for t, var in self.v.prefetch.items():
            # What each read needs; one of them needs to have it all, so that of each some part is there.
            needs = []
            for p in self.prefetched(t):
                vector = (self.v.kind[self.backbone.dim(t, p.along, INNER)], bits(ch.VECTOR))
                key = (t, p.access.array)
                needs.append([vector, *(x[key] for x in (unpacked, unkept) if key in x)])
            for parts in product(*needs):
                never = (var, bits(ch.NO_PREFETCH))
                self.b.clause("prefetches are vectors", [never, *dict.fromkeys(parts)])

    def staged_copies(self) -> None:
        """A copy holds the block of one outer tile: outer dims of its loops around all mid dims, some mid dim present.

        It is packed at the head of the innermost of these outer dims, from memory: what the task reads has to be there by then.
        The next block is packed ahead where that dim is a loop that each thread runs for itself, and by all threads together where
        it is one that they run in step.
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
            self.packed_ahead(o, var)
            self.packed_by_team(o, var)
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
                Term((var, _COPIED), v.size[x[level]], v.universe[x[level]])
                for x in loops
                for level in (MID, INNER)
            ]
            terms.append(Term(None, var, (1, 1, 2, 1)))
            b.product_at_most(
                f"copy of {o.name} in cache", terms, max(1, self.target.last_cache_bytes // element)
            )

    def packed_ahead(self, o: Operand, staged: int) -> None:
        """Threads are around the loop from block to block, and a slice is of one register tile along one of two loops."""
        b, v = self.b, self.v
        if len(o.loops) != 2:
            b.restrict(staged, bits(ch.DIRECT, ch.COPY, ch.TEAM_COPY))
            return
        blocks = [self.levels(o.task, name)[OUTER] for name in o.loops]
        for loop in self.problem.tasks[o.task].loops:
            outer = self.levels(o.task, loop.name)[OUTER]
            around = [
                (b.order(outer.order_id, x.order_id), bits(ch.OUTSIDE))
                for x in blocks
                if x is not outer
            ]
            unshared = (v.kind[outer], bits(ch.LOOP))
            b.clause("packed ahead", [(staged, _NOT_AHEAD), unshared, *around])

    def packed_by_team(self, o: Operand, staged: int) -> None:
        """All threads come to the place where a block is packed, as often as one another, and a loop inside of it is shared out."""
        b, v = self.b, self.v
        blocks = [self.levels(o.task, name)[OUTER] for name in o.loops]
        outer = [self.levels(o.task, loop.name)[OUTER] for loop in self.problem.tasks[o.task].loops]
        b.clause(
            "packed by a team",
            [(staged, NOT_BY_TEAM), *((v.kind[d], bits(ch.PARALLEL)) for d in outer)],
        )
        for d in outer:
            in_step = [(staged, NOT_BY_TEAM), (v.kind[d], bits(ch.LOOP))]
            if d in blocks:
                b.clause("packed in step", in_step)
                continue
            for x in blocks:
                inside = (b.order(d.order_id, x.order_id), bits(ch.INSIDE))
                b.clause("packed in step", [*in_step, inside])

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
