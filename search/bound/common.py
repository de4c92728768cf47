"""The bound itself, compiled: from domains and tables to ns.

Phases are groups of tasks; tasks of different phases surely do not run at the same time (but for
the few iterations by which threads may be out of step). In a phase that touches F bytes, at least
F - C bytes cross into caches that hold C: no more than C can be there when it begins, left over by
the phase or the call before. Bytes written leave by the same argument at its end.

Nothing here allocates, and functions are given columns of arrays rather than arrays each: that is what numba compiles quickly.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...space import choices as ch
from ...space.engine.jit import jit_flat, jit_flat_internal
from .columns import Floats, Ints
from .streams import (
    ANYHOW,
    BY_EACH,
    FRESH_ONCE,
    N_COLUMNS,
    READ_ONCE,
    WRITTEN_ONCE,
    streaming_ns,
)
from .tables import MAX_PEELED, BoundTables

Mask = npt.NDArray[np.uint32]
Bools = npt.NDArray[np.bool_]
Int = int | np.int64

# Of the terms; the levels of cache follow.
READ, WRITE, MIXED, STREAMS, OPERATIONS, CHAIN, LOADS, LAUNCHES, FIRST_LEVEL = range(9)

# Distinct bytes of a phase: of all arrays, and of one, with whether a task has written it already.
READS, WRITES, ARRAY_READS, ARRAY_WRITES, IS_WRITTEN = range(5)
N_MOVED = 5
# ns of a phase: of arithmetic, of it on one core, of dependent operations, of loads; of all, and of what each core does alone. Of a
# task: how much slower its operations are, how many results a chain has, its least loads.
WORK, ONE_CORE, CHAINS, LOADED, ALL, ALONE, FACTOR, COPIES, LEAST = range(9)
N_COSTS = 9

# One core alone, or one without wide vectors, may run at a higher clock than all of them flat out.
CLOCK_SLACK = 1.3
# A parallel loop of so many tiles a core leaves threads out of step by at most 1 / of them.
BALANCED_TILES = 16
IN_STEP = 1.0 - 1.0 / BALANCED_TILES

_PARALLEL = 1 << ch.PARALLEL
_VECTOR = 1 << ch.VECTOR
_MERGED = 1 << ch.MERGED
_SAME_LAUNCH = 1 << ch.SAME_LAUNCH
_KEEP = 1 << ch.KEEP
_GLOBAL = 1 << ch.GLOBAL
_DIRECT = 1 << ch.DIRECT
# Of a task: whether some loop may be parallel, surely is, and is so in enough tiles.
_MAYBE, _SURELY, _BALANCED = 1, 2, 4


class BoundScratch(NamedTuple):
    """What a bound writes on its way, by task, or by phase (in the place of its least task)."""

    parallel: Ints  # [n_tasks] whether it may run on all cores, see _MAYBE
    chosen: Ints  # [n_tasks]
    before: Ints  # [n_tasks] the task before it on the longest path, or -1
    ends: Bools  # [n_tasks, n_tasks] whether the first surely ends before the second begins
    moved: Floats  # [n_tasks, N_MOVED] bytes
    through: Floats  # [n_tasks, streams.N_COLUMNS] bytes
    costs: Floats  # [n_tasks, N_COSTS]
    parts: Floats  # [n_tasks, n_terms] ns
    rates: Floats  # [2, n_kinds + 2] bytes a ns read and written, see streams.py


def make_scratch(tables: BoundTables, n_terms: int) -> BoundScratch:
    """Room for the bounds of a space, one after the other."""
    n = tables.after.shape[0]
    return BoundScratch(
        parallel=np.zeros(n, np.int64),
        chosen=np.zeros(n, np.int64),
        before=np.zeros(n, np.int64),
        ends=np.zeros((n, n), np.bool_),
        moved=np.zeros((n, N_MOVED)),
        through=np.zeros((n, N_COLUMNS)),
        costs=np.zeros((n, N_COSTS)),
        parts=np.zeros((n, n_terms)),
        rates=np.zeros((2, tables.stream.shape[0] + 2)),
    )


@jit_flat_internal
def _largest(universe: Ints, at: Int, domain: Int) -> Int:
    size = 1
    k = 0
    while domain >> k:
        if domain >> k & 1 and universe[at + k] > size:
            size = universe[at + k]
        k += 1
    return size


@jit_flat_internal
def _threads(tables: BoundTables, domains: Mask, parallel: Ints) -> None:
    for t in range(parallel.size):
        parallel[t] = 0
    for k in range(tables.outer.shape[0]):
        task = tables.outer[k].task
        kind = np.int64(domains[tables.outer[k].kind])
        if not kind & _PARALLEL:
            continue
        parallel[task] |= _MAYBE
        if kind == _PARALLEL:
            parallel[task] |= _SURELY
            mid = _largest(
                tables.universe, tables.outer[k].mid_at, np.int64(domains[tables.outer[k].mid_size])
            )
            inner = _largest(
                tables.universe,
                tables.outer[k].inner_at,
                np.int64(domains[tables.outer[k].inner_size]),
            )
            if tables.outer[k].extent >= mid * inner * BALANCED_TILES * tables.cores:
                parallel[task] |= _BALANCED


@jit_flat_internal
def join(phase: Ints, a: Int, b: Int) -> None:
    low, high = min(phase[a], phase[b]), max(phase[a], phase[b])
    if low != high:
        for t in range(phase.size):
            if phase[t] == high:
                phase[t] = low


@jit_flat_internal
def merged_tasks(tables: BoundTables, domains: Mask, phase: Ints) -> None:
    """Group tasks that may have a loop in common: phase[t] becomes the least task of its group."""
    for t in range(phase.size):
        phase[t] = t
    for k in range(tables.merge.shape[0]):
        if domains[tables.merge[k].order] & _MERGED:
            join(phase, tables.merge[k].a, tables.merge[k].b)


@jit_flat_internal
def _phases(tables: BoundTables, domains: Mask, parallel: Ints, phase: Ints) -> float:
    """Group the tasks (phase[t] is the least task of its group); the share of a phase in step."""
    merged_tasks(tables, domains, phase)
    in_step = 1.0
    for k in range(tables.pair.shape[0]):
        a, b = tables.pair[k].a, tables.pair[k].b
        if not domains[tables.pair[k].fused] & _SAME_LAUNCH or phase[a] == phase[b]:
            continue
        both = parallel[a] & parallel[b]
        if not (parallel[a] | parallel[b]) & _MAYBE:
            continue  # one thread runs one after the other
        if tables.after[a, b]:
            continue  # a value passes through memory between separate loops: threads meet first
        if both & _BALANCED:
            in_step = IN_STEP
        else:
            join(phase, a, b)
    return in_step


@jit_flat
def array_traffic(
    tables: BoundTables, domains: Mask, phase: Ints, ends: Bools, array: int, moved: Floats
) -> None:
    """Fill in distinct bytes of one array that each phase surely reads from outside it, and writes (of `moved`, [n, N_MOVED]).

    What a task takes from one that surely ends before it (ends[first, second]) is in memory, or in copies as large.
    """
    for p in range(phase.size):
        moved[p, ARRAY_READS], moved[p, ARRAY_WRITES], moved[p, IS_WRITTEN] = 0.0, 0.0, 0.0
    for k in range(tables.touch_start[array], tables.touch_start[array + 1]):
        p = phase[tables.touch[k].task]
        first, end = tables.touch[k].first_flow, tables.touch[k].end_flow
        if tables.touch[k].read_bytes > moved[p, ARRAY_READS] and not moved[p, IS_WRITTEN]:
            in_memory = first == end
            for f in range(first, end):
                space = tables.flow[f].mem_space
                in_memory = in_memory or space < 0 or domains[space] == _GLOBAL
                in_memory = in_memory or ends[tables.flow[f].producer, tables.touch[k].task]
            if in_memory:
                moved[p, ARRAY_READS] = tables.touch[k].read_bytes
        if tables.touch[k].is_written:
            # Whatever comes later in this phase may find the value on chip.
            moved[p, IS_WRITTEN] = 1.0
            store = tables.touch[k].store
            if store < 0 or domains[store] == _KEEP:
                moved[p, ARRAY_WRITES] = max(moved[p, ARRAY_WRITES], tables.touch[k].written_bytes)


@jit_flat_internal
def phase_traffic(
    tables: BoundTables, domains: Mask, phase: Ints, ends: Bools, moved: Floats
) -> None:
    """Fill in distinct bytes of all arrays that each phase surely reads from outside it, and writes, as `array_traffic` does."""
    for p in range(phase.size):
        moved[p, READS], moved[p, WRITES] = 0.0, 0.0
    for array in range(tables.touch_start.size - 1):
        array_traffic(tables, domains, phase, ends, array, moved)
        for p in range(phase.size):
            moved[p, READS] += moved[p, ARRAY_READS]
            moved[p, WRITES] += moved[p, ARRAY_WRITES]


@jit_flat_internal
def _stream_traffic(tables: BoundTables, domains: Mask, phase: Ints, scratch: BoundScratch) -> None:
    """Bytes that each phase surely goes through once a call, by the columns of streams.py."""
    moved, through = scratch.moved, scratch.through
    for p in range(phase.size):
        for column in range(N_COLUMNS):
            through[p, column] = 0.0
    for array in range(tables.touch_start.size - 1):
        first, end = tables.touch_start[array], tables.touch_start[array + 1]
        if tables.passes[array] == ANYHOW or first == end:
            continue
        p = phase[tables.touch[first].task]
        is_together = True
        fresh = 0
        for k in range(first, end):
            is_together = is_together and phase[tables.touch[k].task] == p
            fresh = max(fresh, tables.touch[k].is_fresh)
        if is_together:
            # What several tasks of different phases touch may be used in another order by each.
            array_traffic(tables, domains, phase, scratch.ends, array, moved)
            side = 1 if tables.passes[array] == BY_EACH else 0
            through[p, READ_ONCE + side] += moved[p, ARRAY_READS]
            through[p, WRITTEN_ONCE + side] += moved[p, ARRAY_WRITES]
            through[p, FRESH_ONCE + side] += fresh * moved[p, ARRAY_WRITES]


@jit_flat_internal
def _arithmetic(
    tables: BoundTables, domains: Mask, parallel: Ints, phase: Ints, costs: Floats
) -> None:
    """ns of operations, and of the longest chain of dependent ones, by phase."""
    n = phase.size
    for t in range(n):
        costs[t, WORK], costs[t, ONE_CORE], costs[t, CHAINS] = 0.0, 0.0, 0.0
        costs[t, FACTOR] = max(tables.task[t].lanes / CLOCK_SLACK, 1.0)
        costs[t, COPIES] = 1.0
    for k in range(tables.vector.shape[0]):
        if domains[tables.vector[k].kind] & _VECTOR:
            costs[tables.vector[k].task, FACTOR] = 1.0
    for k in range(tables.chain.shape[0]):
        size = _largest(
            tables.universe, tables.chain[k].at, np.int64(domains[tables.chain[k].dim_size])
        )
        costs[tables.chain[k].task, COPIES] *= min(size, tables.chain[k].most)
    for t in range(n):
        p = phase[t]
        ns = tables.task[t].operations_ns * costs[t, FACTOR]
        costs[p, WORK] += ns
        copies = costs[t, COPIES]
        if parallel[t] & _MAYBE:
            copies *= tables.cores
        else:
            costs[p, ONE_CORE] += ns * max(1.0, tables.cores / CLOCK_SLACK)
        costs[p, CHAINS] = max(costs[p, CHAINS], tables.task[t].chain_ns / copies)
    for p in range(n):
        costs[p, WORK] = max(costs[p, WORK], costs[p, ONE_CORE])


@jit_flat_internal
def _shared_copies(tables: BoundTables, domains: Mask, first: Int, end: Int) -> float:
    """For how many iterations of loops `first` to `end` of load_spared one load may do, at most."""
    copies = 1.0
    for k in range(first, end):
        mids = np.int64(domains[tables.load_spared[k].mid_size])
        inners = np.int64(domains[tables.load_spared[k].inner_size])
        extent = tables.load_spared[k].extent
        most = 1
        i = 0
        while mids >> i:
            j = 0
            while mids >> i & 1 and inners >> j:
                if inners >> j & 1:
                    mid = tables.universe[tables.load_spared[k].mid_at + i]
                    inner = tables.universe[tables.load_spared[k].inner_at + j]
                    most = max(most, _shared_at(extent, mid, inner))
                j += 1
            i += 1
        copies *= most
    return copies


@jit_flat_internal
def _shared_at(extent: Int, mid: Int, inner: Int) -> int:
    """The same for one loop of decided sizes: a compiler may unroll short loops completely, and load once for all copies."""
    trips = (extent + mid * inner - 1) // (mid * inner)
    copies = inner
    if mid <= MAX_PEELED:
        copies *= mid
    if trips <= MAX_PEELED:
        copies *= trips
    return int(copies)


@jit_flat_internal
def _element_loads(
    tables: BoundTables, domains: Mask, parallel: Ints, phase: Ints, costs: Floats
) -> None:
    """ns of loads of one element each, by phase (see element_loads.py). Tasks may share what they load: the most of any of them."""
    for t in range(phase.size):
        costs[t, LOADED], costs[t, LEAST] = 0.0, np.inf
    for k in range(tables.load_group.shape[0]):
        t = tables.load_group[k].task
        if domains[tables.load_group[k].kind] != _VECTOR:
            continue
        ns = 0.0
        for i in range(tables.load_group[k].first, tables.load_group[k].end):
            staged = tables.load[i].staged
            if staged < 0 or domains[staged] == _DIRECT:
                copies = _shared_copies(tables, domains, tables.load[i].first, tables.load[i].end)
                ns += tables.load[i].ns / copies
        costs[t, LEAST] = min(costs[t, LEAST], ns)
    for t in range(phase.size):
        ns = costs[t, LEAST]
        if ns < np.inf:
            if not parallel[t] & _MAYBE:
                ns *= max(1.0, tables.cores / CLOCK_SLACK)
            costs[phase[t], LOADED] = max(costs[phase[t], LOADED], ns)


@jit_flat_internal
def _launches(tables: BoundTables, domains: Mask, parallel: Ints, chosen: Ints) -> int:
    """Number of launches of a team that are surely there: tasks that surely share none."""
    count = 0
    for t in range(parallel.size):
        chosen[t] = 1 if parallel[t] & _SURELY else 0
        for k in range(tables.pair.shape[0]):
            is_shared = tables.pair[k].b == t and chosen[tables.pair[k].a]
            if is_shared and domains[tables.pair[k].fused] & _SAME_LAUNCH:
                chosen[t] = 0
        count += chosen[t]
    return count


@jit_flat_internal
def _has_barrier(tables: BoundTables, domains: Mask, parallel: Ints) -> bool:
    """Whether partial results of threads surely meet inside a launch, for other threads to read."""
    for k in range(tables.barrier.shape[0]):
        surely = domains[tables.barrier[k].kind] == _PARALLEL
        surely = surely and domains[tables.barrier[k].fused] == _SAME_LAUNCH
        if surely and parallel[tables.barrier[k].reader] & _SURELY:
            return True
    return False


@jit_flat_internal
def _price_phases(tables: BoundTables, phase: Ints, scratch: BoundScratch) -> None:
    """ns of each phase alone: of each resource (`parts`), of all and of what each core does alone (`costs`); after the others."""
    n, n_levels = phase.size, tables.rate.size - 1
    parallel, costs, parts = scratch.parallel, scratch.costs, scratch.parts
    cached = tables.capacity[n_levels]
    # What a phase wrote last may leave the caches while the next one runs; of all as one phase that is the next call.
    leaving = cached if _has_phases(phase) else 0.0
    for p in range(n):
        costs[p, ALL], costs[p, ALONE] = 0.0, 0.0
        for k in range(parts.shape[1]):
            parts[p, k] = 0.0
        if phase[p] != p:
            continue
        threads = 0
        for t in range(p, n):
            if phase[t] == p:
                threads |= parallel[t]
        is_alone = not threads & _MAYBE
        read, written = scratch.moved[p, READS], scratch.moved[p, WRITES]
        parts[p, READ] = max(0.0, read - cached) / tables.rate[n_levels]
        parts[p, WRITE] = max(0.0, written - cached) / tables.write_rate
        # Dirty lines that stay save the trip out, and where they are read again the trip in.
        kept = cached + min(cached, tables.reused_bytes)
        parts[p, MIXED] = max(0.0, read + written - kept) / tables.mixed_rate
        cores = 1 if is_alone else np.int64(tables.cores)
        parts[p, STREAMS] = streaming_ns(
            tables.stream,
            tables.stream_point,
            cores,
            scratch.through[p],
            cached,
            leaving,
            scratch.rates,
        )
        parts[p, OPERATIONS], parts[p, CHAIN] = costs[p, WORK], costs[p, CHAINS]
        parts[p, LOADS] = costs[p, LOADED]
        alone = max(max(costs[p, WORK], costs[p, CHAINS]), costs[p, LOADED])
        longest = max(max(parts[p, READ], parts[p, WRITE]), parts[p, STREAMS])
        for k in range(n_levels):
            ns = max(0.0, read - tables.capacity[k]) / tables.rate[k]
            is_private = k < n_levels - 1 or k == 0
            if is_private and is_alone:
                ns *= max(1.0, tables.cores / CLOCK_SLACK)
            parts[p, FIRST_LEVEL + k] = ns
            if is_private:
                alone = max(alone, ns)
            else:
                longest = max(longest, ns)
        costs[p, ALL], costs[p, ALONE] = max(longest, alone), alone


@jit_flat_internal
def _has_phases(phase: Ints) -> bool:
    """Whether there is more than one; they stand for their least tasks, so one is the first task's."""
    most = 0
    for t in range(phase.size):
        most = max(most, phase[t])
    return most > 0


@jit_flat_internal
def _add(scratch: BoundScratch, scale: float, terms: Floats) -> tuple[float, float]:
    """Each of `terms` becomes the larger of what it is and of the sum over the phases; the sums of all, and of each core alone."""
    all_ns, core_ns = 0.0, 0.0
    for p in range(scratch.costs.shape[0]):
        all_ns += scratch.costs[p, ALL]
        core_ns += scratch.costs[p, ALONE]
    for k in range(terms.size):
        total = 0.0
        for p in range(scratch.parts.shape[0]):
            total += scratch.parts[p, k]
        terms[k] = max(terms[k], total * scale)
    return all_ns * scale, core_ns * scale


@jit_flat_internal
def _ends_before(tables: BoundTables, domains: Mask, ends: Bools) -> bool:
    """ends[u, t]: whether task u is surely complete before task t begins; whether any is.

    So it is where one needs what the other computes, and the two have no loop in common: threads meet between them, or a launch
    ends. That a task between them may share loops with either does not matter: one loop nest has one outermost loop, which all its
    tasks share.
    """
    n = ends.shape[0]
    for u in range(n):
        for t in range(n):
            ends[u, t] = tables.after[u, t] != 0
    for k in range(tables.merge.shape[0]):
        if domains[tables.merge[k].order] & _MERGED:
            ends[tables.merge[k].a, tables.merge[k].b] = False
            ends[tables.merge[k].b, tables.merge[k].a] = False
    any_ends = False
    for u in range(n):
        for t in range(n):
            any_ends = any_ends or ends[u, t]
    return any_ends


@jit_flat_internal
def _longest_path(scratch: BoundScratch, terms: Floats) -> tuple[float, float]:
    """ns of tasks that surely run one after the other: of all that they do, and of what each core does alone."""
    costs, before = scratch.costs, scratch.before
    last, most_core = 0, 0.0
    for t in range(before.size):
        longest, longest_core = 0.0, 0.0
        before[t] = -1
        for u in range(t):
            if scratch.ends[u, t]:
                longest_core = max(longest_core, costs[u, ALONE])
                if costs[u, ALL] > longest:
                    longest, before[t] = costs[u, ALL], u
        costs[t, ALL] += longest
        costs[t, ALONE] += longest_core
        most_core = max(most_core, costs[t, ALONE])
        if costs[t, ALL] > costs[last, ALL]:
            last = t
    for k in range(terms.size):
        total = 0.0
        t = last
        while t >= 0:
            total += scratch.parts[t, k]
            t = before[t]
        terms[k] = max(terms[k], total)
    return costs[last, ALL], most_core


@jit_flat
def lower_bound(
    tables: BoundTables, scratch: BoundScratch, domains: Mask, phase: Ints, terms: Floats
) -> float:
    """ns that every completion takes at least; fills `phase` ([n_tasks]) and `terms` (ns each)."""
    n = phase.size
    for k in range(terms.size):
        terms[k] = 0.0
    _threads(tables, domains, scratch.parallel)
    all_ns, core_ns, in_step = 0.0, 0.0, 1.0
    # Tasks apart, with those before them; everything as one phase, because what caches keep is then subtracted once only; phases.
    for way in range(3):
        for u in range(n):
            phase[u] = u if way == 0 else 0
            for t in range(n):
                scratch.ends[u, t] = False
        if way == 0 and (n <= 2 or not _ends_before(tables, domains, scratch.ends)):
            continue  # of two the phases below say as much
        if way == 2:
            in_step = _phases(tables, domains, scratch.parallel, phase)
            if not _has_phases(phase):
                break
        phase_traffic(tables, domains, phase, scratch.ends, scratch.moved)
        _arithmetic(tables, domains, scratch.parallel, phase, scratch.costs)
        _element_loads(tables, domains, scratch.parallel, phase, scratch.costs)
        if tables.stream.shape[0] > 0:
            _stream_traffic(tables, domains, phase, scratch)
        _price_phases(tables, phase, scratch)
        if way == 0:
            way_ns, way_core = _longest_path(scratch, terms)
        else:
            way_ns, way_core = _add(scratch, in_step, terms)
        all_ns, core_ns = max(all_ns, way_ns), max(core_ns, way_core)
    all_ns = max(all_ns, terms[MIXED])
    launches = _launches(tables, domains, scratch.parallel, scratch.chosen)
    started = launches * tables.launch_ns
    met = tables.barrier_ns if _has_barrier(tables, domains, scratch.parallel) else 0.0
    terms[LAUNCHES] = tables.call_ns + started + met
    # While a team assembles, its first threads can already fill the bandwidth that all share; what
    # each core must do by itself waits for it to arrive.
    joined = launches * min(tables.barrier_ns, tables.launch_ns) / 2
    # A core is in the next call before it has finished the sums of this one: the call and the work are not added.
    return float(max(tables.call_ns, met + max(all_ns + joined, core_ns + started)))
