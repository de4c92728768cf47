"""Guaranteed facts about each loop and task of a GPU candidate: sizes, blocks, threads, chains, multiprocessors.

`facts` has a row per loop, `tasks` a row per task. Open choices take the value that is best for
time.
"""

from __future__ import annotations

import numpy as np

from ...space import choices as ch
from ...space.engine.jit import jit, jit_internal
from ...space.families.block_memory import MAX_REGISTERS
from ...space.families.grid_stride import A_TILE, BLOCKS_A_CORE
from ...space.families.warp_tile import LINEAR, THREADS_ALONG
from .columns import Floats, Ints
from .common import Mask
from .gpu_tables import GpuTables

Int = int | np.int64

WARP = 32
SCHEDULERS = (
    4  # of a multiprocessor, each with a quarter of its arithmetic; since compute capability 5.0
)
KEPT_STEPS = 256  # no compiler unrolls so many: the sums of a loop of so many steps are in registers all the time

# Of a loop: sizes as they may still be; 0, 1 or 2 where something cannot, may or surely is.
MID_LEAST, MID_MOST, INNER_LEAST, INNER_MOST, IS_BLOCK, IS_THREAD, IS_VECTOR, IS_LOOP = range(8)
# Blocks take tiles in turn: 0, 1 or 2, and the fewest and the most of them, of a multiprocessor.
IN_TURN, TURNS_LEAST, TURNS_MOST = range(8, 11)
IN_WARP = 11  # at most so many threads of a warp that differ along the loop only
N_FACTS = 12
# Of a task. Factors say by how much longer it takes than with all multiprocessors, or all of their lanes, at work.
BLOCKS_MOST, FULL_BLOCKS, THREADS_LEAST, THREADS_MOST, CHAIN, WAVES = range(6)
CORE_FACTOR, ISSUE_FACTOR, SPLITS, LOADS = range(6, 10)
N_TASK_FACTS = 10

_BLOCK = 1 << ch.PARALLEL
_LOOP = 1 << ch.LOOP
_THREAD = 1 << ch.THREAD
_VECTOR = 1 << ch.VECTOR
_DIRECT = 1 << ch.DIRECT
_LANES = 1 << ch.LANES
_A_TILE = 1 << A_TILE
_LINEAR = 1 << LINEAR
_FASTER, _SLOWER = 1 << ch.FASTER, 1 << ch.SLOWER


@jit_internal
def _extremes(universe: Ints, at: Int, domain: Int) -> tuple[int, int]:
    least, most = 0, 1
    k = 0
    while domain >> k:
        if domain >> k & 1:
            size = universe[at + k]
            least = size if least == 0 else min(least, size)
            most = max(most, size)
        k += 1
    return max(1, least), most


@jit_internal
def _turns(domain: Int) -> tuple[int, int]:
    """Returns the fewest and the most blocks of a multiprocessor that take tiles in turn, by the domain of `grid_stride`."""
    least, most = 0, 0
    for k in range(A_TILE + 1, len(BLOCKS_A_CORE)):
        if domain >> k & 1:
            most = BLOCKS_A_CORE[k]
            least = least or most
    return least, most


@jit_internal
def tilings(gpu: GpuTables, domains: Mask, facts: Floats) -> None:
    """Fills in the facts of every loop: tile sizes, and whether it may or must be a loop of blocks, threads or vectors."""
    for k in range(gpu.loop.shape[0]):
        outer = np.int64(domains[gpu.loop[k].outer_kind])
        mid = np.int64(domains[gpu.loop[k].mid_kind])
        inner = np.int64(domains[gpu.loop[k].inner_kind])
        sizes = _extremes(gpu.universe, gpu.loop[k].mid_at, np.int64(domains[gpu.loop[k].mid_size]))
        facts[k, MID_LEAST], facts[k, MID_MOST] = sizes
        sizes = _extremes(
            gpu.universe, gpu.loop[k].inner_at, np.int64(domains[gpu.loop[k].inner_size])
        )
        facts[k, INNER_LEAST], facts[k, INNER_MOST] = sizes
        facts[k, IS_BLOCK] = 0 if not outer & _BLOCK else 2 if outer == _BLOCK else 1
        facts[k, IS_THREAD] = 0 if not mid & _THREAD else 2 if mid == _THREAD else 1
        facts[k, IS_VECTOR] = 1 if inner & _VECTOR else 0
        facts[k, IS_LOOP] = 2 if outer == _LOOP else 0
        stride = np.int64(domains[gpu.loop[k].stride]) if gpu.loop[k].stride >= 0 else _A_TILE
        facts[k, IN_TURN] = 0 if stride == _A_TILE else 1 if stride & _A_TILE else 2
        turns = _turns(stride)
        facts[k, TURNS_LEAST], facts[k, TURNS_MOST] = turns
        facts[k, IN_WARP] = facts[k, MID_MOST]
    _warps(gpu, domains, facts)


@jit_internal
def _warps(gpu: GpuTables, domains: Mask, facts: Floats) -> None:
    """Limits the threads of a warp along each loop, where its shape is decided.

    A rectangle has its own sizes, and threads along no other loop. Without one, neighbours along the slower of two loops are
    as far apart in a warp as there are threads along the faster one.
    """
    for row in range(gpu.warp.shape[0]):
        tile = np.int64(domains[gpu.warp[row].choice])
        a, b = gpu.warp[row].a, gpu.warp[row].b
        if tile == _LINEAR:
            level = np.int64(domains[gpu.warp[row].level])
            fast, slow = (a, b) if level == _FASTER else (b, a)
            if level in (_FASTER, _SLOWER):
                most = np.ceil(WARP / facts[fast, MID_LEAST])
                facts[slow, IN_WARP] = min(facts[slow, IN_WARP], most)
        elif not tile & _LINEAR:
            most_a, most_b = 1, 1
            for k in range(LINEAR + 1, len(THREADS_ALONG)):
                if tile >> k & 1:
                    most_a = max(most_a, THREADS_ALONG[k][0])
                    most_b = max(most_b, THREADS_ALONG[k][1])
            for k in range(gpu.warp[row].first_loop, gpu.warp[row].end_loop):
                most = most_a if k == a else most_b if k == b else 1
                facts[k, IN_WARP] = min(facts[k, IN_WARP], most)


@jit_internal
def _steps(gpu: GpuTables, k: Int, facts: Floats) -> float:
    """Returns a lower bound on the sequential iterations of one thread along a loop."""
    extent = gpu.loop[k].extent
    if facts[k, IS_LOOP] == 2:
        threads = facts[k, MID_MOST] if facts[k, IS_THREAD] else 1.0
        return max(1.0, float(np.ceil(extent / (threads * facts[k, INNER_MOST]))))
    if facts[k, IS_THREAD]:
        return 1.0
    # As a tile of one block: at least its mid dim, where the extent is no less.
    whole = np.ceil(extent / facts[k, INNER_MOST])
    return max(1.0, float(min(facts[k, MID_LEAST], whole)))


@jit_internal
def count_registers(gpu: GpuTables, domains: Mask, facts: Floats, t: Int) -> float:
    """Returns the registers of a thread's accumulators in task `t`, as the space counts them, at the least open value."""
    n = float(gpu.task[t].words)
    for k in range(gpu.loop_start[t], gpu.loop_start[t + 1]):
        lanes = gpu.loop[k].lanes
        if not gpu.loop[k].is_reduction or (lanes >= 0 and domains[lanes] == _LANES):
            n *= facts[k, INNER_LEAST]
    return n


@jit
def registers_counted(gpu: GpuTables, domains: Mask) -> Floats:
    """Returns [n_tasks]: `count_registers` of every task."""
    facts = np.zeros((gpu.loop.shape[0], N_FACTS))
    tilings(gpu, domains, facts)
    counted = np.zeros(gpu.task.shape[0])
    for t in range(counted.size):
        counted[t] = count_registers(gpu, domains, facts, t)
    return counted


@jit_internal
def task_facts(
    gpu: GpuTables, domains: Mask, facts: Floats, tasks: Floats, registers: Floats, line: Floats
) -> None:
    """Fills in each task's blocks, threads, dependence chain and share of multiprocessors.

    `registers`: [n_tasks] known registers per thread of each task, 0 if unknown. `line`: [2] a
    linear model (zeros: none), intercept and slope of a thread's registers over its counted
    accumulators.
    """
    for t in range(tasks.shape[0]):
        most, full, share, is_open, splits, in_turn = 1.0, 1.0, 1.0, False, 0.0, 0.0
        threads_least, threads_most, steps, sums = 1.0, 1.0, 1.0, 1.0
        for k in range(gpu.loop_start[t], gpu.loop_start[t + 1]):
            extent = gpu.loop[k].extent
            if facts[k, IS_BLOCK]:
                least = facts[k, MID_LEAST] * facts[k, INNER_LEAST]
                tile = facts[k, MID_MOST] * facts[k, INNER_MOST]
                blocks = np.ceil(extent / least)
                if facts[k, IN_TURN] == 2:
                    blocks = min(blocks, facts[k, TURNS_MOST] * gpu.cores)
                most *= blocks
                in_turn = max(in_turn, facts[k, IN_TURN])
                is_open = is_open or least < tile or facts[k, IS_BLOCK] == 1
                splits = max(splits, gpu.loop[k].is_reduction)
                if facts[k, IS_BLOCK] == 2 and tile <= extent:
                    full *= np.floor(extent / tile)
                    share *= tile / extent
            if facts[k, IS_THREAD]:
                threads_most *= facts[k, MID_MOST]
            if facts[k, IS_THREAD] == 2:
                threads_least *= facts[k, MID_LEAST]
            if gpu.loop[k].is_reduction:
                steps *= _steps(gpu, k, facts)
            else:
                sums *= facts[k, INNER_LEAST]
        tasks[t, BLOCKS_MOST], tasks[t, FULL_BLOCKS] = most, full
        tasks[t, THREADS_LEAST], tasks[t, THREADS_MOST] = threads_least, threads_most
        tasks[t, CHAIN] = (steps - 1) * gpu.add_ns if gpu.task[t].reduces else 0.0
        tasks[t, SPLITS] = splits
        # Some multiprocessor has as many full blocks as any, and does their work at its own rate.
        alone = gpu.cores / gpu.boost
        factor = max(1.0, alone / most)
        if not is_open:
            factor = max(factor, alone * np.ceil(full / gpu.cores) * share)
        tasks[t, CORE_FACTOR] = factor
        warps = np.ceil(threads_most / WARP)
        scheduled = max(factor, SCHEDULERS * alone / (most * warps))
        tasks[t, ISSUE_FACTOR] = scheduled * WARP / min(WARP, threads_most)
        kept = sums * gpu.task[t].words if gpu.task[t].reduces and steps >= KEPT_STEPS else 0.0
        kept = max(kept, registers[t])
        base, slope = line[0], line[1]
        if gpu.task[t].words and (base > 0 or slope > 0):
            kept = max(kept, base + slope * count_registers(gpu, domains, facts, t))
        resident = _resident(gpu, domains, facts, t, threads_least, kept)
        # Blocks that take tiles in turn may load for the next tile while they compute one.
        waves = 1.0 if in_turn else np.ceil(full / (gpu.cores * resident))
        tasks[t, WAVES] = max(1.0, waves)


@jit_internal
def is_copied(staging: Int) -> bool:
    """True if an operand is surely staged in shared memory, in one block or in several alternating ones."""
    return not staging & _DIRECT


@jit_internal
def _resident(
    gpu: GpuTables, domains: Mask, facts: Floats, t: int, threads: float, kept: float
) -> float:
    """Returns an upper bound on the resident blocks of a multiprocessor.

    `kept`: registers that every thread needs.
    """
    if gpu.threads_per_core == 0:
        return 1e18
    threads = max(threads, WARP)
    most = min(gpu.blocks_per_core, np.floor(gpu.threads_per_core / threads))
    # With more sums than there are registers for, the compiler keeps some in memory, and the block still fits.
    registers = min(kept, MAX_REGISTERS, np.floor(gpu.registers_per_core / threads))
    if registers > 0:
        most = min(most, np.floor(gpu.registers_per_core / (registers * threads)))
    shared = 0.0
    for row in range(gpu.copy.shape[0]):
        if gpu.copy[row].task == t and is_copied(np.int64(domains[gpu.copy[row].staging])):
            n_bytes = float(gpu.copy[row].element_bytes)
            for at in range(gpu.copy[row].first_loop, gpu.copy[row].end_loop):
                k = gpu.copy_loop[at]
                n_bytes *= facts[k, MID_LEAST] * facts[k, INNER_LEAST]
            shared += n_bytes
    if shared > 0:
        most = min(most, np.floor(gpu.shared_per_core / shared))
    return max(1.0, float(most))


@jit_internal
def meetings(gpu: GpuTables, domains: Mask, facts: Floats, tasks: Floats) -> None:
    """Raises the chain of each task by its guaranteed barriers: threads synchronise for each copied block.

    These barriers are in every iteration of the loops around the copy.
    """
    for row in range(gpu.copy.shape[0]):
        if is_copied(np.int64(domains[gpu.copy[row].staging])):
            n = 1.0
            for at in range(gpu.copy[row].first_loop, gpu.copy[row].end_loop):
                k = gpu.copy_loop[at]
                if facts[k, IS_LOOP] == 2:
                    tile = facts[k, MID_MOST] * facts[k, INNER_MOST]
                    n *= np.ceil(gpu.loop[k].extent / tile)
            t = gpu.copy[row].task
            if tasks[t, THREADS_LEAST] > WARP:  # the barrier of a single warp may be free
                tasks[t, CHAIN] = max(tasks[t, CHAIN], n * gpu.barrier_ns)
