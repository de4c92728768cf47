"""Tiles: bytes that the iterations of a loop surely bring into a cache that does not hold all that one of them touches.

One iteration of a loop (a segment) touches some bytes. At most as many as a cache holds are there when it begins. So all others
cross into the cache, whatever it replaces (a pigeonhole argument, no assumption on its policy). Each loop of a task cuts the
execution into segments in its way; the one that moves most gives the bound.

With T tiles of each loop outside a segment, all segments together touch, of each array, its elements times the tiles of the loops
that it does not depend on. Where elements are neighbours along a loop, each of its tiles touches at least one line of a row. From
that, all segments may find what the cache holds. So the bytes are a sum of products of different T, and are least where each T is
least or greatest.

A thread has its segments for itself if it shares out the loop or one around it, and then its own share of the private caches. In
caches that all threads share one of them may find what another has brought in, but for elements that each thread has for itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ...kernels.analysis.domain_bounds import cuts_of
from ...kernels.ir.access import Access, flat_strides
from ...kernels.ir.domain import Loop
from ...kernels.ir.task import Task
from ...space import choices as ch
from ...space.backbone import INNER, MID, OUTER
from ...space.candidate import Space
from ...space.engine.jit import jit_flat_internal
from .columns import Floats, Ints, Table, Universes, table
from .ports import is_plain, staged_at, sure_reads

Int = int | np.int64
Mask = npt.NDArray[np.uint32]

# Of the loops of a task, in rows of `tiles`: least and greatest number of tiles outside a segment, and the one that is tried.
LEAST, MOST, TRIED = range(3)
N_TILES = 3
# More loops whose tiles are open are not tried: with each, there are twice as many combinations.
_MOST_OPEN = 4

_PARALLEL = 1 << ch.PARALLEL
_DIRECT = 1 << ch.DIRECT
_GLOBAL = 1 << ch.GLOBAL
_KEEP = 1 << ch.KEEP
_INSIDE = 1 << ch.INSIDE
_OUTSIDE = 1 << ch.OUTSIDE


def tile_tables(space: Space, universe: Universes) -> dict[str, Any]:
    """The tables of `BoundTables` for tiles: a row for each task, with its loops, arrays and segments."""
    tasks: list[tuple[float, ...]] = []
    loops: list[tuple[int, ...]] = []
    arrays: list[tuple[float, ...]] = []
    segments: list[tuple[int, ...]] = []
    orders: list[tuple[int, ...]] = []
    v, b = space.variables, space.backbone
    for t, task in enumerate(space.problem.tasks):
        if not _is_regular(space, t):
            continue
        starts = len(loops), len(arrays), len(segments)
        for loop in task.loops:
            outer, mid, inner = (b.dim(t, loop.name, k) for k in (OUTER, MID, INNER))
            sizes = (v.size[mid], universe.at(mid), v.size[inner], universe.at(inner))
            loops.append((loop.extent, int(loop.is_reduction), v.kind[outer], *sizes))
        arrays += _touched(space, t)
        for k, loop in enumerate(task.loops):
            for level in (OUTER, MID):
                d = b.dim(t, loop.name, level)
                segments.append((k, level, len(orders)))
                for other in task.loops:
                    dims = (b.dim(t, other.name, x) for x in (OUTER, MID))
                    orders.append(
                        tuple(
                            -1 if other is loop else space.model.order(x.order_id, d.order_id)
                            for x in dims
                        )
                    )
        ends = (starts[0], len(loops), starts[1], len(arrays), starts[2], len(segments))
        tasks.append((t, v.store.get(t, -1), *ends, *_product_of(space, t)))
    most = max((len(t.loops) for t in space.problem.tasks), default=0)
    return {
        "tiled": table(
            tasks,
            "task store loop loop_end array array_end segment segment_end",
            "points results element_bytes",
        ),
        "tiled_loop": table(loops, "extent is_reduced kind mid_size mid_at inner_size inner_at"),
        "tiled_array": table(
            arrays,
            "staged space is_result depends along times line_times",
            "all_bytes line_bytes",
        ),
        "segment": table(segments, "loop level first"),
        "segment_order": table(orders, "outer mid"),
        "most_loops": max(most, 1),
    }


def _product_of(space: Space, t: int) -> tuple[float, float, float]:
    """Returns the multiplications, results and bytes of an element, if a task is a product of two matrices; else zeros."""
    task = space.problem.tasks[t]
    loops = {loop.name: loop for loop in task.loops if loop.extent > 1}
    reads = [a for a in sure_reads(task) if is_plain(a)]
    is_made = any(f.consumer == t for f in space.variables.mem_space)
    if not task.is_reduction or len(reads) != 2 or is_made or not is_plain(task.target):
        return 0.0, 0.0, 0.0
    accesses = (*reads, task.target)
    moved = [frozenset(n for n in _along(task, a) if n in loops) for a in accesses]
    is_product = len(loops) == 3 and len(set(moved)) == 3 and all(len(x) == 2 for x in moved)
    if not is_product or any(loops[name].is_reduction for name in moved[-1]):
        return 0.0, 0.0, 0.0
    sizes = (space.problem.array(a.array).dtype.size_bytes for a in accesses)
    n_results = prod(loops[name].extent for name in moved[-1])
    points = prod(loop.extent for loop in loops.values())
    return float(points), float(n_results), float(min(*sizes, task.dtype.size_bytes))


def _is_regular(space: Space, t: int) -> bool:
    """True if each iteration of a task surely touches the same accesses, in the order of its loops."""
    task, v = space.problem.tasks[t], space.variables
    is_in_order = t not in v.waves and t not in v.of_tasks["compaction"]
    is_plain_task = task.is_structured and not task.is_guarded and task.value is not None
    return is_in_order and is_plain_task and not cuts_of(task)


def _touched(space: Space, t: int) -> Iterator[tuple[float, ...]]:
    """Yields the rows of what a task surely reads: arrays, and results that it adds to."""
    task, v = space.problem.tasks[t], space.variables
    for access in (a for a in sure_reads(task) if is_plain(a)):
        sources = [
            var for f, var in v.mem_space.items() if (f.consumer, f.array) == (t, access.array)
        ]
        if len(sources) <= 1:
            staged = staged_at(space, t, access)
            yield _row(space, task, access, staged, sources[0] if sources else -1)
    target = task.target
    free = {loop.name for loop in task.loops if not loop.is_reduction and loop.extent > 1}
    if task.is_reduction and is_plain(target) and free <= set(_along(task, target)):
        yield _row(space, task, target, -1, -1, is_result=True)


def _row(
    space: Space, task: Task, access: Access, staged: int, source: int, is_result: bool = False
) -> tuple[float, ...]:
    array, line = space.problem.array(access.array), space.target.line_bytes
    steps = {n: abs(k) * array.dtype.size_bytes for n, k in flat_strides(access, array).items()}
    own = _along(task, access)
    place = {loop.name: k for k, loop in enumerate(task.loops)}
    n_elements = float(np.prod([loop.extent for loop in own.values()]))
    size = array.dtype.size_bytes
    if is_result:  # sums may be of a type of their own
        size = min(size, task.dtype.size_bytes)
    element_bytes = line if own and min(steps[n] for n in own) >= line and not is_result else size
    near = [n for n in own if steps[n] == array.dtype.size_bytes and own[n].extent * size > line]
    has_lines = len(near) == 1 and not is_result
    has_lines = has_lines and all(steps[n] >= line for n in own if n != near[0])
    depends = sum(1 << place[n] for n in own)
    times = (1 << len(task.loops)) - 1 - depends
    along = place[near[0]] if has_lines else -1
    return (
        *(staged, source, int(is_result), depends, along),
        *(times, times | 1 << along if has_lines else 0),
        n_elements * (element_bytes if staged < 0 else size),
        n_elements / own[near[0]].extent * line if has_lines else 0.0,
    )


def _along(task: Task, access: Access) -> dict[str, Loop]:
    """Returns the loops of a task that move an access, by name."""
    named = {name for axis in access.axes if axis is not None for name, _ in axis.terms}
    return {loop.name: loop for loop in task.loops if loop.name in named}


# --- compiled ------------------------------------------------------------------------------------


@jit_flat_internal
def _extreme(universe: Ints, at: Int, domain: Int, is_largest: bool) -> Int:
    found = 0
    k = 0
    while domain >> k:
        if domain >> k & 1:
            size = universe[at + k]
            if found == 0 or (size > found) == is_largest:
                found = size
        k += 1
    return max(1, found)


@jit_flat_internal
def _size(loops: Table, universe: Ints, domains: Mask, loop: Int, is_mid: bool, most: bool) -> Int:
    if is_mid:
        at, domain = loops[loop].mid_at, np.int64(domains[loops[loop].mid_size])
    else:
        at, domain = loops[loop].inner_at, np.int64(domains[loops[loop].inner_size])
    return _extreme(universe, at, domain, most)


@jit_flat_internal
def _n_tiles(
    loops: Table, universe: Ints, domains: Mask, loop: Int, is_mid: bool, most: bool
) -> float:
    """The least, or the most, number of register tiles of a loop, or of tiles of its outer dim."""
    step = _size(loops, universe, domains, loop, False, not most)
    if not is_mid:
        step *= _size(loops, universe, domains, loop, True, not most)
    return float((loops[loop].extent + step - 1) // step)


@jit_flat_internal
def _count_tiles(
    loops: Table,
    segment_order: Table,
    universe: Ints,
    domains: Mask,
    first_loop: Int,
    n_loops: Int,
    own: Int,
    is_mid: bool,
    first_order: Int,
    tiles: Floats,
) -> bool:
    """Fill in the least and the most tiles of each loop outside a segment. Returns whether sums surely lie in memory.

    They do where a loop that moves them runs inside a reduced one: inside the segment, or as the loop that it is of.
    """
    in_memory = False
    for k in range(n_loops):
        loop = first_loop + k
        if k == own:
            tiles[LEAST, k] = _n_tiles(loops, universe, domains, loop, is_mid, False)
            tiles[MOST, k] = _n_tiles(loops, universe, domains, loop, is_mid, True)
            inside = not loops[loop].is_reduced and tiles[LEAST, k] > 1
            if is_mid:
                inside = inside and _size(loops, universe, domains, loop, True, False) > 1
            in_memory = bool(in_memory or inside)
            continue
        outer = domains[segment_order[first_order + k].outer]
        mid = domains[segment_order[first_order + k].mid]
        if outer & _INSIDE:
            tiles[LEAST, k] = 1.0
        else:
            tiles[LEAST, k] = _n_tiles(loops, universe, domains, loop, mid & _INSIDE == 0, False)
        if outer & _OUTSIDE == 0:
            tiles[MOST, k] = 1.0
        else:
            tiles[MOST, k] = _n_tiles(loops, universe, domains, loop, mid & _OUTSIDE != 0, True)
        if not loops[loop].is_reduced:
            by_outer = (
                outer == _INSIDE and _n_tiles(loops, universe, domains, loop, False, False) > 1
            )
            by_mid = mid == _INSIDE and _size(loops, universe, domains, loop, True, False) > 1
            in_memory = bool(in_memory or by_outer or by_mid)
    return in_memory


@jit_flat_internal
def _shared_out(
    loops: Table,
    segment_order: Table,
    domains: Mask,
    first_loop: Int,
    n_loops: Int,
    own: Int,
    first_order: Int,
) -> int:
    """Returns the loop that threads surely share out and that is the segment's or around it; -1 where none is."""
    for k in range(n_loops):
        if domains[loops[first_loop + k].kind] == _PARALLEL and (
            k == own or domains[segment_order[first_order + k].outer] == _OUTSIDE
        ):
            return k
    return -1


@jit_flat_internal
def trips_with_barrier(
    tiled: Table,
    loops: Table,
    segments: Table,
    segment_order: Table,
    universe: Ints,
    domains: Mask,
    row: Int,
    tiles: Floats,
) -> float:
    """The guaranteed number of trips of loops around a shared one, after each of which threads synchronise; 0 if there is none.

    They do since each of them may have written what another one writes in the next trip. Sums that are not finished inside of the
    shared loop are in parts that each thread has for itself.
    """
    first_loop, n_loops = tiled[row].loop, tiled[row].loop_end - tiled[row].loop
    store, most = tiled[row].store, 0.0
    if store >= 0 and domains[store] != _KEEP:
        return most
    for s in range(tiled[row].segment, tiled[row].segment_end):
        own, first_order = segments[s].loop, segments[s].first
        if segments[s].level == MID or not _synchronises(
            loops, segment_order, domains, first_loop, n_loops, own, first_order
        ):
            continue
        _count_tiles(
            loops,
            segment_order,
            universe,
            domains,
            first_loop,
            n_loops,
            own,
            False,
            first_order,
            tiles,
        )
        n = 1.0
        for k in range(n_loops):
            n *= tiles[LEAST, k] if k != own else 1.0
        most = max(most, n if n > 1 else 0.0)
    return most


@jit_flat_internal
def _synchronises(
    loops: Table,
    segment_order: Table,
    domains: Mask,
    first_loop: Int,
    n_loops: Int,
    own: Int,
    first_order: Int,
) -> bool:
    """True if threads surely synchronise in each trip of the loops around a loop: a shared one in which all sums are finished, or
    the only reduced one, with a shared one inside or shared itself.
    """
    is_shared = domains[loops[first_loop + own].kind] == _PARALLEL
    has_shared, n_reduced, is_finished = is_shared, 0, True
    for k in range(n_loops):
        n_reduced += loops[first_loop + k].is_reduced
        if k != own:
            outer = domains[segment_order[first_order + k].outer]
            mid = domains[segment_order[first_order + k].mid]
            is_parallel = domains[loops[first_loop + k].kind] == _PARALLEL
            has_shared = has_shared or (is_parallel and outer == _INSIDE)
            if loops[first_loop + k].is_reduced:
                is_finished = is_finished and outer | mid == _INSIDE
    if loops[first_loop + own].is_reduced:
        return bool(n_reduced == 1 and has_shared)
    return bool(is_shared and is_finished)


@jit_flat_internal
def _product(tiles: Floats, which: Int, times: Int) -> float:
    n = 1.0
    k = 0
    while times >> k:
        if times >> k & 1:
            n *= tiles[which, k]
        k += 1
    return n


@jit_flat_internal
def _volume_bytes(tiled: Table, row: Int, capacity: float, n_caches: float, cores: float) -> float:
    """A lower bound on the bytes that cross into `n_caches` of `capacity` in any order of a product, of which each has its part.

    Loomis and Whitney: with n elements of the three arrays at hand, there are at most (n/3)^1.5 multiplications. A cache of S
    elements, with 2 S brought in, has 3 S at hand (Smith and van de Geijn 2017). The first sums of each core come from nowhere.
    """
    size = tiled[row].element_bytes
    held = capacity / size
    n = 2.0 * tiled[row].points / np.sqrt(held) - 2.0 * held * n_caches - tiled[row].results * cores
    return float(n * size)


@jit_flat_internal
def crossing_bytes(
    tiled: Table,
    loops: Table,
    arrays: Table,
    segments: Table,
    segment_order: Table,
    universe: Ints,
    domains: Mask,
    row: Int,
    is_alone: bool,
    cores: float,
    capacity: Floats,
    own_capacity: Floats,
    tiles: Floats,
    least: Floats,
    crossing: Floats,
) -> None:
    """Raise `crossing` ([n_levels + 1]) to the bytes that a task brings into the caches inside each level.

    `tiles` ([N_TILES, n_loops]) and `least` ([n_levels + 1]) are scratch space.
    """
    first_loop, n_loops = tiled[row].loop, tiled[row].loop_end - tiled[row].loop
    n_levels = capacity.size - 1
    n_private = max(n_levels - 1, 1)
    if tiled[row].points > 0:
        for k in range(1, n_levels + 1):
            # Registers may hold sums that are added to others later.
            held, n_caches = capacity[k] + capacity[0], 1.0
            if k <= n_private:
                held, n_caches = own_capacity[k] + own_capacity[0], cores
            n = _volume_bytes(tiled, row, held, n_caches, cores)
            crossing[k] = max(crossing[k], n)
    for s in range(tiled[row].segment, tiled[row].segment_end):
        own, is_mid, first_order = segments[s].loop, segments[s].level == MID, segments[s].first
        if is_mid and _size(loops, universe, domains, first_loop + own, True, False) == 1:
            continue  # the order of a loop that may not be there means nothing
        in_memory = _count_tiles(
            loops,
            segment_order,
            universe,
            domains,
            first_loop,
            n_loops,
            own,
            is_mid,
            first_order,
            tiles,
        )
        n_open = 0
        for k in range(n_loops):
            n_open += tiles[LEAST, k] < tiles[MOST, k]
        if n_open > _MOST_OPEN:
            continue
        parallel = -1
        if not is_alone:
            parallel = _shared_out(
                loops, segment_order, domains, first_loop, n_loops, own, first_order
            )
        for k in range(1, n_levels + 1):
            least[k] = np.inf
        for corner in range(1 << n_open):
            at = 0
            for k in range(n_loops):
                tiles[TRIED, k] = tiles[LEAST, k]
                if tiles[LEAST, k] < tiles[MOST, k]:
                    tiles[TRIED, k] = tiles[MOST if corner >> at & 1 else LEAST, k]
                    at += 1
            n_segments = _product(tiles, TRIED, (1 << n_loops) - 1)
            # Bytes that segments touch: all; of elements that one thread alone has; without parts that others may have packed.
            every, apart, packed = 0.0, 0.0, 0.0
            for a in range(tiled[row].array, tiled[row].array_end):
                space, staged = arrays[a].space, arrays[a].staged
                if space >= 0 and domains[space] != _GLOBAL:
                    continue
                # Of sums the first ones come from nowhere: on each core, where threads share them out.
                n_spared = cores if arrays[a].is_result else 0.0
                if arrays[a].is_result and (
                    not in_memory or _product(tiles, LEAST, arrays[a].times) < n_spared
                ):
                    continue
                is_direct = staged < 0 or domains[staged] == _DIRECT
                times, n_bytes = arrays[a].times, arrays[a].all_bytes
                elements = n_bytes * (_product(tiles, TRIED, times) - n_spared)
                touched = elements
                if is_direct and arrays[a].line_times:
                    along = arrays[a].along
                    if arrays[a].line_bytes * tiles[LEAST, along] > n_bytes:
                        touched = arrays[a].line_bytes * _product(
                            tiles, TRIED, arrays[a].line_times
                        )
                        if along != parallel:  # else neighbouring threads may share lines
                            elements = touched
                every += touched
                packed += touched if is_direct else touched / cores
                if parallel >= 0 and arrays[a].depends >> parallel & 1:
                    apart += elements
            for k in range(1, n_levels + 1):
                if is_alone:
                    private = min(k, n_private)
                    held = capacity[k] - capacity[private] + own_capacity[private]
                    n = every - held * n_segments
                elif k <= n_private:
                    held = own_capacity[k] if parallel >= 0 else capacity[k]
                    n = packed - held * n_segments
                elif parallel >= 0:
                    n = max(
                        apart - capacity[k] * n_segments,
                        every / cores - capacity[k] * n_segments / cores,
                    )
                else:
                    n = every / cores - capacity[k] * n_segments
                least[k] = min(least[k], n)
        for k in range(1, n_levels + 1):
            crossing[k] = max(crossing[k], least[k])
