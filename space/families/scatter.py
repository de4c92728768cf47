"""Scatters: updates of elements that several iterations of a body share, in free order.

Blocks are boxes of the array. An iteration's window is the box of all its updates; its position
decides the iteration's block. Iterations are sorted by block (a counting sort, see scatter_sorts.py), and
all blocks of one colour run before those of the next. Blocks of one colour lie so far apart that no
two of their windows overlap (red-black and multicolour orderings).

Without a window, as at the corners of a mesh's elements, blocks are consecutive iterations. A greedy colouring gives two blocks
that update one row of an array different colours (Mudalige et al., OP2, 2012).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from math import prod

from ...kernels.analysis.scatters import Scatter, scatters
from ...kernels.ir.arrays import ArrayInfo
from ...kernels.tasks.variants import with_sums
from ..backbone import MID, OUTER, Dim
from ..backbone.colourings import MAX_SORTED, colourable
from ..draft import Draft, Family, all_but, bits
from ..targets.gpu_facts import ATOMIC_OPERATIONS
from ..targets.kind import CPU, GPU
from .order import APART
from .tiling import DIM_KIND, PARALLEL, THREAD, kinds_of

SERIAL, BY_ATOMICS, PRIVATE, SORTED, COLOUR, TILE, GREEDY = range(7)
SCATTER = (
    "SERIAL",  # one thread makes all updates
    "ATOMIC",  # each update is atomic (the only way of a GPU's threads)
    "PRIVATE",  # each thread updates a copy of its own; the copies are combined at the end
    "SORTED",  # iterations are sorted by slab of their window along its first axis; every other slab at a time, in place
    "COLOUR",  # sorted by block of their window along all axes; blocks of one colour at a time, in place
    "TILE",  # as COLOUR, into a tile of the thread that is added to the array when a block is done
    "GREEDY",  # consecutive iterations are blocks, coloured greedily by the rows that they update; one colour at a time, in place
)
SORTING = (SORTED, COLOUR, TILE)  # iterations are sorted by block
BY_BLOCKS = (*SORTING, GREEDY)  # iterations run block by block
_OF_THREADS = (BY_ATOMICS, PRIVATE, GREEDY)  # one thread gains nothing by them

MAX_BLOCKS = 1 << 15  # beyond that the sort has more to look up than its iterations are worth
_N_SIZES = 5  # of blocks to choose from


# --- sites -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ArrayBlocks:
    """Partition of an array into blocks, along the axes that windows move on.

    `extents`: of the array. `spans`: of a window. `cells`: edges of a block, in elements.
    """

    extents: tuple[int, ...]
    spans: tuple[int, ...]
    cells: tuple[int, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of blocks along each axis."""
        return tuple(-(-n // c) for n, c in zip(self.extents, self.cells, strict=True))

    @property
    def coloured(self) -> tuple[int, ...]:
        """Axes along which blocks alternate between two colours. Windows of one element stay inside of their block."""
        sides = zip(self.counts, self.spans, strict=True)
        return tuple(k for k, (n, span) in enumerate(sides) if n > 1 and span > 1)

    @property
    def n_colours(self) -> int:
        return 1 << len(self.coloured)

    @property
    def halves(self) -> tuple[int, ...]:
        """Greatest number of blocks of one colour along each axis."""
        return tuple(-(-n // 2) if k in self.coloured else n for k, n in enumerate(self.counts))

    @property
    def n_blocks(self) -> int:
        """Number of blocks of all colours, with every colour counted as the largest one."""
        return self.n_colours * prod(self.halves)


def blocks_of(scatter: Scatter, how: int, cells: int) -> ArrayBlocks:
    """Returns the blocks (with edges of `cells` elements) by which scatter value `how` sorts."""
    along = [k for k, r in enumerate(scatter.window) if r.base is not None]
    extents = tuple(scatter.extents[k] for k in along)
    spans = tuple(scatter.window[k].span for k in along)
    own = (cells, *extents[1:]) if how == SORTED else (cells,) * len(along)
    return ArrayBlocks(extents, spans, tuple(min(c, n) for c, n in zip(own, extents, strict=True)))


def declare(s: Draft) -> None:
    for t, task in enumerate(s.problem.tasks):
        found = scatters(task, s.problem)
        may_sort = s.kind.has_teams and bool(found) and task.loops[0].extent < MAX_SORTED
        sizes = sizes_of(s, found) if may_sort else ()
        coloured = colourable(task, s.problem) if s.kind.has_teams else ()
        for x in found:
            name = (f"{task.name}.{x.array}",)
            how = values_of(s, t, x, sizes) | (bits(GREEDY) if x in coloured else 0)
            s.v.scatter[t, x.array] = s.b.add("scatter", name, SCATTER, how)
        if sizes:
            values = tuple(map(str, sizes))
            s.v.scatter_cells[t] = s.b.add("scatter_cells", (task.name,), values)


def values_of(s: Draft, t: int, x: Scatter, sizes: tuple[int, ...]) -> int:
    """Returns the possible values (bit mask) of one scatter alone, but for GREEDY.

    Private copies of all threads must fit into the last cache.
    """
    array = s.array(x.array)
    if not s.kind.has_teams:
        is_able = x.op in ATOMIC_OPERATIONS and array.dtype.size_bytes >= 4
        return bits(SERIAL, *({BY_ATOMICS} if is_able else set()))
    values = {SERIAL, BY_ATOMICS}
    if array.size_bytes * s.target.cores <= s.target.last_cache_bytes:
        values.add(PRIVATE)
    if x.window and sizes:
        values |= {SORTED, TILE} if _has_tiles(s, t, x) else {SORTED}
        if len(x.bases) > 1:  # else these are the slabs
            values.add(COLOUR)
    return bits(*values)


def _has_tiles(s: Draft, t: int, x: Scatter) -> bool:
    """True if a tile of the array can be added to it.

    In a sparse field each cell of the tile is looked up then, so no thread may activate cells at that moment.
    """
    body = s.problem.tasks[t].body
    if not x.is_in_tree or body is None:
        return True
    changed = {site.state.name for site in body.sites if site.writes}
    return (
        body.trees.shared.isdisjoint(changed)
        and with_sums(s.problem, s.problem.tasks[t], (x.array,)) is not None
    )


def sizes_of(s: Draft, found: tuple[Scatter, ...]) -> tuple[int, ...]:
    """Returns the possible edges of blocks, in elements. No window reaches beyond the next block."""
    windows = [x for x in found if x.window]
    if not windows:
        return ()
    sizes = [1 << k for k in range(32) if all(_is_size(s, x, 1 << k) for x in windows)]
    step = -(-len(sizes) // _N_SIZES) if sizes else 1
    return tuple(sizes[::step])


def _is_size(s: Draft, x: Scatter, cells: int) -> bool:
    b = blocks_of(x, COLOUR, cells)
    is_apart = max(b.spans) - 1 <= cells < max(b.extents)
    return is_apart and b.n_blocks <= MAX_BLOCKS


def tile_bytes(x: Scatter, array: ArrayInfo, cells: int) -> int:
    """Greatest number of bytes that the windows of one block cover."""
    return prod(tile_shape(x, cells)) * array.dtype.size_bytes


def tile_shape(x: Scatter, cells: int) -> tuple[int, ...]:
    """Greatest number of elements, along each axis, that the windows of one block cover."""
    return tuple(
        r.span if r.base is None else min(cells, n) + r.span - 1
        for r, n in zip(x.window, x.extents, strict=True)
    )


def agree(a: Scatter, b: Scatter) -> bool:
    """True if one sorted order serves both scatters (equal windows). False if either has no window."""
    if not a.window or not b.window:
        return False
    first, second = (
        [
            (r.base, r.least, r.largest, n)
            for r, n in zip(x.window, x.extents, strict=True)
            if r.base
        ]
        for x in (a, b)
    )
    return first == second


# --- predicates ------------------------------------------------------------------------------


@dataclass(frozen=True)
class SortsBy:
    """Predicate: two sorted scatters of a task have equal windows (`agree`) and equal blocks; coloured ones go with no sort."""

    agree: bool

    def __call__(self, a: int, b: int) -> bool:
        if a not in BY_BLOCKS or b not in BY_BLOCKS:
            return True
        if GREEDY in (a, b):
            return a == b
        return self.agree and (a == SORTED) == (b == SORTED)


@dataclass(frozen=True)
class TileFits:
    """Predicate: the tile of a block size, in bytes, fits into `room`.

    A sort by slabs needs at least two slabs.
    """

    tiles: tuple[int, ...]
    room: int
    is_slab: tuple[bool, ...]

    def __call__(self, how: int, size: int) -> bool:
        if how == TILE:
            return self.tiles[size] <= self.room
        return how != SORTED or self.is_slab[size]


# --- constraints -----------------------------------------------------------------------------


def _tasks(s: Draft) -> Iterator[tuple[int, tuple[Scatter, ...], Dim]]:
    for t, task in enumerate(s.problem.tasks):
        found = scatters(task, s.problem)
        if found:
            yield t, found, s.backbone.dim(t, task.loops[0].name, OUTER)


def updates_of_threads(s: Draft) -> None:
    """Semantics: no two threads update one element unordered.

    Dominance: atomics, copies and colours are for several threads only.
    """
    for t, found, outer in _tasks(s):
        kind = s.v.kind[outer]
        for x in found:
            var = s.v.scatter[t, x.array]
            apart = (kind, all_but(DIM_KIND, PARALLEL))
            s.b.clause("updates of threads", [(var, all_but(SCATTER, SERIAL)), apart])
            if kinds_of(s, outer) & bits(PARALLEL):
                alone = (var, all_but(SCATTER, *_OF_THREADS))
                s.b.clause("updates of one thread", [alone, (kind, bits(PARALLEL))])
            else:
                s.b.restrict(var, all_but(SCATTER, *_OF_THREADS))


def updates_of_blocks(s: Draft) -> None:
    """Semantics and dominance: on a GPU, updates are atomic exactly if blocks or threads share the iterations."""
    for t, found, outer in _tasks(s):
        mid = s.backbone.dim(t, outer.loop.name, MID)
        for x in found:
            var = s.v.scatter[t, x.array]
            shared = ((outer, PARALLEL), (mid, THREAD))
            for d, kind in shared:
                apart = (s.v.kind[d], all_but(DIM_KIND, kind))
                s.b.clause("updates of threads", [(var, all_but(SCATTER, SERIAL)), apart])
            some = [(s.v.kind[d], bits(kind)) for d, kind in shared]
            s.b.clause("updates of one thread", [(var, bits(SERIAL)), *some])


def one_sort(s: Draft) -> None:
    """Coherence: the iterations of a task have one order. Without a sort, the block size has its first value."""
    for t, found, _ in _tasks(s):
        for x, y in combinations(found, 2):
            rule = SortsBy(agree(x, y))
            pair = (s.v.scatter[t, x.array], s.v.scatter[t, y.array])
            s.b.table2("one order of iterations", *pair, rule, share=rule)
        if t in s.v.scatter_cells:
            sorted_ = [(s.v.scatter[t, x.array], bits(*SORTING)) for x in found]
            s.b.clause("blocks of a sort", [*sorted_, (s.v.scatter_cells[t], bits(0))])


def sorted_loops(s: Draft) -> None:
    """Coherence: a loop of iterations in blocks merges with no other loop."""
    for t, found, _ in _tasks(s):
        for x in found:
            plain = (s.v.scatter[t, x.array], all_but(SCATTER, *BY_BLOCKS))
            for m in s.backbone.merges:
                if t in (m.a, m.b):
                    a, b = (levels[OUTER] for levels in s.levels_of(m))
                    s.b.clause("sorted alone", [plain, (s.order(a, b), APART)])


def room_of_tiles(s: Draft) -> None:
    """Hardware: the tiles of all threads fit into the last cache.

    Coherence: a sort by slabs needs at least two slabs.
    """
    for t, found, _ in _tasks(s):
        if t not in s.v.scatter_cells:
            continue
        cells = s.v.scatter_cells[t]
        sizes = sizes_of(s, found)
        for x in (x for x in found if x.window):
            array = s.array(x.array)
            tiles = tuple(tile_bytes(x, array, n) for n in sizes)
            first = next(n for r, n in zip(x.window, x.extents, strict=True) if r.base)
            room = s.target.last_cache_bytes // s.target.cores
            fits = TileFits(tiles, room, tuple(n < first for n in sizes))
            s.b.table2("room of tiles", s.v.scatter[t, x.array], cells, fits, share=fits)


_RULES = (updates_of_threads, one_sort, sorted_loops, room_of_tiles)
FAMILY = Family("scatter", {CPU: _RULES, GPU: (updates_of_blocks,)}, declare)
