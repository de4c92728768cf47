"""Memory space of a value between producer and consumer: register, array of a thread or block in cache, or memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, product

from ...kernels.analysis.effects import overwrites_all, task_reads
from ...kernels.analysis.speculation import may_blend
from ...kernels.ir.access import Access, flat_strides
from ..backbone import INNER, MID, OUTER, Dim, Flow
from ..draft import Draft, Family, all_but, bits
from ..targets.gpu_facts import is_small
from ..targets.kind import CPU, GPU
from ..values import LATE, REDUCTION
from .fusion import SAME_LAUNCH
from .guard import BLEND, GUARD
from .order import APART, BEFORE, MERGED, OUTSIDE
from .reduction import SPLIT
from .team import staying
from .threads import THREAD_LEVEL, opposite
from .tiling import DIM_KIND, PARALLEL, THREAD, VECTOR, merged_equal
from .warp_tile import LINEAR, WARP_TILE, turned

REGISTER, SHARED, GLOBAL = range(3)
MEM_SPACE = (
    "REGISTER",  # handed over in a register or a named scalar
    "SHARED",  # in an array that one thread (CPU) or one block (GPU) keeps in its cache
    "GLOBAL",  # in memory that all threads see
)

Literals = list[tuple[int, int]]


# --- sites -----------------------------------------------------------------------------------


def declare(s: Draft) -> None:
    for f in s.backbone.near_flows:
        s.v.mem_space[f] = s.b.add("mem_space", (f.name,), MEM_SPACE, spaces_of(s, f))
    for f in s.backbone.rereads:
        if s.is_beyond_own_cache(f.array):
            s.v.mem_space[f] = s.b.add("mem_space", (f.name,), MEM_SPACE, bits(SHARED, GLOBAL))


def spaces_of(s: Draft, f: Flow) -> int:
    """Returns the possible memory spaces (bit mask) of a flow, considered alone."""
    spaces = {GLOBAL}
    producer, consumer = s.problem.tasks[f.producer], s.problem.tasks[f.consumer]
    steps = {loop.name for loop in producer.steps}
    if not s.backbone.may_share_launch(f.producer, f.consumer) or f.loops & steps:
        return bits(
            *spaces
        )  # what a step writes of an array is a part of it, elsewhere in each step
    sole = s.backbone.flows_into[f.consumer, f.array] == 1
    structured = producer.is_structured and consumer.is_structured
    is_blended = not producer.is_guarded or may_blend(producer, s.problem)
    if f.is_pointwise and sole and is_blended:
        spaces.add(REGISTER)
    if structured and not producer.is_guarded and sole and is_worth_keeping(s, f):
        spaces.add(SHARED)
    return bits(*spaces)


def is_worth_keeping(s: Draft, f: Flow) -> bool:
    """True if an on-chip copy of a flow's value can pay.

    A temporary that one thread holds need not be stored to memory. Any other value is stored
    anyway: a copy pays only if no private cache holds it, and its producer must overwrite the whole
    array.
    """
    if s.array(f.array).role == "temp":
        return True
    producer = s.problem.tasks[f.producer]
    return s.is_beyond_own_cache(f.array) and overwrites_all(producer, s.problem, f.array)


# --- predicates ------------------------------------------------------------------------------


def register_merged(space: int, order: int) -> bool:
    return space != REGISTER or order == MERGED


def register_whole(space: int, reduction: int) -> bool:
    return space != REGISTER or reduction not in SPLIT


def on_chip_same_launch(space: int, fused: int) -> bool:
    return space == GLOBAL or fused == SAME_LAUNCH


def same_threads(space: int, producer: int, consumer: int) -> bool:
    """True unless the value is in a register and two loops vary differently from thread to thread in its two tasks.

    `producer`, `consumer`: thread level (which of the two loops varies faster) in the producer, and
    of the loops mapped to them in the consumer.
    """
    return space != REGISTER or producer == consumer


def same_threads_turned(space: int, producer: int, consumer: int) -> bool:
    return space != REGISTER or producer == opposite(consumer)


def same_warps_turned(space: int, producer: int, consumer: int) -> bool:
    return space != REGISTER or producer == turned(consumer)


# --- constraints -----------------------------------------------------------------------------


def of_threads(s: Draft) -> None:
    """Semantics: a value stays on chip only between iterations of one thread, in a register only between merged dims."""
    for f, var in s.v.mem_space.items():
        if s.backbone.may_share_launch(f.producer, f.consumer):
            if f.is_pointwise:
                _register_flow(s, f, var, _late_reasons(s, f), [[]])
            _one_thread_keeps(s, f, var)
        if f.is_read:
            _kept_read(s, f, var)


def of_blocks(s: Draft) -> None:
    """Semantics: a value in a register is read by the same thread, one in shared memory by the same block.

    Values in shared memory are one tile, or small as a whole.
    """
    for f, var in s.v.mem_space.items():
        if s.backbone.may_share_launch(f.producer, f.consumer):
            if f.is_pointwise:
                reasons, differ = _thread_reasons(s, f, var), _other_threads(s, f, var)
                _register_flow(s, f, var, reasons, differ)
            _one_block_keeps(s, f, var)
            if staying(s, f.producer):
                _own_loops_keep(s, f, var, "one block")


def sums_together(s: Draft) -> None:
    """Two tasks with a shared reduction loop hold the accumulators of a whole tile of results in registers.

    This applies if one task needs the other's results only in its finish. After the loop, the sums
    of the tile are finished one after the other. A task that may be rescaled in that loop, too, may
    accumulate in memory: it is finished last.
    """
    rescaled = {r.task for r in s.backbone.rescaled}
    for m in (m for m in s.backbone.merges if m.before_finish):
        a, c = s.levels_of(m)
        apart = (s.order(a[OUTER], c[OUTER]), APART)
        rule = "sums in one loop are in registers"
        for f in (f for f in s.backbone.near_flows if (f.producer, f.consumer) == (m.a, m.b)):
            s.b.clause(rule, [apart, (s.v.mem_space[f], bits(REGISTER))])
        for t in (m.a, *({m.b} - rescaled)):
            for d, e in product(s.ordered_dims(t), repeat=2):
                if e.loop.is_reduction and not d.loop.is_reduction:
                    s.b.clause(rule, [apart, (s.order(d, e), bits(OUTSIDE))])


def _register_flow(s: Draft, f: Flow, var: int, reasons: Literals, differ: list[Literals]) -> None:
    """Adds the constraints of a value in a register (choice `var`).

    `reasons`: further literals that forbid a register. `differ`: lists of literals; in each one
    literal holds if the readers' threads are not the writers'.
    """
    b, v = s.b, s.v
    free = [(var, bits(REGISTER))]
    for p, c in f.index_pairs:
        a, e = s.levels(f.producer, p), s.levels(f.consumer, c)
        for level in (OUTER, MID):
            order = s.order(a[level], e[level])
            b.table2("register flow", var, order, register_merged, share=register_merged)
            free.append((order, APART))
        outer, kinds = s.order(a[OUTER], e[OUTER]), (v.kind[a[INNER]], v.kind[e[INNER]])
        b.table3("register tiles agree", outer, *kinds, merged_equal, share=merged_equal)
        if not _same_lanes(s, f):
            others = (v.kind[a[INNER]], all_but(DIM_KIND, VECTOR))
            b.clause("registers of one width", [(var, all_but(MEM_SPACE, REGISTER)), others])
            free.append((v.kind[a[INNER]], bits(VECTOR)))
    for d in s.dims_at(f.producer, OUTER):
        if d in v.reduction:
            pair = (var, v.reduction[d])
            b.table2("register flow", *pair, register_whole, share=register_whole)
            free.append((v.reduction[d], bits(*SPLIT)))
    guards = v.of_tasks["guard"]
    if f.producer in guards:
        blended = (guards[f.producer], bits(BLEND))
        b.clause("registers blend", [(var, all_but(MEM_SPACE, REGISTER)), blended])
        free.append((guards[f.producer], all_but(GUARD, BLEND)))
    mapped = {c for _, c in f.index_pairs}
    for d in s.dims_at(f.consumer, OUTER):
        if d.loop.name not in mapped:
            free.append((v.kind[d], bits(PARALLEL)))
    # Dominance: a value that can be handed over in a register is.
    for literals in differ:
        b.clause(f"register where possible: {f.name}", [*free, *reasons, *literals])


def _same_lanes(s: Draft, f: Flow) -> bool:
    """True if vectors of the producer and of the consumer have the same number of elements."""
    sizes = (s.problem.tasks[t].lane_bytes for t in (f.producer, f.consumer))
    return len({s.target.lanes(n) for n in sizes}) == 1


def _late_reasons(s: Draft, f: Flow) -> Literals:
    """Returns literals that forbid a register: a retimed consumer would find the next iteration's values in it."""
    return [(late, bits(LATE)) for x, late in s.v.shift.items() if x.consumer == f.consumer]


def _thread_reasons(s: Draft, f: Flow, var: int) -> Literals:
    """Requires that every dim with threads is merged if the value is in a register, which belongs to one thread.

    Returns literals that forbid a register.
    """
    reasons = []
    for task, mapped in (
        (f.producer, {p for p, _ in f.index_pairs}),
        (f.consumer, {c for _, c in f.index_pairs}),
    ):
        for d in s.dims_at(task, MID):
            if d.loop.name not in mapped:
                literals = [
                    (var, all_but(MEM_SPACE, REGISTER)),
                    (s.v.kind[d], all_but(DIM_KIND, THREAD)),
                ]
                s.b.clause("registers of one thread", literals)
                reasons.append((s.v.kind[d], bits(THREAD)))
    return reasons


def _other_threads(s: Draft, f: Flow, var: int) -> list[Literals]:
    """Requires the same order of threads, and the same warps, in producer and consumer if the value is in a register.

    Returns lists of literals; in each one literal holds if the orders differ.
    """
    reasons: list[Literals] = [[]]
    for here, there, is_turned in _of_flow(s, f, s.v.thread_level):
        if here is None or there is None:
            continue
        rule = same_threads_turned if is_turned else same_threads
        s.b.table3("one order of threads", var, here, there, rule, share=rule)
        differ = []
        for level in range(len(THREAD_LEVEL)):
            other = opposite(level) if is_turned else level
            differ.append(
                [(here, all_but(THREAD_LEVEL, level)), (there, all_but(THREAD_LEVEL, other))]
            )
        reasons = [[*found, *literals] for found in reasons for literals in differ]
    for here, there, is_turned in _of_flow(s, f, s.v.warp_tile):
        if here is not None and there is not None:
            rule = same_warps_turned if is_turned else same_threads
            s.b.table3("one shape of warps", var, here, there, rule, share=rule)
            pairs = [(k, turned(k) if is_turned else k) for k in range(len(WARP_TILE))]
            differ = [
                [(here, all_but(WARP_TILE, k)), (there, all_but(WARP_TILE, m))] for k, m in pairs
            ]
        else:  # one of both tasks has no choice
            only = there if here is None else here
            assert only is not None
            linear = (only, bits(LINEAR))
            literals = [(var, all_but(MEM_SPACE, REGISTER)), linear]
            s.b.clause("one shape of warps", literals)
            differ = [[(only, all_but(WARP_TILE, LINEAR))]]
        reasons = [[*found, *literals] for found in reasons for literals in differ]
    return reasons


def _of_flow(
    s: Draft, f: Flow, choices: Mapping[tuple[Dim, Dim], int]
) -> Iterator[tuple[int | None, int | None, bool]]:
    """Yields, for each pair of loops that index a value: the choices of their mid dims in producer and consumer.

    A pair without a choice has None there, and is left out if neither has one. The third item is
    True if the pair has the reverse order in the consumer.
    """
    for (p, c), (q, d) in combinations(f.index_pairs, 2):
        ends = []
        for task, x, y in ((f.producer, p, q), (f.consumer, c, d)):
            a, b = s.levels(task, x)[MID], s.levels(task, y)[MID]
            is_turned = (b, a) in choices
            ends.append((choices.get((b, a) if is_turned else (a, b)), is_turned))
        (here, turned_here), (there, turned_there) = ends
        if here is not None or there is not None:
            yield here, there, turned_here != turned_there


def _same_launch(s: Draft, f: Flow, var: int) -> None:
    fused = s.v.fused[min(f.producer, f.consumer), max(f.producer, f.consumer)]
    rule = on_chip_same_launch
    s.b.table2("flow on chip", var, fused, rule, share=rule)


def _one_thread_keeps(s: Draft, f: Flow, var: int) -> None:
    _same_launch(s, f, var)
    _own_loops_keep(s, f, var, "one thread")


def _own_loops_keep(s: Draft, f: Flow, var: int, who: str) -> None:
    """Requires that a value on chip passes between tasks with the same parallel loops."""
    partners = s.backbone.partners
    for here, there in ((f.producer, f.consumer), (f.consumer, f.producer)):
        for d in s.dims_at(here, OUTER):
            literals = [(var, bits(GLOBAL)), (s.v.kind[d], all_but(DIM_KIND, PARALLEL))]
            own = [e for e in partners[d] if e.task == there]
            literals += [(s.order(d, e), bits(MERGED)) for e in own]
            s.b.clause(f"{who} keeps {f.name}", literals)


def _one_block_keeps(s: Draft, f: Flow, var: int) -> None:
    """Adds the constraints of a value in shared memory: it is one tile, or small as a whole."""
    _same_launch(s, f, var)
    task = s.problem.tasks[f.producer]
    if not task.is_structured or is_small(s.problem, s.target, task):
        return
    if f.loops & {loop.name for loop in task.steps}:
        return  # in memory: see `spaces_of`
    direct = (var, all_but(MEM_SPACE, SHARED))
    written = sorted(f.loops)
    partner = dict(f.pairs)
    along = [axis for axis in task.target.axes if axis is not None and axis.terms]
    is_plain = all(len(a.terms) == 1 and a.terms[0][1] == 1 for a in along)
    if not (is_plain and set(written) <= set(partner)):
        s.b.clause("tile in shared memory", [direct])
        return
    for p in written:
        a, e = s.levels(f.producer, p)[OUTER], s.levels(f.consumer, partner[p])[OUTER]
        s.b.clause("tile in shared memory", [direct, (s.order(a, e), bits(MERGED))])


def _kept_read(s: Draft, f: Flow, var: int) -> None:
    """Adds the constraints of an input that one task reads and stores for a later one.

    The input is stored before the later task runs, as a whole, in whole vectors.
    """
    b, bodies = s.b, s.backbone.body_ids
    kept = (var, bits(GLOBAL))
    first = (b.order(bodies[f.producer], bodies[f.consumer]), bits(BEFORE))
    b.clause(f"read before {f.name}", [kept, first])
    # In a loop that they share otherwise, the reader would want rows that have yet to be read.
    for m in s.backbone.merges:
        if (m.a, m.b) == (f.producer, f.consumer) and (m.loop_a, m.loop_b) not in f.pairs:
            a, c = s.levels_of(m)
            b.clause(f"whole {f.name}", [kept, (s.order(a[OUTER], c[OUTER]), APART)])
    for name, step in flat_strides(Access(f.array, f.axes), s.array(f.array)).items():
        if step != 1:
            inner = s.v.kind[s.backbone.dim(f.producer, name, INNER)]
            literals = [kept, (inner, all_but(DIM_KIND, VECTOR))]
            b.clause(f"contiguous vectors of {f.name}", literals)


def of_second_launches(s: Draft) -> None:
    """Semantics: a second kernel finishes a reduction over blocks, and reads its other operands from memory."""
    for d, var in s.v.reduction.items():
        if d.level == OUTER:
            whole = (var, all_but(REDUCTION, *SPLIT))
            late = {x.array for x, in_finish in task_reads(s.problem.tasks[d.task]) if in_finish}
            for f, space in s.v.mem_space.items():
                if f.consumer == d.task and f.array in late:
                    s.b.clause("the second launch reads memory", [whole, (space, bits(GLOBAL))])


FAMILY = Family(
    "memory",
    {CPU: (sums_together, of_threads), GPU: (sums_together, of_blocks, of_second_launches)},
    declare,
)
