"""Tile sizes of products on a CPU: blocks of operands that stay in each cache (Goto and van de Geijn 2008).

A panel of the vector operand, as wide as the register tile, stays in the first cache while all rows
of a block pass by it. The blocks that are outermost decide the contents of a core's private cache
(see `ProductTile`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from math import ceil, prod
from typing import NamedTuple

from ...kernels.analysis.domain_bounds import cuts_of
from ...space.backbone import Merge
from ...space.candidate import Space
from ...space.targets.cpu import CPU_KIND
from ...space.targets.target import Target
from .roles import Roles, find_roles

_FIRST_CACHE_SHARE = 3 / 4  # the rest is for what passes by
_OWN_CACHE_SHARE = _LAST_CACHE_SHARE = 2 / 3
_TILES_AHEAD = 8  # least register tiles while a block is packed: the lines packed with the first one were not prefetched
_BLOCKS_OF_TRIANGLE = 8  # for each thread: what the last one has more is 1/8 of its work at most
_ROWS = (12, 8, 6, 4)  # of a register tile
_VECTORS = (4, 2)


class RegisterTile(NamedTuple):
    """Register tile of accumulators: `rows` by `vectors` vector registers."""

    rows: int
    vectors: int

    @property
    def loads(self) -> float:
        """Number of loads per multiplication.

        Each step loads one number per row, and the vectors of one row of the other operand.
        """
        return (self.rows + self.vectors) / (self.rows * self.vectors)


class BlockSizes(NamedTuple):
    """Sizes of a block, in iterations of the loops of rows, of vectors (columns) and of the reduction (depth)."""

    rows: int
    columns: int
    depth: int


@dataclass(frozen=True)
class ProductTile:
    """Register tile of a product, and alternative sizes of the blocks (mid tiles) around it.

    `by_rows`: blocks of rows are outermost; panels and accumulators of a block are in a core's
    private cache.
    `deep`: as `by_rows`, but each register tile reads its panel from that cache, and accumulators
    are loaded and stored half as often.
    `by_depth`: blocks of the reduction are outermost; only packed rows are in the private cache,
    and panels in the last.
    `by_team`: as `by_depth`, with panels that all threads share.
    `by_depth_deep`: as `by_depth`, but accumulators are loaded and stored a quarter as often, and
    panels are read from a private cache.
    `by_rows_ahead`, `by_depth_ahead`: all blocks but the first are packed in advance, so the first
    one is a small part of a thread's packing. With `by_depth_ahead` the first block has one
    register tile of rows, or as many as needed to let a number of register tiles run while a block
    is packed.
    """

    registers: RegisterTile
    by_rows: BlockSizes
    deep: BlockSizes
    by_depth: BlockSizes
    by_team: BlockSizes
    by_depth_deep: BlockSizes
    by_rows_ahead: BlockSizes
    by_depth_ahead: BlockSizes


def product_roles(space: Space, *, apart: bool = False) -> tuple[Roles, int] | None:
    """Returns loop roles for packed operands, and the largest product with three loops or more and distinct roles.

    It returns None if there is no such product. `apart`: other tasks have loops of their own.
    """
    roles = find_roles(space, merge=not apart, sums_inside=True, packed=True)
    tasks = space.problem.tasks
    able = [t for t in roles.vector if t in roles.rows and len(tasks[t].loops) >= 3]
    if not able:
        return None
    return roles, max(able, key=lambda t: prod(loop.extent for loop in tasks[t].loops))


def is_in_results(space: Space) -> bool:
    """True if the register tiles of products have rows and vectors of results, not of their reductions, in merged loops."""
    found = product_roles(space)
    if found is None:
        return True
    roles, t = found
    summed = {loop.name for loop in space.problem.tasks[t].loops if loop.is_reduction}
    is_tile_in_results = roles.rows[t] not in summed and roles.parallel.get(t) not in summed
    return is_tile_in_results and not any(
        _sums_over_results(space, m) for m in space.backbone.merges
    )


def _sums_over_results(space: Space, merge: Merge) -> bool:
    """True if a product sums over a loop that would be one with a loop of another task's results, so in its register tile."""
    tasks = space.problem.tasks
    ends = ((tasks[merge.a], merge.loop_a), (tasks[merge.b], merge.loop_b))
    are_summed = [x.is_reduction for task, name in ends for x in task.loops if x.name == name]
    products = [len(task.loops) >= 3 for task, _ in ends]
    return any(
        product and is_summed and not other
        for product, is_summed, other in zip(products, are_summed, are_summed[::-1], strict=True)
    )


def product_tile(
    space: Space, registers: RegisterTile, *, apart: bool = False
) -> ProductTile | None:
    """Returns the tile for the largest product (see `product_roles`).

    It returns None if there is none, if a core's private cache is unknown, or if the operand read in vectors
    fits into a core's first cache unpacked.
    """
    found, target = product_roles(space, apart=apart), space.target
    if found is None or not target.own_cache_bytes:
        return None
    roles, t = found
    tasks = space.problem.tasks
    extents = {loop.name: loop.extent for loop in tasks[t].loops}
    size_bytes = tasks[t].dtype.size_bytes
    rows, width = registers.rows, registers.vectors * target.lanes(tasks[t].lane_bytes)
    first_cache = target.levels[0].capacity_bytes // target.cores
    if prod(n for name, n in extents.items() if name != roles.rows[t]) * size_bytes <= first_cache:
        return None
    # What a core's cache holds, in elements: rows of packed panels and of sums, two panels wide at least.
    held = _OWN_CACHE_SHARE * target.own_cache_bytes / size_bytes
    depth = _FIRST_CACHE_SHARE * first_cache / (width * size_bytes)
    depth = _mid_size(min(depth, held / (4 * width)))
    # Rows of a triangle go to the threads in turn: what one has more than another is at most one block of them.
    is_cut = any(roles.rows[t] in cut.loops for cut in cuts_of(tasks[t]))
    n_blocks = target.cores * (_BLOCKS_OF_TRIANGLE if is_cut else 1)
    own_rows = ceil(ceil(extents[roles.rows[t]] / rows) / n_blocks) * rows
    row_block = _row_block(own_rows, rows, held / (2 * width) - depth)
    panels = max(1, held / (width * (row_block + depth)))
    by_rows = BlockSizes(row_block, width * _mid_size(panels), depth)
    twice, columns = _mid_size(2 * depth), by_rows.columns
    most_rows = (held - columns * twice) / (columns + twice)  # packed rows are there as well
    deep = BlockSizes(_row_block(own_rows, rows, most_rows), columns, twice)
    n_panels = ceil(extents[roles.vector[t]] / width)

    def blocks_by_depth(depth: int, sharers: int) -> BlockSizes:
        """Returns blocks whose rows fit a core's private cache and whose panels fit the last cache.

        `depth`: iterations of the reduction. `sharers`: threads that share the last cache.
        """
        in_last_cache = _LAST_CACHE_SHARE * target.last_cache_bytes / (width * depth * size_bytes)
        panels = min(n_panels, in_last_cache * sharers / target.cores)
        return BlockSizes(
            _row_block(own_rows, rows, held / depth), width * _mid_size(panels), depth
        )

    by_depth_deep = blocks_by_depth(_mid_size(min(4 * depth, held / (4 * width))), 1)
    rows_ahead = rows * _mid_size(_TILES_AHEAD / n_panels)
    return ProductTile(
        registers,
        by_rows,
        deep,
        by_depth=blocks_by_depth(depth, 1),
        by_team=blocks_by_depth(depth, target.cores),
        by_depth_deep=by_depth_deep,
        by_rows_ahead=by_rows._replace(depth=_mid_size(by_rows.depth / 4)),
        by_depth_ahead=by_depth_deep._replace(rows=rows_ahead),
    )


def register_tiles(target: Target) -> list[RegisterTile]:
    """Returns register tiles for products, those with the fewest loads first.

    Besides the accumulators, registers hold the vectors of one operand and a splat of the other.
    """
    most = target.vector_registers - 1
    rows = {n: [r for r in _ROWS if r * n + n <= most] for n in _VECTORS}
    tiles = [RegisterTile(fitting[0], n) for n, fitting in rows.items() if fitting]
    return sorted(tiles, key=lambda t: t.loads)


def _row_block(own_rows: int, rows: int, most_rows: float) -> int:
    """Returns the rows of a block such that panels are packed least often for a thread's own rows."""
    blocks = [n * rows for n in CPU_KIND.mid_sizes]
    fitting = takewhile(lambda block: block == rows or block <= most_rows, blocks)
    return min(fitting, key=lambda block: ceil(own_rows / block))


def _mid_size(most: float) -> int:
    """Returns the largest size of a mid dim up to `most`."""
    return max(n for n in CPU_KIND.mid_sizes if n <= max(1.0, most))
