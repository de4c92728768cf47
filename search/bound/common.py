"""Common part of the CPU and GPU bounds, compiled: groups of tasks, and the bytes that each group moves.

Nothing here allocates. Functions take columns of tables instead of one array each, since numba compiles that quickly.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...space import choices as ch
from ...space.engine.jit import jit_flat, jit_flat_internal
from .columns import Floats, Ints
from .tables import APART, BoundTables

Mask = npt.NDArray[np.uint32]
Bools = npt.NDArray[np.bool_]
Int = int | np.int64

# Distinct bytes of a phase: of all arrays, and of one, with whether a task has written it already.
READS, WRITES, ARRAY_READS, ARRAY_WRITES, IS_WRITTEN = range(5)
N_MOVED = 5

_MERGED = 1 << ch.MERGED
_KEEP = 1 << ch.KEEP
_GLOBAL = 1 << ch.GLOBAL


@jit_flat_internal
def join(phase: Ints, a: Int, b: Int) -> None:
    low, high = min(phase[a], phase[b]), max(phase[a], phase[b])
    if low != high:
        for t in range(phase.size):
            if phase[t] == high:
                phase[t] = low


@jit_flat_internal
def merged_tasks(tables: BoundTables, domains: Mask, phase: Ints) -> None:
    """Groups the tasks that may share a loop: phase[t] becomes the least task of t's group."""
    for t in range(phase.size):
        phase[t] = t
    for k in range(tables.merge.shape[0]):
        if domains[tables.merge[k].order] & _MERGED:
            join(phase, tables.merge[k].a, tables.merge[k].b)


@jit_flat
def array_traffic(
    tables: BoundTables, domains: Mask, phase: Ints, ends: Bools, array: int, moved: Floats
) -> None:
    """Fills `moved` ([n, N_MOVED]) for one array: distinct bytes that each phase reads from outside it, and writes.

    Only guaranteed bytes count. Rows of phases that do not access the array are unchanged. A value
    of a task that surely ends earlier (ends[first, second]) is in memory, or in copies as large. If
    the diagonal of `ends` is set, tasks of different phases share no loop.
    """
    for k in range(tables.touch_start[array], tables.touch_start[array + 1]):
        p = phase[tables.touch[k].task]
        moved[p, ARRAY_READS], moved[p, ARRAY_WRITES], moved[p, IS_WRITTEN] = 0.0, 0.0, 0.0
    for k in range(tables.touch_start[array], tables.touch_start[array + 1]):
        p = phase[tables.touch[k].task]
        first, end = tables.touch[k].first_flow, tables.touch[k].end_flow
        if tables.touch[k].read_bytes > moved[p, ARRAY_READS] and not moved[p, IS_WRITTEN]:
            in_memory = first == end
            for f in range(first, end):
                space = tables.flow[f].mem_space
                producer, consumer = tables.flow[f].producer, tables.touch[k].task
                in_memory = in_memory or ends[producer, consumer]
                if space == APART:
                    # Groups hold the tasks that may share loops, so tasks of different groups share none.
                    is_apart = ends[consumer, consumer] and phase[producer] != p
                    in_memory = in_memory or is_apart
                else:
                    in_memory = in_memory or space < 0 or domains[space] == _GLOBAL
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
    """Fills `moved` for all arrays together: distinct bytes that each phase reads from outside it, and writes.

    Only guaranteed bytes count.
    """
    for p in range(phase.size):
        moved[p, READS], moved[p, WRITES] = 0.0, 0.0
    for array in range(tables.touch_start.size - 1):
        array_traffic(tables, domains, phase, ends, array, moved)
        for k in range(tables.touch_start[array], tables.touch_start[array + 1]):
            p = phase[tables.touch[k].task]
            moved[p, READS] += moved[p, ARRAY_READS]
            moved[p, WRITES] += moved[p, ARRAY_WRITES]
            moved[p, ARRAY_READS], moved[p, ARRAY_WRITES] = 0.0, 0.0
