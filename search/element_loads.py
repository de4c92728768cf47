"""Loads of one element each: what a vector takes whose lanes lie in lines of their own.

Where a loop is surely in vectors, a read that is far apart along it takes a load for each lane: no wider load covers two of
them, and a core starts only so many in a cycle. A value is loaded once for all copies of a register tile that share it, and
outside of the innermost loops that do not change it. So each loop is taken for the innermost one: the reads that depend on it
are made anew in each of its iterations, and the loop that needs the fewest loads gives the bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..kernels.accesses import access_of, flat_strides
from ..kernels.ir import Expr, Load, Select
from ..kernels.tasks import Access
from ..space.backbone import INNER, MID
from ..space.candidate import Space
from .operations import operands
from .universes import Universes, int_rows


@dataclass(frozen=True)
class _Read:
    """A read of a task that takes a load for each lane."""

    access: Access
    staged: int  # variable of where it is read; -1: from where it lies
    loops: frozenset[str]  # that it depends on


def element_loads(space: Space, universe: Universes) -> dict[str, Any]:
    """The tables of `BoundTables` on such loads; empty ones where nothing is known of the rate."""
    groups: list[tuple[int, ...]] = []
    rows: list[tuple[int, ...]] = []
    spared: list[tuple[int, ...]] = []
    ns: list[float] = []
    v, rate = space.variables, space.target.loads_per_ns
    for t, task in enumerate(space.problem.tasks) if rate else ():
        points = prod(loop.extent for loop in task.loops)
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
                    rows.append((read.staged, begin, len(spared)))
                    ns.append(points / rate)
                groups.append((t, kind, first, len(rows)))
    return {
        "load_group": int_rows(groups, 4),
        "load": int_rows(rows, 3),
        "load_ns": np.array(ns, np.float64),
        "load_spared": int_rows(spared, 5),
    }


def _far_apart(space: Space, t: int, vector: str) -> Iterator[_Read]:
    """Reads of a task whose neighbours along a loop no load covers together, each once."""
    task, v = space.problem.tasks[t], space.variables
    if task.opaque is not None or task.value is None:
        return
    flows = {(f.consumer, f.array) for f in v.mem_space}
    for access in dict.fromkeys(_surely_read(task.value)):
        array = space.problem.array(access.array)
        apart = abs(flat_strides(access, array).get(vector, 0)) * array.dtype.size_bytes
        # A value that another task hands over may lie in a buffer of another layout.
        if apart < space.target.vector_bytes or (t, access.array) in flows:
            continue
        loops = frozenset(name for axis in access.axes if axis for name, _ in axis.terms)
        yield _Read(access, _staged(space, t, access), loops)


def _staged(space: Space, t: int, access: Access) -> int:
    found = [var for o, var in space.variables.staged.items() if (o.task, o.access) == (t, access)]
    return found[0] if found else -1


def _surely_read(e: Expr) -> Iterator[Access]:
    """Reads that are made whatever the values are."""
    match e:
        case Load():
            yield access_of(e)
        case Select():
            yield from _surely_read(e.condition)
        case _:
            for x in operands(e):
                yield from _surely_read(x)
