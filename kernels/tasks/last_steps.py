"""Last steps of repeats: results that the next step overwrites unread are computed in the last step only.

Such an array is dead at the end of all steps but the last. The last step is written out behind the repeat; then the steps before
it lose the dead tasks and stores, as a norm that each step of a solver computes and nobody reads. The rewrite saves work and costs
none, so this is no choice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import prod

from ..ir.kernel import ArrayParam, Store, Update
from ..ir.repeats import Repeat, repeats_of
from ..ir.task import Task
from ..ir.walk import nested_statements
from .coverage import ActiveStores
from .initialisers import drop_dead, is_overwritten_next
from .steps import with_steps

_MOST_TASKS = 16  # of a step that is written out
_LEAST_STORES = (
    512  # that a step loses: fewer save less than a second text of the step costs the search
)


def with_last_steps(
    tasks: tuple[Task, ...],
    known: Mapping[str, ArrayParam],
    temps: Collection[str],
    stores: ActiveStores,
) -> tuple[Task, ...]:
    """Returns the tasks with the last steps of repeats written out where `drop_dead` then finds more dead tasks or stores.

    `known`: all arrays. `temps`: the temporaries. `stores`: the stores to fields of trees. Precondition: no task is dead.
    """
    inner_first = [r.index for r in reversed(repeats_of([t.repeats for t in tasks]))]
    for index in inner_first:
        r = next(x for x in repeats_of([t.repeats for t in tasks]) if x.index == index)
        if not _may_end_apart(tasks, r):
            continue
        if any(is_overwritten_next(tasks, k, r, known, temps, stores) for k in r.members):
            apart = _with_last_apart(tasks, r)
            left = drop_dead(apart, known, temps, stores)
            if _n_stores(apart) - _n_stores(left) >= _LEAST_STORES:
                tasks = apart
    return tasks


def _may_end_apart(tasks: Sequence[Task], r: Repeat) -> bool:
    """True if the last step of a repeat may be written out.

    No task depends on the number of the step. No array ends the repeat or one inside of it.
    """
    step, depth = tasks[r.first : r.stop], _depth(tasks, r)
    is_counted = any(step[0].repeats[depth] in t.steps for t in step)
    may_end = any(loop.until for t in step for loop in t.repeats[depth:])
    return len(step) <= _MOST_TASKS and r.count > 1 and not (is_counted or may_end)


def _with_last_apart(tasks: Sequence[Task], r: Repeat) -> tuple[Task, ...]:
    """Returns the tasks with the last step of a repeat written out behind the others."""
    step, depth = tasks[r.first : r.stop], _depth(tasks, r)
    outer, loop = step[0].repeats[:depth], step[0].repeats[depth]
    around = (*outer, replace(loop, extent=r.count - 1)) if r.count > 2 else outer
    names = _fresh({x.name for t in tasks for x in t.repeats}, step, depth + 1)
    before, last = list[Task](), list[Task]()
    for t in step:
        inside = t.repeats[depth + 1 :]
        before.append(replace(t, repeats=(*around, *inside)))
        last.append(with_steps(replace(t, repeats=(*outer, *inside)), names))
    return (*tasks[: r.first], *before, *last, *tasks[r.stop :])


def _depth(tasks: Sequence[Task], r: Repeat) -> int:
    """Returns the number of time loops around a repeat."""
    return [loop.name for loop in tasks[r.first].repeats].index(r.index)


def _fresh(taken: Collection[str], step: Sequence[Task], depth: int) -> dict[str, str]:
    """Returns new names of the time loops inside of a step: the loops of its two texts stay apart."""
    names: dict[str, str] = {}
    for name in dict.fromkeys(loop.name for t in step for loop in t.repeats[depth:]):
        new = f"{name}'"
        while new in taken or new in names.values():
            new += "'"
        names[name] = new
    return names


def _n_stores(tasks: Sequence[Task]) -> int:
    """Returns the number of stores that all tasks make in one run each, loops inside of bodies counted once."""
    return sum(prod(loop.extent for loop in t.loops) * _n_sites(t) for t in tasks)


def _n_sites(task: Task) -> int:
    if task.body is None:
        return 1
    return sum(isinstance(s, Store | Update) for s in nested_statements(task.body.statements))
