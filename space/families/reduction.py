"""Parallel reductions: distribution of a sum to lanes, threads or blocks."""

from __future__ import annotations

from itertools import combinations
from math import prod

from ...kernels.ir.walk import loads
from ...kernels.tasks.dependence import Dependence
from ..backbone import INNER, MID, OUTER, Dim
from ..draft import Draft, Family, all_but, bits
from ..engine.declarations import Term
from ..targets.gpu_facts import ATOMIC_OPERATIONS, adds_to_result, start_of
from ..targets.kind import CPU, GPU
from ..values import ATOMIC, LANES, LAST_BLOCK, PARTIALS, REDUCTION, SEQUENTIAL, TREE
from .fusion import SEPARATE
from .grid_stride import BLOCKS_A_CORE, tiles_at_most
from .order import APART
from .team import staying
from .tiling import PARALLEL, THREAD, UNROLL, VECTOR

SPLIT = (PARTIALS, ATOMIC, LAST_BLOCK)  # reductions that are shared out
LEAVING = (PARTIALS, LAST_BLOCK)  # of which blocks leave partial results

MAX_PARTIAL_BYTES = 1 << 28  # of one reduction's partial results in memory


# --- sites -----------------------------------------------------------------------------------


def declare(s: Draft) -> None:
    for d in s.backbone.dims:
        if d.loop.is_reduction and d.level in s.kind.shared_reductions:
            free = s.problem.tasks[d.task].fast_math
            mask = reductions_of(s, d) if free else bits(SEQUENTIAL)
            s.v.reduction[d] = s.b.add("reduction", (d.name,), REDUCTION, mask)


def reductions_of(s: Draft, d: Dim) -> int:
    """Returns the possible reductions (bit mask) of a dim, if the order of the sum is free.

    Blocks can combine one result by atomic addition, minimum or maximum, but not products, nor
    dtypes of less than 4 bytes.
    """
    shared, task = set(s.kind.shared_reductions[d.level]), s.problem.tasks[d.task]
    if task.op not in ATOMIC_OPERATIONS or task.dtype.size_bytes < 4:
        shared.discard(ATOMIC)
    return bits(SEQUENTIAL, *shared)


# --- predicates ------------------------------------------------------------------------------


def outer_reduction(kind: int, reduction: int) -> bool:
    return (kind == PARALLEL) == (reduction in SPLIT)


def tree_of_threads(kind: int, reduction: int) -> bool:
    return (kind == THREAD) == (reduction == TREE)


def inner_reduction(kind: int, reduction: int) -> bool:
    return kind == UNROLL or (kind == VECTOR) == (reduction == LANES)


def combined_alike(a: int, b: int) -> bool:
    """True unless two loops of a task are reduced over blocks in different ways; `a`, `b`: their reductions."""
    return a == b or a not in SPLIT or b not in SPLIT


_OF_A_KIND = {OUTER: outer_reduction, MID: tree_of_threads, INNER: inner_reduction}


# --- constraints -----------------------------------------------------------------------------


def of_a_kind(s: Draft) -> None:
    """Coherence: the reduction of a dim follows from its kind.

    Unrolled dims have a choice: one accumulator, or one per copy.
    """
    for d, var in s.v.reduction.items():
        rule = _OF_A_KIND[d.level]
        s.b.table2("reduction of a kind", s.v.kind[d], var, rule, share=rule)


def over_blocks(s: Draft) -> None:
    """Blocks along several reduced loops combine in the same way, and the room for their partial results is limited."""
    b, v = s.b, s.v
    for t, task in enumerate(s.problem.tasks):
        outer = [d for d in s.dims_at(t, OUTER) if d in v.reduction]
        for d in outer:
            left = (v.reduction[d], all_but(REDUCTION, *LEAVING))
            most = _most_partials(s, t)
            tiles_at_most(s, "partial results", left, d, most)
            if d in v.of_dims["grid_stride"]:
                n_blocks = (n * s.target.cores for n in BLOCKS_A_CORE)
                few = bits(*(k for k, n in enumerate(n_blocks) if n <= most))
                b.clause("partial results", [left, (v.of_dims["grid_stride"][d], few)])
        for d, e in combinations(outer, 2):
            pair = (v.reduction[d], v.reduction[e])
            b.table2("one way over blocks", *pair, combined_alike, share=combined_alike)
        if len(outer) > 1:
            # A counter cannot divide by both sizes of a tile: it takes inner dims for absent, and errs on the side of memory.
            terms = []
            for d in outer:
                mid = s.levels(t, d.loop.name)[MID]
                counts = tuple(-(-d.loop.extent // n) for n in v.universe[mid])
                terms.append(Term((v.reduction[d], bits(*LEAVING)), v.size[mid], counts))
            b.product_at_most(f"all partial results of {task.name}", terms, _most_partials(s, t))


def _most_partials(s: Draft, t: int) -> int:
    """Greatest number of partial results that blocks may leave for each result of a task."""
    task = s.problem.tasks[t]
    results = prod(loop.extent for loop in task.loops if not loop.is_reduction)
    return max(1, MAX_PARTIAL_BYTES // (results * task.dtype.size_bytes))


def whole_at_the_end(s: Draft) -> None:
    """Semantics: a reduction over blocks is complete only when all of them have ended, so its readers are in later launches.

    In a grid that stays they may be in other loops of the same launch, unless a kernel of its own finishes the sum.
    """
    b, v = s.b, s.v
    for d, var in v.reduction.items():
        if d.level != OUTER:
            continue
        whole = (var, all_but(REDUCTION, *SPLIT))
        for dep in s.backbone.dependences:
            if not s.backbone.may_share_launch(dep.source, dep.sink):
                continue
            if dep.source == d.task:
                separate = (v.fused[dep.source, dep.sink], bits(SEPARATE))
                b.clause("partial results end a launch", [whole, separate, *staying(s, d.task)])
                if staying(s, d.task):
                    _whole_at_the_barrier(s, dep, d, [whole, separate])
            elif dep.sink == d.task:
                _set_before(s, dep, var)


def _whole_at_the_barrier(
    s: Draft, dep: Dependence, d: Dim, reasons: list[tuple[int, int]]
) -> None:
    """Semantics: the last block or all blocks leave a whole sum, whose readers are in other loops."""
    var, partners = s.v.reduction[d], s.backbone.partners
    task = s.problem.tasks[d.task]
    others = (PARTIALS,) if adds_to_result(s.problem, task) else (PARTIALS, ATOMIC)
    finished = (var, all_but(REDUCTION, *others))
    s.b.clause("another kernel finishes a sum", [finished, reasons[1]])
    for x in s.dims_at(d.task, OUTER):
        for e in (e for e in partners[x] if e.task == dep.sink):
            s.b.clause("a sum is whole behind its loops", [*reasons, (s.order(x, e), APART)])


def _set_before(s: Draft, dep: Dependence, var: int) -> None:
    """Semantics: the target of an atomic reduction is initialised before its launch, which accesses it in no other way.

    Nor does the launch write the values with which the target is initialised.
    """
    task = s.problem.tasks[dep.sink]
    start = start_of(task)
    touched = {task.target.array, *({x.array for x in loads(start)} if start else ())}
    if adds_to_result(s.problem, task) and dep.array in touched:
        separate = (s.v.fused[dep.source, dep.sink], bits(SEPARATE))
        one = (var, all_but(REDUCTION, ATOMIC))
        s.b.clause("a result is set before its launch", [one, separate])


FAMILY = Family(
    "reduction", {CPU: (of_a_kind,), GPU: (of_a_kind, over_blocks, whole_at_the_end)}, declare
)
