"""Core-bound cost of each phase on a CPU, compiled: operations, dependence chains, single-element loads, atomic updates."""

from __future__ import annotations

import numpy as np

from ...space import choices as ch
from ...space.engine.jit import jit_flat_internal
from .columns import Floats, Ints
from .common import Int, Mask
from .overlap import MAYBE, largest
from .tables import MAX_PEELED, BoundTables

# ns of a phase: of arithmetic, of it on one core, of dependent operations, of loads, of atomic updates; of all, and of what each
# core does alone. Of a task: how much slower its operations are, how many results a chain has, its least loads.
WORK, ONE_CORE, CHAINS, LOADED, UPDATED, ALL, ALONE, FACTOR, COPIES, LEAST = range(10)
N_COSTS = 10

# One core alone, or one without wide vectors, may run at a higher clock than all of them flat out.
CLOCK_SLACK = 1.3

_VECTOR = 1 << ch.VECTOR
_DIRECT = 1 << ch.DIRECT
_ATOMIC = 1 << ch.BY_ATOMICS


@jit_flat_internal
def arithmetic(
    tables: BoundTables, domains: Mask, parallel: Ints, phase: Ints, costs: Floats
) -> None:
    """ns of operations, and of the longest dependence chain, by phase."""
    n = phase.size
    for t in range(n):
        costs[t, WORK], costs[t, ONE_CORE], costs[t, CHAINS] = 0.0, 0.0, 0.0
        costs[t, FACTOR] = max(tables.task[t].lanes / CLOCK_SLACK, 1.0)
        costs[t, COPIES] = 1.0
    for k in range(tables.vector.shape[0]):
        if domains[tables.vector[k].kind] & _VECTOR:
            costs[tables.vector[k].task, FACTOR] = 1.0
    for k in range(tables.chain.shape[0]):
        size = largest(
            tables.universe, tables.chain[k].at, np.int64(domains[tables.chain[k].dim_size])
        )
        costs[tables.chain[k].task, COPIES] *= min(size, tables.chain[k].most)
    for t in range(n):
        p = phase[t]
        ns = tables.task[t].operations_ns * costs[t, FACTOR]
        costs[p, WORK] += ns
        copies = costs[t, COPIES]
        if parallel[t] & MAYBE:
            copies *= tables.cores
        else:
            costs[p, ONE_CORE] += ns * max(1.0, tables.cores / CLOCK_SLACK)
        costs[p, CHAINS] = max(costs[p, CHAINS], tables.task[t].chain_ns / copies)
    for p in range(n):
        costs[p, WORK] = max(costs[p, WORK], costs[p, ONE_CORE])


@jit_flat_internal
def _shared_copies(tables: BoundTables, domains: Mask, first: Int, end: Int) -> float:
    """An upper bound on the iterations of loops `first` to `end` of load_spared that can share one load."""
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
    """An upper bound on the iterations of one loop of decided sizes that can share one load.

    A compiler may fully unroll short loops and load once for all register copies.
    """
    trips = (extent + mid * inner - 1) // (mid * inner)
    copies = inner
    if mid <= MAX_PEELED:
        copies *= mid
    if trips <= MAX_PEELED:
        copies *= trips
    return int(copies)


@jit_flat_internal
def element_loads(
    tables: BoundTables, domains: Mask, parallel: Ints, phase: Ints, costs: Floats
) -> None:
    """ns of single-element loads, by phase (see element_loads.py). Tasks may share loads, so the maximum over tasks counts."""
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
            if not parallel[t] & MAYBE:
                ns *= max(1.0, tables.cores / CLOCK_SLACK)
            costs[phase[t], LOADED] = max(costs[phase[t], LOADED], ns)


@jit_flat_internal
def atomic_updates(tables: BoundTables, domains: Mask, phase: Ints, costs: Floats) -> None:
    """ns of guaranteed atomic updates, by phase. All cores make them: updates of one thread are not atomic (families/scatter.py).

    Each takes at least as long as one to a line that no other core uses. The updates of a core are serialised.
    """
    for t in range(phase.size):
        costs[t, UPDATED] = 0.0
    for k in range(tables.atomic.shape[0]):
        if domains[tables.atomic[k].scatter] == _ATOMIC:
            costs[phase[tables.atomic[k].task], UPDATED] += tables.atomic[k].ns
