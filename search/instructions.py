"""Instructions that a core of a CPU likely starts for a candidate, by kind. They are for predictions and prove nothing.

The counts are those of the loop nest as it is written, for a compiler that keeps in registers what a register tile shares, and
nothing from one tile to the next but sums of a reduced loop that is innermost. A bound may not assume this, since a compiler may
keep more. Of open sizes the largest counts, and open orders have reduced loops inside.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..kernels.analysis.domain_bounds import points
from ..kernels.analysis.effects import arrays_read, task_reads
from ..kernels.ir.access import Access, flat_strides
from ..kernels.ir.task import Task
from ..space import choices as ch
from ..space.backbone import INNER, MID, OUTER, Dim
from ..space.candidate import Space
from ..space.engine.jit import jit_flat, jit_flat_internal
from ..space.targets.target import PAGE_BYTES
from .bound.columns import Floats, Ints, Table, Universes, table
from .bound.common import Int, Mask
from .bound.overlap import MAYBE, largest
from .bound.ports import staged_at
from .bound.tables import BoundTables
from .bound.traffic import read_bytes

# Loads and prefetches of vectors, and of single elements that all lanes share. Lanes one by one, where they lie apart. Vectors of
# sums that are folded to one element. Lines, and pages, that the innermost loop enters anew. Elements copied to blocks.
KINDS = ("loads", "lanes", "folds", "lines", "pages", "copies")
LOADS, LANES, FOLDS, LINES, PAGES, COPIES = range(len(KINDS))
UNIT_NS = 0.1  # of a load on a machine without a calibrated rate
_PAGES_AT_HAND = 64  # pages whose addresses a core translates without a delay
_NOT_ALONG = 0  # step of an access that does not depend on a loop

_VECTOR = 1 << ch.VECTOR
_DIRECT = 1 << ch.DIRECT
_OUTSIDE = 1 << ch.OUTSIDE
_INSIDE = 1 << ch.INSIDE
_LANES = 1 << ch.LANES
_REGISTER = 1 << ch.REGISTER
_STREAM = 1 << ch.STREAM
_GLOBAL = 1 << ch.GLOBAL
_NO_PREFETCH = 1 << ch.NO_PREFETCH
_ELIDED = 1 << ch.ELIDED
_OUTER = 0  # place of the outer dim among the two of a loop that are loops; behind it the mid dim


class InstructionTables(NamedTuple):
    """Facts of structured tasks, by position; variables are positions in the domain vector, -1 if there is none."""

    # task; its loops, accesses and packed operands; first of its orders; runs in a call; points of all; lanes of its vectors
    work: Table
    # extent is_reduced; kind of its inner dim, reduction of its inner dim; of mid and inner: variable of its size, its universe
    loop: Table
    order: Ints  # of each pair of dims of a task that are loops: outside or inside; -1 for dims of one loop
    # is_result: loaded and stored by sums; staged: where it is packed; kept: mem_space or store that leaves it in a register, with
    # the domain that does; prefetch: of its lines, in vectors along loop `along` of the task; first of its steps; size_bytes;
    # array_bytes
    access: Table
    step: Ints  # elements between neighbours along each loop of the task, by access
    pack: Table  # staged; loops: mask of those of the operand; elements
    stream: Table  # cache: how a task stores; bytes that it writes in a call
    again: Table  # cache; mem_space of a later read of the same array, -1: in memory; bytes that it reads in a call
    universe: Ints
    line_bytes: float
    inside: Floats  # [n_levels + 1] bytes that a core finds in registers and in the caches inside level k; the last is memory
    line_loads: Floats  # [n_levels + 1] loads that take as long as a line from level k if all cores read; 0 from the first cache


def instruction_tables(space: Space, bound: BoundTables) -> InstructionTables:
    """Returns the tables of a space's structured tasks. `bound`: the tables of its bound."""
    n_cores = space.target.cores
    rate = space.target.loads_per_ns or n_cores / UNIT_NS
    universe, v = Universes(space), space.variables
    work: list[tuple[float, ...]] = []
    loops: list[tuple[int, ...]] = []
    orders: list[int] = []
    accesses: list[tuple[int, ...]] = []
    steps: list[int] = []
    copies: list[tuple[float, ...]] = []
    streams = [(var, _written_bytes(space, t)) for t, var in v.cache.items()]
    again = [row for t, var in v.cache.items() for row in _read_again(space, t, var)]
    for t, task in enumerate(space.problem.tasks):
        if not task.is_structured or task.value is None:
            continue
        first = len(loops), len(accesses), len(copies)
        at = len(orders)
        for loop in task.loops:
            mid, inner = (space.backbone.dim(t, loop.name, k) for k in (MID, INNER))
            sizes = (v.size[mid], universe.at(mid), v.size[inner], universe.at(inner))
            kinds = (v.kind[inner], v.reduction.get(inner, -1))
            loops.append((loop.extent, int(loop.is_reduction), *kinds, *sizes))
        orders += _orders(space, t, task)
        place = {loop.name: k for k, loop in enumerate(task.loops)}
        for access, row, along in _accesses(space, t, task):
            asked = _prefetch(space, t, access, place)
            accesses.append((*row[:-2], *asked, len(steps), *row[-2:]))
            steps += along
        for o, staged in v.staged.items():
            if o.task == t and not o.is_window:
                mask = sum(1 << place[name] for name in o.loops)
                copies.append((staged, mask, float(points(task, list(o.loops)))))
        ends = (first[0], len(loops), first[1], len(accesses), first[2], len(copies), at)
        n = float(points(task)) * task.n_runs
        work.append((t, *ends, task.n_runs, n, space.target.lanes(task.lane_bytes)))
    return InstructionTables(
        work=table(
            work,
            "task loop loop_end access access_end pack pack_end order",
            "runs points lanes",
        ),
        loop=table(loops, "extent is_reduced kind reduction mid_size mid_at inner_size inner_at"),
        order=np.array([*orders, -1], np.int64),
        access=table(
            accesses,
            "is_result staged kept in_register prefetch along step size_bytes array_bytes",
        ),
        step=np.array([*steps, 0], np.int64),
        pack=table(copies, "staged loops", "elements"),
        stream=table(streams, "cache", "n_bytes"),
        again=table(again, "cache mem_space", "n_bytes"),
        universe=universe.array(),
        line_bytes=float(space.target.line_bytes),
        inside=bound.own,
        line_loads=np.where(
            np.arange(bound.rate.size) > 0, space.target.line_bytes * rate / bound.rate, 0.0
        ),
    )


def _orders(space: Space, t: int, task: Task) -> Iterator[int]:
    """Yields the order of each outer and mid dim of a task to each other."""
    dims: list[Dim] = [
        space.backbone.dim(t, loop.name, k) for loop in task.loops for k in (OUTER, MID)
    ]
    for d in dims:
        for e in dims:
            yield -1 if d.loop is e.loop else space.model.order(d.order_id, e.order_id)


def _accesses(
    space: Space, t: int, task: Task
) -> Iterator[tuple[Access, tuple[int, ...], list[int]]]:
    """Yields each distinct access of a task with its row, without prefetches and the first of its steps, and with the steps."""
    v = space.variables
    for access in dict.fromkeys(a for a, _ in task_reads(task)):
        kept = next(
            (
                var
                for f, var in v.mem_space.items()
                if (f.consumer, f.array) == (t, access.array) and not f.is_read
            ),
            -1,
        )
        yield (
            access,
            (0, staged_at(space, t, access), kept, _REGISTER, *_bytes(space, access)),
            _steps(space, task, access),
        )
    store = v.store.get(t, -1)
    row = (int(task.is_reduction), -1, store, _ELIDED, *_bytes(space, task.target))
    yield task.target, row, _steps(space, task, task.target)


def _prefetch(space: Space, t: int, access: Access, place: dict[str, int]) -> tuple[int, int]:
    """Returns the choice that prefetches an access, and the loop whose vectors it prefetches for; -1 if there is none."""
    var = space.variables.prefetch.get(t, -1)
    found = (p for p in space.backbone.prefetches if (p.task, p.access) == (t, access))
    along = next((p.along for p in found if var >= 0), "")
    return (var, place[along]) if along else (-1, -1)


def _read_again(space: Space, t: int, cache: int) -> Iterator[tuple[int, int, float]]:
    """Yields a row for each task that reads in a call what task `t` stored before, in the order of tasks."""
    array = space.problem.tasks[t].target.array
    for later, task in enumerate(space.problem.tasks[t + 1 :], t + 1):
        if array in arrays_read(task):
            flows = space.variables.mem_space.items()
            kept = [
                var for f, var in flows if (f.producer, f.consumer, f.array) == (t, later, array)
            ]
            n_bytes = read_bytes(task, space.problem.array(array), space.target.line_bytes)
            yield cache, kept[0] if kept else -1, float(n_bytes) * task.n_runs


def _written_bytes(space: Space, t: int) -> float:
    """Returns the bytes that a task stores in a call."""
    task = space.problem.tasks[t]
    free = [loop.name for loop in task.loops if not loop.is_reduction]
    return float(points(task, free)) * task.n_runs * _bytes(space, task.target)[0]


def _bytes(space: Space, access: Access) -> tuple[int, int]:
    """Returns the bytes of an element and of the array."""
    array = space.problem.array(access.array)
    return array.dtype.size_bytes, array.size_bytes


def _steps(space: Space, task: Task, access: Access) -> list[int]:
    """Returns the elements between neighbours of an access along each loop; a line's where an index is not affine."""
    apart = flat_strides(access, space.problem.array(access.array))
    far = space.target.line_bytes if None in access.axes else _NOT_ALONG
    return [abs(apart.get(loop.name, far)) for loop in task.loops]


@jit_flat_internal
def _is_outside(tables: InstructionTables, domains: Mask, row: Int, d: Int, e: Int) -> bool:
    """True if dim `d` of a task is around dim `e`; an open order has reduced loops inside."""
    first, n = tables.work[row].loop, 2 * (tables.work[row].loop_end - tables.work[row].loop)
    if d // 2 == e // 2:
        return bool(d % 2 == _OUTER)
    domain = domains[tables.order[tables.work[row].order + d * n + e]]
    if not domain & _INSIDE:
        return True
    if not domain & _OUTSIDE:
        return False
    reduced = tables.loop[first + d // 2].is_reduced, tables.loop[first + e // 2].is_reduced
    return bool(d < e if reduced[0] == reduced[1] else reduced[1])


@jit_flat_internal
def _count_sizes(
    tables: InstructionTables, domains: Mask, row: Int, trips: Floats, inner: Floats
) -> Int:
    """Fills in the trips of a task's outer and mid dims ([2 * n]) and the iterations of its inner dims ([n]).

    Returns the loop whose iterations are lanes of vectors, counted within the task; -1 if there is none.
    """
    vector, is_sure = -1, False
    for k in range(tables.work[row].loop_end - tables.work[row].loop):
        loop = tables.loop[tables.work[row].loop + k]
        mid = largest(tables.universe, loop.mid_at, np.int64(domains[loop.mid_size]))
        size = largest(tables.universe, loop.inner_at, np.int64(domains[loop.inner_size]))
        inner[k], trips[2 * k + 1] = size, mid
        trips[2 * k] = max(1.0, np.ceil(loop.extent / (mid * size)))
        kind = domains[loop.kind]
        if kind == _VECTOR or (kind & _VECTOR and size > 1 and vector < 0):
            if not is_sure:
                vector = k
            is_sure = is_sure or kind == _VECTOR
    return vector


@jit_flat_internal
def _run(tables: InstructionTables, domains: Mask, row: Int, trips: Floats) -> tuple[Int, float]:
    """Returns the innermost dim of a task with more than one trip (-1: none), and the trips of reduced loops that are innermost."""
    n = 2 * (tables.work[row].loop_end - tables.work[row].loop)
    innermost, run = -1, 1.0
    for depth in range(n):  # the dims from inside: as many are inside of each as its depth
        found = -1
        for d in range(n):
            inside = 0
            for e in range(n):
                if e != d and trips[e] > 1 and _is_outside(tables, domains, row, d, e):
                    inside += 1
            if trips[d] > 1 and inside == depth:
                found = d
        if found < 0:
            break
        if innermost < 0:
            innermost = found
        if not tables.loop[tables.work[row].loop + found // 2].is_reduced:
            break
        run *= trips[found]
    return innermost, run


@jit_flat_internal
def _level(tables: InstructionTables, n_bytes: float) -> Int:
    """Returns the level of memory that `n_bytes` are read from if they were the last to be read: 0 is the first cache."""
    level = 0
    while level + 1 < tables.inside.size and tables.inside[level + 1] < n_bytes:
        level += 1
    return level


@jit_flat_internal
def _count_accesses(
    tables: InstructionTables,
    domains: Mask,
    row: Int,
    vector: Int,
    innermost: Int,
    tiles: float,
    trips: Floats,
    inner: Floats,
    counts: Floats,
) -> None:
    """Adds the loads and stores of a task, without those of its sums."""
    n, n_points = tables.work[row].loop_end - tables.work[row].loop, tables.work[row].points
    lanes = min(tables.work[row].lanes, inner[vector]) if vector >= 0 else 1.0
    for k in range(tables.work[row].access, tables.work[row].access_end):
        access = tables.access[k]
        if access.kept >= 0 and domains[access.kept] == access.in_register:
            continue
        if access.is_result:
            continue
        packed = access.staged >= 0 and domains[access.staged] != _DIRECT
        shared, lines, is_whole = 1.0, 1.0, True
        for loop in range(n):
            step = tables.step[access.step + loop]
            if step == _NOT_ALONG:
                shared *= inner[loop]
            elif step * access.size_bytes < tables.line_bytes:
                part = inner[loop] * step * access.size_bytes / tables.line_bytes
                is_whole = is_whole and part >= 1
                lines *= np.ceil(part)
            else:
                lines *= inner[loop]
        apart = np.int64(0) if vector < 0 else tables.step[access.step + vector]
        if apart > 1 and not packed:
            counts[LANES] += n_points / shared
        else:
            n_loads = n_points / shared / (lanes if apart else 1.0)
            counts[LOADS] += n_loads
            is_along = vector >= 0 and access.along == vector
            if is_along and not packed and not domains[access.prefetch] & _NO_PREFETCH:
                counts[LOADS] += n_loads  # each prefetches the line of a later one
        if innermost >= 0 and not packed:
            along = tables.step[access.step + innermost // 2] * access.size_bytes
            along *= np.int64(inner[innermost // 2])
            along *= np.int64(trips[innermost + 1]) if innermost % 2 == _OUTER else 1
            if along >= tables.line_bytes:
                # Lines that a tile uses in part are entered again by a later run of the innermost loop.
                n_bytes = lines * trips[innermost] * tables.line_bytes
                if is_whole:
                    n_bytes = float(access.array_bytes)
                level = _level(tables, n_bytes)
                if along >= PAGE_BYTES and trips[innermost] > _PAGES_AT_HAND:
                    counts[PAGES] += tiles * lines
                counts[LINES] += tiles * lines * tables.line_loads[level]


@jit_flat_internal
def _count_folds(
    tables: InstructionTables, domains: Mask, row: Int, vector: Int, n_runs: float, inner: Floats
) -> float:
    """Returns the vectors of sums that a task folds, one for each of its sums behind each of `n_runs`."""
    first, sums = tables.work[row].loop, 1.0
    if vector < 0 or not tables.loop[first + vector].is_reduced:
        return 0.0
    for k in range(tables.work[row].loop_end - first):
        reduction = tables.loop[first + k].reduction
        is_free = not tables.loop[first + k].is_reduced
        if is_free or (k != vector and reduction >= 0 and domains[reduction] == _LANES):
            sums *= inner[k]
    return float(sums * n_runs)


@jit_flat_internal
def _count_copies(
    tables: InstructionTables, domains: Mask, row: Int, trips: Floats, counts: Floats
) -> None:
    """Adds the elements of packed operands, again in each trip of the loops around their blocks."""
    n = 2 * (tables.work[row].loop_end - tables.work[row].loop)
    for k in range(tables.work[row].pack, tables.work[row].pack_end):
        if domains[tables.pack[k].staged] & _DIRECT:
            continue
        times = 1.0
        for d in range(n):
            if tables.pack[k].loops >> (d // 2) & 1 or trips[d] <= 1:
                continue
            is_around = False
            for own in range(0, n, 2):
                if tables.pack[k].loops >> (own // 2) & 1 and (trips[own] > 1 or d % 2 == _OUTER):
                    is_around = is_around or _is_outside(tables, domains, row, d, own)
            times *= trips[d] if is_around else 1.0
        counts[COPIES] += tables.pack[k].elements * times * tables.work[row].runs


@jit_flat
def streamed_bytes(tables: InstructionTables, domains: Mask) -> float:
    """Returns the bytes that surely go around the caches."""
    total = 0.0
    for k in range(tables.stream.shape[0]):
        if domains[tables.stream[k].cache] == _STREAM:
            total += tables.stream[k].n_bytes
    return total


@jit_flat
def streamed_bytes_read(tables: InstructionTables, domains: Mask) -> float:
    """Returns the bytes that go around the caches and are read again from memory."""
    total = 0.0
    for k in range(tables.again.shape[0]):
        space = tables.again[k].mem_space
        is_far = space < 0 or domains[space] == _GLOBAL
        if is_far and domains[tables.again[k].cache] == _STREAM:
            total += tables.again[k].n_bytes
    return total


@jit_flat
def count_instructions(
    tables: InstructionTables,
    domains: Mask,
    parallel: Ints,
    cores: float,
    trips: Floats,
    inner: Floats,
    counts: Floats,
    total: Floats,
) -> None:
    """Fills `total` ([len(KINDS)]) with the instructions of the busiest core in a call.

    `parallel`: [n_tasks], see `overlap.threads`. `trips`, `inner` and `counts` are scratch space.
    """
    for kind in range(total.size):
        total[kind] = 0.0
    for row in range(tables.work.shape[0]):
        for kind in range(counts.size):
            counts[kind] = 0.0
        vector = _count_sizes(tables, domains, row, trips, inner)
        innermost, run = _run(tables, domains, row, trips)
        tiles = tables.work[row].runs
        for k in range(tables.work[row].loop_end - tables.work[row].loop):
            tiles *= np.ceil(tables.loop[tables.work[row].loop + k].extent / inner[k])
        _count_accesses(tables, domains, row, vector, innermost, tiles, trips, inner, counts)
        counts[FOLDS] = _count_folds(tables, domains, row, vector, tiles / run, inner)
        _count_copies(tables, domains, row, trips, counts)
        shared = cores if parallel[tables.work[row].task] & MAYBE else 1.0
        for kind in range(total.size):
            total[kind] += counts[kind] / shared
