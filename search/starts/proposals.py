"""Sketches (partial descriptions of implementations) that are worth a measurement, for a CPU and for a GPU.

Their order decides the result of a short search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from ...kernels.analysis.domain_bounds import cuts_of
from ...kernels.analysis.effects import arrays_written
from ...kernels.ir.access import flat_strides
from ...space import choices as ch
from ...space.backbone import INNER, Operand
from ...space.candidate import Space
from ...space.targets.kind import CPU, GPU
from ...space.targets.target import Target
from .profitability import what_pays
from .roles import find_roles, sweeps
from .sketches import Along, Axis, CopyInputs, Fusion, Packing, Sketch, Sums, ThreadBlock, TileSizes
from .tiles import ProductTile, is_in_results, product_tile, register_tiles

SMALL_BYTES = 64 << 10  # below this a team of threads costs more than it gains
_WINDOW = 4096  # iterations that are sorted among themselves: what they write and look up stays in the second cache
BLOCK_THREADS = 256  # of a GPU, where nothing is known better
_APART = Fusion(
    loops=False, sums_inside=True
)  # each product with its own loops, the tile of its results in registers


def default_sketch(space: Space) -> Sketch:
    """Returns the baseline sketch: every task by itself, as a plain compiler would make it."""
    fusion = Fusion(launch=False, loops=False)
    return Sketch(fusion=fusion, threads=PROPOSALS[space.target.kind].threads)


def greedy_sketch(space: Space) -> Sketch:
    """Returns the sketch with as much fusion as is legal."""
    return PROPOSALS[space.target.kind].greedy(space)


def sketches(space: Space) -> Iterator[Sketch]:
    """Yields sketches worth a measurement, the most promising first; some may come twice."""
    yield from PROPOSALS[space.target.kind].all(space, greedy_sketch(space))


# --- CPUs ----------------------------------------------------------------------------------------


def _greedy_of_cpu(space: Space) -> Sketch:
    total_bytes = sum(a.size_bytes for a in space.problem.arrays if a.role != "temp")
    is_beyond_caches = total_bytes > space.target.last_cache_bytes
    return Sketch(
        fusion=Fusion(sums=True),
        tile=TileSizes(rows=4, vectors=4),
        threads=Along(team=total_bytes >= SMALL_BYTES, by_work=_has_uneven(space)),
        stores=ch.STREAM if is_beyond_caches else ch.CACHED,
    )


def _of_cpu(space: Space, greedy: Sketch) -> Iterator[Sketch]:
    loops = max((len(task.loops) for task in space.problem.tasks), default=0)
    if loops >= 3:  # of a product without packed panels much is known: it waits for memory
        apart = not is_in_results(space)
        # The loop that most tasks share is one that a product sums over.
        of_products = replace(greedy, fusion=_APART) if apart else greedy
        yield from _products_along_sums(space, of_products, apart=apart)
        yield from _packed_products(space, of_products, apart=apart)
        yield from _products_of_triangles(space, greedy)
    yield from _scatters(space, greedy)
    yield greedy
    if space.backbone.rescaled:
        # Panels of a row stay in the first cache, and corrections are few.
        fusion = replace(greedy.fusion, rescaled=True)
        for vectors, panel in ((2, 256), (4, 1024)):
            yield replace(greedy, fusion=fusion, tile=TileSizes(1, vectors, panel=panel))
    if _leaves_lanes(space):
        assert isinstance(greedy.threads, Along)
        yield replace(greedy, threads=replace(greedy.threads, lanes=True))
    yield from _where_threads_pay(space, greedy)
    if space.variables.of_places.get("materialised"):
        for sketch in (*_where_threads_pay(space, greedy), greedy):
            yield replace(sketch, fusion=replace(sketch.fusion, stores_values=True))
    if space.variables.ranges:
        yield replace(greedy, tile=replace(greedy.tile, ranges=ch.ALONG))
    if _has_uneven(space):
        # Without lanes over iterations of different lengths, which wait for the longest.
        yield replace(greedy, tile=replace(greedy.tile, vectors=0))
    yield from _by_length(space, greedy)
    yield replace(greedy, stores=ch.CACHED if greedy.stores == ch.STREAM else ch.STREAM)
    # Where a task waits for all of another's sums, what both read comes from memory twice but for panels that stay in a cache.
    has_waits = len(set(sweeps(space, find_roles(space, merge=False)))) > 1
    is_streamed = greedy.stores == ch.STREAM or _stores_around_pay(space)
    panels = list(_own_panels(replace(greedy, stores=ch.STREAM if is_streamed else ch.CACHED)))
    panels_come_first = has_waits and is_streamed
    if has_waits:
        yield from _in_sweeps(space.target, greedy)
    if panels_come_first:
        yield from panels
    if loops >= 3:
        yield from _plain_products(space.target, greedy)
    yield from _register_tiles(space, greedy)
    if loops >= 2:
        # The rows after these are on their way into the first cache while these are worked on.
        next_rows = replace(greedy, prefetch=ch.NEXT, stores=ch.CACHED)
        yield replace(next_rows, tile=TileSizes(rows=2, vectors=2))
        yield replace(next_rows, tile=TileSizes(rows=1, vectors=4))
        yield replace(greedy, shift=ch.LATE)
        yield _along_columns(greedy)
        if not panels_come_first:
            yield from panels
        yield from _shared_panels(greedy)
    yield replace(greedy, fusion=replace(greedy.fusion, loops=False))
    yield replace(greedy, fusion=replace(greedy.fusion, launch=False, loops=False))
    assert isinstance(greedy.threads, Along)
    yield replace(greedy, threads=Along(team=not greedy.threads.team))


def _scatters(space: Space, greedy: Sketch) -> Iterator[Sketch]:
    """Yields sketches with each method for updates of shared elements.

    Block sizes of sorts start from the middle.
    Small blocks take a longer sort, large ones exceed the first cache.
    """
    v = space.variables
    if not v.scatter:
        return
    sizes = sorted({int(x) for var in v.scatter_cells.values() for x in space.choices[var].values})
    middle = len(sizes) // 2
    by_distance = sorted(sizes, key=lambda n: abs(sizes.index(n) - middle))
    sorts = [(how, n) for n in by_distance for how in (ch.TILE, ch.SORTED, ch.COLOUR)]
    # Where much is computed between updates lanes save most of it: nobody knows how much before one was run.
    most = [(ch.PRIVATE, 1), *sorts[:2]]
    for lanes in (False, True):
        for how, cells in most:
            yield replace(greedy, threads=Along(scatter=how, cells=cells, lanes=lanes))
    blocks = {
        int(x) for var in v.of_tasks["greedy_block"].values() for x in space.choices[var].values
    }
    coloured = [(ch.GREEDY, n) for n in sorted(blocks, reverse=True)]
    for how, cells in ((ch.BY_ATOMICS, 1), *sorts[2:], *coloured):
        yield replace(greedy, threads=Along(scatter=how, cells=cells))


def _by_length(space: Space, greedy: Sketch) -> Iterator[Sketch]:
    """Yields a sketch with iterations of nearly equal length in the lanes of a vector, if they can be sorted by length."""
    if space.variables.of_tasks["length_window"]:
        assert isinstance(greedy.threads, Along)
        threads = replace(greedy.threads, lanes=True, by_work=True, by_length=_WINDOW)
        yield replace(greedy, threads=threads)


def _where_threads_pay(space: Space, greedy: Sketch) -> Iterator[Sketch]:
    """Yields sketches with the thread counts of standalone kernels, in separate launches and fused.

    It yields none if the greedy sketch has the same threads already and there are no updates of
    shared elements.
    """
    assert isinstance(greedy.threads, Along)
    with_loops = {t for t, task in enumerate(space.problem.tasks) if task.loops}
    usual = with_loops if greedy.threads.team else set[int]()
    for fusion in (Fusion(launch=False, loops=False), greedy.fusion):
        found = what_pays(space, are_merged=fusion.loops)
        if space.target.cores > 1 and (found.tasks != usual or found.scatters):
            threads = replace(greedy.threads, team=True, where_pays=True)
            yield replace(greedy, fusion=fusion, threads=threads)


def _has_uneven(space: Space) -> bool:
    """True if there are wavefront sweeps, or body loops with uneven iterations whose schedule is a choice."""
    return bool(space.variables.waves) or any(
        not space.problem.tasks[d.task].is_structured for d in space.variables.schedule
    )


def _leaves_lanes(space: Space) -> bool:
    """True if a body without a contiguous loop could be vectorised: vector arithmetic may outweigh its gathers."""
    v, backbone = space.variables, space.backbone
    shared = {t for t, _ in v.scatter}
    vector = find_roles(space, merge=True).vector
    for t, task in enumerate(space.problem.tasks):
        if task.body is None or not task.loops or t in shared or t in vector:
            continue
        inner = v.kind[backbone.dim(t, task.loops[-1].name, INNER)]
        if int(space.model.initial[inner]) >> ch.VECTOR & 1:
            return True
    return False


def _stores_around_pay(space: Space) -> bool:
    """True if streaming stores pay: arrays exceed private caches, and memory takes stores faster than the last cache.

    The last cache reads lines before they are overwritten, and writes them back later.
    """
    target = space.target
    if not target.own_cache_bytes:
        return False
    written = {name for task in space.problem.tasks for name in arrays_written(task)}
    most_bytes = max((space.problem.array(name).size_bytes for name in written), default=0)
    stored_per_ns = target.levels[-1].read_bytes_per_ns / 2
    is_beyond_own = most_bytes > target.own_cache_bytes * target.cores
    return is_beyond_own and bool(target.memory_write_bytes_per_ns > stored_per_ns)


def _sweep_rows(target: Target) -> int:
    """Returns the number of rows whose accumulators and factors fit into registers, besides three vectors.

    These are a vector of a row, a vector by which all rows are multiplied, and one to which they
    are added.
    """
    return next((rows for rows in (8, 6, 4) if 2 * rows + 3 <= target.vector_registers), 2)


def _in_sweeps(target: Target, greedy: Sketch) -> Iterator[Sketch]:
    """Yields sketches that run several rows of a task at a time, one task after another if it needs all of another's sums."""
    fusion = replace(greedy.fusion, in_sweeps=True)
    for tile in (TileSizes(_sweep_rows(target), 1), TileSizes(4, 2), TileSizes(2, 2)):
        yield replace(greedy, fusion=fusion, tile=tile, stores=ch.CACHED)


def _register_tiles(space: Space, greedy: Sketch) -> Iterator[Sketch]:
    # Of the sums of several rows the most come first for which 16 registers have room, too.
    most = (_sweep_rows(space.target), 1)
    for rows, vectors in ((4, 2), (2, 4), (8, 2), most, (8, 1), (4, 1), (1, 4), (1, 2)):
        yield replace(greedy, tile=TileSizes(rows, vectors))
    if any(m.before_finish for m in space.backbone.merges):
        for tile in (TileSizes(4, 1), TileSizes(4, 2)):
            yield replace(greedy, fusion=replace(greedy.fusion, sums=False), tile=tile)


def _along_columns(sketch: Sketch) -> Sketch:
    assert isinstance(sketch.threads, Along)
    return replace(sketch, threads=replace(sketch.threads, axis=Axis.CONTIGUOUS))


def _own_panels(greedy: Sketch) -> Iterator[Sketch]:
    """Yields sketches in which each thread takes panels (column blocks) of its own from the first task to the last.

    A thread's copy of a panel is contiguous, so rows that lie a power of two apart do not evict one
    another from its cache. If one task depends on the result of another, it is retimed: memory
    loads the next panel meanwhile.
    """
    own = replace(_along_columns(greedy), reuse=CopyInputs())
    late = replace(own, shift=ch.LATE)
    assert isinstance(late.threads, Along)
    cyclic = replace(late.threads, schedule=ch.CYCLIC)
    for vectors in (4, 6, 8):
        yield replace(late, tile=TileSizes(1, vectors), threads=cyclic, prefetch=ch.NEAR)
    for prefetch in (ch.FAR, ch.NEAR, ch.NO_PREFETCH):
        yield replace(late, tile=TileSizes(1, 8), prefetch=prefetch)
    for width in (64, 128):
        yield replace(own, tile=TileSizes(4, 1, panel=width), prefetch=ch.NEAR)


def _shared_panels(greedy: Sketch) -> Iterator[Sketch]:
    """Yields sketches with a panel (column block) that stays in cache between tasks, while all rows pass through it.

    Wider panels have longer contiguous runs of memory, narrower ones room for more rows.
    """
    wide = replace(greedy, tile=replace(greedy.tile, panel=512))
    yield _along_columns(wide)
    yield wide
    for tile in (TileSizes(8, 2, panel=256), TileSizes(8, 2, panel=128), TileSizes(8, 4, panel=64)):
        yield replace(greedy, tile=tile, stores=ch.CACHED)


def _packed_products(space: Space, greedy: Sketch, *, apart: bool) -> Iterator[Sketch]:
    """Yields sketches of matrix products in tiles that fit the caches, with packed operands."""
    registers = register_tiles(space.target)
    made = (product_tile(space, x, apart=apart) for x in registers)
    tiles = [tile for tile in made if tile is not None]
    if not tiles:
        return
    best, *others = tiles
    every, once = _packed_by_rows(greedy, best), _packed_once(greedy, best)
    deep = Packing(every=True, depth_first=True)
    yield replace(every, packing=Packing())
    yield every
    yield replace(every, tile=replace(every.tile, blocks=best.deep))
    yield once
    if space.variables.prefetch_accumulators:
        # All sums are loaded and stored with each block of the reduction.
        tile = replace(once.tile, blocks=best.by_depth_deep)
        yield replace(once, tile=tile, packing=replace(deep, prefetched=True))
    # Meeting before and behind each block costs small products more than packing panels twice.
    tile = replace(once.tile, blocks=best.by_team)
    yield replace(once, tile=tile, packing=replace(deep, by_team=True))
    if any(has_gaps(space, o) for o in space.variables.staged):
        tile = replace(once.tile, blocks=best.by_depth_ahead)
        staged = replace(deep, stages=ch.TWO_STAGES, prefetched=True)
        yield replace(once, tile=tile, packing=staged)
        tile = replace(every.tile, blocks=best.by_rows_ahead)
        yield replace(every, tile=tile, packing=Packing(every=True, stages=ch.TWO_STAGES))
    for other in others:
        yield _packed_by_rows(greedy, other)
        yield _packed_once(greedy, other)


def _packed_by_rows(greedy: Sketch, tile: ProductTile) -> Sketch:
    rows, vectors = tile.registers
    return replace(
        greedy, tile=TileSizes(rows, vectors, blocks=tile.by_rows), packing=Packing(every=True)
    )


def _packed_once(greedy: Sketch, tile: ProductTile) -> Sketch:
    rows, vectors = tile.registers
    packing = Packing(every=True, depth_first=True)
    blocks = TileSizes(rows, vectors, blocks=tile.by_depth)
    return replace(greedy, tile=blocks, packing=packing, stores=ch.CACHED)


def _products_of_triangles(space: Space, greedy: Sketch) -> Iterator[Sketch]:
    """Yields sketches of products with a triangular result, without packed blocks.

    Other tasks have loops of their own.
    """
    if any(cuts_of(task) and len(task.loops) >= 3 for task in space.problem.tasks):
        for rows, vectors, block in ((6, 2, 64), (4, 2, 128), (6, 2, 1)):
            tile = TileSizes(rows, vectors, block=block)
            yield replace(greedy, fusion=_APART, tile=tile, stores=ch.CACHED)


def _products_along_sums(space: Space, greedy: Sketch, *, apart: bool) -> Iterator[Sketch]:
    """Yields sketches of products of rows by rows: both operands are read in vectors along the reduction.

    The accumulators of a tile of results are reduced across their lanes at the end.
    """
    roles, tasks = find_roles(space, merge=not apart, sums_inside=True), space.problem.tasks
    along = [x for t, task in enumerate(tasks) for x in task.loops if roles.vector.get(t) == x.name]
    if any(loop.is_reduction for loop in along):
        for block, depth, columns in ((128, 256, 3), (64, 256, 3), (1, 1, 3)):
            tile = TileSizes(4, 1, panel=depth, block=block, columns=columns)
            yield replace(greedy, tile=tile, stores=ch.CACHED)


def _plain_products(target: Target, greedy: Sketch) -> Iterator[Sketch]:
    blocked = replace(greedy, tile=TileSizes(6, 2, block=256))
    yield replace(blocked, packing=Packing())
    yield blocked
    for rows, vectors in register_tiles(target):
        yield replace(greedy, tile=TileSizes(rows, vectors))


def has_gaps(space: Space, o: Operand) -> bool:
    """True if the operand has no unit-stride access.

    Hardware prefetchers do not follow it, so CPUs pack it in advance.
    """
    strides = flat_strides(o.access, space.problem.array(o.access.array))
    return not o.is_window and all(abs(strides[name]) > 1 for name in o.loops)


# --- GPUs ----------------------------------------------------------------------------------------


def _greedy_of_gpu(_: Space) -> Sketch:
    return Sketch(tile=TileSizes(rows=4), threads=ThreadBlock(BLOCK_THREADS))


def _of_gpu(space: Space, greedy: Sketch) -> Iterator[Sketch]:
    loops = max((len(task.loops) for task in space.problem.tasks), default=0)
    yield greedy
    if loops >= 3:
        square = replace(greedy, tile=TileSizes(8, 2, block=16), threads=ThreadBlock(16, 16))
        # With fragments of four steps of the sum a load from shared memory serves 16 multiply-adds of f32, and not 6.4.
        deep = replace(square, tile=TileSizes(8, 2, block=16, depth=4))
        # Transposed, a load serves as many in each step, so that operands of a step take 16 registers, and not 40 those of four.
        ways = (
            (deep, 2, True),
            (deep, 2, False),
            (deep, 3, False),
            (square, 2, False),
            (deep, 1, True),
        )
        for sketch, stages, transposed in ways:
            packing = Packing(every=True, stages=stages, transposed=transposed)
            yield replace(sketch, packing=packing)
        small = replace(square, tile=TileSizes(4, 1, block=16), packing=Packing(every=True))
        yield small
        yield replace(small, threads=ThreadBlock(8, 8))
        yield replace(square, tile=TileSizes(8, 2))
    for threads, rows in ((256, 1), (128, 8), (512, 2), (64, 4), (32, 1)):
        yield replace(greedy, tile=TileSizes(rows), threads=ThreadBlock(threads))
    if loops >= 2:
        warps = replace(greedy, threads=ThreadBlock(32, 8))
        yield replace(warps, tile=TileSizes(1))
        yield warps
        for sums in (Sums.PARTIALS, Sums.ATOMIC, Sums.LAST_BLOCK):
            yield replace(greedy, threads=ThreadBlock(BLOCK_THREADS, sums=sums))
        yield replace(warps, threads=ThreadBlock(32, 8, Sums.PARTIALS))
        # What one task has read is in L2 for the next, and a launch less is waited for.
        apart = replace(greedy, fusion=Fusion(loops=False))
        may_stay = bool(space.variables.of_tasks["team"])
        for threads, rows in ((BLOCK_THREADS, 1), (32, 8)) if may_stay else ():
            yield replace(apart, tile=TileSizes(1), threads=ThreadBlock(threads, rows, stays=True))
    yield replace(greedy, stores=ch.STREAM)
    yield replace(greedy, fusion=Fusion(launch=False, loops=False))


# --- both ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Proposals:
    """Sketches for a kind of target.

    `threads`: the baseline's threads; `greedy`: the greedy sketch; `all`: its variants.
    """

    threads: Along | ThreadBlock
    greedy: Callable[[Space], Sketch]
    all: Callable[[Space, Sketch], Iterator[Sketch]]


PROPOSALS: Mapping[str, _Proposals] = {
    CPU: _Proposals(Along(), _greedy_of_cpu, _of_cpu),
    GPU: _Proposals(ThreadBlock(BLOCK_THREADS), _greedy_of_gpu, _of_gpu),
}
