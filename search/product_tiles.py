"""Tiles of products on a CPU, from the sizes of its caches: which block of which operand stays where (Goto and van de Geijn 2008).

A panel of the vector operand, as wide as the register tile, stays in the first cache while all rows of a block pass by it; the
panels of a block, with the sums that they are added to, stay in the cache that a core has to itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from math import ceil, prod

from ..space import choices as ch
from ..space.candidate import Space
from .loop_roles import find_roles

_FIRST_CACHE_SHARE = _OWN_CACHE_SHARE = 2 / 3  # the rest is for what passes by
_ROWS = (8, 6, 4)  # of a register tile; the more, the fewer loads an operation
_PACKING_ROWS = 32  # to pack a block takes about as long as so many rows of results


@dataclass(frozen=True)
class ProductTile:
    """Iterations of a register tile (`rows` by `vectors` vector registers) and of the mid tile around it."""

    vectors: int
    rows: int
    row_block: int
    column_block: int
    depth: int


def product_tile(space: Space, vectors: int = 2) -> ProductTile | None:
    """The tile for the largest product of three loops or more, all of different roles.

    None where there is none, where nothing is known of a cache of a core's own, or where the operand that is read in vectors fits
    into a core's first cache as it is.
    """
    roles = find_roles(space, merge=True)
    tasks = space.problem.tasks
    able = [t for t in roles.vector if t in roles.rows and len(tasks[t].loops) >= 3]
    if not able:
        return None
    target = space.target
    if not target.own_cache_bytes:
        return None
    t = max(able, key=lambda t: prod(loop.extent for loop in tasks[t].loops))
    extents = {loop.name: loop.extent for loop in tasks[t].loops}
    size_bytes = tasks[t].dtype.size_bytes
    width = vectors * target.lanes(size_bytes)
    first_cache = target.levels[0].capacity_bytes // target.cores
    if prod(n for name, n in extents.items() if name != roles.rows[t]) * size_bytes <= first_cache:
        return None
    # Besides the sums, registers hold the vectors of one operand and a splat of the other.
    fitting = (r for r in _ROWS if r * vectors + vectors + 1 <= target.vector_registers)
    rows = next(fitting, 2)
    # What a core's cache holds, in elements: rows of packed panels and of sums, two panels wide at least.
    held = _OWN_CACHE_SHARE * target.own_cache_bytes / size_bytes
    depth = _FIRST_CACHE_SHARE * first_cache / (width * size_bytes)
    depth = _power_of_two(min(depth, held / (4 * width)))
    most_rows = held / (2 * width) - depth
    row_block = _row_block(extents[roles.rows[t]], rows, most_rows, target.cores)
    panels = max(1, held / (width * (row_block + depth)))
    return ProductTile(vectors, rows, row_block, width * _power_of_two(panels), depth)


def _row_block(extent: int, rows: int, most_rows: float, cores: int) -> int:
    """Rows of a block, so that the busiest thread packs and computes least."""
    blocks = [n * rows for n in ch.MID_SIZES]
    fitting = list(takewhile(lambda block: block == rows or block <= most_rows, blocks))

    def busy(block: int) -> int:
        n_blocks = ceil(ceil(extent / block) / cores)
        return n_blocks * (block + _PACKING_ROWS)

    return min(fitting, key=busy)


def _power_of_two(most: float) -> int:
    """The largest one up to `most`; 1 at least."""
    return 1 << max(0, int(most).bit_length() - 1)
