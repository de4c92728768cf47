"""Packing: copies of operand blocks.

Chooses the number of block buffers, the packing threads and the layout of rows, which may be columns of the block in memory.
A block of neighbour reads has a border, so that blocks overlap (a halo). It is copied in its
original layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations, product
from math import prod

from ...kernels.analysis.effects import arrays_written
from ...kernels.analysis.scatters import scatters
from ..backbone import INNER, MID, OUTER, Dim, Operand
from ..draft import Draft, Family, all_but, bits
from ..engine.declarations import Group, Literal, Term
from ..targets.gpu_facts import VECTOR_BYTES, row_order
from ..targets.kind import CPU, GPU
from .memory import GLOBAL
from .order import BEFORE, INSIDE, OUTSIDE
from .rows import WALK
from .schedule import BLOCKED
from .tiling import LOOP, PARALLEL, THREAD, WITHOUT_LOOP

DIRECT, COPY, TWO_STAGES, THREE_STAGES = range(4)
STAGED = (
    "DIRECT",  # read where it lies
    "COPY",  # the block of one outer tile is packed first, in the order in which it is used
    "TWO_STAGES",  # two such blocks: while one is used, the next is packed, a few slices with each register tile, or travels
    "THREE_STAGES",  # three: the next two travel
)  # a value is the number of blocks

# Of windows: the plain value, and the one of a copy, are the same numbers.
WINDOW = (
    "WALK",  # each neighbour is read where it lies
    "HALO",  # the block of one outer tile is copied first, with the border that its iterations read
)

BY_THREAD, BY_TEAM = range(2)
PACKED_BY = (
    "THREAD",  # each thread packs what it needs for itself
    "TEAM",  # one block for all threads of the launch, of which each packs a part
)  # of CPUs with several cores: what a GPU copies is shared memory of a block, and copied by all of its threads

PLAIN, ODD, PADDED, SWIZZLED = range(4)
_GAPS = (
    "PLAIN",  # rows of a copy follow one another
    "ODD",  # an element between them that nobody uses, so that the elements of a column are in different banks
    "PADDED",  # 16 bytes between them, which also leaves vectors aligned
    "SWIZZLED",  # nothing between them: the vectors of each row change places, in another way than those of the next row
)
# The same of transposed copies, whose rows are columns of the block in memory: value k + 4 has the rows of value k.
N_GAPS = len(_GAPS)
LAYOUT = (*_GAPS, *(f"TRANSPOSED_{x}" for x in _GAPS))
ALONG_MEMORY = bits(*range(N_GAPS))
ACROSS_MEMORY = bits(*range(N_GAPS, 2 * N_GAPS))
TRANSPOSED_ODD, TRANSPOSED_PADDED = N_GAPS + ODD, N_GAPS + PADDED

_COPIED = all_but(STAGED, DIRECT)
_NOT_AHEAD = bits(DIRECT, COPY)


def rows_of_layout(layout: str) -> tuple[bool, str]:
    """Returns if rows of a layout are columns of the block in memory, and the value for rows along memory with equal gaps."""
    plain = layout.removeprefix("TRANSPOSED_")
    return plain != layout, plain


# --- sites -----------------------------------------------------------------------------------


def declare(s: Draft) -> None:
    for o in s.backbone.operands:
        if o.is_window:
            if may_copy(s, o):
                s.v.staged[o] = s.b.add("staged", (o.name,), WINDOW)
            continue
        # On a CPU a vector is contiguous and cached as it is. Threads of a block along the loop that a vector does not go along
        # read the same of it: one of them can for all.
        if len(o.loops) > 1 or s.kind.mid_dims_have_threads:
            s.v.staged[o] = s.b.add("staged", (o.name,), STAGED, _stagings(s))
    packed = [o for o in s.v.staged if not o.is_window]
    for o in packed if s.kind.has_teams and s.target.cores > 1 else ():
        s.v.packed_by[o] = s.b.add("packed_by", (o.name,), PACKED_BY)
    for o in packed if s.kind.has_layouts else ():
        s.v.layout[o] = s.b.add("layout", (o.name,), LAYOUT)


def may_copy(s: Draft, o: Operand) -> bool:
    """True if blocks of an operand with neighbour reads may be copied.

    A task with scatters may run its iterations sorted, not tile by tile. Blocks of a GPU grid begin
    at any time, so a copied array must not be stored to by the task.
    """
    task = s.problem.tasks[o.task]
    if scatters(task, s.problem):  # their iterations may be sorted
        return False
    return s.kind.has_teams or o.access.array not in arrays_written(task)


def _stagings(s: Draft) -> int:
    """Returns the possible numbers of block buffers of an operand, as a domain (bit mask)."""
    kind, is_asynchronous = s.kind, s.target.copies_asynchronously
    most = kind.max_asynchronous_stages if is_asynchronous else kind.max_stages
    return bits(*range(1 + most))


# --- predicates ------------------------------------------------------------------------------


def copy_of_memory(staged: int, space: int) -> bool:
    return staged == DIRECT or space == GLOBAL


def copy_outside(staged: int, order: int) -> bool:
    return staged == DIRECT or order == OUTSIDE


def copy_around_loops(kind: int, staged: int, order: int) -> bool:
    """True if an outer dim is around the mid dim of kind `kind`.

    It is True, too, without a copy (`staged`) or without a mid loop. `order`: the relation of
    another loop's outer dim to that mid dim.
    """
    return kind in WITHOUT_LOOP or staged == DIRECT or order == OUTSIDE


def copy_of_team(staged: int, packed_by: int) -> bool:
    return packed_by == BY_THREAD or staged == COPY


def layout_of_copy(staged: int, layout: int) -> bool:
    return staged != DIRECT or layout == PLAIN


@dataclass(frozen=True)
class LayoutFits:
    """Predicate: rows of a block (mid times inner elements) are padded or swizzled only if all banks take part.

    Layouts that are transposed otherwise than the block (`is_transposed`) have other rows. Swizzled rows have a vector at least,
    of `width` elements.
    """

    mids: tuple[int, ...]
    inners: tuple[int, ...]
    is_transposed: bool
    width: int

    def __call__(self, layout: int, mid: int, inner: int) -> bool:
        across, gap = divmod(layout, N_GAPS)
        row = self.mids[mid] * self.inners[inner]
        is_power = row & (row - 1) == 0
        is_swizzled = is_power and row >= self.width
        fits = gap == PLAIN or (row % 8 == 0 and (is_swizzled or gap != SWIZZLED))
        return fits or across != self.is_transposed


# --- constraints -----------------------------------------------------------------------------


def _tiles_and_mids(s: Draft, o: Operand) -> Iterator[tuple[Dim, int]]:
    """Yields, for each pair of an operand's loops, the mid dim of one and the order of the other's outer dim to it."""
    loops = [s.levels(o.task, name) for name in o.loops]
    for x, y in permutations(loops, 2):
        yield y[MID], s.order(x[OUTER], y[MID])


def _copy_of_finished_values(s: Draft, o: Operand, staged: int, producer: int) -> None:
    """Semantics: the producer of a copied operand ends before the loops over outer tiles begin."""
    body = s.backbone.body_ids[producer]
    tiles = [s.levels(o.task, name)[OUTER] for name in o.loops]
    done = [(s.b.order(body, d.order_id), bits(BEFORE)) for d in tiles]
    s.b.clause("copy of finished values", [(staged, bits(DIRECT)), *done])


def copies_of_threads(s: Draft) -> None:
    """Constraints of operand blocks on a CPU: a copy is the block of one outer tile.

    Outer dims of its loops are around all mid dims, and some mid dim is present. It is packed from
    memory at the head of the innermost of these outer dims, so all that the task reads must be
    stored by then. The next block can be packed in advance if each thread runs that dim by itself,
    all of it or a contiguous part. All threads can pack a block together if they run that dim in
    step.
    """
    b, v = s.b, s.v
    for o, var in v.staged.items():
        loops = [s.levels(o.task, name) for name in o.loops]
        for _, order in _tiles_and_mids(s, o):
            b.table2("block of a copy", var, order, copy_outside, share=copy_outside)
        present = [(v.kind[x[MID]], bits(LOOP)) for x in loops]
        b.clause("copy of a block", [(var, bits(DIRECT)), *present])
        if not o.is_window:
            _packed_ahead(s, o, var)
        if o in v.packed_by:
            _packed_by_team(s, o, var, v.packed_by[o])
        for f, space in v.mem_space.items():
            ends = (f.producer, f.consumer) if f.is_read else (f.consumer,)
            if o.task in ends and f.array == o.access.array:
                if not f.is_read:
                    _copy_of_finished_values(s, o, var, f.producer)
                b.table2("copy from memory", var, space, copy_of_memory, share=copy_of_memory)
        element = s.array(o.access.array).dtype.size_bytes
        most = max(1, s.target.last_cache_bytes // element)
        if o.is_window:
            limit = min(most, (1 << 31) - 1)
            s.b.groups_at_most(f"copy of {o.name} in cache", elements_of_window(s, o), limit)
            continue
        terms = [
            Term((var, _COPIED), v.size[x[level]], v.universe[x[level]])
            for x in loops
            for level in (MID, INNER)
        ]
        terms.append(Term(None, var, (1, 1, 2, 3)))
        b.product_at_most(f"copy of {o.name} in cache", terms, most)


def elements_of_window(s: Draft, o: Operand) -> list[Group]:
    """Returns groups that count the elements of an operand's block with its halo.

    The count is the product, over the loops, of (iterations of a tile + halo).
    """
    v, any_of = s.v, (Literal(s.v.staged[o], bits(COPY)),)
    constant = Term(None, v.staged[o], (1,) * len(WINDOW))
    groups = []
    for beyond in product((False, True), repeat=len(o.loops)):
        sides = dict(zip(o.loops, beyond, strict=True))
        n = prod(o.reach(loop) for loop, is_beyond in sides.items() if is_beyond)
        tiles = [
            Term(None, v.size[d], v.universe[d])
            for loop, is_beyond in sides.items()
            if not is_beyond
            for d in s.levels(o.task, loop)[1:]
        ]
        if n:
            groups.append(Group(any_of, (constant._replace(weights=(n, n)), *tiles)))
    return groups


def rows_of_memory(s: Draft) -> None:
    """Coherence: rows from which vectors are shifted (choice `rows`) are loaded from the array, not from a copy."""
    for o, var in s.v.staged.items():
        rows = s.v.of_tasks["rows"].get(o.task)
        if rows is not None and o.access.array == s.problem.tasks[o.task].target.array:
            s.b.clause("rows of memory", [(rows, bits(WALK)), (var, bits(DIRECT))])


def _packed_ahead(s: Draft, o: Operand, staged: int) -> None:
    """Constraints of packing in advance: each thread runs the loop over blocks by itself.

    A slice of the next block is one register tile along one of its two loops.
    """
    b, v = s.b, s.v
    if len(o.loops) != 2:
        b.restrict(staged, _NOT_AHEAD)
        return
    blocks = [s.levels(o.task, name)[OUTER] for name in o.loops]
    for outer in s.dims_at(o.task, OUTER):
        # A loop of the threads is around the one from block to block, or is that one and shared out in blocks, as all are that
        # have no choice of a schedule.
        if outer in blocks and outer not in v.schedule:
            continue
        around = [(s.order(outer, x), bits(OUTSIDE)) for x in blocks if x is not outer]
        unshared = (v.kind[outer], bits(LOOP))
        in_blocks = [(v.schedule[outer], bits(BLOCKED))] if outer in blocks else []
        b.clause("packed ahead", [(staged, _NOT_AHEAD), unshared, *around, *in_blocks])


def _packed_by_team(s: Draft, o: Operand, staged: int, packed_by: int) -> None:
    """Constraints of packing by a team: all threads reach the packing equally often, and share a loop inside it."""
    b, v = s.b, s.v
    blocks = [s.levels(o.task, name)[OUTER] for name in o.loops]
    outer = s.dims_at(o.task, OUTER)
    shared = [(v.kind[d], bits(PARALLEL)) for d in outer]
    b.table2("one block of a team", staged, packed_by, copy_of_team, share=copy_of_team)
    b.clause("packed by a team", [(packed_by, bits(BY_THREAD)), *shared])
    for d in outer:
        in_step = [(packed_by, bits(BY_THREAD)), (v.kind[d], bits(LOOP))]
        if d in blocks:
            b.clause("packed in step", in_step)
            continue
        for x in blocks:
            b.clause("packed in step", [*in_step, (s.order(d, x), bits(INSIDE))])


def copies_of_blocks(s: Draft) -> None:
    """Constraints of operand blocks on a GPU: all threads of a block copy the block of one outer tile from memory.

    No mid dim that is a loop is around the copy. Several stages need a loop over tiles.
    """
    b, v = s.b, s.v
    for o, var in v.staged.items():
        loops = [s.levels(o.task, name) for name in o.loops]
        around = copy_around_loops
        for mid, order in _tiles_and_mids(s, o):
            b.table3("block of a copy", v.kind[mid], var, order, around, share=around)
        present = [(v.kind[x[MID]], bits(LOOP, THREAD)) for x in loops]
        b.clause("copy of a block", [(var, bits(DIRECT)), *present])
        tiles = [(v.kind[x[OUTER]], bits(LOOP)) for x in loops]
        b.clause("stages of a loop", [(var, bits(DIRECT, COPY)), *tiles])
        for f, space in v.mem_space.items():
            if f.consumer == o.task and f.array == o.access.array:
                _copy_of_finished_values(s, o, var, f.producer)
                b.table2("copy from memory", var, space, copy_of_memory, share=copy_of_memory)


def layouts(s: Draft) -> None:
    """Coherence: only rows of a copy, and only whole vectors in them, can be padded or swizzled."""
    b, v = s.b, s.v
    for o, layout in v.layout.items():
        b.table2("layout of a copy", v.staged[o], layout, layout_of_copy, share=layout_of_copy)
        if len(o.loops) == 1:
            b.restrict(layout, bits(PLAIN))
            continue
        width = VECTOR_BYTES // s.array(o.access.array).dtype.size_bytes
        for is_transposed in (False, True):
            row = row_order(o, s.array(o.access.array), is_transposed=is_transposed)[-1]
            _, mid, inner = s.levels(o.task, row)
            fits = LayoutFits(v.universe[mid], v.universe[inner], is_transposed, width)
            b.table3("rows of a copy", layout, v.size[mid], v.size[inner], fits, share=fits)


FAMILY = Family(
    "packing", {CPU: (copies_of_threads, rows_of_memory), GPU: (copies_of_blocks, layouts)}, declare
)
