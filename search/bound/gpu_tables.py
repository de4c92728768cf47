"""GPU tables of the bound, in addition to `BoundTables`: the machine, tilings, and the loads and stores of each task."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...kernels.analysis.effects import arrays_written
from ...kernels.ir.access import Access, access_of, flat_strides, index_loops
from ...kernels.ir.arrays import ArrayInfo
from ...kernels.ir.task import Task, extents
from ...space.backbone import INNER, MID, OUTER
from ...space.candidate import Space
from ...space.families.block_memory import register_words
from .columns import Ints, Table, Universes, table
from .operations import SureOperations
from .tables import sources_of_reads
from .traffic import distinct_elements, sure_loads
from .weights import expression_weight

ALONE, TOGETHER = 1, 2  # how a loop takes part in an access: alone on its axis, or with others


class GpuTables(NamedTuple):
    """GPU tables of the bound: positions of variables, bytes, and ns.

    A variable of -1 means none; a rate of 0 is unknown.
    """

    # the machine; rates are those of all multiprocessors together
    cores: float
    boost: float  # by how much a multiprocessor alone may be faster than its share of all
    l2_rate: float
    port_rate: float  # of one multiprocessor, from outside its L1
    l1_rate: float
    shared_rate: float
    issue_rate: float  # instructions of warps a ns
    inside_bytes: float  # registers and L1, which a launch finds empty
    l2_bytes: float
    threads_per_core: int
    blocks_per_core: int
    shared_per_core: int
    registers_per_core: int
    add_ns: float
    load_ns: float
    far_load_ns: float
    barrier_ns: float
    launch_ns: float
    # tasks
    universe: Ints  # all universes of sizes, one after the other
    loop_start: Ints  # [n_tasks + 1] first row of `loop`
    # is_reduction extent outer_kind; of mid and of inner: kind, size, where its universe begins; reduction of the outer dim, and
    # lanes of the inner one; grid_stride of the outer dim
    loop: Table
    # pairs of loops whose threads may form rectangles of a warp: a and b, rows of `loop`, as are the first and the end of those
    # of their task; choice of the rectangle; level: which of both varies faster
    warp: Table
    # reduces: 1 where floating-point values are summed up, or the like; words: registers of one accumulator, 0 where nothing is
    # reduced; instructions of threads, arithmetic only, multiply-adds fused; work_ns on all cores, of values; finish_ns of what
    # finishes reductions
    task: Table
    # loads and stores, array by array, each in program order
    # array task is_store; choice: its store or else staging; first and end of its flows, and of its loops (of `along`); is_known;
    # widest vector in elements; elements: distinct ones; element_bytes
    access: Table
    flow: Ints  # mem_space of the flows, -1: surely memory
    along: Table  # row of `loop`; stride in bytes; how it takes part; nearest neighbours first
    # copies in shared memory
    copy: Table  # task staging element_bytes, first and end of its loops (of `copy_loop`)
    copy_loop: Ints  # rows of `loop`


def build_gpu_tables(space: Space) -> GpuTables:
    """Returns the GPU tables of a space."""
    t = space.target
    universe = Universes(space)
    near, far = t.levels[0], t.levels[-1]
    start, loops, row_of = _loops(space, universe)
    return GpuTables(
        cores=float(t.cores),
        boost=t.core_boost,
        l2_rate=far.read_bytes_per_ns,
        port_rate=t.core_read_bytes_per_ns,
        l1_rate=near.read_bytes_per_ns,
        shared_rate=t.shared_bytes_per_ns,
        issue_rate=t.instructions_per_ns,
        inside_bytes=float(near.capacity_bytes + 4 * t.registers_per_core * t.cores),
        l2_bytes=float(far.capacity_bytes),
        threads_per_core=t.max_threads_per_core,
        blocks_per_core=t.max_blocks_per_core,
        shared_per_core=t.shared_bytes_per_core,
        registers_per_core=t.registers_per_core,
        add_ns=t.add_latency_ns,
        load_ns=t.load_latency_ns,
        far_load_ns=t.far_load_latency_ns,
        barrier_ns=t.barrier_ns,
        launch_ns=t.launch_ns,
        universe=universe.array(),
        loop_start=start,
        loop=loops,
        warp=_warps(space, row_of, start),
        task=_tasks(space),
        **_accesses(space, row_of),
        **_copies(space, row_of),
    )


def _sums(task: Task) -> bool:
    return task.is_structured and task.is_reduction and task.dtype.is_float


def _loops(space: Space, universe: Universes) -> tuple[Ints, Table, dict[tuple[int, str], int]]:
    v, b = space.variables, space.backbone
    rows: list[tuple[int, ...]] = []
    start, row_of = [0], dict[tuple[int, str], int]()
    for t, task in enumerate(space.problem.tasks):
        for loop in task.loops:
            row_of[t, loop.name] = len(rows)
            row = [int(loop.is_reduction), loop.extent, v.kind[b.dim(t, loop.name, OUTER)]]
            for level in (MID, INNER):
                d = b.dim(t, loop.name, level)
                row += [v.kind[d], v.size[d], universe.at(d)]
            row += [v.reduction.get(b.dim(t, loop.name, level), -1) for level in (OUTER, INNER)]
            row.append(v.of_dims["grid_stride"].get(b.dim(t, loop.name, OUTER), -1))
            rows.append(tuple(row))
        start.append(len(rows))
    columns = (
        "is_reduction extent outer_kind mid_kind mid_size mid_at inner_kind inner_size inner_at"
    )
    return np.array(start, np.int64), table(rows, f"{columns} reduction lanes stride"), row_of


def _warps(space: Space, row_of: dict[tuple[int, str], int], start: Ints) -> Table:
    v = space.variables
    rows = [
        (
            *(row_of[x.task, x.loop.name] for x in pair),
            *(int(start[pair[0].task + k]) for k in (0, 1)),
            choice,
            v.thread_level[pair],
        )
        for pair, choice in v.warp_tile.items()
    ]
    return table(rows, "a b first_loop end_loop choice level")


def _tasks(space: Space) -> Table:
    t, counter = space.target, SureOperations(space.profile)
    counts = [counter.count(task) for task in space.problem.tasks]
    f32, f64 = (sum(numbers) for numbers in zip(*counts, strict=True))
    # It computes in f32 and in f64 side by side: the pipe that is busy longer counts.
    is_single = f32 / t.f32_flops_per_ns >= f64 / t.f64_flops_per_ns
    rows = []
    for task, pair in zip(space.problem.tasks, counts, strict=True):
        n = pair[0] if is_single else pair[1]
        rate = t.f32_flops_per_ns if is_single else t.f64_flops_per_ns
        outputs = prod(loop.extent for loop in task.loops if not loop.is_reduction)
        finishing = min(n, outputs * expression_weight(task.finish))
        work, finish = (n - finishing) / rate, finishing / rate
        rows.append((int(_sums(task)), register_words(task), sum(pair) / 2, work, finish))
    return table(rows, "reduces words", "instructions work_ns finish_ns")


def _accesses(space: Space, row_of: dict[tuple[int, str], int]) -> dict[str, Any]:
    v, problem = space.variables, space.problem
    sources = sources_of_reads(space)
    rows: list[tuple[float, ...]] = []
    flows: list[int] = []
    along: list[tuple[int, int, int]] = []

    def add(k: int, t: int, access: Access | None, store: int, first_flow: int) -> None:
        """Adds a row for an access of task `t` to array `k`.

        An access of None is a write to an unknown element.
        Later reads of such an array need no load.
        """
        array, first = problem.arrays[k], len(along)
        is_known = access is not None and all(a is not None for a in access.axes)
        elements = 0
        if access is not None and is_known:
            elements = distinct_elements(access, extents(problem.tasks[t]))
            along.extend(_along(problem.tasks[t], t, access, array, row_of))
        widest = max(1, space.target.vector_bytes // array.dtype.size_bytes)
        is_store = int(first_flow < 0)
        spaces = (0, 0) if is_store else (first_flow, len(flows))
        sizes = (widest, elements, array.dtype.size_bytes)
        rows.append((k, t, is_store, store, *spaces, first, len(along), int(is_known), *sizes))

    for k, array in enumerate(problem.arrays):
        for t, task in enumerate(problem.tasks):
            is_sure = task.is_structured and not task.is_guarded
            loads = sure_loads(task.value) if is_sure else ()
            for access in dict.fromkeys(access_of(x) for x in loads if x.array == array.name):
                begin = len(flows)
                flows += [var for var, _ in sources.get((t, array.name), [])]
                staged = (x for o, x in v.staged.items() if o.task == t and o.holds(access))
                add(k, t, access, next(staged, -1), begin)
            if array.name in arrays_written(task):
                # A temporary that may be left away has a choice that says so; that it has none says nothing.
                is_sure = is_sure and (array.role != "temp" or t in v.store)
                store = v.store.get(t, -1)
                add(k, t, task.target if is_sure else None, store, -1)
    return {
        "access": table(
            rows,
            "array task is_store choice first_flow end_flow first_loop end_loop is_known widest",
            "elements element_bytes",
        ),
        "flow": np.array(flows, np.int64),
        "along": table(along, "loop stride how"),
    }


def _along(
    task: Task, t: int, access: Access, array: ArrayInfo, row_of: dict[tuple[int, str], int]
) -> list[tuple[int, int, int]]:
    strides = flat_strides(access, array)
    axes = [{loop for loop, _ in a.terms} for a in access.axes if a is not None]
    shared = {loop for loops in axes if len(loops) > 1 for loop in loops}
    indexed = index_loops(access)
    found = []
    for loop in task.loops:
        how = 0 if loop.name not in indexed else TOGETHER if loop.name in shared else ALONE
        stride = abs(strides.get(loop.name, 0)) * array.dtype.size_bytes
        found.append((row_of[t, loop.name], stride, how))
    return sorted(found, key=lambda row: row[1])


def _copies(space: Space, row_of: dict[tuple[int, str], int]) -> dict[str, Any]:
    rows: list[tuple[int, ...]] = []
    loops: list[int] = []
    for o, var in space.variables.staged.items():
        task, array = space.problem.tasks[o.task], space.problem.array(o.access.array)
        along = [loop for loop in task.loops if loop.name in o.loops]
        if o.is_window and any(o.leaves(loop, array.shape) for loop in along):
            continue  # what lies beyond the array is not copied
        first = len(loops)
        loops += [row_of[o.task, name] for name in o.loops]
        size_bytes = array.dtype.size_bytes
        rows.append((o.task, var, size_bytes, first, len(loops)))
    return {
        "copy": table(rows, "task staging element_bytes first_loop end_loop"),
        "copy_loop": np.array(loops, np.int64),
    }
