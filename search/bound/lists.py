"""Lists of active cells: the words of tables and masks that a task surely looks at where it makes its list again.

No implementation knows which cells are active without a look at each word. In vectors one load covers several words. A list that
is made again looks at all words of a table, where the number of tables is known. With a profile a list counts that each call on
the measured arguments makes: below other lists it looks at the words of active cells alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...kernels.ir.on_trees import ANEW, making
from ...kernels.ir.task import Task
from ...space.candidate import Space
from .bodies import body_bytes
from .columns import table


def list_tables(space: Space) -> dict[str, Any]:
    """Returns the table of `BoundTables` for lists: a row for each list that a task may make."""
    return {"scan": table(_scans(space), "task listgen", "ns counted_ns")}


def _scans(space: Space) -> Iterator[tuple[float, ...]]:
    target, sites = space.target, space.variables.of_places.get("listgen", {})
    rate = (target.vector_loads_per_ns or target.loads_per_ns) * target.vector_bytes
    open_forms = _open_forms(space)
    seen: set[int] = set()
    for (t, _), var in sites.items() if rate else ():
        task = space.problem.tasks[t]
        n_bytes = _table_bytes(space, task, open_forms)
        # The profile counts all uses of a list by a task together.
        counted = 0.0 if t in seen else _counted_bytes(space, task, open_forms)
        seen.add(t)
        if n_bytes or counted:
            yield t, var, n_bytes / rate, counted / rate


def _open_forms(space: Space) -> frozenset[str]:
    """Returns the nodes whose tables may have another form. In a component the sequence decides the form."""
    sequence = space if space.part_of is None else space.part_of.sequence
    return frozenset(site.name for site in sequence.variables.of_trees["directory"])


def _table_bytes(space: Space, task: Task, open_forms: frozenset[str]) -> float:
    """Returns the bytes of vectors that a task loads from slot tables where it makes its list, whatever their contents."""
    assert task.body is not None
    body = replace(task.body, statements=making(task.body.statements, [ANEW]))
    made, problem = replace(task, body=body), space.problem
    read = (
        body_bytes(made, problem.array(x.array), None, space.target.vector_bytes)[0]
        for x in problem.parts.tables
        if x.name not in open_forms
    )
    return sum(read)


def _counted_bytes(space: Space, task: Task, open_forms: frozenset[str]) -> float:
    """Returns the bytes of vectors that a task loads from tables and masks on the measured arguments, to make its list."""
    if space.profile is None or space.profile.of(task) is None:
        return 0.0
    problem, known = space.problem, {a.name for a in space.problem.arrays}
    read = (
        body_bytes(task, problem.array(x.array), space.profile, space.target.vector_bytes)[0]
        for x in problem.parts.states
        if x.kind == "mask" and x.array in known and x.name not in open_forms
    )
    return sum(read)
