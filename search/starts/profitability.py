"""Profitability of thread teams: tasks that are worth a team, and the method for updates of shared elements.

The rules are those for standalone kernels (kernels/tasks/work.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from ...kernels.ir.kernel import Update
from ...kernels.ir.task import Task
from ...kernels.ir.walk import nested_statements
from ...kernels.tasks import work
from ...space import choices as ch
from ...space.candidate import Space


@dataclass(frozen=True)
class Paying:
    """Profitable parallelism: `tasks` are worth a team.

    `scatters`: values of the choice `scatter`, by task and array.
    """

    tasks: frozenset[int]
    scatters: dict[tuple[int, str], int]


def what_pays(space: Space, *, are_merged: bool) -> Paying:
    """Returns the tasks that are worth a team of threads, and the methods for updates of shared elements.

    `are_merged`: tasks that may share loops are judged together, since a loop is either parallel or
    not.
    """
    tasks, groups = space.problem.tasks, list(range(len(space.problem.tasks)))
    for m in space.backbone.merges if are_merged else ():
        low, high = sorted((groups[m.a], groups[m.b]))
        groups = [low if g == high else g for g in groups]
    times_ns = [work.task_ns(task, space.profile) for task in tasks]
    of_group = dict.fromkeys(groups, 0.0)
    for g, time_ns in zip(groups, times_ns, strict=True):
        of_group[g] += time_ns
    paying = {t for t, g in enumerate(groups) if tasks[t].loops and work.pays(of_group[g])}
    scatters = {key: _way(space, *key, times_ns[key[0]]) for key in space.variables.scatter}
    alone = {t for (t, _), way in scatters.items() if way == ch.SERIAL}
    return Paying(frozenset(paying - alone), scatters)


def _way(space: Space, t: int, array: str, time_ns: float) -> int:
    """Returns the method (value of `scatter`) for updates of an array; serial if one thread finishes sooner."""
    task, info = space.problem.tasks[t], space.problem.array(array)
    assert task.body is not None
    body, values = task.body.statements, space.model.initial[space.variables.scatter[t, array]]
    updates = [s for s in nested_statements(body) if isinstance(s, Update) and s.array == array]
    has_room = bool(int(values) >> ch.PRIVATE & 1)
    found = work.updates_of(body, updates, {array: info.dtype}, info.size_bytes if has_room else 0)
    n = _iterations(task, space)
    way = found.way(time_ns / max(1.0, n), n, space.target.cores)
    return ch.SCATTER.index(way)


def _iterations(task: Task, space: Space) -> float:
    """Returns the number of iterations of a task's outermost loop."""
    known = None if space.profile is None else space.profile.about(task)
    return known.entered[0] if known is not None else float(task.loops[0].extent)
