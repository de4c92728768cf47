"""Greedy colourings of scatters: the tasks that may have one, and earlier tasks whose colouring serves a task, too."""

from __future__ import annotations

from dataclasses import dataclass

from ...kernels.analysis.common_rows import are_among
from ...kernels.analysis.effects import arrays_written
from ...kernels.analysis.scatters import Scatter, scatters
from ...kernels.analysis.updated_rows import UpdatedRows, inspector
from ...kernels.ir.task import Problem, Task

MAX_SORTED = 1 << 31  # iterations: their numbers have 32 bits
MAX_ROWS = 1 << 28  # of an array: a colouring has a word of 8 bytes for each
MAX_BYTES = 1 << 30  # of the rows of all iterations


def colourable(task: Task, problem: Problem) -> tuple[Scatter, ...]:
    """Returns the scatters by whose rows a team may colour blocks of a task's iterations.

    Where all scatters of a task have windows in arrays, boxes serve them: their blocks need no colouring.
    """
    found = scatters(task, problem)
    if all(x.window and not x.is_in_tree for x in found) or task.loops[0].extent >= MAX_SORTED:
        return ()
    return tuple(x for x in found if x.rows is not None and _has_room(task, x.rows))


def _has_room(task: Task, rows: UpdatedRows) -> bool:
    n_bytes = task.loops[0].extent * rows.most * 4
    return rows.n_rows <= MAX_ROWS and n_bytes <= MAX_BYTES


@dataclass(frozen=True)
class EarlierColouring:
    """Colouring of an earlier task that a task may use.

    `holders`: for each array that the task scatters to, arrays of the earlier task with at least the same rows in each iteration.
    """

    task: int
    holders: dict[str, tuple[str, ...]]


def earlier_colouring(problem: Problem, tasks: range, t: int) -> EarlierColouring | None:
    """Returns the nearest colouring of a task in `tasks` that task `t` may use; None if there is none.

    No task in between writes an array from which rows are computed.
    """
    task = problem.tasks[t]
    wanted = colourable(task, problem)
    if not wanted:
        return None
    read = _arrays_of_rows(task, wanted)
    for u in reversed(range(tasks.start, t)):
        before = problem.tasks[u]
        if before.repeats != task.repeats:
            return None
        held = colourable(before, problem)
        holders = {x.array: _holders(task, x, before, held) for x in wanted}
        if all(holders.values()):
            return EarlierColouring(u, holders)
        if read.intersection(arrays_written(before)):
            return None
    return None


def rows_of(x: Scatter) -> UpdatedRows:
    """Returns the rows of a scatter that has some."""
    assert x.rows is not None
    return x.rows


def _arrays_of_rows(task: Task, wanted: tuple[Scatter, ...]) -> frozenset[str]:
    found = (inspector(task, (rows_of(x),)) for x in wanted)
    return frozenset(name for made in found if made is not None for name in made.arrays_read)


def _holders(task: Task, x: Scatter, before: Task, held: tuple[Scatter, ...]) -> tuple[str, ...]:
    return tuple(y.array for y in held if are_among(task, rows_of(x), before, rows_of(y)))
