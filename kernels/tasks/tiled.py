"""Variants of tasks in which loops over the cells of leaves read fields out of tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..ir.task import Task
from .parts import TiledForm


def with_tiles(
    tasks: Sequence[Task], forms: Sequence[tuple[TiledForm, Sequence[Task]]], label: str
) -> list[Task]:
    """Returns the tasks of a call, each with its variants. `forms`: the call's tasks with some windows in tiles."""
    made = list(tasks)
    names: dict[tuple[int, str], str] = {}
    for form, _ in forms:
        for top, array, _ in form.windows:
            n = sum(a == array for t, a in names if t != top)
            names.setdefault((top, array), f"{label}.{array}" + (f"_{n + 1}" if n else ""))
    for k, task in enumerate(tasks):
        body = task.body
        if body is None or body.trees.way:
            continue
        found: dict[frozenset[str], tuple[TiledForm, Task]] = {}
        for form, others in forms:
            other = others[k] if len(others) == len(tasks) else task
            is_like = (other.loops, other.target) == (task.loops, task.target)
            if is_like and other.body is not None and other.body.statements != body.statements:
                found[frozenset(names[top, a] for top, a, _ in form.windows)] = form, other
        sites = {
            names[top, a]: replace(site, name=names[top, a])
            for form, _ in found.values()
            for top, a, site in form.windows
        }
        if len(found) != (1 << len(sites)) - 1:
            continue  # several loops are one task
        bodies = tuple((w, t.body) for w, (_, t) in found.items() if t.body is not None)
        trees = replace(body.trees, tiles=tuple(sites.values()), forms=bodies)
        made[k] = replace(task, body=replace(body, trees=trees))
    return made
