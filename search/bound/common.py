"""The bound itself, compiled: from domains and tables to ns.

Phases are groups of tasks; tasks of different phases surely do not run at the same time (but for
the few iterations by which threads may be out of step). In a phase that touches F bytes, at least
F - C bytes cross into caches that hold C: no more than C can be there when it begins, left over by
the phase or the call before. Bytes written leave by the same argument at its end.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...space import choices as ch
from ...space.engine.jit import jit, jit_internal
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


@jit_internal
def _largest(universe: Ints, at: Int, domain: Int) -> Int:
    size = 1
    k = 0
    while domain >> k:
        if domain >> k & 1 and universe[at + k] > size:
            size = universe[at + k]
        k += 1
    return size


@jit_internal
def _threads(tables: BoundTables, domains: Mask, parallel: Ints) -> None:
    parallel[:] = 0
    for k in range(tables.outer.shape[0]):
        task = tables.outer[k, 0]
        kind = np.int64(domains[tables.outer[k, 1]])
        if not kind & _PARALLEL:
            continue
        parallel[task] |= _MAYBE
        if kind == _PARALLEL:
            parallel[task] |= _SURELY
            mid = _largest(
                tables.universe, tables.outer[k, 4], np.int64(domains[tables.outer[k, 3]])
            )
            inner = _largest(
                tables.universe, tables.outer[k, 6], np.int64(domains[tables.outer[k, 5]])
            )
            if tables.outer[k, 2] >= mid * inner * BALANCED_TILES * tables.cores:
                parallel[task] |= _BALANCED


@jit_internal
def join(phase: Ints, a: Int, b: Int) -> None:
    low, high = min(phase[a], phase[b]), max(phase[a], phase[b])
    if low != high:
        for t in range(phase.size):
            if phase[t] == high:
                phase[t] = low


@jit_internal
def merged_tasks(tables: BoundTables, domains: Mask, phase: Ints) -> None:
    """Group tasks that may have a loop in common: phase[t] becomes the least task of its group."""
    for t in range(phase.size):
        phase[t] = t
    for k in range(tables.merge.shape[0]):
        if domains[tables.merge[k, 2]] & _MERGED:
            join(phase, tables.merge[k, 0], tables.merge[k, 1])


@jit_internal
def _phases(tables: BoundTables, domains: Mask, parallel: Ints, phase: Ints) -> float:
    """Group the tasks (phase[t] is the least task of its group); the share of a phase in step."""
    merged_tasks(tables, domains, phase)
    in_step = 1.0
    for k in range(tables.pair.shape[0]):
        a, b = tables.pair[k, 0], tables.pair[k, 1]
        if not domains[tables.pair[k, 2]] & _SAME_LAUNCH or phase[a] == phase[b]:
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


@jit
def array_traffic(
    tables: BoundTables, domains: Mask, phase: Ints, ends: Bools, array: int
) -> tuple[Floats, Floats]:
    """Distinct bytes of one array that each phase surely reads from outside it, and writes.

    What a task takes from one that surely ends before it (ends[first, second]) is in memory, or in copies as large.
    """
    n = phase.size
    read = np.zeros(n)
    written = np.zeros(n)
    is_written = np.zeros(n, np.bool_)
    for k in range(tables.touch_start[array], tables.touch_start[array + 1]):
        p = phase[tables.touch[k, 0]]
        first, end = tables.touch[k, 3], tables.touch[k, 4]
        if tables.touch_bytes[k, 0] > read[p] and not is_written[p]:
            in_memory = first == end
            for f in range(first, end):
                in_memory = in_memory or domains[tables.flow[f, 0]] == _GLOBAL
                in_memory = in_memory or ends[tables.flow[f, 1], tables.touch[k, 0]]
            if in_memory:
                read[p] = tables.touch_bytes[k, 0]
        if tables.touch[k, 1]:
            # Whatever comes later in this phase may find the value on chip.
            is_written[p] = True
            store = tables.touch[k, 2]
            if store < 0 or domains[store] == _KEEP:
                written[p] = max(written[p], tables.touch_bytes[k, 1])
    return read, written


@jit_internal
def phase_traffic(
    tables: BoundTables, domains: Mask, phase: Ints, ends: Bools, read: Floats, write: Floats
) -> None:
    """Distinct bytes of all arrays that each phase surely reads from outside it, and writes; `ends` as in `array_traffic`."""
    read[:] = 0.0
    write[:] = 0.0
    for array in range(tables.touch_start.size - 1):
        array_read, array_written = array_traffic(tables, domains, phase, ends, array)
        for p in range(phase.size):
            read[p] += array_read[p]
            write[p] += array_written[p]


@jit_internal
def _stream_traffic(
    tables: BoundTables, domains: Mask, phase: Ints, ends: Bools, through: Floats
) -> None:
    """Bytes that each phase surely goes through once a call, by the columns of streams.py ([n, N_COLUMNS])."""
    through[:] = 0.0
    for array in range(tables.touch_start.size - 1):
        first, end = tables.touch_start[array], tables.touch_start[array + 1]
        if tables.passes[array] == ANYHOW or first == end:
            continue
        p = phase[tables.touch[first, 0]]
        is_together = True
        fresh = 0
        for k in range(first, end):
            is_together = is_together and phase[tables.touch[k, 0]] == p
            fresh = max(fresh, tables.touch_fresh[k])
        if is_together:
            # What several tasks of different phases touch may be used in another order by each.
            read, written = array_traffic(tables, domains, phase, ends, array)
            side = int(tables.passes[array] == BY_EACH)
            through[p, READ_ONCE + side] += read[p]
            through[p, WRITTEN_ONCE + side] += written[p]
            through[p, FRESH_ONCE + side] += fresh * written[p]


@jit_internal
def _arithmetic(
    tables: BoundTables, domains: Mask, parallel: Ints, phase: Ints, work: Floats, chain: Floats
) -> None:
    """ns of operations, and of the longest chain of dependent ones, by phase."""
    n = phase.size
    work[:] = 0.0
    chain[:] = 0.0
    one_core = np.zeros(n)
    factor = tables.lanes / CLOCK_SLACK
    for t in range(n):
        factor[t] = max(factor[t], 1.0)
    for k in range(tables.vector.shape[0]):
        if domains[tables.vector[k, 1]] & _VECTOR:
            factor[tables.vector[k, 0]] = 1.0
    copies = np.ones(n)
    for k in range(tables.chain.shape[0]):
        size = _largest(tables.universe, tables.chain[k, 2], np.int64(domains[tables.chain[k, 1]]))
        copies[tables.chain[k, 0]] *= min(size, tables.chain[k, 3])
    for t in range(n):
        p = phase[t]
        ns = tables.operations_ns[t] * factor[t]
        work[p] += ns
        if parallel[t] & _MAYBE:
            copies[t] *= tables.cores
        else:
            one_core[p] += ns * max(1.0, tables.cores / CLOCK_SLACK)
        steps = tables.chain_ns[t] / copies[t]
        chain[p] = max(chain[p], steps)
    for p in range(n):
        work[p] = max(work[p], one_core[p])


@jit_internal
def _shared_copies(tables: BoundTables, domains: Mask, first: Int, end: Int) -> float:
    """For how many iterations of loops `first` to `end` of load_spared one load may do, at most."""
    copies = 1.0
    for k in range(first, end):
        row = tables.load_spared[k]
        mids, inners = np.int64(domains[row[0]]), np.int64(domains[row[2]])
        most = 1
        i = 0
        while mids >> i:
            j = 0
            while mids >> i & 1 and inners >> j:
                if inners >> j & 1:
                    mid, inner = tables.universe[row[1] + i], tables.universe[row[3] + j]
                    most = max(most, _shared_at(row[4], mid, inner))
                j += 1
            i += 1
        copies *= most
    return copies


@jit_internal
def _shared_at(extent: Int, mid: Int, inner: Int) -> int:
    """The same for one loop of decided sizes: a compiler may unroll short loops completely, and load once for all copies."""
    trips = (extent + mid * inner - 1) // (mid * inner)
    copies = inner
    if mid <= MAX_PEELED:
        copies *= mid
    if trips <= MAX_PEELED:
        copies *= trips
    return int(copies)


@jit_internal
def _element_loads(
    tables: BoundTables, domains: Mask, parallel: Ints, phase: Ints, loads: Floats
) -> None:
    """ns of loads of one element each, by phase (see element_loads.py). Tasks may share what they load: the most of any of them."""
    loads[:] = 0.0
    least = np.full(phase.size, np.inf)
    for k in range(tables.load_group.shape[0]):
        t = tables.load_group[k, 0]
        if domains[tables.load_group[k, 1]] != _VECTOR:
            continue
        ns = 0.0
        for i in range(tables.load_group[k, 2], tables.load_group[k, 3]):
            staged = tables.load[i, 0]
            if staged < 0 or domains[staged] == _DIRECT:
                copies = _shared_copies(tables, domains, tables.load[i, 1], tables.load[i, 2])
                ns += tables.load_ns[i] / copies
        least[t] = min(least[t], ns)
    for t in range(phase.size):
        if least[t] < np.inf:
            ns = least[t]
            if not parallel[t] & _MAYBE:
                ns *= max(1.0, tables.cores / CLOCK_SLACK)
            loads[phase[t]] = max(loads[phase[t]], ns)


@jit_internal
def _launches(tables: BoundTables, domains: Mask, parallel: Ints) -> int:
    """Number of launches of a team that are surely there: tasks that surely share none."""
    n = parallel.size
    chosen = np.zeros(n, np.bool_)
    count = 0
    for t in range(n):
        chosen[t] = bool(parallel[t] & _SURELY)
        for k in range(tables.pair.shape[0]):
            if tables.pair[k, 1] == t and chosen[tables.pair[k, 0]]:
                chosen[t] = chosen[t] and not domains[tables.pair[k, 2]] & _SAME_LAUNCH
        count += chosen[t]
    return count


@jit_internal
def _has_barrier(tables: BoundTables, domains: Mask, parallel: Ints) -> bool:
    """Whether partial results of threads surely meet inside a launch, for other threads to read."""
    for k in range(tables.barrier.shape[0]):
        surely = domains[tables.barrier[k, 0]] == _PARALLEL
        surely = surely and domains[tables.barrier[k, 2]] == _SAME_LAUNCH
        if surely and parallel[tables.barrier[k, 1]] & _SURELY:
            return True
    return False


@jit_internal
def _price_phases(
    tables: BoundTables,
    domains: Mask,
    phase: Ints,
    ends: Bools,
    parallel: Ints,
    terms: Floats,
    prices: tuple[Floats, Floats],
) -> None:
    """ns of each phase alone: of each resource (`terms`, [n, n_terms]); as `prices`, of all and of what each core does alone."""
    n = phase.size
    read, write = np.zeros(n), np.zeros(n)
    work, chain, loads = np.zeros(n), np.zeros(n), np.zeros(n)
    through = np.zeros((n, N_COLUMNS))
    phase_traffic(tables, domains, phase, ends, read, write)
    _arithmetic(tables, domains, parallel, phase, work, chain)
    _element_loads(tables, domains, parallel, phase, loads)
    if tables.stream.shape[0] > 0:
        _stream_traffic(tables, domains, phase, ends, through)
    n_levels = tables.rate.size - 1
    cached = tables.capacity[n_levels]
    # What a phase wrote last may leave the caches while the next one runs; of all as one phase that is the next call.
    leaving = cached if phase.max() > 0 else 0.0
    terms[:] = 0.0
    all_ns, core_ns = prices
    all_ns[:] = 0.0
    core_ns[:] = 0.0
    for p in range(n):
        if phase[p] != p:
            continue
        threads = 0
        for t in range(p, n):
            if phase[t] == p:
                threads |= parallel[t]
        is_alone = not threads & _MAYBE
        here = terms[p]
        here[READ] = max(0.0, read[p] - cached) / tables.rate[n_levels]
        here[WRITE] = max(0.0, write[p] - cached) / tables.write_rate
        # Dirty lines that stay save the trip out, and where they are read again the trip in.
        kept = cached + min(cached, tables.reused_bytes)
        here[MIXED] = max(0.0, read[p] + write[p] - kept) / tables.mixed_rate
        cores = 1 if is_alone else np.int64(tables.cores)
        here[STREAMS] = streaming_ns(
            tables.stream, tables.stream_point, cores, through[p], (cached, leaving)
        )
        here[OPERATIONS], here[CHAIN], here[LOADS] = work[p], chain[p], loads[p]
        alone = max(max(work[p], chain[p]), loads[p])
        longest = max(max(here[READ], here[WRITE]), here[STREAMS])
        for k in range(n_levels):
            ns = max(0.0, read[p] - tables.capacity[k]) / tables.rate[k]
            is_private = k < n_levels - 1 or k == 0
            if is_private and is_alone:
                ns *= max(1.0, tables.cores / CLOCK_SLACK)
            here[FIRST_LEVEL + k] = ns
            if is_private:
                alone = max(alone, ns)
            else:
                longest = max(longest, ns)
        all_ns[p], core_ns[p] = max(longest, alone), alone


@jit_internal
def _add(parts: Floats, scale: float, terms: Floats) -> None:
    """Each of `terms` becomes the larger of what it is and of the sum over the phases."""
    for k in range(terms.size):
        total = 0.0
        for p in range(parts.shape[0]):
            total += parts[p, k]
        terms[k] = max(terms[k], total * scale)


@jit_internal
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
        if domains[tables.merge[k, 2]] & _MERGED:
            ends[tables.merge[k, 0], tables.merge[k, 1]] = False
            ends[tables.merge[k, 1], tables.merge[k, 0]] = False
    return bool(ends.any())


@jit_internal
def _longest_path(
    ends: Bools, parts: Floats, prices: tuple[Floats, Floats], terms: Floats
) -> tuple[float, float]:
    """ns of tasks that surely run one after the other: of all that they do, and of what each core does alone."""
    n = parts.shape[0]
    all_ns, core_ns = prices
    before = np.full(n, -1, np.int64)
    last = 0
    for t in range(n):
        longest, longest_core = 0.0, 0.0
        for u in range(t):
            if ends[u, t]:
                longest_core = max(longest_core, core_ns[u])
                if all_ns[u] > longest:
                    longest, before[t] = all_ns[u], u
        all_ns[t] += longest
        core_ns[t] += longest_core
        if all_ns[t] > all_ns[last]:
            last = t
    for k in range(terms.size):
        total = 0.0
        t = last
        while t >= 0:
            total += parts[t, k]
            t = before[t]
        terms[k] = max(terms[k], total)
    return all_ns.max(), core_ns.max()


@jit
def lower_bound(tables: BoundTables, domains: Mask, phase: Ints, terms: Floats) -> float:
    """ns that every completion takes at least; fills `phase` ([n_tasks]) and `terms` (ns each)."""
    n = phase.size
    terms[:] = 0.0
    parallel = np.zeros(n, np.int64)
    parts = np.zeros((n, terms.size))
    prices = (np.zeros(n), np.zeros(n))
    _threads(tables, domains, parallel)
    all_ns, core_ns = 0.0, 0.0
    ends = np.zeros((n, n), np.bool_)
    if n > 2 and _ends_before(tables, domains, ends):  # of two the phases below say as much
        for t in range(n):
            phase[t] = t
        _price_phases(tables, domains, phase, ends, parallel, parts, prices)
        all_ns, core_ns = _longest_path(ends, parts, prices, terms)
    # Everything as one phase, because what caches keep is then subtracted once only.
    phase[:] = 0
    ends[:] = False
    _price_phases(tables, domains, phase, ends, parallel, parts, prices)
    _add(parts, 1.0, terms)
    all_ns, core_ns = max(all_ns, prices[0].sum()), max(core_ns, prices[1].sum())
    in_step = _phases(tables, domains, parallel, phase)
    if phase.max() > 0:
        _price_phases(tables, domains, phase, ends, parallel, parts, prices)
        _add(parts, in_step, terms)
        all_ns = max(all_ns, prices[0].sum() * in_step)
        core_ns = max(core_ns, prices[1].sum() * in_step)
    all_ns = max(all_ns, terms[MIXED])
    launches = _launches(tables, domains, parallel)
    started = launches * tables.launch_ns
    met = tables.barrier_ns if _has_barrier(tables, domains, parallel) else 0.0
    terms[LAUNCHES] = tables.call_ns + started + met
    # While a team assembles, its first threads can already fill the bandwidth that all share; what
    # each core must do by itself waits for it to arrive.
    joined = launches * min(tables.barrier_ns, tables.launch_ns) / 2
    # A core is in the next call before it has finished the sums of this one: the call and the work are not added.
    return float(max(tables.call_ns, met + max(all_ns + joined, core_ns + started)))
