"""The space of a problem on a target: the constraints between its choices, in the order of ARCHITECTURE.md.

Every constraint is declared once, as a predicate over values or a disjunction over domains. The predicate is the truth; the
filters are derived from it (space/engine/model.py), and so is the CP-SAT model (space/engine/cpsat.py).
Each block says what it states: coherence (the order algebra and canonical forms), semantics (what may not change the result) or
hardware (what the target has).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations, product

from ..kernels.ir.access import Access, flat_strides
from ..kernels.ir.task import Problem
from . import choices as ch
from . import truths
from .backbone import (
    INNER,
    MID,
    OUTER,
    Dim,
    Flow,
    index_loops,
)
from .copies import CopyConstraints
from .engine.candidate import Space
from .engine.model import Term
from .offers import bits
from .shifts import ShiftConstraints
from .targets.target import Target

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


class SpaceBuilder(CopyConstraints, ShiftConstraints):
    """Declares the space of a CPU; space/gpu.py says what is different on a GPU."""

    def build(self) -> Space:
        self.declare_objects()
        self.declare_choices()
        self.order_within_tasks()
        self.order_between_tasks()
        self.absent_dims()
        self.launches()
        self.merged_dims()
        self.sums_together()
        self.parallel_dims()
        self.sizes_and_kinds()
        self.whole_loops()
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
        for t, u in self.backbone.launch_pairs():
            b.restrict(b.order(bodies[t], bodies[u]), bits(ch.BEFORE, ch.AFTER))
        for dep in self.backbone.dependences:
            if self.backbone.may_share_launch(dep.source, dep.sink):
                b.restrict(b.order(bodies[dep.source], bodies[dep.sink]), bits(ch.BEFORE))
        partners = self.backbone.partners
        for d in self.backbone.dims:
            if d.order_id < 0:
                continue
            for e in self.near_dims(d.task):
                if e.task > d.task and e not in partners[d]:
                    b.restrict(b.order(d.order_id, e.order_id), bits(*range(4)))
            for t in self.backbone.neighbours[d.task]:
                if t != d.task:
                    body = bodies[t]
                    own = [e for e in partners[d] if e.task == t]
                    literals = [(b.order(d.order_id, body), bits(*range(5)) & ~bits(ch.OUTSIDE))]
                    literals += [(b.order(d.order_id, e.order_id), bits(ch.MERGED)) for e in own]
                    b.clause(f"no foreign body in {d.name}", literals)

    def absent_dims(self) -> None:
        """A mid dim without a loop has one canonical place, just inside its outer dim, so equal loop trees are equal vectors."""
        b = self.b
        partners = self.backbone.partners
        for m in self.backbone.dims:
            if m.level != MID:
                continue
            o = self.backbone.dim(m.task, m.loop.name, OUTER)
            kind = self.v.kind[m]
            twins = {e.order_id for e in partners[m]}
            for x in self.near_objects(m.task):
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
        b, v = self.b, self.v
        same = truths.equivalence
        for t, near in enumerate(self.backbone.neighbours):
            for u, w in combinations((x for x in near if x > t), 2):
                if self.backbone.may_share_launch(u, w):
                    pairs = (v.fused[t, u], v.fused[u, w], v.fused[t, w])
                    b.table3("launches are an equivalence", *pairs, same, share=same)
        for t, u in self.backbone.launch_pairs():
            for w in self.backbone.neighbours[u]:
                if w > u and not self.backbone.may_share_launch(t, w):
                    apart = [(v.fused[pair], bits(ch.SEPARATE)) for pair in ((t, u), (u, w))]
                    b.clause("launches are short", apart)
        for t, u in self.backbone.launch_pairs():
            for x in self.objects_of(t):
                for y in self.objects_of(u):
                    b.table2(
                        "separate launches",
                        v.fused[t, u],
                        b.order(x, y),
                        truths.separate,
                        share=truths.separate,
                    )
            first, last = self.backbone.neighbours[t].start, self.backbone.neighbours[u].stop
            for w in range(first, last):
                if w not in (t, u):
                    self.convex(t, u, w)

    def convex(self, t: int, u: int, w: int) -> None:
        """What is between two tasks of a launch is in that launch."""
        bodies, fused = self.backbone.body_ids, self.v.fused
        both = (min(t, w), max(t, w))
        shared = [(fused[both], bits(ch.SAME_LAUNCH))] if both in fused else []
        for first, last in ((t, u), (u, t)):
            outside = []
            for x, y in ((first, w), (w, last)):
                if self.backbone.may_share_launch(x, y):
                    outside.append((self.b.order(bodies[x], bodies[y]), bits(ch.AFTER)))
                elif x > y:  # in the order of the program: never between
                    break
            else:
                apart = (fused[t, u], bits(ch.SEPARATE))
                self.b.clause("launches are convex", [*outside, apart, *shared])

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

    def sums_together(self) -> None:
        """Tasks that share what they sum over, of which one needs the other's results to finish its own, keep all sums of a tile of
        results in registers: then those of the tile are finished one after the other, behind the loop.
        """
        for m in (m for m in self.backbone.merges if m.before_finish):
            a, c = self.levels_of(m)
            apart = (self.b.order(a[OUTER].order_id, c[OUTER].order_id), bits(*range(4)))
            rule = "sums in one loop are in registers"
            for f in (f for f in self.backbone.flows if (f.producer, f.consumer) == (m.a, m.b)):
                self.b.clause(rule, [apart, (self.v.mem_space[f], bits(ch.REGISTER))])
            for t in (m.a, m.b):
                for d, e in product(self.ordered_dims(t), repeat=2):
                    if e.loop.is_reduction and not d.loop.is_reduction:
                        around = (self.b.order(d.order_id, e.order_id), bits(ch.OUTSIDE))
                        self.b.clause(rule, [apart, around])

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
        outer = [[d for d in self.ordered_dims(t) if d.level == OUTER] for t in range(self.n_tasks)]
        for d, e in self.near_pairs(outer):
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

    def near_pairs(self, dims: list[list[Dim]]) -> Iterator[tuple[Dim, Dim]]:
        """Pairs of these dims ([n_tasks]), of one task or of two that may share a launch."""
        for t, near in enumerate(self.backbone.neighbours):
            later = [e for u in near if u > t for e in dims[u]]
            for k, d in enumerate(dims[t]):
                yield from ((d, e) for e in (*dims[t][k + 1 :], *later))

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

    def whole_loops(self) -> None:
        """Dominance: of the tiles that hold a whole loop only the smallest of each register tile. Larger ones are the same code
        with more room.
        """
        v = self.v
        for mid in (d for d in self.backbone.dims if d.level == MID):
            inner = self.backbone.dim(mid.task, mid.loop.name, INNER)
            fits = truths.SmallestCover(mid.loop.extent, v.universe[mid], v.universe[inner])
            self.b.table2(
                "smallest tile that holds the loop", v.size[mid], v.size[inner], fits, share=fits
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
        if not f.is_pointwise or not self.backbone.may_share_launch(f.producer, f.consumer):
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
        if not self.backbone.may_share_launch(f.producer, f.consumer):
            return
        fused = v.fused[min(f.producer, f.consumer), max(f.producer, f.consumer)]
        b.table2(
            "flow on chip", var, fused, truths.on_chip_same_launch, share=truths.on_chip_same_launch
        )
        partners = self.backbone.partners
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

    def sums_pass_by(self, t: int, never: tuple[int, int]) -> None:
        """Sums are in memory where a loop of the result is inside one of what is summed, and go through registers where one of
        these is inside all loops of the result. A mid dim without a loop is where its outer dim is.
        """
        dims = {
            level: [d for d in self.backbone.dims_of(t) if d.level == level]
            for level in (OUTER, MID)
        }
        free = [d for d in dims[MID] if not d.loop.is_reduction]
        around = [d for d in dims[OUTER] if d.loop.is_reduction]
        inside = [d for d in dims[MID] if d.loop.is_reduction]
        for pairs in (product(around, free), *(product([f], inside) for f in free)):
            orders = [self.b.order(d.order_id, e.order_id) for d, e in pairs]
            self.b.clause("sums in memory", [never, *((x, bits(ch.OUTSIDE)) for x in orders)])

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
        for t, var in self.v.sums.items():
            self.sums_pass_by(t, (var, bits(ch.NO_SUMS_AHEAD)))
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
