"""Problem passes: apply decisions about bodies and sparse fields, each as a function from a problem to a problem.

They run before a plan is read. One body stores values that another body computes alike. Loops on sparse fields are lowered by the
decisions about their lists, activations and staged fields. Lookup structures and layouts of parts of trees add tasks that build or
convert them: `Problem.entering` and `Problem.leaving`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...kernels.analysis.accesses import analyse
from ...kernels.analysis.scatters import scatters
from ...kernels.ir.body import Body
from ...kernels.ir.kernel import Stmt
from ...kernels.ir.on_trees import EACH, making
from ...kernels.ir.per_object import per_object
from ...kernels.ir.task import Problem, Task
from ...kernels.sparse.hash_index import keyed
from ...kernels.sparse.leaf_layout import laid_out
from ...kernels.sparse.list_records import with_places
from ...kernels.sparse.slot_table import tabled
from ...kernels.tasks.batch_blocks import interleaved, names_in
from ...kernels.tasks.shared_values import materialised, shared_values
from ...kernels.tasks.standalone import nest_problem, with_loop_body
from ...kernels.tasks.variants import arrays_of_sums, in_each, staged, with_sums
from ...kernels.transforms.local_elements import in_locals
from ...space.catalogue import KINDS
from ...space.draft import SequencePart
from ...space.families.batch_layout import BATCH_LAYOUT, INTERLEAVED
from ...space.families.cell_order import order_of
from ...space.families.directory import DIRECTORY, HASH, TABLE
from ...space.families.leaf_layout import tile_of
from ...space.families.leaf_tiles import IN_TILE, LEAF_ROWS
from ...space.families.local_arrays import IN_REGISTERS, LOCAL_ARRAYS
from ...space.families.materialisation import MATERIALISED, STORED, place_of
from ...space.families.record import CELL, RECORD
from ...space.families.scatter import SCATTER, TILE
from ...space.targets.target import Target
from . import nest_facts


@dataclass(frozen=True)
class Decided:
    """Decisions, as names of values by kind and site. `target`: the machine.

    `tasks`: the tasks whose decisions are known; None: all.
    """

    choices: Mapping[str, Mapping[Any, str]]
    target: Target
    tasks: range | None = None

    def of_trees(self, kind: str) -> dict[str, str]:
        """Returns the decided value of each part of a sparse tree with a choice of this kind, by the part's name."""
        sites = self.choices.get(kind, {}).items()
        return {site.name: value for site, value in sites if isinstance(site, SequencePart)}

    @property
    def at_once(self) -> int:
        """Number of items that one iteration of a layout conversion handles."""
        return KINDS[self.target.kind].converted_at_once


ProblemPass = Callable[[Problem, Decided], Problem]
# Of a problem, its task and names that are taken elsewhere: another body of the task, None for the same.
_BodyChange = Callable[[Problem, Task, frozenset[str]], Body | None]


def values(problem: Problem, decided: Decided) -> Problem:
    """Returns the problem with the values that were decided so stored by one body, and loaded by another one."""
    places = decided.choices.get("materialised", {})
    stored = MATERIALISED[STORED]
    found = (x for x in shared_values(problem) if places.get(place_of(problem, x)) == stored)
    return materialised(problem, found)


def batches(problem: Problem, decided: Decided) -> Problem:
    """Returns the problem in which the decided bodies have their blocks of a batch in local arrays."""

    return _bodies(problem, decided, "batch_layout", BATCH_LAYOUT[INTERLEAVED], interleaved)


def sums(problem: Problem, decided: Decided) -> Problem:
    """Returns the problem in which the decided scatters to sparse fields are sums by coordinates of cells first.

    The arrays of all such sums are declared, so problems that differ in these decisions have the same arrays.
    """
    arrays, how = tuple(arrays_of_sums(problem).values()), decided.choices.get("scatter", {})

    def made(task: Task, t: int) -> Task:
        tiled = {array for u, array in how if u == t and how[u, array] == SCATTER[TILE]}
        found = scatters(task, problem) if tiled else ()
        fields = [x.array for x in found if x.is_in_tree and x.array in tiled]
        return replace(task, body=with_sums(problem, task, fields)) if fields else task

    return replace(_each(problem, decided, made), arrays=(*problem.arrays, *arrays))


def local_arrays(problem: Problem, decided: Decided) -> Problem:
    """Returns the problem in which the decided bodies have a local for each element of their local arrays."""

    def made(_: Problem, task: Task, used: frozenset[str]) -> Body | None:
        assert task.body is not None
        found = in_locals(task.body.statements, used)
        return None if found is None else _with(task, found).body

    return _bodies(problem, decided, "local_arrays", LOCAL_ARRAYS[IN_REGISTERS], made)


def _bodies(
    problem: Problem,
    decided: Decided,
    kind: str,
    value: str,
    change: _BodyChange,
) -> Problem:
    """Returns the problem in which `change` has rewritten each body whose choice of this kind has this value.

    It is the body of a task, or that of a loop of a standalone kernel: `change` gets the nest as a problem of its own.
    """
    wanted = [site for site, name in decided.choices.get(kind, {}).items() if name == value]

    def made(task: Task, t: int) -> Task:
        if t in wanted and task.body is not None:
            return replace(task, body=change(problem, task, frozenset()) or task.body)
        for u, loop in (x for x in wanted if isinstance(x, tuple)):
            if u == t:
                task = _with_nest(problem, task, loop, change)
        return task

    return _each(problem, decided, made)


def _with_nest(problem: Problem, task: Task, loop: str, change: _BodyChange) -> Task:
    """Returns a standalone kernel's task, with the body of loop `loop` of one of its nests rewritten."""
    assert task.body is not None
    statements = task.body.statements
    nest = nest_facts.nest_down_to(statements, loop)
    alone = nest_problem(problem, task, nest)
    body = change(alone, alone.tasks[0], names_in(statements))
    return task if body is None else with_loop_body(task, loop, body.statements)


def lists(problem: Problem, decided: Decided) -> Problem:
    """Returns the problem with each list of active elements rebuilt as decided: always, where cells changed, or never."""

    def made(task: Task, t: int) -> Task:
        body = task.body
        if body is None or not body.trees.lists:
            return task
        ways = [decided.choices["listgen"][t, x.name] for x in body.trees.lists]
        statements = making(body.statements, ways)
        if statements == body.statements:
            return task
        return _with(task, statements)

    return _each(problem, decided, made)


def activations(problem: Problem, decided: Decided) -> Problem:
    """Returns the problem in which loops activate their cells in every iteration, where that was decided."""

    def made(task: Task, t: int) -> Task:
        if task.body is None or not task.body.trees.way or decided.choices["activate"][t] != EACH:
            return task
        return replace(task, body=in_each(problem, task) or task.body)

    return _each(problem, decided, made)


def tiles(problem: Problem, decided: Decided) -> Problem:
    """Returns the problem in which each loop reads its decided sparse fields from staged tiles (copies of a leaf with halo)."""
    places, in_tile = decided.choices.get("staged", {}), LEAF_ROWS[IN_TILE]

    def made(task: Task, t: int) -> Task:
        sites = task.body.trees.tiles if task.body is not None else ()
        names = [x.name for x in sites if places.get((t, x.name)) == in_tile]
        return replace(task, body=staged(problem, task, names)) if names else task

    return _each(problem, decided, made)


def _with(task: Task, statements: tuple[Stmt, ...]) -> Task:
    """Returns the task with other statements in its body."""
    assert task.body is not None
    other = analyse(statements, task.scope, task.body.reason)
    return replace(task, body=replace(other, trees=task.body.trees))


def _each(problem: Problem, decided: Decided, change: Callable[[Task, int], Task]) -> Problem:
    tasks = list(problem.tasks)
    for t in range(len(tasks)) if decided.tasks is None else decided.tasks:
        tasks[t] = change(tasks[t], t)
    return replace(problem, tasks=tuple(tasks))


def directories(problem: Problem, decided: Decided) -> Problem:
    """Returns the problem with a hash directory beside each decided slot table."""
    how = decided.of_trees("directory")
    found = [x for x in problem.parts.tables if not x.keys and how.get(x.name) == DIRECTORY[HASH]]
    return keyed(problem, found) if found else problem


def slot_tables(problem: Problem, decided: Decided) -> Problem:
    """Returns the problem with a slot table beside each decided hash node."""
    how = decided.of_trees("directory")
    found = [x for x in problem.parts.tables if x.keys and how.get(x.name) == DIRECTORY[TABLE]]
    return tabled(problem, found, decided.at_once) if found else problem


def layouts(problem: Problem, decided: Decided) -> Problem:
    """Returns the problem with leaves and lists of active elements in the decided layouts.

    The conversions run in the order of their numbers.
    """
    after = _records(_leaves(problem, decided), decided)
    n, m = (len(x) for x in (problem.entering, problem.leaving))
    entering, leaving = after.entering, after.leaving
    first, last = sorted(entering[: len(entering) - n]), sorted(leaving[: len(leaving) - m])
    return replace(after, entering=(*first, *problem.entering), leaving=(*last, *problem.leaving))


def _leaves(problem: Problem, decided: Decided) -> Problem:
    """Returns the problem with leaves in the decided tiles, and with the decided order of their cells."""
    how, in_order = decided.of_trees("leaf_layout"), decided.of_trees("cell_order")
    target, leaves = decided.target, problem.parts.leaves
    n_lanes = KINDS[target.kind].threads_at_once
    sizes = {x: tile_of(how.get(x.name, ""), x, target, n_lanes) for x in leaves}
    every = ((x, order_of(in_order.get(x.name, ""), x)) for x in leaves)
    orders = {x: order for x, order in every if order is not None}
    sizes = {x: size for x, size in sizes.items() if size or x in orders}
    return laid_out(problem, sizes, orders, decided.at_once) if sizes else problem


def _records(problem: Problem, decided: Decided) -> Problem:
    """Returns the problem in which the records of the decided lists hold the places of cells."""
    how = decided.of_trees("record")
    found = [x for x in problem.parts.lists if how.get(x.name) == RECORD[CELL]]
    return with_places(problem, found, decided.at_once) if found else problem


def known_tasks(problem: Problem, decided: Decided) -> Problem:
    """Returns the problem without the statements of tasks whose decisions are not known."""
    if decided.tasks is None:
        return problem
    tasks = enumerate(problem.tasks)
    left = (task if t in decided.tasks else _emptied(task) for t, task in tasks)
    return replace(problem, tasks=tuple(left))


PASSES: tuple[ProblemPass, ...] = (
    values,
    batches,
    local_arrays,
    sums,
    known_tasks,
    lists,
    activations,
    tiles,
    directories,
    slot_tables,
    layouts,
)


# What passes read; of `staged` the fields in tiles, of all others whatever has a choice.
_READ = (
    "batch_layout",
    "listgen",
    "activate",
    "directory",
    "leaf_layout",
    "cell_order",
    "record",
    "local_arrays",
    "materialised",
)
_MOST_KEPT = 64  # problems that differ in these

_Key = tuple[range | None, Target, frozenset[tuple[str, Any, str]]]


def decided_problem(problem: Problem, decided: Decided) -> Problem:
    """Returns the problem after all passes. Tasks whose decisions are unknown have empty bodies.

    Candidates with equal decisions share one result: rewriting bodies is the most expensive part of
    a plan.
    """
    read = tuple(_read(problem, decided))
    key = decided.tasks, decided.target, frozenset(read)
    kept = _kept(problem)
    found = kept.pop(key, None)
    if found is None:
        found = problem
        choices: dict[str, dict[Any, str]] = {}
        for kind, site, value in read:  # a pass sees nothing that is not in the key
            choices.setdefault(kind, {})[site] = value
        for one in PASSES:
            found = one(found, replace(decided, choices=choices))
        if len(kept) >= _MOST_KEPT:
            del kept[next(iter(kept))]
    kept[key] = found
    return found


@per_object
def _kept(problem: Problem) -> dict[_Key, Problem]:
    """Returns the cache of recent results of `decided_problem` for this problem, oldest first."""
    return {}


def _read(problem: Problem, decided: Decided) -> Iterator[tuple[str, Any, str]]:
    """Yields (kind, site, value) of the decisions that the passes read."""
    for site, value in decided.choices.get("scatter", {}).items():
        if value == SCATTER[TILE] and problem.tasks[site[0]].logical is not None:
            yield "scatter", site, value
    for kind in _READ:
        for site, value in decided.choices.get(kind, {}).items():
            yield kind, site, value
    for site, value in decided.choices.get("staged", {}).items():
        if isinstance(site, tuple):
            yield "staged", site, value


def _emptied(task: Task) -> Task:
    """Returns the task with an empty body."""
    if task.body is None:
        return task
    return replace(task, body=replace(task.body, statements=(), sites=()))
