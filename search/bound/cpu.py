"""CPU bound, compiled: from domains and tables to ns.

Phases are groups of tasks; tasks of different phases surely do not run at the same time (except for
the few iterations by which threads may be out of step). In a phase that touches F bytes, at least F
- C bytes cross into caches that hold C: at most C can be cached when it begins, from the previous
phase or call. At its end the same argument holds for bytes written.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...space.engine.jit import jit_flat, jit_flat_internal
from . import common, core_costs, overlap, streams
from .columns import Floats, Ints
from .overlap import threads
from .port_costs import N_AROUND, N_COPIES, N_LEAST, N_PORTS, least_ports, loads_and_stores
from .tables import BoundTables
from .tile_costs import N_TILES, N_WAYS, crossing_bytes, trips_with_barrier

# Of the terms; the levels of cache follow.
READ, WRITE, MIXED, STREAMS, OPERATIONS, CHAIN = range(6)
PORTS, PACKING, TILES, TAILS, ATOMICS, FUNCTIONS, LAUNCHES, FIRST_LEVEL = range(6, 14)


# Of what is read again: from where.
CACHES, MEMORY = range(2)
N_SIDES = 2


class BoundScratch(NamedTuple):
    """Scratch arrays of one bound evaluation: rows by task, or by phase (in the row of its least task)."""

    parallel: Ints  # [n_tasks] whether it may run on all cores, see MAYBE
    chosen: Ints  # [n_tasks] tasks that surely begin a launch; before that, `parallel` of all tasks of a phase
    before: Ints  # [n_tasks] the task before it on the longest path, or -1
    ends: common.Bools  # [n_tasks, n_tasks] whether the first surely ends before the second begins
    moved: Floats  # [n_tasks, N_MOVED] bytes
    through: Floats  # [n_tasks, streams.N_COLUMNS] bytes
    costs: Floats  # [n_tasks, N_COSTS]
    parts: Floats  # [n_tasks, n_terms] ns
    rates: Floats  # [2, n_kinds + 2] bytes a ns read and written, see streams.py
    copies: Floats  # [N_AROUND, n_loops, N_COPIES], see port_costs.py
    least: Floats  # [n_tasks, N_LEAST]
    busy: Floats  # [2 * N_PORTS] ns
    packs: Floats  # [n_tasks, N_PORTS] ns
    moves: Floats  # [n_tasks] ns, see tiles.py
    lost: Floats  # [n_tasks, N_SIDES] ns of what is likely read again from caches and from memory
    tiles: Floats  # [N_TILES, n_loops]
    crossing: Floats  # [2 + N_WAYS, n_levels + 1] bytes: surely and likely of all segments, and of one kind of them in each way


def make_scratch(tables: BoundTables, n_terms: int) -> BoundScratch:
    """Returns scratch arrays that all bound evaluations of a space reuse."""
    n = tables.after.shape[0]
    return BoundScratch(
        parallel=np.zeros(n, np.int64),
        chosen=np.zeros(n, np.int64),
        before=np.zeros(n, np.int64),
        ends=np.zeros((n, n), np.bool_),
        moved=np.zeros((n, common.N_MOVED)),
        through=np.zeros((n, streams.N_COLUMNS)),
        costs=np.zeros((n, core_costs.N_COSTS)),
        parts=np.zeros((n, n_terms)),
        rates=np.zeros((2, tables.stream.shape[0] + 2)),
        copies=np.zeros((N_AROUND, tables.port_loop.shape[0], N_COPIES)),
        least=np.zeros((n, N_LEAST)),
        busy=np.zeros(2 * N_PORTS),
        packs=np.zeros((n, N_PORTS)),
        moves=np.zeros(n),
        lost=np.zeros((n, N_SIDES)),
        tiles=np.zeros((N_TILES, tables.most_loops)),
        crossing=np.zeros((2 + N_WAYS, tables.capacity.size)),
    )


@jit_flat_internal
def _stream_traffic(
    tables: BoundTables, domains: common.Mask, phase: Ints, scratch: BoundScratch
) -> None:
    """Fills in each phase's guaranteed streaming traffic in a call, with the columns of streams.py."""
    moved, through = scratch.moved, scratch.through
    for p in range(phase.size):
        for column in range(streams.N_COLUMNS):
            through[p, column] = 0.0
    for array in range(tables.touch_start.size - 1):
        first, end = tables.touch_start[array], tables.touch_start[array + 1]
        if tables.passes[array] == streams.ANYHOW or first == end:
            continue
        p = phase[tables.touch[first].task]
        is_together = True
        fresh = 0
        for k in range(first, end):
            is_together = is_together and phase[tables.touch[k].task] == p
            fresh = max(fresh, tables.touch[k].is_fresh)
        if is_together:
            # What several tasks of different phases touch may be used in another order by each.
            common.array_traffic(tables, domains, phase, scratch.ends, array, moved)
            side = 1 if tables.passes[array] == streams.BY_EACH else 0
            through[p, streams.READ_ONCE + side] += moved[p, common.ARRAY_READS]
            through[p, streams.WRITTEN_ONCE + side] += moved[p, common.ARRAY_WRITES]
            through[p, streams.FRESH_ONCE + side] += fresh * moved[p, common.ARRAY_WRITES]


@jit_flat_internal
def _price_tiles(tables: BoundTables, domains: common.Mask, scratch: BoundScratch) -> None:
    """Fills in times that tasks lose because their tiles exceed caches.

    `scratch.moves`: ns in which each task surely moves bytes between levels. `scratch.lost`: ns in which it likely reads evicted
    bytes again, from caches and from memory; these are no part of the bound.
    """
    crossing, likely, n_levels = scratch.crossing[0], scratch.crossing[1], tables.rate.size - 1
    for t in range(scratch.moves.size):
        scratch.moves[t], scratch.lost[t, CACHES], scratch.lost[t, MEMORY] = 0.0, 0.0, 0.0
    for row in range(tables.tiled.shape[0]):
        t = tables.tiled[row].task
        is_alone = not scratch.parallel[t] & overlap.MAYBE
        for k in range(crossing.size):
            crossing[k], likely[k] = 0.0, 0.0
        crossing_bytes(
            tables.tiled,
            tables.tiled_loop,
            tables.tiled_array,
            tables.tiled_source,
            tables.segment,
            tables.segment_order,
            tables.universe,
            domains,
            row,
            is_alone,
            tables.cores,
            tables.capacity,
            tables.own,
            tables.sharers,
            scratch.tiles,
            scratch.crossing[2:],
            crossing,
            likely,
        )
        for k in range(1, crossing.size):
            alone = 1.0
            if is_alone and k < n_levels - 1:
                alone = max(1.0, tables.cores / core_costs.CLOCK_SLACK)
            scratch.moves[t] = max(scratch.moves[t], crossing[k] / tables.rate[k] * alone)
            side = MEMORY if k == n_levels else CACHES
            scratch.lost[t, side] = max(scratch.lost[t, side], likely[k] / tables.rate[k] * alone)


@jit_flat_internal
def _price_phases(tables: BoundTables, phase: Ints, scratch: BoundScratch) -> None:
    """Fills in the ns of each phase alone: of each resource (`parts`), in total, and of a core's own work (`costs`).

    Runs after the other costs are known.
    """
    n, n_levels = phase.size, tables.rate.size - 1
    costs, parts, threads = scratch.costs, scratch.parts, scratch.chosen
    cached = tables.capacity[n_levels]
    # What a phase wrote last may leave the caches while the next one runs; of all as one phase that is the next call.
    leaving = cached if overlap.has_phases(phase) else 0.0
    for p in range(n):
        costs[p, core_costs.ALL], costs[p, core_costs.ALONE], threads[p] = 0.0, 0.0, 0
        for k in range(parts.shape[1]):
            parts[p, k] = 0.0
    for t in range(n):
        threads[phase[t]] |= scratch.parallel[t]
        parts[phase[t], TILES] = max(parts[phase[t], TILES], scratch.moves[t])
    for p in range(n):
        if phase[p] != p:
            continue
        is_alone = not threads[p] & overlap.MAYBE
        read, written = scratch.moved[p, common.READS], scratch.moved[p, common.WRITES]
        parts[p, READ] = max(0.0, read - cached) / tables.rate[n_levels]
        parts[p, WRITE] = max(0.0, written - cached) / tables.write_rate
        # Dirty lines that stay save the trip out, and where they are read again the trip in.
        kept = cached + min(cached, tables.reused_bytes)
        parts[p, MIXED] = max(0.0, read + written - kept) / tables.mixed_rate
        cores = 1 if is_alone else np.int64(tables.cores)
        parts[p, STREAMS] = streams.streaming_ns(
            tables.stream,
            tables.stream_point,
            cores,
            scratch.through[p],
            cached,
            leaving,
            scratch.rates,
        )
        parts[p, OPERATIONS], parts[p, CHAIN] = (
            costs[p, core_costs.WORK],
            costs[p, core_costs.CHAINS],
        )
        parts[p, PORTS], parts[p, PACKING] = (
            costs[p, core_costs.LOADED],
            costs[p, core_costs.PACKED],
        )
        parts[p, TAILS] = costs[p, core_costs.TAILED]
        parts[p, ATOMICS] = costs[p, core_costs.UPDATED]
        parts[p, FUNCTIONS] = costs[p, core_costs.CALLED]
        alone = max(
            max(costs[p, core_costs.WORK], costs[p, core_costs.CHAINS]),
            max(costs[p, core_costs.LOADED], costs[p, core_costs.UPDATED]),
        )
        alone = max(alone, costs[p, core_costs.CALLED])
        longest = max(max(parts[p, READ], parts[p, WRITE]), max(parts[p, STREAMS], parts[p, TILES]))
        for k in range(n_levels):
            ns = max(0.0, read - tables.capacity[k]) / tables.rate[k]
            is_private = k < n_levels - 1 or k == 0
            if is_private and is_alone:
                ns *= max(1.0, tables.cores / core_costs.CLOCK_SLACK)
            parts[p, FIRST_LEVEL + k] = ns
            if is_private:
                alone = max(alone, ns)
            else:
                longest = max(longest, ns)
        costs[p, core_costs.ALL], costs[p, core_costs.ALONE] = (
            max(longest, alone) * tables.runs[p],
            alone * tables.runs[p],
        )
        for k in range(parts.shape[1]):
            parts[p, k] *= tables.runs[p]


@jit_flat_internal
def _add(scratch: BoundScratch, scale: float, terms: Floats) -> tuple[float, float]:
    """Raises each of `terms` to its sum over the phases.

    Returns the summed ns of all work, and of each core's own work.
    """
    all_ns, core_ns = 0.0, 0.0
    for p in range(scratch.costs.shape[0]):
        all_ns += scratch.costs[p, core_costs.ALL]
        core_ns += scratch.costs[p, core_costs.ALONE]
    for k in range(terms.size):
        total = 0.0
        for p in range(scratch.parts.shape[0]):
            total += scratch.parts[p, k]
        terms[k] = max(terms[k], total * scale)
    return all_ns * scale, core_ns * scale


@jit_flat_internal
def _longest_path(scratch: BoundScratch, terms: Floats) -> tuple[float, float]:
    """Returns the ns of the longest chain of tasks that surely run in sequence: of all work, and of each core's own work."""
    costs, before = scratch.costs, scratch.before
    last, most_core = 0, 0.0
    for t in range(before.size):
        longest, longest_core = 0.0, 0.0
        before[t] = -1
        for u in range(t):
            if scratch.ends[u, t]:
                longest_core = max(longest_core, costs[u, core_costs.ALONE])
                if costs[u, core_costs.ALL] > longest:
                    longest, before[t] = costs[u, core_costs.ALL], u
        costs[t, core_costs.ALL] += longest
        costs[t, core_costs.ALONE] += longest_core
        most_core = max(most_core, costs[t, core_costs.ALONE])
        if costs[t, core_costs.ALL] > costs[last, core_costs.ALL]:
            last = t
    for k in range(terms.size):
        total = 0.0
        t = last
        while t >= 0:
            total += scratch.parts[t, k]
            t = before[t]
        terms[k] = max(terms[k], total)
    return costs[last, core_costs.ALL], most_core


@jit_flat
def lower_bound(
    tables: BoundTables, scratch: BoundScratch, domains: common.Mask, phase: Ints, terms: Floats
) -> float:
    """Returns a lower bound in ns on every completion.

    Fills `phase` ([n_tasks]) and `terms` (ns of each resource).
    """
    n = phase.size
    for k in range(terms.size):
        terms[k] = 0.0
    threads(tables, domains, scratch.parallel)
    core_costs.shares(tables, domains, scratch.costs)
    least_ports(tables, domains, scratch.copies, scratch.least, scratch.busy, scratch.packs)
    _price_tiles(tables, domains, scratch)
    all_ns, core_ns, in_step = 0.0, 0.0, 1.0
    # Three bounds: chains of separate tasks; one single phase, so that cached bytes are subtracted only once; and phases.
    # In a time loop each iteration is a phase of its own: the bytes cached at its beginning are subtracted again.
    for way in range(3):
        for u in range(n):
            phase[u] = u if way == 0 else tables.step[u]
            if way == 1:
                for t in range(n):
                    scratch.ends[u, t] = u == t
        if way == 0 and (n <= 2 or not overlap.ends_before(tables, domains, scratch.ends)):
            continue  # with two tasks the phases below give the same bound
        if way == 2:
            in_step = overlap.phases(tables, domains, scratch.parallel, phase)
            if not overlap.has_phases(phase):
                break  # one step, in which everything is one phase
        common.phase_traffic(tables, domains, phase, scratch.ends, scratch.moved)
        core_costs.arithmetic(tables, domains, scratch.parallel, phase, scratch.costs)
        core_costs.functions(tables, scratch.parallel, phase, scratch.costs)
        loads_and_stores(
            tables, domains, scratch.parallel, phase, scratch.least, scratch.packs, scratch.costs
        )
        core_costs.atomic_updates(tables, domains, phase, scratch.costs)
        if tables.stream.shape[0] > 0:
            _stream_traffic(tables, domains, phase, scratch)
        _price_phases(tables, phase, scratch)
        if way == 0:
            way_ns, way_core = _longest_path(scratch, terms)
        else:
            way_ns, way_core = _add(scratch, in_step, terms)
        all_ns, core_ns = max(all_ns, way_ns), max(core_ns, way_core)
    all_ns = max(all_ns, terms[MIXED])
    n_launches = overlap.launches(tables, domains, scratch.parallel, scratch.chosen)
    started = n_launches * tables.launch_ns
    n_barriers = overlap.barriers(tables, domains, scratch.parallel)
    for row in range(tables.tiled.shape[0]):
        trips = trips_with_barrier(
            tables.tiled,
            tables.tiled_loop,
            tables.segment,
            tables.segment_order,
            tables.universe,
            domains,
            row,
            scratch.tiles,
        )
        n_barriers = max(n_barriers, trips * tables.runs[tables.tiled[row].task])
    met = tables.barrier_ns * (n_barriers + overlap.sweep_barriers(tables, domains))
    terms[LAUNCHES] = tables.call_ns + started + met
    # While a team assembles, its first threads can already fill the bandwidth that all share; what
    # each core must do by itself waits for it to arrive.
    joined = n_launches * min(tables.barrier_ns, tables.launch_ns) / 2
    # A core is in the next call before it has finished the sums of this one: the call and the work are not added.
    return float(max(tables.call_ns, met + max(all_ns + joined, core_ns + started)))
