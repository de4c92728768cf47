"""Core-bound cost of each phase on a CPU, compiled: operations, dependence chains, atomic updates."""

from __future__ import annotations

import numpy as np

from ...space import choices as ch
from ...space.engine.jit import jit_flat_internal
from .columns import Floats, Ints
from .common import Int, Mask
from .overlap import MAYBE, largest
from .tables import BoundTables

# ns of a phase: of arithmetic, of it on one core, of it on the busiest core, of dependent operations, of loads and stores, of
# atomic updates; of all, and of what each core does alone. Of a task: how much slower its operations are, how many results a
# chain has, how much longer its busiest core works than all do on average. Of a phase again: of the loads and stores, those that
# pack operands, and those that are a task's own. Of functions such as exp: of the one that takes longest, of one, and of one on one
# core. Of a task: whether it may run in vectors, ns in which vectors of sums are folded, ns by which it takes longer than in
# vectors throughout, and those of them that partial register tiles surely add. Of a phase: these of all its tasks.
WORK, ONE_CORE, BUSIEST, CHAINS, LOADED, UPDATED, ALL, ALONE, FACTOR, COPIES, SHARE = range(11)
PACKED, OWN = range(11, 13)
CALLED, OF_FUNCTION, OF_ONE_CORE, IN_VECTORS = range(13, 17)
FOLDED, LONGER, TAIL, TAILED = range(17, 21)
N_COSTS = 21

# One core alone, or one without wide vectors, may run at a higher clock than all of them flat out.
CLOCK_SLACK = 1.3

_VECTOR = 1 << ch.VECTOR
_PARALLEL = 1 << ch.PARALLEL
_BLOCKED = 1 << ch.BLOCKED
_DIRECT = 1 << ch.DIRECT
_ATOMIC = 1 << ch.BY_ATOMICS


@jit_flat_internal
def _busiest(extent: Int, unit: Int, cores: float) -> float:
    """Returns the least ratio of the busiest core's time to the mean over cores, if cores get whole units of a loop.

    Once the first core is idle, others may run at a higher clock.
    """
    n = (extent + unit - 1) // unit
    missing = n * unit - extent  # of the last unit
    most = np.ceil(n / cores)
    iterations = most * unit
    if (
        n - (most - 1) * cores == 1
    ):  # one core alone has so many units, the last one maybe among them
        iterations -= missing
    least = max(0.0, np.floor(n / cores) * unit - missing)
    return float(cores * (least + max(0.0, iterations - least) / CLOCK_SLACK) / extent)


@jit_flat_internal
def shares(tables: BoundTables, domains: Mask, costs: Floats) -> None:
    """Fills in the busiest core's share of each task, at the best open sizes.

    1 if threads cannot share the task.
    """
    for t in range(costs.shape[0]):
        costs[t, SHARE] = 1.0
    for k in range(tables.outer.shape[0]):
        if not tables.outer[k].is_alike or domains[tables.outer[k].kind] != _PARALLEL:
            continue
        schedule = tables.outer[k].schedule
        # Blocks may end at any register tile (codegen/passes/map_team.py).
        in_blocks = schedule < 0 or bool(domains[schedule] & _BLOCKED)
        mids = np.int64(1) if in_blocks else np.int64(domains[tables.outer[k].mid_size])
        inners = np.int64(domains[tables.outer[k].inner_size])
        least = np.inf
        i = 0
        while mids >> i:
            j = 0
            while mids >> i & 1 and inners >> j:
                if inners >> j & 1:
                    unit = tables.universe[tables.outer[k].inner_at + j]
                    if not in_blocks:
                        unit *= tables.universe[tables.outer[k].mid_at + i]
                    least = min(least, _busiest(tables.outer[k].extent, unit, tables.cores))
                j += 1
            i += 1
        t = tables.outer[k].task
        if least < np.inf:
            costs[t, SHARE] = max(costs[t, SHARE], least)


@jit_flat_internal
def _partial_tiles_ns(tables: BoundTables, domains: Mask, dim: Int) -> float:
    """Returns the least ns by which the partial register tile of a dim in vectors makes its task longer.

    Its elements are computed one by one, or in vectors with all elements behind the loop's end. The
    lesser counts where both are possible, at the best open size.
    """
    staged = tables.vector[dim].staged
    is_whole = staged == -1 or (staged >= 0 and domains[staged] != _DIRECT)
    sizes, extent = np.int64(domains[tables.vector[dim].dim_size]), tables.vector[dim].extent
    slower = max(0.0, tables.vector[dim].slower / CLOCK_SLACK - 1.0)
    least = np.inf
    k = 0
    while sizes >> k:
        if sizes >> k & 1:
            size = tables.universe[tables.vector[dim].at + k]
            rest = extent % size
            most = float((size - rest) % size) if is_whole else np.inf
            least = min(least, min(rest * slower, most))
        k += 1
    return float(tables.vector[dim].along_ns * least / extent) if least < np.inf else 0.0


@jit_flat_internal
def _vectors(tables: BoundTables, domains: Mask, costs: Floats) -> None:
    """Fills in, by task, how much longer it takes than in vectors throughout, and what partial tiles surely add to that."""
    for t in range(costs.shape[0]):
        costs[t, FACTOR] = max(tables.task[t].lanes / CLOCK_SLACK, 1.0)
        costs[t, IN_VECTORS], costs[t, TAIL] = 0.0, 0.0
        costs[t, LONGER] = tables.task[t].operations_ns * (costs[t, FACTOR] - 1.0)
    for k in range(tables.vector.shape[0]):
        kind, t = domains[tables.vector[k].kind], tables.vector[k].task
        if not kind & _VECTOR:
            continue
        ns = _partial_tiles_ns(tables, domains, k) if tables.vector[k].along_ns > 0 else 0.0
        if kind == _VECTOR:
            costs[t, LONGER], costs[t, TAIL] = ns, ns
        else:
            costs[t, LONGER] = min(costs[t, LONGER], ns)
        costs[t, FACTOR], costs[t, IN_VECTORS] = 1.0, 1.0


@jit_flat_internal
def arithmetic(
    tables: BoundTables, domains: Mask, parallel: Ints, phase: Ints, costs: Floats
) -> None:
    """Fills in, by phase, the ns of operations, and of the longest chain of dependent operations."""
    n = phase.size
    for t in range(n):
        costs[t, WORK], costs[t, ONE_CORE], costs[t, CHAINS] = 0.0, 0.0, 0.0
        costs[t, BUSIEST], costs[t, TAILED] = 0.0, 0.0
        costs[t, COPIES], costs[t, FOLDED] = 1.0, 0.0
    _vectors(tables, domains, costs)
    for k in range(tables.fold.shape[0]):
        if domains[tables.fold[k].kind] != _VECTOR:
            continue
        size = largest(
            tables.universe, tables.fold[k].at, np.int64(domains[tables.fold[k].dim_size])
        )
        if size <= tables.fold[k].extent:  # else partial tiles, which have no vectors
            costs[tables.fold[k].task, FOLDED] = tables.fold[k].ns
    for k in range(tables.chain.shape[0]):
        size = largest(
            tables.universe, tables.chain[k].at, np.int64(domains[tables.chain[k].dim_size])
        )
        costs[tables.chain[k].task, COPIES] *= min(size, tables.chain[k].most)
    for t in range(n):
        p = phase[t]
        folded = tables.task[t].starts_ns * costs[t, FACTOR] + costs[t, FOLDED]
        ns = max(tables.task[t].operations_ns + costs[t, LONGER], folded)
        costs[p, WORK] += ns
        costs[p, TAILED] += costs[t, TAIL]
        # Partial tiles may be another core's.
        longer = costs[t, LONGER] * (1 - costs[t, IN_VECTORS])
        even = max(tables.task[t].operations_ns + longer, folded)
        costs[p, BUSIEST] = max(costs[p, BUSIEST], even * costs[t, SHARE])
        copies = costs[t, COPIES]
        if parallel[t] & MAYBE:
            copies *= tables.cores
        else:
            costs[p, ONE_CORE] += ns * max(1.0, tables.cores / CLOCK_SLACK)
        costs[p, CHAINS] = max(costs[p, CHAINS], tables.task[t].chain_ns / copies)
    for p in range(n):
        costs[p, WORK] = max(costs[p, WORK], max(costs[p, ONE_CORE], costs[p, BUSIEST]))


@jit_flat_internal
def functions(tables: BoundTables, parallel: Ints, phase: Ints, costs: Floats) -> None:
    """Fills in, by phase, the ns of the function that takes longest. Runs after `arithmetic`.

    The rate of each was measured alone, and a core may compute different functions side by side.
    """
    n, rows = phase.size, tables.function.shape[0]
    for p in range(n):
        costs[p, CALLED] = 0.0
    for k in range(rows):
        if k == 0 or tables.function[k].kind != tables.function[k - 1].kind:
            for p in range(n):
                costs[p, OF_FUNCTION], costs[p, OF_ONE_CORE] = 0.0, 0.0
        t = tables.function[k].task
        p, ns = phase[t], tables.function[k].scalar_ns
        if costs[t, IN_VECTORS] > 0:
            ns = tables.function[k].vector_ns
        costs[p, OF_FUNCTION] += ns
        costs[p, CALLED] = max(costs[p, CALLED], ns * costs[t, SHARE])
        if not parallel[t] & MAYBE:
            costs[p, OF_ONE_CORE] += ns * max(1.0, tables.cores / CLOCK_SLACK)
        costs[p, CALLED] = max(costs[p, CALLED], max(costs[p, OF_FUNCTION], costs[p, OF_ONE_CORE]))


@jit_flat_internal
def atomic_updates(tables: BoundTables, domains: Mask, phase: Ints, costs: Floats) -> None:
    """Fills in, by phase, the ns of guaranteed atomic updates. All cores make them (families/scatter.py).

    Each takes at least as long as one to a cache line that no other core uses. The updates of one
    core are serialised.
    """
    for t in range(phase.size):
        costs[t, UPDATED] = 0.0
    for k in range(tables.atomic.shape[0]):
        if domains[tables.atomic[k].scatter] == _ATOMIC:
            costs[phase[tables.atomic[k].task], UPDATED] += tables.atomic[k].ns
