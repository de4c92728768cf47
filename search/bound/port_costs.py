"""Cost of loads and stores of each phase on a CPU, compiled; ports.py explains what counts."""

from __future__ import annotations

import numpy as np

from ...space import choices as ch
from ...space.backbone import MID
from ...space.engine.jit import jit_flat_internal
from ...space.families.gathers import ONE_BY_ONE
from ...space.families.listgen import GENERATE
from .columns import Floats, Ints
from .common import Int, Mask
from .core_costs import CLOCK_SLACK, LOADED, OWN, PACKED, SHARE
from .overlap import MAYBE
from .ports import FEW_OPERATIONS, MAX_PEELED
from .tables import BoundTables

# Of a loop: register copies, the most and the least; with the mid dim unrolled; with all unrolled. Of its mid and outer dim: 1 if a
# compiler may unroll it completely, and 1 if it may be a loop. The share of its iterations that may stand behind a loop, without
# a mid loop around them: of the last tile, if it has few register tiles, else of the last register tile. The greatest share of
# its iterations that are the first ones of a mid loop, and of an outer one; the fewest iterations of its outer dim. The least share
# of its iterations in a partial register tile.
(
    COPIES,
    LEAST_COPIES,
    WITH_MID,
    WITH_ALL,
    MID_UNROLLED,
    OUTER_UNROLLED,
    MID_LOOP,
    OUTER_LOOP,
    REST,
    MID_BEGINS,
    OUTER_BEGINS,
    LEAST_TRIPS,
    LEAST_REST,
) = range(13)
N_COPIES = 13
# Loops around register tiles of few operations, and around others.
FEW, MANY = range(2)
N_AROUND = 2
# Of a group: ns of loads and of stores, of those in vectors alone, and the same of rows that are a task's own.
LOADS, VECTOR_LOADS, STORES, VECTOR_STORES = range(4)
N_PORTS = 4
# Of a task: 1 if some dim is surely in vectors; the least ns of all of its rows, and of its own; on one core the ns of sums that
# wait for one another, if tiles do not overlap: for predictions, since a core may begin the next tile before. Then the least ns
# of all rows with the packing of operands.
SURE_VECTOR, LEAST_ALL, LEAST_OWN, SUMS, LEAST_PACKED = range(5)
N_LEAST = 5

_KEEP = 1 << ch.KEEP
_GENERATE = 1 << GENERATE
_ONE_BY_ONE = 1 << ONE_BY_ONE
_VECTOR = 1 << ch.VECTOR
_DIRECT = 1 << ch.DIRECT
_MERGED = 1 << ch.MERGED
_INSIDE = 1 << ch.INSIDE
_OUTSIDE = 1 << ch.OUTSIDE


@jit_flat_internal
def _count_copies(tables: BoundTables, domains: Mask, peeled: Int, copies: Floats) -> None:
    """Fills in each loop's numbers of register copies, over all open sizes.

    Compilers unroll loops up to `peeled` iterations.
    """
    for loop in range(copies.shape[0]):
        for k in range(N_COPIES):
            copies[loop, k] = 0.0
        copies[loop, LEAST_COPIES] = np.inf
        copies[loop, LEAST_TRIPS] = np.inf
        copies[loop, LEAST_REST] = 1.0
        mids = np.int64(domains[tables.port_loop[loop].mid_size])
        inners = np.int64(domains[tables.port_loop[loop].inner_size])
        extent = tables.port_loop[loop].extent
        i = 0
        while mids >> i:
            if mids >> i & 1:
                mid = tables.universe[tables.port_loop[loop].mid_at + i]
                if mid > 1:
                    copies[loop, MID_LOOP] = 1.0
                j = 0
                while inners >> j:
                    if inners >> j & 1:
                        inner = tables.universe[tables.port_loop[loop].inner_at + j]
                        copies[loop, COPIES] = max(copies[loop, COPIES], float(inner))
                        copies[loop, LEAST_COPIES] = min(copies[loop, LEAST_COPIES], float(inner))
                        cut = (extent % inner) / max(1, extent)
                        copies[loop, LEAST_REST] = min(copies[loop, LEAST_REST], cut)
                        tile = mid * inner
                        trips, rest = (extent + tile - 1) // tile, extent % tile
                        copies[loop, LEAST_TRIPS] = min(copies[loop, LEAST_TRIPS], float(trips))
                        if mid > 1:
                            begins = trips * inner / max(inner, extent)
                            copies[loop, MID_BEGINS] = max(copies[loop, MID_BEGINS], begins)
                        if trips > 1:
                            copies[loop, OUTER_BEGINS] = max(copies[loop, OUTER_BEGINS], 1 / trips)
                        n = float(inner)
                        if mid <= peeled:
                            copies[loop, MID_UNROLLED] = 1.0
                            n *= mid
                        behind = rest if rest // inner <= peeled else extent % inner
                        copies[loop, REST] = max(copies[loop, REST], behind / extent)
                        copies[loop, WITH_MID] = max(copies[loop, WITH_MID], n)
                        if extent // tile <= peeled:
                            copies[loop, OUTER_UNROLLED] = 1.0
                            n *= trips
                        if trips > 1:
                            copies[loop, OUTER_LOOP] = 1.0
                        copies[loop, WITH_ALL] = max(copies[loop, WITH_ALL], n)
                    j += 1
            i += 1


@jit_flat_internal
def _is_possible(
    tables: BoundTables, domains: Mask, group: Int, copies: Floats, task: Floats
) -> bool:
    """True if the group's loop may be the innermost one, with its dim vectorised (or with no dim vectorised)."""
    kind = tables.port_group[group].kind
    if (kind < 0 and task[SURE_VECTOR] > 0) or (kind >= 0 and not domains[kind] & _VECTOR):
        return False
    loop, is_mid = tables.port_group[group].loop, tables.port_group[group].level == MID
    if copies[loop, MID_LOOP if is_mid else OUTER_LOOP] == 0:
        return False
    for k in range(tables.port_group[group].other, tables.port_group[group].other_end):
        if not domains[tables.port_other[k].order] & _OUTSIDE:
            is_mid = tables.port_other[k].level == MID
            if copies[tables.port_other[k].loop, MID_UNROLLED if is_mid else OUTER_UNROLLED] == 0:
                return False
    return True


@jit_flat_internal
def _shared(tables: BoundTables, domains: Mask, row: Int, copies: Floats) -> float:
    """Returns an upper bound on the iterations that share one load: register copies, and unrolled inner loops."""
    n = 1.0
    for k in range(tables.port[row].first, tables.port[row].end):
        column = COPIES
        if domains[tables.port_spared[k].mid] & _INSIDE:
            column = WITH_MID
            if domains[tables.port_spared[k].outer] & _INSIDE:
                column = WITH_ALL
        n *= copies[tables.port_spared[k].loop, column]
    return n


@jit_flat_internal
def _may_be_in_register(tables: BoundTables, domains: Mask, row: Int) -> bool:
    found = False
    for k in range(tables.port[row].source, tables.port[row].source_end):
        found = found or bool(domains[tables.port_source[k].order] & _MERGED)
    return found


@jit_flat_internal
def _in_whole_tiles(tables: BoundTables, group: Int, copies: Floats) -> float:
    """Returns the share of a task's iterations in full tiles; in partial ones another loop may be innermost."""
    own = tables.port_group[group].loop
    share = 1.0 - copies[own, REST]
    for k in range(tables.port_group[group].other, tables.port_group[group].other_end):
        if tables.port_other[k].level == MID and tables.port_other[k].loop != own:
            share *= 1.0 - copies[tables.port_other[k].loop, REST]
    return float(share)


@jit_flat_internal
def _tile_of(tables: BoundTables, group: Int, copies: Floats) -> int:
    """Returns FEW if register tiles may have so few operations that compilers unroll the loops around them, else MANY."""
    n = copies[tables.port_group[group].loop, LEAST_COPIES] / tables.port_group[group].lanes
    own = tables.port_group[group].loop
    for k in range(tables.port_group[group].other, tables.port_group[group].other_end):
        loop = tables.port_other[k].loop
        if tables.port_other[k].level != MID and loop != own:
            n *= copies[loop, LEAST_COPIES]
    return FEW if n <= FEW_OPERATIONS else MANY


@jit_flat_internal
def _copies_of_all(tables: BoundTables, group: Int, copies: Floats) -> float:
    """Returns the greatest number of iterations in a register tile of a group's task."""
    own = tables.port_group[group].loop
    n = copies[own, COPIES]
    for k in range(tables.port_group[group].other, tables.port_group[group].other_end):
        loop = tables.port_other[k].loop
        if tables.port_other[k].level != MID and loop != own:
            n *= copies[loop, COPIES]
    return float(n)


@jit_flat_internal
def _spilled(tables: BoundTables, group: Int, copies: Floats) -> float:
    """Returns the least vectors of sums that each of a task's iterations stores and loads again, if a group's loop is innermost.

    Between two iterations of a reduced loop registers hold at most as many sums as there are
    registers (a pigeonhole argument).
    """
    own, vector = tables.port_group[group].loop, tables.port_group[group].vector
    sums, each = 1.0, copies[own, WITH_MID]
    for k in range(tables.port_group[group].other, tables.port_group[group].other_end):
        loop = tables.port_other[k].loop
        if tables.port_other[k].level == MID or loop == own:
            continue
        if tables.port_loop[loop].is_reduced:
            each *= copies[loop, WITH_ALL]
        else:
            sums *= copies[loop, LEAST_COPIES]
    if vector >= 0 and not tables.port_loop[vector].is_reduced:
        sums /= tables.port_group[group].lanes
        each *= tables.port_group[group].lanes
    is_mid = tables.port_group[group].level == MID
    # Sums of a run of the loop begin anew; each thread has its own part of an outer one.
    begins = copies[own, MID_BEGINS] if is_mid else copies[own, OUTER_BEGINS] * tables.cores
    left = max(0.0, 1.0 - tables.registers / sums) * max(0.0, 1.0 - begins)
    return float(left / each)


@jit_flat_internal
def _count_packs(tables: BoundTables, domains: Mask, copies: Floats, packs: Floats) -> None:
    """Fills `packs` ([n_tasks, N_PORTS]) with the ns in which each port packs operands of a task.

    A block is packed in each iteration of the loops around its own.
    """
    for t in range(packs.shape[0]):
        for k in range(N_PORTS):
            packs[t, k] = 0.0
    for row in range(tables.port_pack.shape[0]):
        if domains[tables.port_pack[row].staged] & _DIRECT:
            continue
        times, before = 1.0, -1
        for k in range(tables.port_pack[row].first, tables.port_pack[row].end):
            loop = tables.port_around[k].loop
            if loop != before and domains[tables.port_around[k].order] == _OUTSIDE:
                times *= copies[loop, LEAST_TRIPS]
                before = loop
        t = tables.port_pack[row].task
        packs[t, LOADS] += tables.port_pack[row].load * times
        packs[t, VECTOR_LOADS] += tables.port_pack[row].load_wide * times
        packs[t, STORES] += tables.port_pack[row].store * times
        packs[t, VECTOR_STORES] += tables.port_pack[row].store_wide * times


@jit_flat_internal
def _price_group(
    tables: BoundTables, domains: Mask, group: Int, copies: Floats, busy: Floats
) -> None:
    """Fills `busy` with the ns of each port ([2 * N_PORTS]): for all rows of a group, then for those of its task alone."""
    for k in range(2 * N_PORTS):
        busy[k] = 0.0
    share, single = _in_whole_tiles(tables, group, copies), 0.0
    if tables.port_group[group].vector >= 0:
        single = copies[tables.port_group[group].vector, LEAST_REST]
    if tables.port_group[group].spill_load > 0:
        spilled = share * _spilled(tables, group, copies)
        busy[LOADS] = tables.port_group[group].spill_load * spilled
        busy[VECTOR_LOADS] = tables.port_group[group].spill_load_wide * spilled
        busy[STORES] = tables.port_group[group].spill_store * spilled
        busy[VECTOR_STORES] = tables.port_group[group].spill_store_wide * spilled
        for k in range(N_PORTS):
            busy[N_PORTS + k] = busy[k]
    for row in range(tables.port_group[group].first, tables.port_group[group].end):
        store = tables.port[row].store
        if store >= 0 and domains[store] != _KEEP:
            continue
        if _may_be_in_register(tables, domains, row):
            continue
        shared = _shared(tables, domains, row, copies)
        staged = tables.port[row].staged
        ns, wide = tables.port[row].packed, tables.port[row].packed_wide
        beside = 0.0
        if staged < 0 or domains[staged] == _DIRECT:
            ns, wide = tables.port[row].direct, tables.port[row].direct_wide
            beside = tables.port[row].single * single
        ns = max(0.0, ns * share / shared - tables.port[row].spared) + beside
        wide = max(0.0, wide * share / shared - tables.port[row].spared_wide)
        port = 2 * tables.port[row].is_store
        busy[port] += ns
        busy[port + 1] += wide
        if tables.port[row].is_own:
            busy[N_PORTS + port] += ns
            busy[N_PORTS + port + 1] += wide


@jit_flat_internal
def least_ports(
    tables: BoundTables,
    domains: Mask,
    copies: Floats,
    least: Floats,
    busy: Floats,
    packs: Floats,
) -> None:
    """Fills `least` ([n_tasks, N_LEAST]) with the least ns of loads and stores of each task.

    It is inf if nothing is known. `copies` ([N_AROUND, n_loops, N_COPIES]), `busy` and `packs`
    ([n_tasks, N_PORTS]) are scratch space.
    """
    for t in range(least.shape[0]):
        least[t, SURE_VECTOR], least[t, SUMS] = 0.0, np.inf
        least[t, LEAST_ALL], least[t, LEAST_OWN] = np.inf, np.inf
        least[t, LEAST_PACKED] = np.inf
    for k in range(tables.vector.shape[0]):
        if domains[tables.vector[k].kind] == _VECTOR:
            least[tables.vector[k].task, SURE_VECTOR] = 1.0
    _count_copies(tables, domains, MAX_PEELED, copies[FEW])
    _count_copies(tables, domains, 1, copies[MANY])
    _count_packs(tables, domains, copies[MANY], packs)
    for group in range(tables.port_group.shape[0]):
        t = tables.port_group[group].task
        around = copies[_tile_of(tables, group, copies[MANY])]
        if not _is_possible(tables, domains, group, around, least[t]):
            continue
        _price_group(tables, domains, group, around, busy)
        every, own, packed = 0.0, 0.0, 0.0
        for k in range(N_PORTS):
            every, packed = max(every, busy[k]), max(packed, busy[k] + packs[t, k])
            own = max(own, busy[N_PORTS + k] + packs[t, k])
        own_loop = tables.port_group[group].loop
        sums = tables.task[t].sums_ns / _copies_of_all(tables, group, around)
        least[t, SUMS] = min(least[t, SUMS], sums * tables.port_loop[own_loop].is_reduced)
        least[t, LEAST_ALL] = min(least[t, LEAST_ALL], every)
        least[t, LEAST_PACKED] = min(least[t, LEAST_PACKED], packed)
        least[t, LEAST_OWN] = min(least[t, LEAST_OWN], own)
    for t in range(least.shape[0]):
        if tables.task[t].gathers_ns > 0:  # joined bodies may make them once
            least[t, LEAST_ALL], least[t, LEAST_OWN] = tables.task[t].gathers_ns, 0.0
            least[t, LEAST_PACKED] = tables.task[t].gathers_ns
    for k in range(tables.gather.shape[0]):
        if domains[tables.gather[k].kind] != _VECTOR:
            continue
        loads, t = tables.gather[k].loads, tables.gather[k].task
        is_one_by_one = loads < 0 or domains[loads] == _ONE_BY_ONE
        if is_one_by_one and least[t, LEAST_ALL] < np.inf:
            least[t, LEAST_ALL] = max(least[t, LEAST_ALL], tables.gather[k].ns)
            least[t, LEAST_PACKED] = max(least[t, LEAST_PACKED], tables.gather[k].ns)


@jit_flat_internal
def loads_and_stores(
    tables: BoundTables,
    domains: Mask,
    parallel: Ints,
    phase: Ints,
    least: Floats,
    packs: Floats,
    costs: Floats,
) -> None:
    """Fills in, by phase, the ns of loads and stores, and of those that pack operands. Tasks may share loads.

    Loads that only one task can make count for each task, others for one task of the phase.
    """
    for t in range(phase.size):
        costs[t, LOADED], costs[t, PACKED], costs[t, OWN] = 0.0, 0.0, 0.0
    for t in range(phase.size):
        p = phase[t]
        if least[t, LEAST_ALL] == np.inf:
            continue
        # The core with most iterations need not have packed most of the operands.
        alone, packing = costs[t, SHARE], 1.0
        if not parallel[t] & MAYBE:
            alone = packing = max(1.0, tables.cores / CLOCK_SLACK)
        costs[p, LOADED] = max(costs[p, LOADED], least[t, LEAST_ALL] * alone)
        costs[p, LOADED] = max(costs[p, LOADED], least[t, LEAST_PACKED] * packing)
        for k in range(N_PORTS):
            costs[p, PACKED] = max(costs[p, PACKED], packs[t, k] * packing)
        costs[p, OWN] += least[t, LEAST_OWN]
    for k in range(tables.scan.shape[0]):
        t, ns = tables.scan[k].task, tables.scan[k].counted_ns
        if domains[tables.scan[k].listgen] == _GENERATE:
            ns = max(ns, tables.scan[k].ns)
        if ns > 0:
            alone = 1.0 if parallel[t] & MAYBE else max(1.0, tables.cores / CLOCK_SLACK)
            costs[phase[t], LOADED] = max(costs[phase[t], LOADED], ns * alone)
            costs[phase[t], OWN] += ns
    for p in range(phase.size):
        costs[p, LOADED] = max(costs[p, LOADED], costs[p, OWN])
