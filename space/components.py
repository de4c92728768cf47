"""Components of a space: independent subspaces, each with its tasks and the choices about them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ..kernels.ir.task import Task
from .backbone import Flow, Shift
from .candidate import Space
from .draft import LISTS

_NO_TABLES = ("universe", *LISTS)  # values of sizes; choices that are elsewhere, too


@dataclass(frozen=True)
class Component:
    """A run of tasks that choices connect, and the positions of these choices.

    No constraint spans two components, so each is an independent space.
    """

    tasks: range
    choices: tuple[int, ...]  # positions in the space, increasing; both orientations of an order


def components_of(space: Space) -> tuple[Component, ...]:
    """Returns the components in program order. Each choice of the space is in exactly one.

    A choice about a part of a tree is in the component of the first task that accesses the part.
    """
    runs = space.backbone.components
    component_of = [k for k, tasks in enumerate(runs) for _ in tasks]
    found: list[list[int]] = [[] for _ in runs]
    for position, owner in enumerate(space.model.arrays.owner):
        found[component_of[space.backbone.order_tasks[owner]]].append(position)
    for position, task in _other_choices(space):
        found[component_of[task]].append(position)
    return tuple(
        Component(tasks, tuple(sorted(chosen))) for tasks, chosen in zip(runs, found, strict=True)
    )


def component_name(tasks: Sequence[Task]) -> str:
    """Returns the name of the component that consists of `tasks`: the names of its first and its last task."""
    first, last = tasks[0].name, tasks[-1].name
    return first if first == last else f"{first} to {last}"


def coupling_of(space: Space) -> frozenset[int]:
    """Returns the positions of choices that concern all components: those about parts of sparse trees, and the splitting of calls.

    No constraint contains such a choice.
    """
    tables = space.variables.of_trees.values()
    return frozenset(position for table in tables for position in table.values())


def _other_choices(space: Space) -> Iterator[tuple[int, int]]:
    """Yields (position, one of its tasks) for each choice other than an order."""
    for field in fields(space.variables):
        found = getattr(space.variables, field.name)
        if field.name in _NO_TABLES:
            continue
        for by_object in found.values() if field.name.startswith("of_") else (found,):
            yield from ((position, _task_of(what)) for what, position in by_object.items())


def _task_of(what: Any) -> int:
    """Returns one task of a backbone object: the first of several, or the producer of a flow or shift."""
    match what:
        case int():
            return what
        case tuple():
            return _task_of(what[0])
        case Flow() | Shift():
            return what.producer
    task: int = what.task
    return task
