"""Tiles: bytes that the iterations of a loop surely bring into a cache too small for one iteration's data.

One iteration of a loop (a segment) touches some bytes. At most as many as a cache holds are in it
when the segment begins. So all others cross into the cache, for any replacement policy (a
pigeonhole argument). Each loop of a task divides the execution into segments; the loop that moves
most bytes gives the bound.

With T tiles of each loop outside a segment, all segments together touch, of each array, its
elements times the tiles of the loops that it does not depend on. If elements are contiguous along a
loop, each of its tiles touches at least one line of a row. Of that, every segment may find as much
as the cache holds. So the bytes are a sum of products of different T, and are least if each T is
least or greatest.

A segment that packs a block first has two parts: one reads the block where it lies, the other reads the copy and all else. The
argument holds for each of them, so that both count, less what the cache holds at two moments.

Segments are private to a thread if it shares the segment's loop, or a loop around it, with others;
then it has its own part of the private caches. In caches that all threads share one of them may
find elements that another has brought in, except elements that belong to one thread.

Hardware threads of a core share its caches. All bytes that come into them while one thread runs its segments count, whichever
thread asks for them. So of T threads at least the mean counts: a T-th of what the segments of all together bring in. Elements that
belong to one thread count in full.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd, prod
from typing import Any

import numpy as np

from ...kernels.analysis.domain_bounds import cuts_of
from ...kernels.ir.access import Access, flat_strides
from ...kernels.ir.domain import Loop
from ...kernels.ir.task import Task
from ...space.backbone import INNER, MID, OUTER
from ...space.candidate import Space
from .columns import Universes, table
from .ports import is_plain, orders_to_producers, staged_at, sure_reads
from .sets import lines_in_sets


def tile_tables(space: Space, universe: Universes) -> dict[str, Any]:
    """Returns the tables of `BoundTables` for tiles: a row for each task, with its loops, arrays and segments."""
    tasks: list[tuple[float, ...]] = []
    loops: list[tuple[int, ...]] = []
    arrays: list[tuple[float, ...]] = []
    sources: list[tuple[int]] = []
    segments: list[tuple[int, ...]] = []
    orders: list[tuple[int, ...]] = []
    v, b = space.variables, space.backbone
    for t, task in enumerate(space.problem.tasks):
        if not _is_regular(space, t):
            continue
        starts = len(loops), len(arrays), len(segments)
        for loop in task.loops:
            outer, mid, inner = (b.dim(t, loop.name, k) for k in (OUTER, MID, INNER))
            sizes = (v.size[mid], universe.at(mid), v.size[inner], universe.at(inner))
            loops.append((loop.extent, int(loop.is_reduction), v.kind[outer], *sizes))
        arrays += _touched(space, t, sources)
        for k, loop in enumerate(task.loops):
            for level in (OUTER, MID):
                d = b.dim(t, loop.name, level)
                segments.append((k, level, len(orders)))
                for other in task.loops:
                    dims = (b.dim(t, other.name, x) for x in (OUTER, MID))
                    orders.append(
                        tuple(
                            -1 if other is loop else space.model.order(x.order_id, d.order_id)
                            for x in dims
                        )
                    )
        ends = (starts[0], len(loops), starts[1], len(arrays), starts[2], len(segments))
        tasks.append((t, v.store.get(t, -1), *ends, *_product_of(space, t)))
    most = max((len(t.loops) for t in space.problem.tasks), default=0)
    return {
        "tiled": table(
            tasks,
            "task store loop loop_end array array_end segment segment_end",
            "points results element_bytes",
        ),
        "tiled_loop": table(loops, "extent is_reduced kind mid_size mid_at inner_size inner_at"),
        "tiled_array": table(
            arrays,
            "staged packed_by has_blocks space source source_end is_result depends along times line_times set_times",
            "all_bytes line_bytes set_bytes set_held",
        ),
        "tiled_source": table(sources, "order"),
        "segment": table(segments, "loop level first"),
        "segment_order": table(orders, "outer mid"),
        "most_loops": max(most, 1),
    }


def _product_of(space: Space, t: int) -> tuple[float, float, float]:
    """Returns (multiplications, results, bytes per element) if a task is a product of two matrices; else zeros."""
    task = space.problem.tasks[t]
    loops = {loop.name: loop for loop in task.loops if loop.extent > 1}
    reads = [a for a in sure_reads(task) if is_plain(a)]
    is_made = any(f.consumer == t for f in space.variables.mem_space)
    if not task.is_reduction or len(reads) != 2 or is_made or not is_plain(task.target):
        return 0.0, 0.0, 0.0
    accesses = (*reads, task.target)
    moved = [frozenset(n for n in _along(task, a) if n in loops) for a in accesses]
    is_product = len(loops) == 3 and len(set(moved)) == 3 and all(len(x) == 2 for x in moved)
    if not is_product or any(loops[name].is_reduction for name in moved[-1]):
        return 0.0, 0.0, 0.0
    sizes = (space.problem.array(a.array).dtype.size_bytes for a in accesses)
    n_results = prod(loops[name].extent for name in moved[-1])
    points = prod(loop.extent for loop in loops.values())
    return float(points), float(n_results), float(min(*sizes, task.dtype.size_bytes))


def _is_regular(space: Space, t: int) -> bool:
    """True if each iteration of a task surely makes the same accesses, in the order of its loops."""
    task, v = space.problem.tasks[t], space.variables
    is_in_order = t not in v.waves and t not in v.of_tasks["compaction"]
    is_plain_task = task.is_structured and not task.is_guarded and task.value is not None
    return is_in_order and is_plain_task and not cuts_of(task)


def _touched(space: Space, t: int, sources: list[tuple[int]]) -> Iterator[tuple[float, ...]]:
    """Yields a row for each array that a task surely reads, and for results that it adds to.

    Adds to `sources` the orders of loops that, if merged, may write the array in the segment that
    reads it; such an array brings no bytes into the cache.
    """
    task, v = space.problem.tasks[t], space.variables
    for access in (a for a in sure_reads(task) if is_plain(a)):
        spaces = [
            var for f, var in v.mem_space.items() if (f.consumer, f.array) == (t, access.array)
        ]
        if len(spaces) <= 1:
            first = len(sources)
            sources += [(order,) for order in orders_to_producers(space, t, access.array)]
            staged, has_blocks = staged_at(space, t, access), _has_blocks(space, t, access)
            packed_by = next(
                (var for o, var in v.packed_by.items() if o.task == t and o.holds(access)), -1
            )
            space_of = spaces[0] if spaces else -1
            where = (staged, packed_by, has_blocks, space_of, first, len(sources))
            yield (*where, *_row(space, task, access, is_staged=staged >= 0))
    target = task.target
    free = {loop.name for loop in task.loops if not loop.is_reduction and loop.extent > 1}
    if task.is_reduction and is_plain(target) and free <= set(_along(task, target)):
        yield (-1, -1, 0, -1, 0, 0, *_row(space, task, target, is_result=True))


def _has_blocks(space: Space, t: int, access: Access) -> int:
    """Returns 1 if blocks of a read may be packed, without a border (no window)."""
    staged = space.variables.staged
    return int(any(o.task == t and o.holds(access) and not o.is_window for o in staged))


def _row(
    space: Space, task: Task, access: Access, *, is_staged: bool = False, is_result: bool = False
) -> tuple[float, ...]:
    """Returns the columns of a row for an array, from column `is_result` on."""
    array, line = space.problem.array(access.array), space.target.line_bytes
    steps = {n: abs(k) * array.dtype.size_bytes for n, k in flat_strides(access, array).items()}
    own = _along(task, access)
    place = {loop.name: k for k, loop in enumerate(task.loops)}
    n_elements = float(np.prod([loop.extent for loop in own.values()]))
    size = array.dtype.size_bytes
    if is_result:  # sums may be of a type of their own
        size = min(size, task.dtype.size_bytes)
    # Distinct elements are multiples of that apart: no two of them share a line.
    are_apart = bool(own) and gcd(*(steps[n] for n in own)) >= line
    element_bytes = line if are_apart and not is_result else size
    near = [n for n in own if steps[n] == array.dtype.size_bytes and own[n].extent * size > line]
    has_lines = len(near) == 1 and not is_result
    has_lines = has_lines and all(steps[n] >= line for n in own if n != near[0])
    depends = sum(1 << place[n] for n in own)
    times = (1 << len(task.loops)) - 1 - depends
    along = place[near[0]] if has_lines else -1
    apart = lines_in_sets(space.target, {n: (steps[n], own[n].extent) for n in own})
    in_sets = sum(1 << place[n] for n in apart.loops)
    return (
        *(int(is_result), depends, along),
        *(times, times | 1 << along if has_lines else 0),
        (1 << len(task.loops)) - 1 - in_sets,
        n_elements * (size if is_staged else element_bytes),
        n_elements / own[near[0]].extent * line if has_lines else 0.0,
        *((0.0, 0.0) if is_result else (apart.n_bytes, apart.held_bytes)),
    )


def _along(task: Task, access: Access) -> dict[str, Loop]:
    """Returns the loops of a task whose index occurs in an access, by name."""
    named = {name for axis in access.axes if axis is not None for name, _ in axis.terms}
    return {loop.name: loop for loop in task.loops if loop.name in named}
