"""Lines: a read of neighbours along a loop fetches whole lines again where too much lies between two of its iterations.

One iteration of a loop touches some lines of an array, of which the next iteration needs the same. At most as many as a cache holds
are there when that begins. So all others cross into the cache in each iteration, whatever it replaces (a pigeonhole argument, no
assumption on its policy). Distinct rows are distinct lines. Loops that are surely inside count with their whole extent, others with
the least tile that is open.

Where threads share out the loop itself, each has its own lines, and its own share of the caches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...kernels.analysis.domain_bounds import cuts_of
from ...kernels.ir.access import flat_strides
from ...space import choices as ch
from ...space.backbone import INNER, MID, OUTER
from ...space.candidate import Space
from ...space.engine.jit import jit_flat_internal
from .columns import Floats, Ints, Table, Universes, table
from .ports import is_plain, staged_at, sure_reads

Int = int | np.int64
Mask = npt.NDArray[np.uint32]

_PARALLEL = 1 << ch.PARALLEL
_DIRECT = 1 << ch.DIRECT
_GLOBAL = 1 << ch.GLOBAL
_INSIDE = 1 << ch.INSIDE


def line_tables(space: Space, universe: Universes) -> dict[str, Any]:
    """The tables of `BoundTables` for lines: a row for each read and the loop along which its elements are neighbours."""
    rows: list[tuple[float, ...]] = []
    others: list[tuple[int, ...]] = []
    v, line = space.variables, space.target.line_bytes
    for t, task in enumerate(space.problem.tasks):
        if not task.is_structured or task.is_guarded or task.value is None or cuts_of(task):
            continue
        loops = {loop.name: loop for loop in task.loops}
        for access in (a for a in sure_reads(task) if is_plain(a)):
            array = space.problem.array(access.array)
            size, strides = array.dtype.size_bytes, flat_strides(access, array)
            along = next(
                (name for name, k in strides.items() if abs(k) == 1 and name in loops), None
            )
            names = [name for name in strides if name in loops and name != along]
            if along is None or any(abs(strides[name]) * size < line for name in names):
                continue
            sources = [
                var for f, var in v.mem_space.items() if (f.consumer, f.array) == (t, array.name)
            ]
            if len(sources) > 1 or loops[along].extent * size <= line:
                continue
            outer, mid, inner = (space.backbone.dim(t, along, k) for k in (OUTER, MID, INNER))
            first, n_rows = len(others), 1.0
            for name in names:
                o, m, i = (space.backbone.dim(t, name, k) for k in (OUTER, MID, INNER))
                orders = (
                    space.model.order(x.order_id, d.order_id) for d in (outer, mid) for x in (o, m)
                )
                sizes = (v.size[m], universe.at(m), v.size[i], universe.at(i))
                others.append((loops[name].extent, *orders, *sizes))
                n_rows *= loops[name].extent
            rows.append(
                (
                    *(t, v.kind[outer], staged_at(space, t, access), sources[0] if sources else -1),
                    *(v.size[mid], universe.at(mid), v.size[inner], universe.at(inner)),
                    *(first, len(others)),
                    *(size, n_rows * loops[along].extent * line),
                )
            )
    return {
        "line": table(
            rows,
            "task kind staged space mid_size mid_at inner_size inner_at first end",
            "size_bytes all_bytes",
        ),
        "line_other": table(
            others,
            "extent outer_outer mid_outer outer_mid mid_mid mid_size mid_at inner_size inner_at",
        ),
    }


@jit_flat_internal
def _extreme(universe: Ints, at: Int, domain: Int, is_largest: bool) -> Int:
    found = 0
    k = 0
    while domain >> k:
        if domain >> k & 1:
            size = universe[at + k]
            if found == 0 or (size > found) == is_largest:
                found = size
        k += 1
    return max(1, found)


@jit_flat_internal
def _lines_inside(
    others: Table, universe: Ints, domains: Mask, first: Int, end: Int, is_mid: bool
) -> float:
    """The least number of lines that one iteration of the outer, or mid, dim of a row's loop touches."""
    n = 1.0
    for k in range(first, end):
        outer, mid = others[k].outer_outer, others[k].mid_outer
        if is_mid:
            outer, mid = others[k].outer_mid, others[k].mid_mid
        inside = _extreme(
            universe, others[k].inner_at, np.int64(domains[others[k].inner_size]), False
        )
        if domains[mid] == _INSIDE:
            inside *= _extreme(
                universe, others[k].mid_at, np.int64(domains[others[k].mid_size]), False
            )
        if domains[outer] == _INSIDE:
            inside = others[k].extent
        n *= min(inside, others[k].extent)
    return n


@jit_flat_internal
def crossing_bytes(
    rows: Table,
    others: Table,
    universe: Ints,
    domains: Mask,
    row: Int,
    line: float,
    is_alone: bool,
    cores: float,
    capacity: Floats,
    n_private: Int,
    crossing: Floats,
) -> None:
    """Raise `crossing` ([n_levels + 1]) to the bytes that a row brings into the caches inside each level."""
    staged, space = rows[row].staged, rows[row].space
    if (staged >= 0 and domains[staged] != _DIRECT) or (space >= 0 and domains[space] != _GLOBAL):
        return
    is_own = is_alone or domains[rows[row].kind] == _PARALLEL
    inner = _extreme(universe, rows[row].inner_at, np.int64(domains[rows[row].inner_size]), True)
    mid = _extreme(universe, rows[row].mid_at, np.int64(domains[rows[row].mid_size]), True)
    for is_mid in (False, True):
        step = inner if is_mid else inner * mid
        if step * rows[row].size_bytes >= line:
            continue
        touched = line * _lines_inside(
            others, universe, domains, rows[row].first, rows[row].end, is_mid
        )
        for k in range(1, capacity.size):
            held = capacity[k]
            if is_own:
                private = capacity[min(k, n_private)]
                held += private / cores - private
            if touched > held:
                n = rows[row].all_bytes / step * (1.0 - held / touched)
                crossing[k] = max(crossing[k], n)
