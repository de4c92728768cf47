"""GPU bound, compiled: from domains and tables to ns.

Phases surely do not overlap: launches follow one another, and so do dependent tasks in a launch of
one block. Inside a phase resources overlap, so the busiest one counts (Telamon, section 4.4);
phases add up. A launch begins with empty registers and L1: only L2 holds data of earlier launches.

Open choices take their best value: the order of threads in a warp, sizes, kinds, staging. This
avoids the mistakes of Telamon's model (its sections 4 and 8). Memory and L2 have terms of their
own. f64 and f32 are different pipes. Blocks of different sizes are not counted as equal. A value
that a thread may still have in a register is not loaded again.
"""

from __future__ import annotations

from math import gcd

import numpy as np

from ...space import choices as ch
from ...space.engine.jit import jit, jit_internal
from . import gpu_facts
from .columns import Floats, Ints
from .common import N_MOVED, READS, WRITES, Mask, join, merged_tasks, phase_traffic
from .gpu_tables import TOGETHER, GpuTables
from .overlap import conversions
from .tables import BoundTables

READ, WRITE, MIXED, L2, L1, SHARED, OPERATIONS, ISSUE, LATENCY, LAUNCHES = range(10)
N_TERMS = 10
BY_L1, BY_SHARED, BY_ISSUE = range(3)  # what requests are counted by
N_COUNTED = 3

SECTOR_BYTES = 32
REQUEST_BYTES = (
    128  # that shared memory moves at most for one request of a warp, and in the time of any
)
MOST_LANES = 4  # of a vector

_SAME_LAUNCH = 1 << ch.SAME_LAUNCH
_PARTIALS = 1 << ch.PARTIALS
_KEEP, _DIRECT = 1 << ch.KEEP, 1 << ch.DIRECT
_REGISTER, _SHARED, _GLOBAL = 1 << ch.REGISTER, 1 << ch.SHARED, 1 << ch.GLOBAL


@jit_internal
def _copies_of_loads(gpu: GpuTables, row: gpu_facts.Int, facts: Floats) -> float:
    """Returns the least number of threads, in one block or in several, that load each element."""
    n = 1.0
    for at in range(gpu.access[row].first_loop, gpu.access[row].end_loop):
        if gpu.along[at].how:
            continue
        k = gpu.along[at].loop
        extent = gpu.loop[k].extent
        is_thread = facts[k, gpu_facts.IS_THREAD] == 2
        # Each thread of a loop of vectors begins with a vector of its own.
        lanes = (
            min(facts[k, gpu_facts.INNER_MOST], MOST_LANES)
            if facts[k, gpu_facts.IS_VECTOR]
            else 1.0
        )
        beside = min(facts[k, gpu_facts.MID_LEAST], np.ceil(extent / lanes)) if is_thread else 1.0
        if facts[k, gpu_facts.IS_BLOCK] == 2:
            tile = facts[k, gpu_facts.INNER_MOST] * (
                1.0 if is_thread else facts[k, gpu_facts.MID_MOST]
            )
            blocks = extent / tile
            if facts[k, gpu_facts.IN_TURN]:  # of its tiles a block loads such an element once
                blocks = min(blocks, facts[k, gpu_facts.TURNS_LEAST] * gpu.cores)
            beside = max(beside, blocks)
        n *= beside
    return n


@jit_internal
def _sharing(gpu: GpuTables, row: gpu_facts.Int, facts: Floats) -> tuple[float, float, float]:
    """Returns the best coalescing of an access: elements per sector of a request, lanes per element, vector width.

    A request is that of a warp. Loops with stride 1 lie in one sector as far as they reach. Loops
    with strides beyond the reach of all smaller strides lie in other sectors. Open is which loops
    vary inside a warp: the best order counts (Telamon, section 4.3).
    """
    size = np.int64(gpu.access[row].element_bytes)
    same, near, reach, widest, step = 1.0, 1.0, 0, 1.0, 0
    for at in range(gpu.access[row].first_loop, gpu.access[row].end_loop):
        k, stride, how = gpu.along[at].loop, gpu.along[at].stride, gpu.along[at].how
        threads = facts[k, gpu_facts.IN_WARP] if facts[k, gpu_facts.IS_THREAD] else 1.0
        lanes = 1.0
        if facts[k, gpu_facts.IS_VECTOR] and stride == size:
            lanes = float(gpu.access[row].widest)
            widest = lanes
        n = threads * lanes
        if how == TOGETHER or (stride == 0 and not gpu.access[row].is_store):
            same *= n  # but of threads with one result only one stores it
        elif n > 1 and 0 < stride < reach + SECTOR_BYTES:
            near *= n
            reach += stride * (np.int64(n) - 1)
            step = gcd(step, stride)
    if step > 0:
        near = min(near, np.ceil(SECTOR_BYTES / step))
    return min(same * near, gpu_facts.WARP * widest), min(same, gpu_facts.WARP), widest


@jit_internal
def _where(gpu: GpuTables, domains: Mask, row: gpu_facts.Int) -> tuple[bool, bool, bool]:
    """Returns whether an access surely goes to memory, surely to shared memory, and surely to one of both."""
    choice = gpu.access[row].choice
    if gpu.access[row].is_store:
        is_kept = choice < 0 or domains[choice] == _KEEP
        return is_kept, False, is_kept
    staging = _DIRECT if choice < 0 else np.int64(domains[choice])
    first, end = gpu.access[row].first_flow, gpu.access[row].end_flow
    in_memory, in_shared, in_register = first == end, first < end, False
    for f in range(first, end):
        space = domains[gpu.flow[f]] if gpu.flow[f] >= 0 else np.uint32(_GLOBAL)
        in_memory = in_memory or space == _GLOBAL
        in_shared = in_shared and space == _SHARED
        in_register = in_register or space & _REGISTER != 0
    is_direct = staging == _DIRECT and in_memory
    return is_direct, gpu_facts.is_copied(staging) or in_shared, not in_register


@jit_internal
def _requests(
    gpu: GpuTables, domains: Mask, facts: Floats, tasks: Floats, phase: Ints, costs: Floats
) -> None:
    """Adds, by phase, the ns of loads and stores in L1, in shared memory and in issue to `costs` ([n_tasks, N_TERMS]).

    Marks in `tasks` the tasks that surely wait for a load. Among the accesses of a phase to one
    array only the most expensive one counts: data that one task has loaded another may still have.
    """
    n = phase.size
    dearest = np.zeros((n, N_COUNTED))
    stores = np.zeros((n, N_COUNTED))
    is_written = np.zeros(n, np.bool_)
    for row in range(gpu.access.shape[0]):
        if row == 0 or gpu.access[row].array != gpu.access[row - 1].array:
            _add_requests(costs, dearest, stores)
            dearest[:] = 0.0
            stores[:] = 0.0
            is_written[:] = False
        t, is_store = gpu.access[row].task, gpu.access[row].is_store
        p = phase[t]
        in_memory, in_shared, is_there = _where(gpu, domains, row)
        if gpu.access[row].is_known and (is_store or not is_written[p]):
            into = stores if is_store else dearest
            n_elements = gpu.access[row].elements
            core, issue = tasks[t, gpu_facts.CORE_FACTOR], tasks[t, gpu_facts.ISSUE_FACTOR]
            per_sector, same, widest = _sharing(gpu, row, facts)
            if not is_store:
                n_elements *= _copies_of_loads(gpu, row, facts)
            elif tasks[t, gpu_facts.SPLITS]:
                # Another launch may store what the blocks leave, with threads of its own.
                core, issue, widest = 1.0, 1.0, float(gpu.access[row].widest)
                per_sector = SECTOR_BYTES / gpu.access[row].element_bytes
            if not is_store and (in_memory or in_shared):
                tasks[t, gpu_facts.LOADS] = max(
                    tasks[t, gpu_facts.LOADS], 2.0 if in_memory else 1.0
                )
            if in_memory:
                ns = n_elements * SECTOR_BYTES / per_sector / gpu.l1_rate
                into[p, BY_L1] = max(into[p, BY_L1], ns * core)
            if in_shared and gpu.shared_rate > 0:
                each = max(
                    REQUEST_BYTES / (gpu_facts.WARP * gpu.access[row].widest),
                    gpu.access[row].element_bytes / same,
                )
                into[p, BY_SHARED] = max(
                    into[p, BY_SHARED], n_elements * each / gpu.shared_rate * core
                )
            if is_there and gpu.issue_rate > 0:
                lanes = widest if in_memory else float(gpu.access[row].widest)
                ns = n_elements / (gpu_facts.WARP * lanes) / gpu.issue_rate
                into[p, BY_ISSUE] = max(into[p, BY_ISSUE], ns * issue)
        if is_store:
            is_written[p] = True
    _add_requests(costs, dearest, stores)


@jit_internal
def _add_requests(costs: Floats, dearest: Floats, stores: Floats) -> None:
    for p in range(costs.shape[0]):
        costs[p, L1] += dearest[p, BY_L1] + stores[p, BY_L1]
        costs[p, SHARED] += dearest[p, BY_SHARED] + stores[p, BY_SHARED]
        costs[p, ISSUE] += dearest[p, BY_ISSUE] + stores[p, BY_ISSUE]


@jit_internal
def _phases(tables: BoundTables, domains: Mask, phase: Ints, is_first: Ints) -> None:
    """Groups tasks into phases (phase[t] is the least task of the group), and marks phases that surely begin with a launch."""
    merged_tasks(tables, domains, phase)
    for k in range(tables.pair.shape[0]):
        a, b = tables.pair[k].a, tables.pair[k].b
        # One block runs both, or else they are merged; its warps drift apart unless a value passes.
        if domains[tables.pair[k].fused] & _SAME_LAUNCH and not tables.pair[k].is_dependent:
            join(phase, a, b)
    is_first[:] = 1
    for k in range(tables.pair.shape[0]):
        a, b = tables.pair[k].a, tables.pair[k].b
        if domains[tables.pair[k].fused] & _SAME_LAUNCH and phase[a] != phase[b]:
            is_first[phase[a]] = 0
            is_first[phase[b]] = 0


@jit_internal
def _memory(
    tables: BoundTables, gpu: GpuTables, read: float, write: float, held: float, ports: float
) -> tuple[float, float, float, float]:
    """Returns the ns of reads, of writes, of both, and of traffic into the multiprocessors.

    `held`: bytes that the multiprocessors may hold already.
    """
    last = tables.rate.size - 1
    cached = gpu.l2_bytes + held
    reads = max(0.0, read - cached) / tables.rate[last]
    writes = max(0.0, write - cached) / tables.write_rate
    # Dirty lines that stay save the trip out, and where they are read again the trip in.
    kept = cached + min(cached, tables.reused_bytes)
    mixed = max(0.0, read + write - kept) / tables.mixed_rate
    crossing = max(0.0, read - held) / gpu.l2_rate
    if gpu.port_rate > 0:
        crossing = max(crossing, max(0.0, read - held) / (gpu.port_rate * min(gpu.cores, ports)))
    return reads, writes, mixed, crossing


@jit_internal
def _launches(tables: BoundTables, gpu: GpuTables, domains: Mask, n: int) -> float:
    """Returns the guaranteed number of launches, repetitions included.

    It counts launches of tasks that surely share none, conversions, and a kernel that combines
    partial results of blocks.
    """
    chosen = np.ones(n, np.bool_)
    count = conversions(tables, domains)
    for t in range(n):
        for k in range(tables.pair.shape[0]):
            if tables.pair[k].b == t and chosen[tables.pair[k].a]:
                chosen[t] = chosen[t] and not domains[tables.pair[k].fused] & _SAME_LAUNCH
        count += chosen[t] * tables.runs[t]
    for k in range(gpu.loop.shape[0]):
        if gpu.loop[k].reduction >= 0 and domains[gpu.loop[k].reduction] == _PARTIALS:
            return count + 1
    return count


@jit_internal
def _compute(gpu: GpuTables, tasks: Floats, phase: Ints, is_first: Ints, costs: Floats) -> None:
    """Fills in, by phase, the ns of arithmetic, of issuing its instructions, and of latencies.

    Runs after `_requests`.
    """
    for t in range(phase.size):
        p = phase[t]
        factor = tasks[t, gpu_facts.ISSUE_FACTOR]
        finishing = 1.0 if tasks[t, gpu_facts.SPLITS] else factor  # another launch may finish these
        costs[p, OPERATIONS] += gpu.task[t].work_ns * factor + gpu.task[t].finish_ns * finishing
        if gpu.issue_rate > 0:
            costs[p, ISSUE] += (
                gpu.task[t].instructions / gpu_facts.WARP / gpu.issue_rate * min(factor, finishing)
            )
        # The blocks that a multiprocessor has no room for at first begin when others have ended.
        chain = tasks[t, gpu_facts.CHAIN] + (gpu.load_ns if tasks[t, gpu_facts.LOADS] else 0.0)
        ns = chain * tasks[t, gpu_facts.WAVES]
        if tasks[t, gpu_facts.LOADS] == 2 and is_first[p]:
            ns += max(0.0, gpu.far_load_ns - gpu.load_ns)
        costs[p, LATENCY] = max(costs[p, LATENCY], ns)


@jit
def lower_bound(
    tables: BoundTables,
    gpu: GpuTables,
    domains: Mask,
    phase: Ints,
    terms: Floats,
    registers: Floats,
    line: Floats,
) -> float:
    """Returns a lower bound in ns on every completion.

    Fills `phase` ([n_tasks]) and `terms` (ns of each resource).
    For `registers` and `line` see `task_facts`. With a line the result is an estimate, not a bound.
    """
    n = phase.size
    terms[:] = 0.0
    facts = np.zeros((gpu.loop.shape[0], gpu_facts.N_FACTS))
    tasks = np.zeros((n, gpu_facts.N_TASK_FACTS))
    costs = np.zeros((n, N_TERMS))
    moved = np.zeros((n, N_MOVED))
    is_first = np.ones(n, np.int64)
    ends = np.zeros((n, n), np.bool_)
    for t in range(n):
        ends[t, t] = True
    gpu_facts.tilings(gpu, domains, facts)
    gpu_facts.task_facts(gpu, domains, facts, tasks, registers, line)
    gpu_facts.meetings(gpu, domains, facts, tasks)
    # Everything as one phase, because what L2 keeps is then subtracted once only: of repeats, in each of their steps.
    phase[:] = tables.step
    phase_traffic(tables, domains, phase, ends, moved)
    ports = 1.0
    for t in range(n):
        ports = max(ports, tasks[t, gpu_facts.BLOCKS_MOST])
    whole = np.zeros(4)
    for p in range(n):
        if phase[p] == p:
            crossed = _memory(tables, gpu, moved[p, READS], moved[p, WRITES], 0.0, ports)
            for k in range(len(crossed)):
                whole[k] += crossed[k] * tables.runs[p]
    _phases(tables, domains, phase, is_first)
    phase_traffic(tables, domains, phase, ends, moved)
    _requests(gpu, domains, facts, tasks, phase, costs)
    _compute(gpu, tasks, phase, is_first, costs)
    total = 0.0
    for p in range(n):
        if phase[p] != p:
            continue
        ports = 1.0
        for t in range(n):
            if phase[t] == p:
                ports = max(ports, tasks[t, gpu_facts.BLOCKS_MOST])
        held = 0.0 if is_first[p] else gpu.inside_bytes
        crossed = _memory(tables, gpu, moved[p, READS], moved[p, WRITES], held, ports)
        for k in range(len(crossed)):
            costs[p, k] = crossed[k]
        longest = 0.0
        for k in range(N_TERMS):
            terms[k] += costs[p, k] * tables.runs[p]
            # What is left in L2 dirty may be on its way while the next phase reads: of both, only the sum over all is sure.
            if k != MIXED:
                longest = max(longest, costs[p, k])
        total += longest * tables.runs[p]
    for k in range(len(whole)):
        terms[k] = max(terms[k], whole[k])
        total = max(total, float(terms[k]))
    # The next launches are on their way while one runs, so they add up among themselves only.
    n_launches = _launches(tables, gpu, domains, n)
    terms[LAUNCHES] = tables.call_ns + n_launches * gpu.launch_ns
    return max(total, float(terms[LAUNCHES]))
