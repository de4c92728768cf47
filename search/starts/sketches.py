"""Styles: what first implementations should look like, on a CPU and on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...kernels.ir.access import flat_strides
from ...space import choices as ch
from ...space.backbone import Operand, written_arrays
from ...space.engine.candidate import Space
from ...space.targets.target import Target
from .roles import find_roles, sweeps
from .tiles import ProductTile, product_tile, register_tiles

SMALL_BYTES = 64 << 10  # below this a team of threads costs more than it gains
BLOCK_THREADS = 256  # of a GPU, where nothing is known better


@dataclass(frozen=True)
class Style:
    """What an implementation should look like, as far as it can.

    `vectors` vector registers along the contiguous loop by `rows` copies of a second one make the
    register tile; `panel` iterations of the contiguous loop, `block` of all loops, are a mid tile.
    `tile`, where it is not empty, are iterations of the loops of rows, of vectors and of what is summed
    in a mid tile, and the rows of the tile pass by each panel of vectors. `copy` packs what is read in
    vectors, `copy_all` every operand, outside of the loop of vectors, so that each is packed once for a block of rows; where it is
    `depth_first`, blocks of what is summed are outermost, so that what is read in vectors is packed once for all rows of a thread,
    and of all threads where it is packed `by_team`.
    `columns` shares out the contiguous loop to the threads, so that tasks can meet along it; `keep`
    lets a thread copy what it reads for a later task that reads it again; `late` tasks run beside
    those that they wait for; tiles go to the threads in turn if `cyclic`. Of a GPU, `threads` run
    along the contiguous loop and `row_threads` along a second one; `split` shares out reductions to
    blocks, which add up `atomic`ally or leave partial results. Copies have `stages`: of a CPU those whose elements are far apart.
    Tasks of which one needs the sums of another only to finish its own sum up in one loop where `sums_together`.
    Where `sums_ahead`, sums in memory are asked for before what is added to them is computed.
    """

    fuse: bool = True  # one launch
    merge: bool = True  # one loop for tasks that walk the same elements
    sums_together: bool = False
    sweep: bool = False  # of them only for those that need no other nest than each has by itself
    parallel: bool = True
    vectors: int = 1
    rows: int = 1
    panel: int = 1
    block: int = 1
    tile: tuple[int, ...] = ()
    stream: bool = False
    copy: bool = False
    copy_all: bool = False
    depth_first: bool = False
    by_team: bool = False
    stages: int = 1
    columns: bool = False
    prefetch: int = ch.NO_PREFETCH
    sums_ahead: bool = False
    keep: bool = False
    late: bool = False
    cyclic: bool = False
    threads: int = 1
    row_threads: int = 1
    split: bool = False
    atomic: bool = False


def default_style(space: Space) -> Style:
    """Every task by itself, as a plain compiler would make it: the baseline."""
    return Style(fuse=False, merge=False, threads=BLOCK_THREADS if space.target.is_gpu else 1)


def _total_bytes(space: Space) -> int:
    return sum(a.size_bytes for a in space.problem.arrays if a.role != "temp")


def greedy_style(space: Space) -> Style:
    """As much in one loop as is legal."""
    total = _total_bytes(space)
    if space.target.is_gpu:
        return Style(threads=BLOCK_THREADS, rows=4)
    return Style(
        vectors=4,
        rows=4,
        parallel=total >= SMALL_BYTES,
        stream=total > space.target.last_cache_bytes,
        sums_together=True,
    )


def styles(space: Space) -> Iterator[tuple[str, Style]]:
    """Names and styles worth a measurement, the most promising first."""
    greedy = greedy_style(space)
    if space.target.is_gpu:
        yield from _gpu_styles(space, greedy)
        return
    has_products = any(len(task.loops) >= 3 for task in space.problem.tasks)
    if has_products:  # of a product without packed panels much is known: it waits for memory
        yield from _product_panels(space, greedy)
    yield "greedy", greedy
    yield (
        "greedy_unstreamed" if greedy.stream else "greedy_streamed",
        replace(greedy, stream=not greedy.stream),
    )
    sweep_rows = _sweep_rows(space.target)
    has_waits = len(set(sweeps(space, find_roles(space, merge=False)))) > 1
    # Where a task waits for all of another's sums, what both read comes from memory twice but for panels that stay in a cache.
    streams = greedy.stream or _stores_around_pay(space)
    panels_come_first = has_waits and streams
    in_panels = replace(greedy, stream=streams)
    if has_waits:
        # Rows of whole tasks at a time, one task after another where one needs all of another's sums.
        in_sweeps = replace(greedy, sweep=True, stream=False)
        for rows, vectors in dict.fromkeys(((sweep_rows, 1), (4, 2), (2, 2))):
            yield (
                f"sweeps_rows{rows}_vectors{vectors}",
                replace(in_sweeps, rows=rows, vectors=vectors),
            )
    if panels_come_first:
        yield from _own_panels(in_panels)
    if has_products:
        yield "product_packed", replace(greedy, vectors=2, rows=6, block=256, copy=True)
        yield "product_blocked", replace(greedy, vectors=2, rows=6, block=256)
        for tile in register_tiles(space.target):
            name = f"product_tile_rows{tile.rows}_vectors{tile.vectors}"
            yield name, replace(greedy, vectors=tile.vectors, rows=tile.rows)
    # Of the sums of several rows the most come first for which 16 registers have room, too.
    for rows, vectors in dict.fromkeys(
        ((4, 2), (2, 4), (8, 2), (sweep_rows, 1), (8, 1), (4, 1), (1, 4), (1, 2))
    ):
        yield f"rows{rows}_vectors{vectors}", replace(greedy, rows=rows, vectors=vectors)
    if any(m.before_finish for m in space.backbone.merges):
        one_by_one = replace(greedy, sums_together=False)
        for rows, vectors in ((4, 1), (4, 2)):
            name = f"rows{rows}_vectors{vectors}_sums_apart"
            yield name, replace(one_by_one, rows=rows, vectors=vectors)
    if any(len(task.loops) >= 2 for task in space.problem.tasks):
        # The rows after these are on their way into the first cache while these are worked on.
        next_rows = replace(greedy, prefetch=ch.NEXT, stream=False)
        for rows, vectors in ((2, 2), (1, 4)):
            yield (
                f"rows{rows}_vectors{vectors}_next",
                replace(next_rows, rows=rows, vectors=vectors),
            )
        yield "late", replace(greedy, late=True)
        yield "columns", replace(greedy, columns=True)
        if not panels_come_first:
            yield from _own_panels(in_panels)
        yield "columns_panel512", replace(greedy, columns=True, panel=512)
        # A panel that every row passes through stays in cache until the next task reads it: the wider,
        # the longer the runs of contiguous memory; the narrower, the more rows fit.
        yield "panel512", replace(greedy, panel=512)
        yield "panel256_rows8", replace(greedy, panel=256, rows=8, vectors=2, stream=False)
        yield "panel128_rows8", replace(greedy, panel=128, rows=8, vectors=2, stream=False)
        yield "panel64_rows8", replace(greedy, panel=64, rows=8, vectors=4, stream=False)
    yield "one_launch", replace(greedy, merge=False)
    yield "apart", replace(greedy, fuse=False, merge=False)
    yield "one_thread", replace(greedy, parallel=not greedy.parallel)


def _stores_around_pay(space: Space) -> bool:
    """Whether memory takes what the cores' own caches do not hold faster than the last cache, which reads lines before they are
    written over and writes them back later.
    """
    target = space.target
    if not target.own_cache_bytes:
        return False
    written = {name for task in space.problem.tasks for name in written_arrays(task)}
    most_bytes = max(space.problem.array(name).size_bytes for name in written)
    stored_per_ns = target.levels[-1].read_bytes_per_ns / 2
    is_beyond_own = most_bytes > target.own_cache_bytes * target.cores
    return is_beyond_own and bool(target.memory_write_bytes_per_ns > stored_per_ns)


def _sweep_rows(target: Target) -> int:
    """Rows of which registers hold both a sum and a factor, besides three vectors: one of a row, one that all rows are multiplied
    by and one that they are added to.
    """
    return next((rows for rows in (8, 6, 4) if 2 * rows + 3 <= target.vector_registers), 2)


def _own_panels(greedy: Style) -> Iterator[tuple[str, Style]]:
    """Each thread takes panels of its own from the first task to the last.

    A thread's copy of a panel is contiguous, so rows that lie a power of two apart do not drive one another out of its cache. Where
    one task waits for the result of another, it is late: memory is busy with the next panel meanwhile.
    """
    own_panels = replace(greedy, columns=True, keep=True)
    late = replace(own_panels, late=True, rows=1)
    in_turn = replace(late, cyclic=True, prefetch=ch.NEAR)
    for vectors in (4, 6, 8):
        yield f"columns_vectors{vectors}_late_in_turn", replace(in_turn, vectors=vectors)
    for prefetch, name in ((ch.FAR, "_far"), (ch.NEAR, "_near"), (ch.NO_PREFETCH, "")):
        yield f"columns_vectors8_late{name}", replace(late, vectors=8, prefetch=prefetch)
    for width in (64, 128):
        yield (
            f"columns_panel{width}_rows4_ahead",
            replace(own_panels, panel=width, rows=4, vectors=1, prefetch=ch.NEAR),
        )


def _product_panels(space: Space, greedy: Style) -> Iterator[tuple[str, Style]]:
    """Products in tiles that fit the caches."""
    made = (product_tile(space, registers) for registers in register_tiles(space.target))
    tiles = [tile for tile in made if tile is not None]
    if not tiles:
        return
    best, *others = tiles
    every = _packed(greedy, best)
    once = _packed_once(every, best)
    yield "product_panels", replace(every, copy_all=False)
    yield "product_panels_all", every
    yield "product_panels_deep", replace(every, tile=best.deep)
    yield "product_panels_once", once
    if space.variables.sums:
        # With each block of what is summed all sums pass by.
        yield (
            "product_panels_once_sums",
            replace(once, tile=best.by_depth_deep, sums_ahead=True),
        )
    # Meeting before and behind each block costs small products more than packing panels twice.
    yield "product_panels_together", replace(once, tile=best.by_team, by_team=True)
    if any(has_gaps(space, o) for o in space.variables.staged):
        ahead = replace(once, tile=best.by_depth_ahead, stages=ch.TWO_STAGES, sums_ahead=True)
        yield "product_panels_once_ahead", ahead
        ahead = replace(every, tile=best.by_rows_ahead, stages=ch.TWO_STAGES)
        yield "product_panels_ahead", ahead
    for other in others:
        name = f"rows{other.registers.rows}_vectors{other.registers.vectors}"
        every = _packed(greedy, other)
        yield f"product_panels_all_{name}", every
        yield f"product_panels_once_{name}", _packed_once(every, other)


def _packed(greedy: Style, tile: ProductTile) -> Style:
    rows, vectors = tile.registers
    return replace(greedy, vectors=vectors, rows=rows, tile=tile.by_rows, copy=True, copy_all=True)


def _packed_once(packed: Style, tile: ProductTile) -> Style:
    return replace(packed, depth_first=True, tile=tile.by_depth, stream=False)


def has_gaps(space: Space, o: Operand) -> bool:
    """Whether no elements of an operand are neighbours: a CPU packs these ahead, since its prefetchers do not follow them."""
    strides = flat_strides(o.access, space.problem.array(o.access.array))
    return all(abs(k) > 1 for k in strides.values())


def _gpu_styles(space: Space, greedy: Style) -> Iterator[tuple[str, Style]]:
    yield "greedy", greedy
    if any(len(task.loops) >= 3 for task in space.problem.tasks):
        product = replace(
            greedy, threads=16, row_threads=16, rows=8, vectors=2, block=16, copy=True
        )
        yield "product_stages2", replace(product, stages=2)
        yield "product_staged", product
        yield "product_stages3", replace(product, stages=3)
        yield "product_staged4", replace(product, rows=4, vectors=1)
        yield "product_small", replace(product, threads=8, row_threads=8, rows=4, vectors=1)
        yield "product_direct", replace(product, copy=False, block=1)
    for threads, rows in ((256, 1), (128, 8), (512, 2), (64, 4), (32, 1)):
        yield f"threads{threads}_rows{rows}", replace(greedy, threads=threads, rows=rows)
    if any(len(task.loops) >= 2 for task in space.problem.tasks):
        yield "warps", replace(greedy, threads=32, row_threads=8, rows=1)
        yield "warps_rows4", replace(greedy, threads=32, row_threads=8, rows=4)
        yield "split", replace(greedy, split=True)
        yield "split_atomic", replace(greedy, split=True, atomic=True)
        yield "split_warps", replace(greedy, threads=32, row_threads=8, split=True)
    yield "streamed", replace(greedy, stream=True)
    yield "apart", replace(greedy, fuse=False, merge=False)
