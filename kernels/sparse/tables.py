"""Candidates for auxiliary lookup structures: hash directories of pointer nodes, slot tables of hash nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..analysis.effects import arrays_written
from ..ir.arrays import ArrayInfo
from ..ir.kernel import Load, Stmt, While
from ..ir.task import Keys, Problem, Slots, SlotTable, Task
from ..ir.walk import children, nested_statements, walk
from .cells import looked_for
from .leaves import kept_in
from .recorded import UsedTree


def tables_of(
    trees: Iterable[UsedTree], arrays: Sequence[ArrayInfo], tasks: Sequence[Task]
) -> tuple[SlotTable, ...]:
    """Returns the tables of pointer nodes and hash nodes that may get an auxiliary lookup structure.

    A pointer node gets one if a loop reads its table other than to make a list, a hash node if tasks search for its keys. Tasks
    must write the table in statements of bodies alone.
    """
    problem = Problem("", tuple(arrays), (), tuple(tasks), "")
    known = {a.name: a for a in arrays}
    read = {x for t in tasks for x in _looked_up(t)}
    sought = {x for t in tasks for x in _sought(t)}
    written = {name for t in tasks for name in arrays_written(t)}
    fixed = {x for t in tasks for x in kept_in(t, problem) if x in arrays_written(t)}
    found = []
    for used in trees:
        for n, node in enumerate(used.tree.nodes):
            array = used.arrays.get(f"table{n}", "")
            if node.has.directory and array in known:
                keys = _keys(used, n, known, written)
                if keys is not None and keys.array in sought - fixed:
                    name = f"{used.tree.name}.{n}"
                    found.append(SlotTable(name, array, keys.array in written, keys))
            is_pointer = node.has.pool and not (node.has.directory or node.has.length)
            if is_pointer and array in known and array in read - fixed:
                found.append(SlotTable(f"{used.tree.name}.{n}", array, array in written))
    return tuple(found)


def _keys(used: UsedTree, n: int, known: Mapping[str, ArrayInfo], written: set[str]) -> Keys | None:
    """Returns the directory of a hash node; None if the sequence does not use its keys."""
    layout, of_tree = used.layout, used.arrays
    keys, at, counters = (of_tree.get(x, "") for x in (f"keys{n}", f"at{n}", "counters"))
    if keys not in known:
        return None
    n_cells = layout.containers[n] * layout.tree.nodes[n].entries
    if {at, counters} - known.keys():
        return Keys(keys, n_cells)
    return Keys(keys, n_cells, at, Slots(counters, n, 1, of_tree[f"table{n}"] in written))


def _sought(task: Task) -> set[str]:
    """Returns the arrays of keys in which a task searches for keys."""
    if task.body is None:
        return set()
    every = nested_statements(task.body.statements)
    parts = (e for s in every for x in children(s) for e in walk(x))
    return {x[0] for e in parts if (x := looked_for(e)) is not None}


def _looked_up(task: Task) -> set[str]:
    """Returns the arrays that the loop of a task reads in statements before which a lookup can be inserted."""
    if task.body is None or task.body.trees.lists:
        return set()
    every: list[Stmt] = list(nested_statements(task.body.statements))
    parts = (e for s in every if not isinstance(s, While) for x in children(s) for e in walk(x))
    return {e.array for e in parts if isinstance(e, Load)}
