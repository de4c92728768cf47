"""Lists of active cells: the words of slot tables that a task surely looks at where it makes its list again.

No implementation knows which cells are active without a look at each word of the table. In vectors one load covers several words.
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
    return {"scan": table(_scans(space), "task listgen", "ns")}


def _scans(space: Space) -> Iterator[tuple[float, ...]]:
    target, sites = space.target, space.variables.of_places.get("listgen", {})
    rate = (target.vector_loads_per_ns or target.loads_per_ns) * target.vector_bytes
    for (t, _), var in sites.items() if rate else ():
        n_bytes = _table_bytes(space, space.problem.tasks[t])
        if n_bytes:
            yield t, var, n_bytes / rate


def _table_bytes(space: Space, task: Task) -> float:
    """Returns the bytes of vectors that a task loads from slot tables to make its list.

    Tables that may have another form do not count.
    In a component the sequence decides the form.
    """
    assert task.body is not None
    body = replace(task.body, statements=making(task.body.statements, [ANEW]))
    made, problem = replace(task, body=body), space.problem
    sequence = space if space.part_of is None else space.part_of.sequence
    open_forms = {site.name for site in sequence.variables.of_trees["directory"]}
    read = (
        body_bytes(made, problem.array(x.array), None, space.target.vector_bytes)[0]
        for x in problem.parts.tables
        if x.name not in open_forms
    )
    return sum(read)
