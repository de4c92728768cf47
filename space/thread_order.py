"""Decisions that make results independent of the number and order of threads: two runs give equal bytes."""

from __future__ import annotations

from collections.abc import Iterator

from .candidate import DeadEnd, Space
from .families import compaction, scatter, schedule, settling, splitting
from .families.tiling import PARALLEL, THREAD
from .targets.kind import CPU
from .values import ATOMIC, PARTIALS


def ordered(space: Space) -> tuple[tuple[str, str], ...]:
    """Returns (choice, allowed values) for each choice by which the number or order of threads could change a result.

    Atomic sums of floats, parts taken by whichever thread is ready, and lists in the order of
    arrival are excluded. So is a float sum per thread of a CPU. A launch has fewer threads if its
    team is busy, a thread comes late, or the process may use fewer cores (runtime/cpu/team.c), and
    other parts round otherwise. The number of blocks of a GPU never changes. Threads that activate cells take slots in any order,
    in which lists of hash nodes are. Calls that are not split may do any of this.
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
    by_thread = space.target.kind == CPU
    split = frozenset({ATOMIC, PARTIALS} if by_thread else {ATOMIC})
    scattered = frozenset({scatter.BY_ATOMICS, scatter.PRIVATE})
    for d, var in v.reduction.items():
        if problem.tasks[d.task].dtype.is_float:
            yield var, split
    for (_, array), var in v.scatter.items():
        if problem.array(array).dtype.is_float:
            yield var, scattered
    hashed = {x.keys.array for x in problem.parts.tables if x.keys is not None}
    for d, var in v.kind.items():
        body = problem.tasks[d.task].body
        if body is not None and not hashed.isdisjoint(body.trees.shared):
            yield var, frozenset({PARALLEL, THREAD})
    for var in v.schedule.values():
        yield var, frozenset({schedule.GUIDED})
    for var in v.of_tasks["compaction"].values():
        yield var, frozenset({compaction.APPEND})
    for var in v.of_tasks["settling"].values():
        yield var, frozenset({settling.ALL_BLOCKS})  # slots below are returned in any order
    for var in v.of_trees["splitting"].values():
        yield var, frozenset({splitting.WHOLE})
