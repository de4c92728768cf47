"""Grid-stride loops: a block takes one tile of a loop of the grid, or resident blocks take all tiles in turn.

With a block a tile the number of tiles is in the launch: a loop over a list has blocks for all elements that the list may have.
Blocks in turn read its length on the device and end there. Their number does not depend on the extent.
In a nest each loop of the grid has this choice by itself, and the grid is the product of their blocks.
The bound counts loads and waves that blocks in turn may save, and multiprocessors that they leave idle.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..backbone import OUTER, Dim
from ..draft import Draft, Family, bits
from ..targets.kind import GPU
from .order import APART, INSIDE
from .tiling import PARALLEL, WITHOUT_LOOP, kinds_of, merged_equal

A_TILE = 0
# Blocks a multiprocessor: from one that takes all of its shared memory, to sixteen of the fewest threads that fill it.
BLOCKS_A_CORE = (0, 1, 2, 4, 8, 16)
GRID_STRIDE = (
    "NONE",  # a block a tile
    *map(str, BLOCKS_A_CORE[1:]),  # so many blocks a multiprocessor take the tiles in turn
)


def declare(s: Draft) -> None:
    for d in s.backbone.dims:
        if d.level == OUTER and may_stride(s, d):
            s.v.of_dims["grid_stride"][d] = s.b.add("grid_stride", (d.name,), GRID_STRIDE)


def may_stride(s: Draft, d: Dim) -> bool:
    """True if a dim may be in the grid, and have more tiles than the fewest blocks in turn.

    A block in turn keeps the sum of a reduction loop in registers for all of its tiles, and leaves one partial result.
    """
    is_long = d.loop.extent > s.target.cores * BLOCKS_A_CORE[1]
    return is_long and bool(kinds_of(s, d) & bits(PARALLEL))


@dataclass(frozen=True)
class MoreTiles:
    """Predicate: a loop has more tiles (of mid times inner iterations) than blocks that take them in turn."""

    extent: int
    mids: tuple[int, ...]
    inners: tuple[int, ...]
    cores: int

    def __call__(self, stride: int, mid: int, inner: int) -> bool:
        n_tiles = -(-self.extent // (self.mids[mid] * self.inners[inner]))
        return stride == A_TILE or n_tiles > self.cores * BLOCKS_A_CORE[stride]


def results_around(stride: int, free: int, order: int) -> bool:
    """False if a loop over results, of kind `free`, is inside a reduction loop whose tiles blocks take in turn.

    `order`: the relation of the dim of the result to the reduced dim.
    """
    return stride == A_TILE or order != INSIDE or free in WITHOUT_LOOP


def sums_of_blocks(s: Draft) -> None:
    """Hardware: accumulators are in registers over all tiles of a block, so loops over results are around these."""
    for r, var in s.v.of_dims["grid_stride"].items():
        if r.loop.is_reduction:
            for f in (d for d in s.ordered_dims(r.task) if not d.loop.is_reduction):
                around = results_around
                kind, order = s.v.kind[f], s.order(f, r)
                s.b.table3("sums of blocks in turn", var, kind, order, around, share=around)


def in_the_grid(s: Draft) -> None:
    """Coherence: only loops of the grid stride, and only with more tiles than blocks. Merged dims are one loop."""
    strides, v = s.v.of_dims["grid_stride"], s.v
    for d, var in strides.items():
        s.b.clause("strides of blocks", [(var, bits(A_TILE)), (v.kind[d], bits(PARALLEL))])
        _, mid, inner = s.levels(d.task, d.loop.name)
        more = MoreTiles(d.loop.extent, v.universe[mid], v.universe[inner], s.target.cores)
        s.b.table3("more tiles than blocks", var, v.size[mid], v.size[inner], more, share=more)
    for merge in s.backbone.merges:
        d, e = (levels[OUTER] for levels in s.levels_of(merge))
        found = [strides[x] for x in (d, e) if x in strides]
        if len(found) == 2:
            order, rule = s.order(d, e), merged_equal
            s.b.table3("merged strides", order, found[0], found[1], rule, share=rule)
        elif found:
            apart = (s.order(d, e), APART)
            s.b.clause("merged strides", [apart, (found[0], bits(A_TILE))])


def tiles_at_most(s: Draft, name: str, where: tuple[int, int], d: Dim, limit: int) -> None:
    """Requires that a dim has at most `limit` tiles if a choice has a value and each block takes one tile.

    `where`: the complement of this value, as a literal of a clause.
    """
    _, mid, inner = s.levels(d.task, d.loop.name)
    mids, inners = s.v.universe[mid], s.v.universe[inner]
    strided = [(x, ~bits(A_TILE)) for e, x in s.v.of_dims["grid_stride"].items() if e == d]
    for n in inners:
        few = [k for k, size in enumerate(mids) if -(-d.loop.extent // (size * n)) <= limit]
        larger = [k for k, size in enumerate(inners) if size > n]
        if len(few) < len(mids):
            sizes = [(s.v.size[mid], bits(*few)), (s.v.size[inner], bits(*larger))]
            s.b.clause(name, [where, *strided, *((x, mask) for x, mask in sizes if mask)])


FAMILY = Family("grid_stride", {GPU: (in_the_grid, sums_of_blocks)}, declare)
