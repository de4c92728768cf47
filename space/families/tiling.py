"""Tiling: three levels (outer, mid, inner) of every loop, with the kind and the number of iterations of each."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import gcd

from ...kernels.analysis.effects import are_independent
from ...kernels.analysis.scatters import scatters
from ...kernels.analysis.speculation import may_blend
from ...kernels.analysis.vectorisable import refusal
from ...kernels.ir.access import flat_strides
from ...kernels.ir.domain import Loop
from ...kernels.ir.task import Task
from ...kernels.tasks.lane_parts import parts_of
from ...kernels.transforms.lane_fronts import Front
from ..backbone import INNER, MID, OUTER, Dim
from ..backbone.patterns import windows
from ..draft import Draft, Family, bits
from ..engine.declarations import Term
from ..targets.kind import CPU, GPU
from ..targets.target import Target
from .order import INSIDE, MERGED

PARALLEL, LOOP, UNROLL, VECTOR, ABSENT, THREAD = range(6)
DIM_KIND = (
    "PARALLEL",  # shared out to what a launch starts: threads of a team, or blocks of a grid, a tile each (outer dims)
    "LOOP",  # a loop, which all threads of a block run (outer and mid dims)
    "UNROLL",  # copies of the body; with threads on the mid dim, as far apart as there are threads (inner dims)
    "VECTOR",  # vectors, several where the size is a multiple of the lanes (inner dims)
    "ABSENT",  # size 1: no loop (mid and inner dims)
    "THREAD",  # one thread of a block an iteration (mid dims)
)
WITHOUT_LOOP = (ABSENT, THREAD)  # kinds of mid dims for which no loop is written

MAX_UNROLLED_COPIES = 64  # of one task's body: more only costs compile time and instruction cache
MAX_VECTORS_PER_DIM = 8
MAX_UNROLLED = 16  # copies along one dim
NARROW_BYTES = 16  # least vectors of CPUs (SSE, NEON), for rows that are shorter than a register


# --- sites -----------------------------------------------------------------------------------


def declare(s: Draft) -> None:
    for d in s.backbone.dims:
        s.v.kind[d] = s.b.add("dim_kind", (d.name,), DIM_KIND, kinds_of(s, d))
    for d in s.backbone.dims:
        if d.level != OUTER:
            universe = sizes_of(s, d)
            s.v.universe[d] = universe
            s.v.size[d] = s.b.add("size", (d.name,), tuple(map(str, universe)))


def kinds_of(s: Draft, d: Dim) -> int:
    """Returns the possible kinds (bit mask) of one dim alone, by hardware and semantics."""
    task = s.problem.tasks[d.task]
    if d.level == MID:
        able = {LOOP, ABSENT} if task.is_structured or has_blocks(s, d) else {ABSENT}
        has_threads = s.kind.mid_dims_have_threads and d.loop.extent > 1
        return bits(*able, *({THREAD} if has_threads and may_be_shared(s, task, d) else set()))
    if d.level == OUTER:
        may_split = d.loop.extent > 1 and s.target.cores > 1 and may_be_shared(s, task, d)
        return bits(LOOP, PARALLEL) if may_split else bits(LOOP)
    if task.body is not None:
        return bits(ABSENT, VECTOR) if runs_in_lanes(s, task, d) else bits(ABSENT)
    if d.loop.is_reduction and not task.fast_math:
        return bits(ABSENT)
    vector = {VECTOR} if d.loop.name in vector_loops(s, task) else set()
    return bits(ABSENT, UNROLL, *vector)


def runs_in_lanes(s: Draft, task: Task, d: Dim) -> bool:
    """True if iterations of a body's innermost loop, or at least fronts of them, can run as lanes of vectors."""
    return runs_in_lanes_whole(s, task, d) or front_in(s, task, d) is not None


def _may_be_lanes(s: Draft, task: Task, d: Dim) -> bool:
    return s.kind.has_teams and d.loop == task.loops[-1] and d.loop.is_known


def front_in(s: Draft, task: Task, d: Dim) -> Front | None:
    """Returns a body in two parts if iterations of its innermost loop conflict, and the first part can run in lanes; else None."""
    assert task.body is not None
    if not _may_be_lanes(s, task, d) or are_independent(task, d.loop):
        return None
    return parts_of(s.problem, task.loops, task.body.statements, frozenset())


def runs_in_lanes_whole(s: Draft, task: Task, d: Dim) -> bool:
    """True if iterations of a body's innermost loop can run as lanes of vectors (SPMD, codegen/bodies/lanes.py)."""
    assert task.body is not None
    may = _may_be_lanes(s, task, d)
    if not may or task.body.trees.activates or refusal(task.body.statements, s.problem):
        return False  # lanes do not wait for one another's cells
    # Of a nest no two meet; of scatters lanes make their updates one after another.
    return are_independent(task, d.loop) or len(task.loops) > 1 or bool(scatters(task, s.problem))


def is_parallel(task: Task, d: Dim) -> bool:
    """True if the iterations of an outer dim may run in any order on several threads."""
    if task.is_structured:
        return task.fast_math or not d.loop.is_reduction
    assert task.body is not None
    # What is apart by the coordinates of cells is so for the outermost loop.
    safe = task.body.trees.safe if d.loop == task.loops[0] else frozenset[str]()
    return are_independent(task, d.loop, safe)


def has_blocks(s: Draft, d: Dim) -> bool:
    """True if tiles pay in a loop of a body: its neighbour reads may go to copied blocks."""
    task = s.problem.tasks[d.task]
    if not s.kind.has_teams or task.body is None or scatters(task, s.problem):
        return False
    return any(d.loop.name in o.loops for o in windows(d.task, task).values())


def may_be_shared(s: Draft, task: Task, d: Dim) -> bool:
    """True if threads may share a dim. Conflicting updates are then scatters (scatter.py)."""
    return is_parallel(task, d) or bool(scatters(task, s.problem))


def vector_loops(s: Draft, task: Task) -> set[str]:
    """Returns the loops along which a task can be vectorised: its store is contiguous there, or it is a reduction loop."""
    if not task.is_structured:
        return set()
    if task.is_guarded and not (s.kind.has_teams and may_blend(task, s.problem)):
        return set()
    strides = flat_strides(task.target, s.array(task.target.array))
    return {
        loop.name
        for loop in task.loops
        if (task.fast_math if loop.is_reduction else strides.get(loop.name, 0) == 1)
    }


def sizes_of(s: Draft, d: Dim) -> tuple[int, ...]:
    task = s.problem.tasks[d.task]
    has_threads = d.level == MID and bool(kinds_of(s, d) & bits(THREAD))
    if task.body is not None and d.level == INNER:
        lanes = s.target.lanes(task.lane_bytes)
        wide = lanes if kinds_of(s, d) & bits(VECTOR) and lanes <= d.loop.extent else 1
        return tuple(dict.fromkeys((1, wide)))
    if not task.is_structured and not has_threads and not (d.level == MID and has_blocks(s, d)):
        return (1,)
    universe = s.kind.mid_sizes if d.level == MID else s.kind.tiles_of(d.loop.extent)
    return tuple(n for n in universe if n == 1 or n <= d.loop.extent)


# --- predicates ------------------------------------------------------------------------------


def beside_other(kind: int, outer: int, mid: int) -> bool:
    return kind not in WITHOUT_LOOP or mid == (INSIDE if outer == MERGED else outer)


def beside_twin(kind: int, outer: int, mid: int) -> bool:
    return kind not in WITHOUT_LOOP or mid in (outer, MERGED)


def twins_merge(kind: int, outers: int, mids: int) -> bool:
    return kind not in WITHOUT_LOOP or (outers == MERGED) == (mids == MERGED)


def mid_merges_inside_outer(outer: int, mid: int) -> bool:
    return mid != MERGED or outer == MERGED


def merged_equal(order: int, a: int, b: int) -> bool:
    return order != MERGED or a == b


@dataclass(frozen=True)
class MergedSizes:
    a: tuple[int, ...]
    b: tuple[int, ...]

    def __call__(self, order: int, a: int, b: int) -> bool:
        return order != MERGED or self.a[a] == self.b[b]


def vector_width(size: int, lanes: int) -> int:
    """Width of the widest vectors, of at most `lanes` elements, that divide a dim of `size` iterations."""
    return gcd(size, lanes)


def widest_vector(extent: int, lanes: int) -> int:
    """Width of the widest vectors, of at most `lanes` elements, along a loop of `extent` iterations."""
    while lanes > extent:
        lanes //= 2
    return lanes


@dataclass(frozen=True)
class KindFitsSize:
    """Predicate: a kind of dim allows a size. Vectors have at least `narrowest` elements and at most `lanes`."""

    sizes: tuple[int, ...]
    lanes: int
    narrowest: int

    def __call__(self, kind: int, size: int) -> bool:
        n = self.sizes[size]
        if kind == VECTOR:
            width = vector_width(n, self.lanes)
            return width >= self.narrowest and n <= MAX_VECTORS_PER_DIM * width and n > 1
        if kind == UNROLL:
            return 1 < n <= MAX_UNROLLED
        return (n == 1) == (kind == ABSENT)


@dataclass(frozen=True)
class SmallestCover:
    """Predicate: with the next smaller mid size, the loop would need more than one tile."""

    extent: int
    mids: tuple[int, ...]
    inners: tuple[int, ...]

    def __call__(self, mid: int, inner: int) -> bool:
        return mid == 0 or self.mids[mid - 1] * self.inners[inner] < self.extent


def one_vector(a: int, b: int) -> bool:
    return not a == b == VECTOR


def least_vector(task: Task, loop: Loop, target: Target) -> int:
    """Returns the least number of elements in a vector along a loop, where vectors fill registers.

    A row of many that is shorter than a register has narrower vectors: small matrices of a batch have no others. Sums have none,
    since folds would cost more than such vectors save.
    """
    lanes = target.lanes(task.lane_bytes)
    narrow = NARROW_BYTES // task.lane_bytes
    is_row = not loop.is_reduction and len(task.loops) > 1
    return narrow if is_row and 1 < narrow <= loop.extent < lanes else lanes


# --- constraints -----------------------------------------------------------------------------


def absent_dims(s: Draft) -> None:
    """Coherence: a mid dim without a loop is just inside its outer dim, so that equal loop trees have equal orders."""
    b, partners = s.b, s.backbone.partners
    for m in s.backbone.dims:
        if m.level != MID:
            continue
        o = s.backbone.dim(m.task, m.loop.name, OUTER)
        kind = s.v.kind[m]
        twins = {e.order_id for e in partners[m]}
        for x in s.near_objects(m.task):
            if x not in (m.order_id, o.order_id):
                rule = beside_twin if x in twins else beside_other
                pair = (b.order(o.order_id, x), b.order(m.order_id, x))
                b.table3(f"absent {m.name}", kind, *pair, rule, share=rule)
        for e in partners[m]:
            outer = s.backbone.dim(e.task, e.loop.name, OUTER)
            pair = (s.order(o, outer), s.order(m, e))
            b.table3(f"absent {m.name}", kind, *pair, twins_merge, share=twins_merge)


def merged_dims(s: Draft) -> None:
    """Coherence: merged dims are one loop, of one kind, with tiles of one size.

    Mid dims merge only inside merged outer dims.
    """
    b, v = s.b, s.v
    for merge in s.backbone.merges:
        a, c = s.levels_of(merge)
        outer = s.order(a[OUTER], c[OUTER])
        b.table2("mid merges inside outer", outer, s.order(a[MID], c[MID]), mid_merges_inside_outer)
        for level in (OUTER, *((MID,) if s.kind.mid_dims_have_threads else ())):
            kinds = (v.kind[a[level]], v.kind[c[level]])
            b.table3("merged kinds", outer, *kinds, merged_equal, share=merged_equal)
        for level in (MID, INNER):
            same = MergedSizes(v.universe[a[level]], v.universe[c[level]])
            b.table3("merged sizes", outer, v.size[a[level]], v.size[c[level]], same, share=same)


def sizes_and_kinds(s: Draft) -> None:
    """Hardware: dims of size 1, and no others, are absent.

    Vectors are whole registers; register tiles are bounded.
    """
    b, v = s.b, s.v
    for t, task in enumerate(s.problem.tasks):
        lanes = s.target.lanes(task.lane_bytes)
        copies = []
        for d in s.backbone.dims_of(t):
            if d.level == OUTER:
                continue
            sizes = v.universe[d]
            least = least_vector(task, d.loop, s.target)
            narrowest = min(2, lanes) if s.kind.has_narrow_vectors else least
            fits = KindFitsSize(sizes, lanes, narrowest)
            b.table2("size of a kind", v.kind[d], v.size[d], fits, share=fits)
            if d.level == INNER:
                copies.append(Term((v.kind[d], bits(UNROLL)), v.size[d], sizes))
                vectors = tuple(-(-n // max(narrowest, vector_width(n, lanes))) for n in sizes)
                copies.append(Term((v.kind[d], bits(VECTOR)), v.size[d], vectors))
        if copies:
            b.product_at_most(f"unrolled copies of {task.name}", copies, MAX_UNROLLED_COPIES)
        for d, e in combinations(s.dims_at(t, INNER), 2):
            b.table2("one vector dim", v.kind[d], v.kind[e], one_vector, share=one_vector)


def whole_loops(s: Draft) -> None:
    """Dominance: of the tiles that hold a whole loop, only the smallest remains for each register tile.

    Larger ones are the same code with more room. Not on a GPU: all tasks of a launch have equally
    many threads in a block, though the loop of one may be shorter.
    """
    v = s.v
    for mid in (d for d in s.backbone.dims if d.level == MID):
        inner = s.backbone.dim(mid.task, mid.loop.name, INNER)
        fits = SmallestCover(mid.loop.extent, v.universe[mid], v.universe[inner])
        name = "smallest tile that holds the loop"
        s.b.table2(name, v.size[mid], v.size[inner], fits, share=fits)


_RULES = (absent_dims, merged_dims, sizes_and_kinds)
FAMILY = Family("tiling", {CPU: (*_RULES, whole_loops), GPU: _RULES}, declare)
