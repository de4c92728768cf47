"""Problem passes: decisions about sparse fields, each a function from a problem to a problem, before anything is planned.

Loops on sparse fields are lowered by the decisions about their lists, activations and staged fields. Lookup structures and layouts
of parts of trees add tasks that make or convert them: `Problem.entering` and `Problem.leaving`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...kernels.analysis.accesses import analyse
from ...kernels.ir.on_trees import EACH, making
from ...kernels.ir.task import Problem, Task
from ...kernels.sparse.hash_index import keyed
from ...kernels.sparse.leaf_layout import laid_out
from ...kernels.sparse.list_records import with_places
from ...kernels.sparse.slot_table import tabled
from ...kernels.tasks.variants import in_each, staged
from ...space.catalogue import KINDS
from ...space.draft import TreePart
from ...space.families.cell_order import order_of
from ...space.families.directory import DIRECTORY, HASH, TABLE
from ...space.families.leaf_layout import tile_of
from ...space.families.leaf_tiles import IN_TILE, LEAF_ROWS
from ...space.families.record import CELL, RECORD
from ...space.targets.target import Target


@dataclass(frozen=True)
class Decided:
    """Decisions of a plan: names of values, by kind and site. `target`: the machine."""

    choices: Mapping[str, Mapping[Any, str]]
    target: Target

    def of_trees(self, kind: str) -> dict[str, str]:
        """The parts of trees that differ from the program in a choice, by name, each with the name of its value."""
        sites = self.choices.get(kind, {}).items()
        return {site.name: value for site, value in sites if isinstance(site, TreePart)}

    @property
    def at_once(self) -> int:
        """Items that one iteration of a conversion has."""
        return KINDS[self.target.kind].converted_at_once


ProblemPass = Callable[[Problem, Decided], Problem]


def lowered(problem: Problem, decided: Decided) -> Problem:
    """Returns the problem with the decided body of each task."""
    tasks = (_lowered(problem, task, t, decided) for t, task in enumerate(problem.tasks))
    return replace(problem, tasks=tuple(tasks))


def _lowered(problem: Problem, task: Task, t: int, decided: Decided) -> Task:
    body, choices = task.body, decided.choices
    if body is None:
        return task
    if body.trees.lists:
        ways = [choices["listgen"][t, x.name] for x in body.trees.lists]
        made = making(body.statements, ways)
        if made == body.statements:
            return task
        other = analyse(made, task.scope, body.reason)
        return replace(task, body=replace(other, trees=body.trees))
    if body.trees.way and choices["activate"][t] == EACH:
        return replace(task, body=in_each(problem, task) or body)
    places, in_tile = choices.get("staged", {}), LEAF_ROWS[IN_TILE]
    names = [x.name for x in body.trees.tiles if places.get((t, x.name)) == in_tile]
    return replace(task, body=staged(problem, task, names)) if names else task


def directories(problem: Problem, decided: Decided) -> Problem:
    """Returns the problem with hash directories beside the decided tables."""
    how = decided.of_trees("directory")
    found = [x for x in problem.parts.tables if not x.keys and how.get(x.name) == DIRECTORY[HASH]]
    return keyed(problem, found) if found else problem


def slot_tables(problem: Problem, decided: Decided) -> Problem:
    """Returns the problem with slot tables beside the decided hash nodes."""
    how = decided.of_trees("directory")
    found = [x for x in problem.parts.tables if x.keys and how.get(x.name) == DIRECTORY[TABLE]]
    return tabled(problem, found, decided.at_once) if found else problem


def leaf_layouts(problem: Problem, decided: Decided) -> Problem:
    """Returns the problem with leaves in the decided tiles, and with their cells in the decided orders."""
    how, in_order = decided.of_trees("leaf_layout"), decided.of_trees("cell_order")
    target, leaves = decided.target, problem.parts.leaves
    n_lanes = KINDS[target.kind].threads_at_once
    tiles = {x: tile_of(how.get(x.name, ""), x, target, n_lanes) for x in leaves}
    every = ((x, order_of(in_order.get(x.name, ""), x)) for x in leaves)
    orders = {x: order for x, order in every if order is not None}
    tiles = {x: tile for x, tile in tiles.items() if tile or x in orders}
    return laid_out(problem, tiles, orders, decided.at_once) if tiles else problem


def records(problem: Problem, decided: Decided) -> Problem:
    """Returns the problem with places of cells in the decided lists."""
    how = decided.of_trees("record")
    found = [x for x in problem.parts.lists if how.get(x.name) == RECORD[CELL]]
    return with_places(problem, found, decided.at_once) if found else problem


PASSES: tuple[ProblemPass, ...] = (lowered, directories, slot_tables, leaf_layouts, records)


def decided_problem(problem: Problem, decided: Decided) -> Problem:
    """Returns the problem after all passes."""
    for one in PASSES:
        problem = one(problem, decided)
    return problem
