"""Cost of strided vector loads: one load for each lane, where the lanes lie in different lines.

Where a loop is surely in vectors, a read with large strides along it takes a load for each lane: no wider load covers two of them,
and a core starts only so many in a cycle. A value is loaded once for all register copies that share it, and outside of the
innermost loops that do not change it. So each loop is assumed to be innermost in turn: the reads that depend on it are repeated in
each of its iterations. The loop that needs the fewest loads gives the bound.

Values that a compiler may find in another read's registers do not count. These are arrays that a task reads in two places, or
writes, and arrays of tasks whose loops may be fused with its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...kernels.analysis.domain_bounds import points
from ...kernels.analysis.effects import arrays_read, arrays_written, task_reads
from ...kernels.ir.access import Access, access_of, flat_strides
from ...space.backbone import INNER, MID
from ...space.candidate import Space
from .columns import Universes, table
from .traffic import sure_loads


@dataclass(frozen=True)
class _Read:
    """A read of a task that needs a load for each lane."""

    access: Access
    staged: int  # variable of its staging; -1: not staged
    loops: frozenset[str]  # that it depends on


def element_loads(space: Space, universe: Universes) -> dict[str, Any]:
    """The tables of `BoundTables` for such loads; empty where the load rate is unknown."""
    groups: list[tuple[int, ...]] = []
    rows: list[tuple[float, ...]] = []
    spared: list[tuple[int, ...]] = []
    v, rate = space.variables, space.target.loads_per_ns
    for t, task in enumerate(space.problem.tasks) if rate else ():
        n_points = points(task)
        for vector in task.loops:
            kind = v.kind[space.backbone.dim(t, vector.name, INNER)]
            reads = list(_far_apart(space, t, vector.name))
            for innermost in task.loops:
                first = len(rows)
                for read in (r for r in reads if innermost.name in r.loops):
                    begin = len(spared)
                    for loop in (x for x in task.loops if x.name not in read.loops):
                        parts = [space.backbone.dim(t, loop.name, k) for k in (MID, INNER)]
                        sizes = [x for d in parts for x in (v.size[d], universe.at(d))]
                        spared.append((*sizes, loop.extent))
                    rows.append((read.staged, begin, len(spared), n_points / rate))
                groups.append((t, kind, first, len(rows)))
    return {
        "load_group": table(groups, "task kind first end"),
        "load": table(rows, "staged first end", "ns"),
        "load_spared": table(spared, "mid_size mid_at inner_size inner_at extent"),
    }


def _far_apart(space: Space, t: int, vector: str) -> Iterator[_Read]:
    """Yields, once each, the reads of a task whose neighbours along a loop no single load covers."""
    task, v, tasks = space.problem.tasks[t], space.variables, space.problem.tasks
    if not task.is_structured or task.is_guarded:
        return
    # A value from another task may lie in a buffer of another layout.
    doubtful = {f.array for f in v.mem_space if f.consumer == t} | set(arrays_written(task))
    for m in space.backbone.merges:
        if t in (m.a, m.b):
            doubtful |= set(arrays_read(tasks[m.a])) & set(arrays_read(tasks[m.b]))
    places = [a.array for a in dict.fromkeys(a for a, _ in task_reads(task))]
    for access in dict.fromkeys(access_of(x) for x in sure_loads(task.value)):
        array = space.problem.array(access.array)
        apart = abs(flat_strides(access, array).get(vector, 0)) * array.dtype.size_bytes
        if apart < space.target.vector_bytes or access.array in doubtful:
            continue
        if places.count(access.array) > 1 or any(a and len(a.terms) > 1 for a in access.axes):
            continue
        own = {loop.name for loop in task.loops}
        loops = frozenset(n for axis in access.axes if axis for n, _ in axis.terms if n in own)
        yield _Read(access, _staged(space, t, access), loops)


def _staged(space: Space, t: int, access: Access) -> int:
    staged = space.variables.staged.items()
    return next((var for o, var in staged if o.task == t and o.holds(access)), -1)
