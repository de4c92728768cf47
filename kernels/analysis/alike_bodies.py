"""Alike bodies: tasks with the same statements on other arrays, for instance one task for each colour channel.

Fused into one body, such tasks share most of their values.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.kernel import Load, Stmt, Store, Update
from ..ir.task import Task
from ..ir.walk import Renaming, children, nested_statements, walk


def alike_bodies(tasks: Sequence[Task]) -> frozenset[tuple[int, int]]:
    """Returns pairs (t, u), t < u, of numbers of tasks whose bodies are equal up to names of arrays.

    At least one array has the same name at the same accesses of both bodies.
    """
    arrays = {
        t: arrays_in_order(task.body.statements)
        for t, task in enumerate(tasks)
        if task.body is not None
    }
    kinds: list[tuple[Stmt, ...]] = []
    members: list[list[int]] = []
    for t, names in arrays.items():
        body = tasks[t].body
        assert body is not None
        renaming = Renaming(arrays={name: f"{k}" for k, name in enumerate(names)})
        form = tuple(map(renaming.apply_stmt, body.statements))
        k = next((k for k, other in enumerate(kinds) if other == form), len(kinds))
        if k == len(kinds):
            kinds.append(form)
            members.append([])
        members[k].append(t)
    return frozenset(
        (t, u)
        for some in members
        for t in some
        for u in some
        if t < u and any(a == b for a, b in zip(arrays[t], arrays[u], strict=True))
    )


def arrays_in_order(body: tuple[Stmt, ...]) -> tuple[str, ...]:
    """Returns the names of the arrays that statements access, in order of their first access in the text."""
    found: dict[str, None] = {}
    for s in nested_statements(body):
        if isinstance(s, Store | Update):
            found.setdefault(s.array)
        found.update((x.array, None) for e in children(s) for x in walk(e) if isinstance(x, Load))
    return tuple(found)
