"""What is different in the space of a GPU: a launch is one grid of blocks, and threads lie inside the tiles.

Outer dims are shared out to blocks or run as loops by all threads of a block; mid dims are loops, or shared out to threads. All
tasks of a launch have the same grid, so a value that passes from one to the other stays inside a block, where barriers order it;
what crosses blocks takes another launch. Sums are kept in registers: no loop over results runs inside a loop over what is summed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from math import prod
from typing import ClassVar

from ..kernels.ir.effects import task_reads
from ..kernels.ir.task import Task
from ..kernels.ir.walk import loads
from ..kernels.program.dependence import Dependence
from . import choices as ch
from . import gpu_truths, truths
from .backbone import INNER, MID, OUTER, Dim, Flow, Operand, index_loops, written_arrays
from .engine.model import Term
from .gpu_resources import BlockResources
from .offers import bits
from .targets.gpu_facts import ATOMIC_OPERATIONS, adds_to_result, row_order, start_of

MAX_BLOCK_DIMS = 3
MAX_BLOCKS_PER_DIM = 65535  # of a grid's second and third dim
MAX_BLOCKS_ALONE = 1 << 20  # where a task has one loop, and a grid one dim
MAX_PARTIAL_BYTES = 1 << 28  # of one reduction's partial results in memory
_ANY_KIND = (1 << len(ch.GPU_DIM_KIND)) - 1
_ANY_LEVEL = (1 << len(ch.THREAD_LEVEL)) - 1
_ANY_SPACE = (1 << len(ch.MEM_SPACE)) - 1
_ANY_HINT = (1 << len(ch.LOAD_CACHE)) - 1
_ANY_REDUCTION = (1 << len(ch.GPU_REDUCTION)) - 1


class GpuSpaceBuilder(BlockResources):
    """Declares the space of a GPU."""

    dim_kinds: tuple[str, ...] = ch.GPU_DIM_KIND
    staged = ch.GPU_STAGED
    reduction = ch.GPU_REDUCTION
    has_layouts = True
    shared_reductions: ClassVar[Mapping[int, int]] = {
        OUTER: ch.PARTIALS,
        MID: ch.TREE,
        INNER: ch.LANES,
    }

    # --- one dim alone ---

    def is_beyond_own_cache(self, array: str) -> bool:
        """Never, as far as it matters here: a block has no cache of its own in which prefetches or what it keeps could wait."""
        return False

    def kinds_of(self, d: Dim) -> int:
        task = self.problem.tasks[d.task]
        kinds = super().kinds_of(d)
        if d.level == MID and d.loop.extent > 1 and self.is_parallel(task, d):
            kinds |= bits(ch.THREAD)
        return kinds

    @property
    def mid_sizes(self) -> tuple[int, ...]:
        return ch.GPU_MID_SIZES

    def sizes_of(self, d: Dim) -> tuple[int, ...]:
        task = self.problem.tasks[d.task]
        if d.level == MID and not task.is_structured and self.is_parallel(task, d):
            return tuple(s for s in self.mid_sizes if s == 1 or s <= d.loop.extent)
        return super().sizes_of(d)

    def thread_pairs(self) -> list[tuple[Dim, Dim]]:
        found = []
        for t in range(len(self.problem.tasks)):
            mids = [d for d in self.backbone.dims_of(t) if d.level == MID]
            able = [d for d in mids if self.kinds_of(d) >> ch.THREAD & 1]
            found += list(combinations(able, 2))
        return found

    def reductions_of(self, d: Dim) -> int:
        """Blocks can add to one result, or find its least or greatest; products they cannot."""
        op = self.problem.tasks[d.task].op
        atomic = {ch.ATOMIC} if d.level == OUTER and op in ATOMIC_OPERATIONS else set()
        return super().reductions_of(d) | bits(*atomic)

    def may_ask_for_sums(self, task: Task) -> bool:
        """A multiprocessor hides what memory takes behind other threads."""
        return False

    def may_stage(self, o: Operand) -> bool:
        """Threads along the loop that a vector does not go along read the same of it: one of them can for all."""
        return True

    def stagings(self) -> int:
        return bits(*range(len(ch.GPU_STAGED) if self.target.copies_asynchronously else 2))

    def may_stream(self, task: Task) -> bool:
        return task.is_structured

    def hinted_loads(self, task: Task) -> list[str]:
        """Arrays of which a task reads more than one element."""
        if not task.is_structured:
            return []
        return list(dict.fromkeys(a.array for a, _ in task_reads(task) if index_loops(a)))

    # --- coherence and hardware: blocks and threads ---

    def launches(self) -> None:
        """Besides the rules for all machines: the tasks of a launch have one grid."""
        super().launches()
        b, v, partners = self.b, self.v, self.backbone.partners
        for t, u in self.backbone.launch_pairs():
            for here, there in ((t, u), (u, t)):
                for d in self.backbone.dims_of(here):
                    if d.level == OUTER:
                        own = [e for e in partners[d] if e.task == there]
                        merged = [(b.order(d.order_id, e.order_id), bits(ch.MERGED)) for e in own]
                        literals = [
                            (v.fused[t, u], bits(ch.SEPARATE)),
                            (v.kind[d], _ANY_KIND & ~bits(ch.BLOCK)),
                            *merged,
                        ]
                        b.clause("one grid a launch", literals)

    def merged_dims(self) -> None:
        """Besides the rules for all machines: loops that are merged are shared out to threads together."""
        super().merged_dims()
        b, v = self.b, self.v
        for merge in self.backbone.merges:
            a, c = self.levels_of(merge)
            outer = b.order(a[OUTER].order_id, c[OUTER].order_id)
            rule = truths.merged_equal
            b.table3("merged kinds", outer, v.kind[a[MID]], v.kind[c[MID]], rule, share=rule)

    def parallel_dims(self) -> None:
        """Blocks are around everything else, as many as a grid may have; what they sum up, they combine in one way."""
        b, v = self.b, self.v
        for t, task in enumerate(self.problem.tasks):
            ordered = self.ordered_dims(t)
            outer = [d for d in ordered if d.level == OUTER]
            for d in outer:
                for e in ordered:
                    if e.loop != d.loop:
                        rule = gpu_truths.blocks_outermost
                        order = b.order(d.order_id, e.order_id)
                        b.table3("blocks outermost", v.kind[d], v.kind[e], order, rule, share=rule)
                self.grid_of(d)
            is_block = tuple(int(k == ch.BLOCK) for k in range(len(ch.GPU_DIM_KIND)))
            if len(outer) > MAX_BLOCK_DIMS:
                terms = [Term(None, v.kind[d], is_block) for d in outer]
                b.sum_at_most(f"dims of the grid of {task.name}", terms, MAX_BLOCK_DIMS)
            self.block_reductions(t)
            self.results_outside(t)

    def block_reductions(self, t: int) -> None:
        """Blocks along several reduced loops combine in one way, and leave no more partial results than there is room for."""
        b, v = self.b, self.v
        outer = [d for d in self.backbone.dims_of(t) if d.level == OUTER and d in v.reduction]
        for d, e in combinations(outer, 2):
            rule = gpu_truths.combined_alike
            b.table2("one way over blocks", v.reduction[d], v.reduction[e], rule, share=rule)
        if len(outer) > 1:
            # A counter cannot divide by both sizes of a tile: it takes inner dims for absent, and errs on the side of memory.
            terms = []
            for d in outer:
                mid = self.levels(t, d.loop.name)[1]
                tiles = tuple(-(-d.loop.extent // n) for n in v.universe[mid])
                terms.append(Term((v.reduction[d], bits(ch.PARTIALS)), v.size[mid], tiles))
            name = self.problem.tasks[t].name
            b.product_at_most(f"all partial results of {name}", terms, self.most_partials(t))

    def most_partials(self, t: int) -> int:
        """Partial results that blocks may leave of each result of a task."""
        task = self.problem.tasks[t]
        results = prod(loop.extent for loop in task.loops if not loop.is_reduction)
        return max(1, MAX_PARTIAL_BYTES // (results * task.dtype.size_bytes))

    def grid_of(self, d: Dim) -> None:
        v, task = self.v, self.problem.tasks[d.task]
        limit = MAX_BLOCKS_ALONE if len(task.loops) == 1 else MAX_BLOCKS_PER_DIM
        _, mid, inner = self.levels(d.task, d.loop.name)
        sizes = (v.size[mid], v.size[inner])
        tiles = (d.loop.extent, v.universe[mid], v.universe[inner])
        fits = gpu_truths.GridFits(*tiles, limit, ch.BLOCK)
        self.b.table3("size of the grid", v.kind[d], *sizes, fits, share=fits)
        if d.loop.is_reduction:
            fits = gpu_truths.GridFits(*tiles, self.most_partials(d.task), ch.PARTIALS)
            self.b.table3("partial results", v.reduction[d], *sizes, fits, share=fits)

    def results_outside(self, t: int) -> None:
        b, v = self.b, self.v
        dims = self.ordered_dims(t)
        for f in (d for d in dims if not d.loop.is_reduction):
            for r in (d for d in dims if d.loop.is_reduction):
                rule = gpu_truths.results_outside
                order = b.order(f.order_id, r.order_id)
                b.table3("sums in registers", v.kind[f], v.kind[r], order, rule, share=rule)

    def sizes_and_kinds(self) -> None:
        """Besides the rules for all machines: a block has so many threads at most."""
        super().sizes_and_kinds()
        v = self.v
        for t, task in enumerate(self.problem.tasks):
            mids = [d for d in self.backbone.dims_of(t) if d.level == MID]
            terms = [Term((v.kind[d], bits(ch.THREAD)), v.size[d], v.universe[d]) for d in mids]
            if terms:
                limit = self.target.max_threads_per_block
                self.b.product_at_most(f"threads of {task.name}", terms, limit)
            self.registers(t, terms)
            self.third_axis(mids)
        for (d, e), var in v.thread_level.items():
            rule = gpu_truths.levels_of_threads
            self.b.table3("levels of threads", v.kind[d], v.kind[e], var, rule, share=rule)
            for f in (x for (y, x) in v.thread_level if y == e):
                levels = (var, v.thread_level[e, f], v.thread_level[d, f])
                order = gpu_truths.order_of_threads
                self.b.table3("order of threads", *levels, order, share=order)

    def whole_loops(self) -> None:
        """Nothing: tasks in one launch have blocks of as many threads, though the loop of one may be shorter."""

    def third_axis(self, mids: list[Dim]) -> None:
        """Of three loops of a task that are shared out to threads, the one that varies most slowly is along z of its blocks.

        With more than three there is no z: the threads are then counted in one number (`codegen/passes/map_grid.py`).
        """
        v, most = self.v, self.target.max_threads_along_z
        able = [d for d in mids if self.kinds_of(d) >> ch.THREAD & 1]
        for d in (d for d in able if max(v.universe[d]) > most):
            fits = bits(*(k for k, n in enumerate(v.universe[d]) if n <= most))
            for faster in combinations([e for e in able if e != d], 2):
                literals = [(v.size[d], fits)]
                for e in faster:
                    var, slower = self.level_between(d, e)
                    literals.append((var, _ANY_LEVEL & ~bits(slower)))
                rest = [f for f in able if f != d and f not in faster]
                literals += [(v.kind[f], bits(ch.THREAD)) for f in rest]
                self.b.clause("threads along z", literals)

    def level_between(self, d: Dim, e: Dim) -> tuple[int, int]:
        """The choice of which of two dims' threads vary faster, and its value where those of `d` are the slower ones."""
        if (d, e) in self.v.thread_level:
            return self.v.thread_level[d, e], ch.SLOWER
        return self.v.thread_level[e, d], ch.FASTER

    def narrowest(self, lanes: int) -> int:
        return min(2, lanes)

    def vectors_in(self, sizes: tuple[int, ...], lanes: int) -> tuple[int, ...]:
        return tuple(n // truths.vector_width(n, lanes) for n in sizes)

    def reductions(self) -> None:
        """Threads reduce in a tree; what blocks sum up together is whole when their launch ends, so nothing in it can follow."""
        b, v = self.b, self.v
        by_level = {
            OUTER: truths.outer_reduction,
            MID: gpu_truths.tree_of_threads,
            INNER: truths.inner_reduction,
        }
        for d, var in v.reduction.items():
            rule = by_level[d.level]
            b.table2("reduction of a kind", v.kind[d], var, rule, share=rule)
            if d.level != OUTER:
                continue
            whole = (var, _ANY_REDUCTION & ~bits(*truths.SPLIT))
            for dep in self.backbone.dependences:
                if not self.backbone.may_share_launch(dep.source, dep.sink):
                    continue
                if dep.source == d.task:
                    separate = (v.fused[dep.source, dep.sink], bits(ch.SEPARATE))
                    b.clause("partial results end a launch", [whole, separate])
                elif dep.sink == d.task:
                    self.set_before(dep, var)
            late = {a.array for a, in_finish in task_reads(self.problem.tasks[d.task]) if in_finish}
            for f, space in v.mem_space.items():
                if f.consumer == d.task and f.array in late:
                    b.clause("the second launch reads memory", [whole, (space, bits(ch.GLOBAL))])

    def set_before(self, dep: Dependence, var: int) -> None:
        """What blocks add to is set before their launch, which touches it in no other way; nor does it write what it is set to."""
        task = self.problem.tasks[dep.sink]
        start = start_of(task)
        touched = {task.target.array, *({x.array for x in loads(start)} if start else ())}
        if adds_to_result(self.problem, task) and dep.array in touched:
            separate = (self.v.fused[dep.source, dep.sink], bits(ch.SEPARATE))
            one = (var, _ANY_REDUCTION & ~bits(ch.ATOMIC))
            self.b.clause("a result is set before its launch", [one, separate])

    # --- semantics: where values are ---

    def further_reasons(self, f: Flow, var: int) -> list[tuple[int, int]]:
        """A register belongs to one thread: every dim that is shared out to threads has to be merged."""
        written = index_loops(self.problem.tasks[f.producer].target)
        pairs = [(p, c) for p, c in f.pairs if p in written]
        reasons = []
        for task, mapped in (
            (f.producer, {p for p, _ in pairs}),
            (f.consumer, {c for _, c in pairs}),
        ):
            for d in self.backbone.dims_of(task):
                if d.level == MID and d.loop.name not in mapped:
                    literals = [
                        (var, _ANY_SPACE & ~bits(ch.REGISTER)),
                        (self.v.kind[d], _ANY_KIND & ~bits(ch.THREAD)),
                    ]
                    self.b.clause("registers of one thread", literals)
                    reasons.append((self.v.kind[d], bits(ch.THREAD)))
        return reasons

    def other_threads(self, f: Flow, var: int) -> list[list[tuple[int, int]]]:
        """The numbers of threads in a register's dims follow one order in both tasks, or the value is in no register."""
        b = self.b
        reasons: list[list[tuple[int, int]]] = [[]]
        for here, there, is_turned in self.levels_of_flow(f):
            rule = gpu_truths.same_threads_turned if is_turned else gpu_truths.same_threads
            b.table3("one order of threads", var, here, there, rule, share=rule)
            differ = []
            for level in range(len(ch.THREAD_LEVEL)):
                other = gpu_truths.opposite(level) if is_turned else level
                differ.append(
                    [(here, _ANY_LEVEL & ~bits(level)), (there, _ANY_LEVEL & ~bits(other))]
                )
            reasons = [[*found, *literals] for found in reasons for literals in differ]
        return reasons

    def levels_of_flow(self, f: Flow) -> Iterator[tuple[int, int, bool]]:
        """For two loops that index a value, their level in the producer and in the consumer, and whether that is turned round."""
        written = index_loops(self.problem.tasks[f.producer].target)
        pairs = [(p, c) for p, c in f.pairs if p in written]
        for (p, c), (q, d) in combinations(pairs, 2):
            ends = []
            for task, x, y in ((f.producer, p, q), (f.consumer, c, d)):
                a, b = self.levels(task, x)[MID], self.levels(task, y)[MID]
                is_turned = (b, a) in self.v.thread_level
                ends.append((self.v.thread_level.get((b, a) if is_turned else (a, b)), is_turned))
            (here, turned_here), (there, turned_there) = ends
            if here is not None and there is not None:
                yield here, there, turned_here != turned_there

    def on_chip_flow(self, f: Flow, var: int) -> None:
        """What a block keeps in shared memory is the value of one tile, or small as a whole."""
        b, v = self.b, self.v
        if not self.backbone.may_share_launch(f.producer, f.consumer):
            return
        fused = v.fused[min(f.producer, f.consumer), max(f.producer, f.consumer)]
        rule = truths.on_chip_same_launch
        b.table2("flow on chip", var, fused, rule, share=rule)
        task = self.problem.tasks[f.producer]
        if not task.is_structured or self.is_small(f.producer):
            return
        direct = (var, _ANY_SPACE & ~bits(ch.SHARED))
        written = sorted(index_loops(task.target))
        partner = dict(f.pairs)
        along = [axis for axis in task.target.axes if axis is not None and axis.terms]
        is_plain = all(len(a.terms) == 1 and a.terms[0][1] == 1 for a in along)
        if not (is_plain and set(written) <= set(partner)):
            b.clause("tile in shared memory", [direct])
            return
        for p in written:
            a, e = self.levels(f.producer, p)[OUTER], self.levels(f.consumer, partner[p])[OUTER]
            order = b.order(a.order_id, e.order_id)
            b.clause("tile in shared memory", [direct, (order, bits(ch.MERGED))])

    def streams(self, t: int, var: int) -> None:
        """A GPU has a streaming store of every type."""

    def stores(self) -> None:
        """Besides the rules for all machines: hints are for loads from memory, the read-only path is for what no task writes."""
        super().stores()
        b, v = self.b, self.v
        for (t, array), var in v.load_cache.items():
            for f, space in v.mem_space.items():
                if f.consumer == t and f.array == array:
                    rule = gpu_truths.hint_of_memory
                    b.table2("hints of loads from memory", var, space, rule, share=rule)
            others = (var, ~bits(ch.READ_ONLY) & _ANY_HINT)
            for u in self.backbone.neighbours[t]:
                if array in written_arrays(self.problem.tasks[u]):
                    apart = [] if u == t else [(v.fused[min(t, u), max(t, u)], bits(ch.SEPARATE))]
                    b.clause("read-only arrays", [others, *apart])

    def staged_copies(self) -> None:
        """All threads copy the block of one outer tile: no mid dim that is a loop is around it, and it was in memory before.

        Several stages need a loop from tile to tile.
        """
        b, v = self.b, self.v
        for o, var in v.staged.items():
            loops = [self.levels(o.task, name) for name in o.loops]
            around = gpu_truths.copy_around_loops
            for mid, order in self.tiles_and_mids(o):
                b.table3("block of a copy", v.kind[mid], var, order, around, share=around)
            present = [(v.kind[x[MID]], bits(ch.LOOP, ch.THREAD)) for x in loops]
            b.clause("copy of a block", [(var, bits(ch.DIRECT)), *present])
            tiles = [(v.kind[x[OUTER]], bits(ch.LOOP)) for x in loops]
            b.clause("stages of a loop", [(var, bits(ch.DIRECT, ch.COPY)), *tiles])
            if (hint := v.load_cache.get((o.task, o.access.array))) is not None:
                of_copy = gpu_truths.hint_of_copy
                b.table2("hints of copies", hint, var, of_copy, share=of_copy)
            for f, space in v.mem_space.items():
                if f.consumer == o.task and f.array == o.access.array:
                    self.copy_of_finished_values(o, var, f.producer)
                    rule = truths.copy_of_memory
                    b.table2("copy from memory", var, space, rule, share=rule)
            self.layout_of(o, var)
        self.shared_memory()

    def layout_of(self, o: Operand, staged: int) -> None:
        """Only rows of a copy, and only whole vectors in them, can be moved apart."""
        b, v = self.b, self.v
        rule = gpu_truths.layout_of_copy
        b.table2("layout of a copy", staged, v.layout[o], rule, share=rule)
        if len(o.loops) == 1:
            b.restrict(v.layout[o], bits(ch.PLAIN))
            return
        row = row_order(o, self.array(o.access.array))[-1]
        _, mid, inner = self.levels(o.task, row)
        fits = gpu_truths.LayoutFits(v.universe[mid], v.universe[inner])
        b.table3("rows of a copy", v.layout[o], v.size[mid], v.size[inner], fits, share=fits)
