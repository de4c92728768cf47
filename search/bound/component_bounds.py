"""Bounds of the components of a space, each by itself: a decision changes one of them, and only that is bounded again."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...space.candidate import Candidate
from ...space.components import components_of
from . import cpu as ct
from .bounder import Bounder
from .columns import Floats, Ints, Table
from .tables import BoundTables

Mask = npt.NDArray[np.uint32]

# Columns that number tasks, by the tables whose rows belong to one task, or to tasks of one component.
_OF_TASKS = {
    **dict.fromkeys(("outer", "vector", "wave", "chain", "port_group", "tiled"), ("task",)),
    **dict.fromkeys(("merge", "pair"), ("a", "b")),
    "atomic": ("task",),
    "barrier": ("reader",),
}


class ComponentBounder:
    """Lower bounds of each component of a space on a CPU, in ns, without the call. Not thread-safe.

    What a component's tasks surely take from the begin of the first to the end of the last, with full caches before. Where no part
    of one component runs beside another, their bounds add up.
    """

    def __init__(self, bounder: Bounder) -> None:
        assert bounder.gpu is None, "launches of a GPU follow one another"
        space, self._n_terms = bounder.space, len(bounder.names)
        self.components = components_of(space)
        self._owner = np.zeros(space.n_choices, np.int64)
        for k, c in enumerate(self.components):
            self._owner[list(c.choices)] = k
        self._tables = [tables_of_tasks(bounder.tables, c.tasks) for c in self.components]
        most = max(self._tables, key=lambda t: t.after.shape[0])
        self._scratch = [ct.make_scratch(t, self._n_terms) for t in self._tables]
        self._phase = np.zeros(most.after.shape[0], np.int64)
        self._terms = np.zeros(self._n_terms)
        self._domains: Mask | None = None
        self._each = np.zeros(len(self.components))

    def ns(self, k: int, candidate: Candidate | Mask) -> float:
        """Returns the bound of component `k`."""
        domains = candidate.domains if isinstance(candidate, Candidate) else candidate
        phase = self._phase[: self._tables[k].after.shape[0]]
        found = ct.lower_bound(self._tables[k], self._scratch[k], domains, phase, self._terms)
        return float(found)

    def each(self, candidate: Candidate | Mask) -> Floats:
        """Returns [n_components] the bounds of all. Only those are computed whose domains differ from the last call's."""
        domains = candidate.domains if isinstance(candidate, Candidate) else candidate
        if self._domains is None:
            changed: Any = range(len(self.components))
        else:
            changed = np.unique(self._owner[np.flatnonzero(domains != self._domains)])
        for k in changed:
            self._each[k] = self.ns(int(k), domains)
        self._domains = domains.copy()
        return self._each.copy()


def tables_of_tasks(tables: BoundTables, tasks: range) -> BoundTables:
    """Returns the tables of a run of tasks that share no choice with others, as if there were no others and no call."""
    own = slice(tasks.start, tasks.stop)
    rows = {name: _of(getattr(tables, name), columns, tasks) for name, columns in _OF_TASKS.items()}
    return tables._replace(
        **rows | _ports(tables, rows["port_group"]) | _touches(tables, tasks),
        call_ns=0.0,
        after=np.ascontiguousarray(tables.after[own, own]),
        runs=tables.runs[own].copy(),
        step=np.maximum(tables.step[own] - tasks.start, 0),
        task=tables.task[own].copy(),
        converted=tables.converted[:0],  # layouts belong to no component
    )


def _of(rows: Table, columns: tuple[str, ...], tasks: range) -> Table:
    """The rows of these tasks, with the first one as number 0."""
    found = rows[(rows[columns[0]] >= tasks.start) & (rows[columns[0]] < tasks.stop)].copy()
    for name in columns:
        found[name] -= tasks.start
    return found


def _ports(tables: BoundTables, groups: Table) -> dict[str, Table]:
    """The tables of loads and stores, which follow one another as their groups do."""
    first, end = _span(groups["loop"], groups["loop"] + 1)
    loops = tables.port_loop[first:end].copy()
    others = _cut(tables.port_other, groups, "other", "other_end")
    rows = _cut(tables.port, groups, "first", "end")
    spared = _cut(tables.port_spared, rows, "first", "end")
    sources = _cut(tables.port_source, rows, "source", "source_end")
    for part in (groups, others, spared):
        part["loop"] -= first
    return {
        "port_loop": loops,
        "port_group": groups,
        "port_other": others,
        "port": rows,
        "port_spared": spared,
        "port_source": sources,
    }


def _cut(part: Table, rows: Table, first: str, end: str) -> Table:
    """Returns what `rows` refer to by the numbers in two columns, and changes these to numbers in it."""
    begin, stop = _span(rows[first], rows[end])
    rows[first] -= begin
    rows[end] -= begin
    return part[begin:stop].copy()


def _span(first: Ints, end: Ints) -> tuple[int, int]:
    is_used = first < end
    if not is_used.any():
        return 0, 0
    return int(first[is_used].min()), int(end[is_used].max())


def _touches(tables: BoundTables, tasks: range) -> dict[str, Any]:
    """The accesses of these tasks by array, without arrays that they do not touch."""
    touch, chosen, starts, passes = tables.touch, list[int](), [0], list[int]()
    for array in range(tables.touch_start.size - 1):
        every = range(tables.touch_start[array], tables.touch_start[array + 1])
        mine = [k for k in every if touch[k]["task"] in tasks]
        if mine:
            chosen += mine
            starts.append(len(chosen))
            passes.append(int(tables.passes[array]))
    found, flow = touch[chosen].copy(), tables.flow.copy()
    found["task"] -= tasks.start
    flow["producer"] -= tasks.start
    # What comes from another component is in memory whoever made it.
    flow["producer"][(flow["producer"] < 0) | (flow["producer"] >= len(tasks))] = 0
    return {
        "touch": found,
        "touch_start": np.array(starts, np.int64),
        "flow": flow,
        "passes": np.array(passes, np.int64),
    }
