"""Decisions that free a result of the order of threads: two runs of such an implementation give equal bytes."""

from __future__ import annotations

from collections.abc import Iterator

from .candidate import DeadEnd, Space
from .families import compaction, scatter, schedule
from .values import ATOMIC


def ordered(space: Space) -> tuple[tuple[str, str], ...]:
    """Returns the values that are left of each choice by which the order of threads reaches a result.

    Sums of floats by atomic updates, parts that go to whichever thread is ready, and lists in the order of arrival are excluded.
    Private sums of threads with fixed parts are combined in the order of the threads.
    """
    root = space.open_root()
    if isinstance(root, DeadEnd):
        return ()
    found = []
    for var, excluded in _excluded(space):
        values, left = root.values(var), [x for x in root.values(var) if x not in excluded]
        if left and len(left) < len(values):
            choice = space.choices[var]
            found.append((choice.name, "|".join(choice.values[x] for x in left)))
    return tuple(found)


def _excluded(space: Space) -> Iterator[tuple[int, frozenset[int]]]:
    problem, v = space.problem, space.variables
    for d, var in v.reduction.items():
        if problem.tasks[d.task].dtype.is_float:
            yield var, frozenset({ATOMIC})
    for (_, array), var in v.scatter.items():
        if problem.array(array).dtype.is_float:
            yield var, frozenset({scatter.BY_ATOMICS})
    for var in v.schedule.values():
        yield var, frozenset({schedule.GUIDED})
    for var in v.of_tasks["compaction"].values():
        yield var, frozenset({compaction.APPEND})
