"""Order of blocks in the grid of a GPU: row by row, or in bands of a few rows, column by column.

A GPU starts blocks by their numbers, so those that run at once are neighbours in this order. Row by row they share what rows of
the grid read, and read all that columns do. In bands they form a rectangle, and share both in the cache of all multiprocessors.
CUTLASS calls it threadblock swizzle, Triton grouped ordering. The bound has no term: it counts each byte through that cache once.
"""

from __future__ import annotations

from ...kernels.analysis.effects import task_reads
from ...kernels.ir.access import index_loops
from ..backbone import OUTER, Dim
from ..draft import Draft, Family, Phrases, bits
from ..targets.kind import GPU
from .fusion import SEPARATE
from .grid_stride import A_TILE
from .tiling import PARALLEL, kinds_of

BY_ROWS = 0
ROWS_OF_A_BAND = (1, 4, 8, 16)
BLOCK_ORDER = (
    "BY_ROWS",  # as a grid numbers them: along its innermost loop, then along the one around it
    "BANDS_4",  # so many rows form a band: its first column, the next one, and then the next band
    "BANDS_8",
    "BANDS_16",
)


def declare(s: Draft) -> None:
    for t, task in enumerate(s.problem.tasks):
        if len(shared_along(s, t)) > 1:
            s.v.of_tasks["block_order"][t] = s.b.add("block_order", (task.name,), BLOCK_ORDER)


def shared_along(s: Draft, t: int) -> list[Dim]:
    """Returns the dims of the grid along which blocks read the same part of a matrix.

    With two of them, as in products, the order of blocks decides how much is read while a part is in the cache. What blocks
    share of vectors, or at the edges of their tiles, is little beside the rest.
    """
    matrices = [
        loops
        for access, _ in task_reads(s.problem.tasks[t])
        if None not in access.axes and len(loops := index_loops(access)) > 1
    ]
    return [
        d
        for d in s.dims_at(t, OUTER)
        if kinds_of(s, d) & bits(PARALLEL) and any(d.loop.name not in x for x in matrices)
    ]


def one_order(fused: int, here: int, there: int) -> bool:
    """False if two tasks of a launch have different orders of its blocks."""
    return fused == SEPARATE or here == there


def bands(s: Draft) -> None:
    """Coherence: bands are of grids of two dims or more, with a block a tile, and a launch has one order."""
    b, v = s.b, s.v
    orders, strides = v.of_tasks["block_order"], v.of_dims["grid_stride"]
    for t, var in orders.items():
        by_rows, outer = (var, bits(BY_ROWS)), s.dims_at(t, OUTER)
        for d in outer:
            others = [(v.kind[e], bits(PARALLEL)) for e in outer if e != d]
            b.clause("bands in a grid", [by_rows, *others])
            if d in strides:
                b.clause("bands of blocks in turn", [by_rows, (strides[d], bits(A_TILE))])
    for t, u in s.backbone.launch_pairs():
        found = [orders[x] for x in (t, u) if x in orders]
        if len(found) == 2:
            pair = (v.fused[t, u], found[0], found[1])
            b.table3("one order of blocks", *pair, one_order, share=one_order)
        elif found:
            apart = (v.fused[t, u], bits(SEPARATE))
            b.clause("one order of blocks", [apart, (found[0], bits(BY_ROWS))])


_SAID = {
    x: f"in bands of {n} rows" for x, n in zip(BLOCK_ORDER, ROWS_OF_A_BAND, strict=True) if n > 1
}
PHRASES = Phrases(
    "block_order",
    "threads",
    {x: f"starts its blocks {said}" for x, said in _SAID.items()},
    {x: f"blocks {said}" for x, said in _SAID.items()},
)

FAMILY = Family("block_order", {GPU: (bands,)}, declare, (PHRASES,))
