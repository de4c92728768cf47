"""Overlap of tasks on a CPU, compiled: shared threads, phases, launches and barriers."""

from __future__ import annotations

import numpy as np

from ...space import choices as ch
from ...space.draft import AS_IT_IS
from ...space.engine.jit import jit_flat_internal
from .columns import Ints
from .common import Bools, Int, Mask, join, merged_tasks
from .tables import BoundTables

# A parallel loop of so many tiles a core leaves threads out of step by at most 1 / of them.
BALANCED_TILES = 16
IN_STEP = 1.0 - 1.0 / BALANCED_TILES
# Of a task: whether some loop may be parallel, surely is, and is so in enough tiles.
MAYBE, SURELY, BALANCED = 1, 2, 4

_PARALLEL = 1 << ch.PARALLEL
_IN_ORDER = 1 << ch.IN_ORDER
_MERGED = 1 << ch.MERGED
_SAME_LAUNCH = 1 << ch.SAME_LAUNCH
_AS_IT_IS = 1 << AS_IT_IS


@jit_flat_internal
def largest(universe: Ints, at: Int, domain: Int) -> Int:
    size = 1
    k = 0
    while domain >> k:
        if domain >> k & 1 and universe[at + k] > size:
            size = universe[at + k]
        k += 1
    return size


@jit_flat_internal
def threads(tables: BoundTables, domains: Mask, parallel: Ints) -> None:
    for t in range(parallel.size):
        parallel[t] = 0
    for k in range(tables.wave.shape[0]):
        waves = domains[tables.wave[k].waves]
        if waves != _IN_ORDER:
            parallel[tables.wave[k].task] |= MAYBE
        if not waves & _IN_ORDER:
            parallel[tables.wave[k].task] |= SURELY
    for k in range(tables.outer.shape[0]):
        task = tables.outer[k].task
        kind = np.int64(domains[tables.outer[k].kind])
        if not kind & _PARALLEL:
            continue
        parallel[task] |= MAYBE
        if kind == _PARALLEL:
            parallel[task] |= SURELY
            mid = largest(
                tables.universe, tables.outer[k].mid_at, np.int64(domains[tables.outer[k].mid_size])
            )
            inner = largest(
                tables.universe,
                tables.outer[k].inner_at,
                np.int64(domains[tables.outer[k].inner_size]),
            )
            if tables.outer[k].extent >= mid * inner * BALANCED_TILES * tables.cores:
                parallel[task] |= BALANCED


@jit_flat_internal
def phases(tables: BoundTables, domains: Mask, parallel: Ints, phase: Ints) -> float:
    """Groups the tasks that may overlap (phase[t] is the least task of the group).

    Returns the share of a phase in step.
    Two balanced loops in one launch need no barrier between them. Then threads may be out of step
    by one of BALANCED_TILES tiles, and the returned share is IN_STEP, else 1.
    """
    merged_tasks(tables, domains, phase)
    in_step = 1.0
    for k in range(tables.pair.shape[0]):
        a, b = tables.pair[k].a, tables.pair[k].b
        if not domains[tables.pair[k].fused] & _SAME_LAUNCH or phase[a] == phase[b]:
            continue
        both = parallel[a] & parallel[b]
        if not (parallel[a] | parallel[b]) & MAYBE:
            continue  # one thread runs one after the other
        if tables.after[a, b]:
            continue  # a value passes through memory between separate loops: threads synchronise first
        if both & BALANCED:
            in_step = IN_STEP
        else:
            join(phase, a, b)
    return in_step


@jit_flat_internal
def has_phases(phase: Ints) -> bool:
    """True if there is more than one phase. The least task names a phase, so the first one is 0."""
    most = 0
    for t in range(phase.size):
        most = max(most, phase[t])
    return most > 0


@jit_flat_internal
def ends_before(tables: BoundTables, domains: Mask, ends: Bools) -> bool:
    """Sets ends[u, t] to True if task u surely completes before task t begins.

    Returns True if there is such a pair.
    That holds if t needs the result of u and the two have no loop in common: threads synchronise
    between them, or a launch ends. Shared loops with a task between them do not matter: a loop nest
    has one outermost loop, which all its tasks share.
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
def conversions(tables: BoundTables, domains: Mask) -> float:
    """Returns the guaranteed number of launches that convert parts of trees: leaves with another layout or order once."""
    count = 0.0
    for k in range(tables.converted.shape[0]):
        layout, order = tables.converted[k].layout, tables.converted[k].order
        is_other = layout >= 0 and not domains[layout] & _AS_IT_IS
        if is_other or (order >= 0 and not domains[order] & _AS_IT_IS):
            count += tables.converted[k].launches
    return count


@jit_flat_internal
def launches(tables: BoundTables, domains: Mask, parallel: Ints, chosen: Ints) -> float:
    """Returns the guaranteed number of launches of a team, times their repetitions, conversions included.

    Tasks count that surely share no launch with each other.
    """
    count = conversions(tables, domains)
    for t in range(parallel.size):
        chosen[t] = 1 if parallel[t] & SURELY else 0
    for k in range(tables.pair.shape[0]):  # in the order of their second tasks
        if chosen[tables.pair[k].a] and domains[tables.pair[k].fused] & _SAME_LAUNCH:
            chosen[tables.pair[k].b] = 0
    for t in range(parallel.size):
        count += chosen[t] * tables.runs[t]
    return count


@jit_flat_internal
def barriers(tables: BoundTables, domains: Mask, parallel: Ints) -> float:
    """Returns the guaranteed number of barriers inside launches after which threads read others' partial results."""
    most = 0.0
    for k in range(tables.barrier.shape[0]):
        surely = domains[tables.barrier[k].kind] == _PARALLEL
        surely = surely and domains[tables.barrier[k].fused] == _SAME_LAUNCH
        if surely and parallel[tables.barrier[k].reader] & SURELY:
            most = max(most, tables.runs[tables.barrier[k].reader])
    return most


@jit_flat_internal
def sweep_barriers(tables: BoundTables, domains: Mask) -> float:
    """Returns the guaranteed number of barriers between diagonals of wavefronts, except those that a team's end may replace."""
    total = 0.0
    for k in range(tables.sweep.shape[0]):
        if domains[tables.sweep[k].waves] & _IN_ORDER:
            continue
        rows = largest(
            tables.universe, tables.sweep[k].rows_at, np.int64(domains[tables.sweep[k].rows])
        )
        columns = largest(
            tables.universe, tables.sweep[k].columns_at, np.int64(domains[tables.sweep[k].columns])
        )
        n_rows = (tables.sweep[k].extent + rows - 1) // rows
        n_columns = max(1, (tables.sweep[k].width + columns - 1) // columns)
        total += (n_rows + n_columns - 2) * tables.runs[tables.sweep[k].task]
    return total
