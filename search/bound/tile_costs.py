"""Bytes of tiles that cross into caches, and barriers in loops around shared ones, compiled (see tiles.py)."""

from __future__ import annotations

import numpy as np

from ...space import choices as ch
from ...space.backbone import MID
from ...space.engine.jit import jit_flat_internal
from .columns import Floats, Ints, Table
from .common import Int, Mask

# Of the loops of a task, in rows of `tiles`: least and greatest number of tiles outside a segment, and the one that is tried.
LEAST, MOST, TRIED = range(3)
N_TILES = 3
# Counts of the bytes that cross: into all caches; at least what one thread of those that share the loop out brings in; and, for
# predictions, all that is touched, where a cache that keeps what was used last (LRU) has lost it by the next segment: it also holds
# what the other threads that share it have of their own, such as copies that each of them packs. Then of the
# two parts of segments that pack blocks first: caches may hold as much when the second part begins as when the first does.
ALL, EACH, LIKELY, IN_PARTS = range(4)
N_WAYS = 4
# More loops whose tiles are open are not tried: with each, there are twice as many combinations.
_MOST_OPEN = 4

_MERGED = 1 << ch.MERGED
_PARALLEL = 1 << ch.PARALLEL
_DIRECT = 1 << ch.DIRECT
_COPY = 1 << ch.COPY
_AT_MOST_ONE = _DIRECT | _COPY  # blocks of an operand
_GLOBAL = 1 << ch.GLOBAL
_KEEP = 1 << ch.KEEP
_BY_THREAD = 1 << ch.BY_THREAD
_INSIDE = 1 << ch.INSIDE
_OUTSIDE = 1 << ch.OUTSIDE


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
    """Returns the least (or, with `most`, the greatest) number of a loop's register tiles, or of its outer tiles."""
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
    """Fills in the least and the greatest number of tiles of each loop outside a segment (one iteration of a loop).

    Returns True if accumulators are surely in memory: a loop that indexes them runs inside a
    reduction loop, within the segment or as its own loop.
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
    """Returns the loop that threads surely share and that is the segment's or around it; -1 if there is none."""
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
    """Returns the guaranteed iterations of loops around a shared loop, each followed by a barrier; 0 without one.

    The barrier is needed since each thread may have written elements that another thread writes in
    the next iteration. Accumulators not finished inside the shared loop are private to each thread.
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
    """True if threads surely synchronise in each iteration of the loops around a loop.

    The loop is a shared one in which all sums are finished, or the only reduction loop, which is
    shared or contains a shared one.
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
def _is_made_outside(arrays: Table, sources: Table, domains: Mask, row: Int) -> bool:
    """True if the values read from an array were surely in memory before the segment began."""
    space = arrays[row].space
    found = space < 0 or domains[space] == _GLOBAL
    for k in range(arrays[row].source, arrays[row].source_end):
        found = found and not domains[sources[k].order] & _MERGED
    return bool(found)


@jit_flat_internal
def _packs_within(
    arrays: Table,
    segment_order: Table,
    domains: Mask,
    row: Int,
    n_loops: Int,
    own: Int,
    is_mid: bool,
    first_order: Int,
) -> bool:
    """True if each segment reads the operand where it lies: directly, or because it packs its blocks itself.

    A segment packs them itself if it contains all loops that select them. With several blocks the
    first one is packed before its loop begins.
    """
    if not arrays[row].has_blocks or is_mid:
        return False
    found = True
    for k in range(n_loops):
        if arrays[row].depends >> k & 1:
            if k == own:
                found = found and (domains[arrays[row].staged] | _AT_MOST_ONE) == _AT_MOST_ONE
            else:
                found = found and domains[segment_order[first_order + k].outer] == _INSIDE
    return bool(found)


@jit_flat_internal
def _packs_first(
    arrays: Table,
    segment_order: Table,
    domains: Mask,
    row: Int,
    n_loops: Int,
    own: Int,
    is_mid: bool,
    first_order: Int,
) -> bool:
    """True if each segment surely packs one block of an operand, and then reads all of it."""
    found = bool(arrays[row].has_blocks and not is_mid and arrays[row].depends >> own & 1)
    found = found and domains[arrays[row].staged] == _COPY
    for k in range(n_loops):
        if arrays[row].depends >> k & 1 and k != own:
            found = found and domains[segment_order[first_order + k].outer] == _OUTSIDE
    return found


@jit_flat_internal
def _has_own_copy(arrays: Table, domains: Mask, row: Int) -> bool:
    """True if each thread surely reads blocks of an operand that it packs for itself."""
    packed_by = arrays[row].packed_by
    is_packed = packed_by >= 0 and not domains[arrays[row].staged] & _DIRECT
    return bool(is_packed and domains[packed_by] == _BY_THREAD)


@jit_flat_internal
def _volume_bytes(tiled: Table, row: Int, capacity: float, n_caches: float, cores: float) -> float:
    """Returns a lower bound on the bytes that cross into `n_caches` caches in any loop order of a product.

    Each cache of size `capacity` has its part of the product. Loomis and Whitney: with n elements
    of the three arrays in a cache, at most (n/3)^1.5 multiplications are possible. A cache of S
    elements, with 2 S brought in, gives 3 S (Smith and van de Geijn 2017). The first sums of each
    core are not read.
    """
    size = tiled[row].element_bytes
    held = capacity / size
    n = 2.0 * tiled[row].points / np.sqrt(held) - 2.0 * held * n_caches - tiled[row].results * cores
    return float(n * size)


@jit_flat_internal
def _conflict_bytes(arrays: Table, row: Int, n_loops: Int, n_caches: float, tiles: Floats) -> float:
    """Returns a lower bound on the bytes of one array that segments bring into first caches, which have few sets for it.

    See sets.py. The bound rises with the tiles of loops in `set_times`, and falls with those of others.
    """
    if arrays[row].set_bytes == 0:
        return 0.0
    others = (1 << n_loops) - 1 - arrays[row].set_times
    each = _product(tiles, MOST, others) * arrays[row].set_held * n_caches
    left = max(0.0, arrays[row].set_bytes - each)
    return float(left * _product(tiles, LEAST, arrays[row].set_times))


@jit_flat_internal
def crossing_bytes(
    tiled: Table,
    loops: Table,
    arrays: Table,
    sources: Table,
    segments: Table,
    segment_order: Table,
    universe: Ints,
    domains: Mask,
    row: Int,
    is_alone: bool,
    cores: float,
    capacity: Floats,
    own_capacity: Floats,
    sharers: Floats,
    tiles: Floats,
    least: Floats,
    crossing: Floats,
    likely: Floats,
) -> None:
    """Raises `crossing` ([n_levels + 1]) to the bytes that a task surely brings into the caches of each level.

    Raises `likely` to the bytes that caches with LRU replacement bring in. `tiles` ([N_TILES,
    n_loops]) and `least` ([N_WAYS, n_levels + 1]) are scratch space.
    """
    first_loop, n_loops = tiled[row].loop, tiled[row].loop_end - tiled[row].loop
    n_levels = capacity.size - 1
    n_private = max(n_levels - 1, 1)
    if tiled[row].points > 0:
        for k in range(1, n_levels + 1):
            # Registers may hold sums that are added to others later.
            held, n_caches = capacity[k] + capacity[0], 1.0
            if k <= n_private:
                held = own_capacity[k] + own_capacity[0] * sharers[k]
                n_caches = cores / sharers[k]
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
        parallel = -1
        if not is_alone:
            parallel = _shared_out(
                loops, segment_order, domains, first_loop, n_loops, own, first_order
            )
        n_caches = cores / sharers[1] if n_levels else 1.0
        for a in range(tiled[row].array, tiled[row].array_end):
            # The next segment touches others: registers hold none of its elements.
            is_next = arrays[a].depends >> own & 1 and tiles[LEAST, own] > 1
            staged = arrays[a].staged
            is_direct = staged < 0 or domains[staged] == _DIRECT
            if is_next and is_direct and _is_made_outside(arrays, sources, domains, a):
                is_private = is_alone or parallel >= 0
                n = _conflict_bytes(arrays, a, n_loops, 1.0 if is_private else n_caches, tiles)
                # One line that is brought in serves the threads that share the cache, each once.
                threads = 1.0 if is_alone else sharers[1]
                crossing[1] = max(crossing[1], n / threads)
        n_open = 0
        for k in range(n_loops):
            n_open += tiles[LEAST, k] < tiles[MOST, k]
        if n_open > _MOST_OPEN:
            continue
        for k in range(1, n_levels + 1):
            for way in range(N_WAYS):
                least[way, k] = np.inf
        for corner in range(1 << n_open):
            at = 0
            for k in range(n_loops):
                tiles[TRIED, k] = tiles[LEAST, k]
                if tiles[LEAST, k] < tiles[MOST, k]:
                    tiles[TRIED, k] = tiles[MOST if corner >> at & 1 else LEAST, k]
                    at += 1
            n_segments = _product(tiles, TRIED, (1 << n_loops) - 1)
            # Bytes that segments touch: all; of elements that one thread alone has, and of those never packed; without parts that
            # others may have packed.
            every, apart, unpacked, packed = 0.0, 0.0, 0.0, 0.0
            first = 0.0  # what segments touch where blocks lie before they are packed
            own_elements = 0.0  # likely of one thread alone
            for a in range(tiled[row].array, tiled[row].array_end):
                staged = arrays[a].staged
                if not _is_made_outside(arrays, sources, domains, a):
                    continue
                # Of sums the first ones come from nowhere: on each core, where threads share them out.
                n_spared = cores if arrays[a].is_result else 0.0
                if arrays[a].is_result and (
                    not in_memory or _product(tiles, LEAST, arrays[a].times) < n_spared
                ):
                    continue
                is_direct = staged < 0 or domains[staged] == _DIRECT
                has_lines = is_direct or _packs_within(
                    arrays, segment_order, domains, a, n_loops, own, is_mid, first_order
                )
                times, n_bytes = arrays[a].times, arrays[a].all_bytes
                elements = n_bytes * (_product(tiles, TRIED, times) - n_spared)
                touched = elements
                if has_lines and arrays[a].line_times:
                    along = arrays[a].along
                    if arrays[a].line_bytes * tiles[LEAST, along] > n_bytes:
                        touched = arrays[a].line_bytes * _product(
                            tiles, TRIED, arrays[a].line_times
                        )
                        if along != parallel:  # else neighbouring threads may share lines
                            elements = touched
                if _packs_first(
                    arrays, segment_order, domains, a, n_loops, own, is_mid, first_order
                ):
                    first += elements
                every += touched
                packed += touched if is_direct else touched / cores
                by_parallel = parallel >= 0 and arrays[a].depends >> parallel & 1
                if by_parallel or (parallel >= 0 and _has_own_copy(arrays, domains, a)):
                    own_elements += elements
                if by_parallel:
                    apart += elements
                    unpacked += elements if is_direct else 0.0
            for k in range(1, n_levels + 1):
                each, kept, in_parts = 0.0, capacity[k], 0.0
                if is_alone:
                    private = min(k, n_private)
                    held = capacity[k] - capacity[private] + own_capacity[private]
                    n, kept = every - held * n_segments, held
                    in_parts = n + first - held * n_segments
                elif k <= n_private:
                    held = own_capacity[k] if parallel >= 0 else capacity[k]
                    kept = held
                    n = (packed - held * n_segments) / sharers[k]
                    in_parts = n + (first / cores - held * n_segments) / sharers[k]
                    if sharers[k] > 1.0:
                        each = unpacked - held * n_segments
                elif parallel >= 0:
                    n = apart - capacity[k] * n_segments
                    each, kept = (every - capacity[k] * n_segments) / cores, capacity[k] / cores
                else:
                    n = every / cores - capacity[k] * n_segments
                least[ALL, k] = min(least[ALL, k], n)
                least[EACH, k] = min(least[EACH, k], each)
                beside = own_elements * (sharers[k] - 1.0) if k <= n_private else 0.0
                lost = every if every + beside > kept * n_segments else 0.0
                least[LIKELY, k] = min(least[LIKELY, k], lost)
                least[IN_PARTS, k] = min(least[IN_PARTS, k], in_parts)
        for k in range(1, n_levels + 1):
            # One may fall with tiles while another rises.
            crossing[k] = max(crossing[k], max(least[ALL, k], least[EACH, k]))
            crossing[k] = max(crossing[k], least[IN_PARTS, k])
            likely[k] = max(likely[k], least[LIKELY, k])
