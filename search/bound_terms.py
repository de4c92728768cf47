"""The bound itself, compiled: from domains and tables to ns.

Phases are groups of tasks; tasks of different phases surely do not run at the same time (but for
the few iterations by which threads may be out of step). In a phase that touches F bytes, at least
F - C bytes cross into caches that hold C: no more than C can be there when it begins, left over by
the phase or the call before. Bytes written leave by the same argument at its end.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..space import choices as ch
from ..space.jit import jit, jit_internal
from .bound_tables import MAX_PEELED, BoundTables
from .tables import Floats, Ints

Mask = npt.NDArray[np.uint32]
Int = int | np.int64

# Of the terms; the levels of cache follow.
READ, WRITE, MIXED, OPERATIONS, CHAIN, LOADS, LAUNCHES, FIRST_LEVEL = range(8)

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
        if tables.pair[k, 3]:
            continue  # a value passes through memory between separate loops: threads meet first
        if both & _BALANCED:
            in_step = IN_STEP
        else:
            join(phase, a, b)
    return in_step


@jit
def array_traffic(
    tables: BoundTables, domains: Mask, phase: Ints, array: int
) -> tuple[Floats, Floats]:
    """Distinct bytes of one array that each phase surely reads from outside it, and writes."""
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
                in_memory = in_memory or domains[tables.flow[f]] == _GLOBAL
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
    tables: BoundTables, domains: Mask, phase: Ints, read: Floats, write: Floats
) -> None:
    """Distinct bytes of all arrays that each phase surely reads from outside it, and writes."""
    read[:] = 0.0
    write[:] = 0.0
    for array in range(tables.touch_start.size - 1):
        array_read, array_written = array_traffic(tables, domains, phase, array)
        for p in range(phase.size):
            read[p] += array_read[p]
            write[p] += array_written[p]


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
def _add_phases(
    tables: BoundTables,
    phase: Ints,
    parallel: Ints,
    costs: tuple[Floats, Floats, Floats, Floats, Floats],
    scale: float,
    terms: Floats,
) -> tuple[float, float]:
    """ns of all phases, and ns of what each core does alone in them.

    `terms` becomes, resource by resource, the largest of what it is and of the sum over the phases.
    """
    read, write, work, chain, loads = costs
    n_levels = tables.rate.size - 1
    cached = tables.capacity[n_levels]
    sums = np.zeros(terms.size)
    all_ns, core_ns = 0.0, 0.0
    for p in range(phase.size):
        if phase[p] != p:
            continue
        threads = 0
        for t in range(p, phase.size):
            if phase[t] == p:
                threads |= parallel[t]
        from_memory = max(0.0, read[p] - cached) / tables.rate[n_levels]
        to_memory = max(0.0, write[p] - cached) / tables.write_rate
        alone = max(max(work[p], chain[p]), loads[p])
        longest = max(from_memory, to_memory)
        for k in range(n_levels):
            ns = max(0.0, read[p] - tables.capacity[k]) / tables.rate[k]
            is_private = k < n_levels - 1 or k == 0
            if is_private and not threads & _MAYBE:
                ns *= max(1.0, tables.cores / CLOCK_SLACK)
            sums[FIRST_LEVEL + k] += ns
            if is_private:
                alone = max(alone, ns)
            else:
                longest = max(longest, ns)
        sums[READ] += from_memory
        sums[WRITE] += to_memory
        # Dirty lines that stay save the trip out, and where they are read again the trip in.
        kept = cached + min(cached, tables.reused_bytes)
        sums[MIXED] += max(0.0, read[p] + write[p] - kept) / tables.mixed_rate
        sums[OPERATIONS] += work[p]
        sums[CHAIN] += chain[p]
        sums[LOADS] += loads[p]
        all_ns += max(longest, alone)
        core_ns += alone
    for k in range(terms.size):
        terms[k] = max(terms[k], sums[k] * scale)
    return all_ns * scale, core_ns * scale


@jit
def lower_bound(tables: BoundTables, domains: Mask, phase: Ints, terms: Floats) -> float:
    """ns that every completion takes at least; fills `phase` ([n_tasks]) and `terms` (ns each)."""
    n = phase.size
    terms[:] = 0.0
    parallel = np.zeros(n, np.int64)
    read, write = np.zeros(n), np.zeros(n)
    work, chain, loads = np.zeros(n), np.zeros(n), np.zeros(n)
    costs = (read, write, work, chain, loads)
    _threads(tables, domains, parallel)
    # Everything as one phase, because what caches keep is then subtracted once only.
    phase[:] = 0
    phase_traffic(tables, domains, phase, read, write)
    _arithmetic(tables, domains, parallel, phase, work, chain)
    _element_loads(tables, domains, parallel, phase, loads)
    all_ns, core_ns = _add_phases(tables, phase, parallel, costs, 1.0, terms)
    in_step = _phases(tables, domains, parallel, phase)
    phase_traffic(tables, domains, phase, read, write)
    _arithmetic(tables, domains, parallel, phase, work, chain)
    _element_loads(tables, domains, parallel, phase, loads)
    split_all, split_core = _add_phases(tables, phase, parallel, costs, in_step, terms)
    all_ns = max(max(all_ns, split_all), float(terms[MIXED]))
    core_ns = max(core_ns, split_core)
    launches = _launches(tables, domains, parallel)
    started = launches * tables.launch_ns
    met = tables.barrier_ns if _has_barrier(tables, domains, parallel) else 0.0
    terms[LAUNCHES] = tables.call_ns + started + met
    # While a team assembles, its first threads can already fill the bandwidth that all share; what
    # each core must do by itself waits for it to arrive.
    joined = launches * min(tables.barrier_ns, tables.launch_ns) / 2
    # A core is in the next call before it has finished the sums of this one: the call and the work are not added.
    return float(max(tables.call_ns, met + max(all_ns + joined, core_ns + started)))
