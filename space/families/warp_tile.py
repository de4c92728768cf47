"""Warp tile: the rectangle of threads, along two loops of a block of a GPU, that forms a warp.

Row by row a warp is 32 threads along the fastest loop, or the rows that 32 threads fill. In a product such a warp reads few rows of
one operand and many columns of the other. A rectangle of 4 x 8 threads reads fewer distinct elements of both, and shared memory
moves only distinct ones for a request. CUTLASS calls it the arrangement of lanes in a warp tile. The bound counts the distinct
elements (`search/bound/gpu.py`). What concerns all threads of a block counts them as before: copies, tests for the first threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from ...kernels.analysis.effects import task_reads
from ...kernels.ir.access import index_loops
from ..backbone import MID, Dim
from ..draft import Draft, Family, all_but, bits
from ..targets.kind import GPU
from .threads import FASTER, NOT_THREADS, SLOWER, THREAD_LEVEL, level_between
from .tiling import THREAD, kinds_of, sizes_of

LINEAR = 0
WARP_TILE = (
    "LINEAR",  # as `thread_level` numbers the threads
    "2X16",  # so many threads along the first and along the second loop
    "4X8",
    "8X4",
    "16X2",
)
THREADS_ALONG = ((0, 0), (2, 16), (4, 8), (8, 4), (16, 2))  # of LINEAR as many as there are
WARP = 32  # threads


def declare(s: Draft) -> None:
    for t in range(s.n_tasks):
        able = [d for d in s.dims_at(t, MID) if kinds_of(s, d) & bits(THREAD)]
        for d, e in combinations(able, 2):
            possible = bits(LINEAR, *_fitting(s, d, e))
            if possible != bits(LINEAR) and are_read_apart(s, d, e):
                names = (d.name, e.name)
                s.v.warp_tile[d, e] = s.b.add("warp_tile", names, WARP_TILE, possible)


def _fitting(s: Draft, d: Dim, e: Dim) -> Iterator[int]:
    """Yields the rectangles that divide some number of threads along both dims."""
    for k, pair in enumerate(THREADS_ALONG[1:], start=1):
        found = (
            any(size % n == 0 for size in sizes_of(s, x)) for x, n in zip((d, e), pair, strict=True)
        )
        if all(found):
            yield k


def are_read_apart(s: Draft, d: Dim, e: Dim) -> bool:
    """True if a task reads something by each of two loops of results without the other, as a product does.

    Then the shape of a warp decides how many distinct elements it reads. Threads along a reduction combine by the numbers
    that neighbours in a warp have, so such a loop is in no rectangle.
    """
    if d.loop.is_reduction or e.loop.is_reduction:
        return False
    reads = [index_loops(access) for access, _ in task_reads(s.problem.tasks[d.task])]
    return all(
        any(x in loops and y not in loops for loops in reads)
        for x, y in ((d.loop.name, e.loop.name), (e.loop.name, d.loop.name))
    )


def turned(tile: int) -> int:
    """Returns the warp tile of (y, x), given that of (x, y)."""
    return THREADS_ALONG.index(THREADS_ALONG[tile][::-1])


def rectangles(s: Draft) -> None:
    """Coherence: rectangles divide the threads along the two fastest loops, and warps are none already as they are numbered."""
    b, v = s.b, s.v
    for (d, e), var in v.warp_tile.items():
        linear, level = (var, bits(LINEAR)), v.thread_level[d, e]
        b.clause("warp tile of threads", [linear, (level, all_but(THREAD_LEVEL, NOT_THREADS))])
        for f in s.dims_at(d.task, MID):
            if f not in (d, e) and kinds_of(s, f) & bits(THREAD):
                for x in (d, e):
                    other, slower = level_between(s, x, f)
                    faster = (other, all_but(THREAD_LEVEL, slower))
                    b.clause("warp tile of the fastest loops", [linear, faster])
        for k, pair in enumerate(THREADS_ALONG[1:], start=1):
            is_other = (var, all_but(WARP_TILE, k))
            for x, n, first in zip((d, e), pair, (FASTER, SLOWER), strict=True):
                whole = [m for m, size in enumerate(v.universe[x]) if size % n == 0]
                b.clause("whole warp tiles", [is_other, (v.size[x], bits(*whole))])
                several = [m for m in whole if v.universe[x][m] > n]
                slow = (level, all_but(THREAD_LEVEL, first))
                b.clause("warp tiles side by side", [is_other, slow, (v.size[x], bits(*several))])


FAMILY = Family("warp_tile", {GPU: (rectangles,)}, declare)
