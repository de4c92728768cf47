"""Tables of pointer nodes in which a sequence looks cells up: those that a directory may stand beside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..ir.effects import arrays_written
from ..ir.kernel import Load, Stmt, While
from ..ir.task import ArrayInfo, Problem, Table, Task
from ..ir.walk import children, nested_statements, walk
from .leaves import kept_in
from .recorded import UsedTree


def tables_of(
    trees: Iterable[UsedTree], arrays: Sequence[ArrayInfo], tasks: Sequence[Task]
) -> tuple[Table, ...]:
    """The tables that a loop reads, other than to make a list, and that tasks write in statements of bodies alone."""
    problem = Problem("", tuple(arrays), (), tuple(tasks), "")
    known = {a.name for a in arrays}
    read = {x for t in tasks for x in _looked_up(t)}
    written = {name for t in tasks for name in arrays_written(t)}
    fixed = {x for t in tasks for x in kept_in(t, problem) if x in arrays_written(t)}
    found = []
    for used in trees:
        for n, node in enumerate(used.tree.nodes):
            array = used.arrays.get(f"table{n}", "")
            is_pointer = node.has.pool and not (node.has.directory or node.has.length)
            if is_pointer and array in known and array in read - fixed:
                found.append(Table(f"{used.tree.name}.{n}", array, array in written))
    return tuple(found)


def _looked_up(task: Task) -> set[str]:
    """Arrays that the loop of a task reads where a look-up can be put before."""
    if task.body is None or task.body.trees.lists:
        return set()
    every: list[Stmt] = list(nested_statements(task.body.statements))
    parts = (e for s in every if not isinstance(s, While) for x in children(s) for e in walk(x))
    return {e.array for e in parts if isinstance(e, Load)}
