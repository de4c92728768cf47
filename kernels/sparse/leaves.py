"""Candidates for data-layout transformation: fields of one type in the leaves of a tree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from ..analysis.effects import arrays_read, arrays_written
from ..analysis.inner_ranges import row_starts, run_time_length
from ..analysis.scatters import placing, scatters
from ..analysis.updated_rows import inspector
from ..analysis.wavefronts import sweep_at
from ..ir.arrays import ArrayInfo
from ..ir.kernel import DType
from ..ir.task import Leaves, Problem, Slots, Task
from ..ir.walk import loads
from .layout import n_shared
from .recorded import UsedTree


def leaves_of(
    trees: Iterable[UsedTree], arrays: Sequence[ArrayInfo], tasks: Sequence[Task]
) -> tuple[Leaves, ...]:
    """Returns the fields of each node, by type, whose layout may be transformed.

    The sequence uses at least two numbers of each cell, or cells along two axes. Tasks access the fields in statements of bodies
    alone.
    """
    known = {a.name: a for a in arrays}
    problem = Problem("", tuple(arrays), (), tuple(tasks), "")
    kept = {name for t in tasks for name in kept_in(t, problem) | read_ahead(t)}
    written = {name for t in tasks for name in arrays_written(t)}
    found = []
    for used in trees:
        groups: dict[tuple[int, DType], list[str]] = {}
        for k, f in enumerate(used.fields):
            array = used.arrays.get(f"field{k}", "")
            if array in known and array not in kept:
                groups.setdefault((f.node, f.dtype), []).append(array)
        for (node, dtype), names in groups.items():
            last = used.tree.nodes[node]
            extents = () if last.has.pool else last.extents
            n = sum(prod(known[name].shape[:-1]) for name in names)
            if n == 1 and sum(x > 1 for x in extents) < 2:
                continue
            slots = _slots(used, node, known, written)
            is_written = not written.isdisjoint(names)
            key = next(key for key, x in used.sections if x == names[0])
            shared = n_shared(used.layout, key)
            name = f"{used.tree.name}.{node}.{dtype.name}"
            found.append(Leaves(name, tuple(names), dtype, slots, is_written, shared, extents, n))
    return tuple(found)


def _slots(
    used: UsedTree, node: int, known: dict[str, ArrayInfo], written: set[str]
) -> Slots | None:
    """Returns the source of the number of a node's elements in use; None if all are in use, or it is unknown."""
    tree, layout = used.tree, used.layout
    pool = tree.last(node, "pool")
    counters = used.arrays.get("counters", "")
    if pool < 0 or counters not in known:
        return None
    unit = layout.items[node] // layout.slots[pool]
    return Slots(counters, pool, unit, used.arrays.get(f"table{pool}", "") in written)


def kept_in(task: Task, problem: Problem) -> set[str]:
    """Returns arrays that a task accesses outside of a body's statements: in an assignment, a sort or a sweep.

    Arrays that its body reads as rows are among them.
    """
    if task.body is None:
        return {*arrays_read(task), *arrays_written(task)}
    statements = task.body.statements
    if not task.loops:
        is_sweep = sweep_at(statements, 0) is not None
        return {s.state.name for s in task.body.sites} if is_sweep else set()
    found = set[str]()
    for x in scatters(task, problem):
        found.add(x.array)
        place = placing(task, x.bases)
        values = (*place.conditions, *(s.value for s in place.statements)) if place else ()
        found |= {y.array for e in (*x.bases, *values) for y in loads(e)}
    rows = row_starts(task.loops[0].name, statements)
    return found if rows is None else found | {rows.array}


def read_ahead(task: Task) -> set[str]:
    """Returns arrays that a task may read before its loop, for the lengths of iterations."""
    if task.body is None or len(task.loops) != 1:
        return set()
    length = run_time_length(task.loops[0].name, task.body.statements)
    return set() if length is None else {x.array for x in loads(length)}


def read_for_rows(task: Task, problem: Problem) -> dict[str, frozenset[str]]:
    """Returns, by updated array, the arrays that a task reads before its loop to find rows of iterations (`scatter` GREEDY).

    They are read as the program has them: copies in another layout may have changed by then.
    """
    if task.body is None or len(task.loops) != 1:
        return {}
    rows = {x.array: x.rows for x in scatters(task, problem) if x.rows is not None}
    made = {name: inspector(task, (x,)) for name, x in rows.items()}
    return {name: frozenset(x.arrays_read) for name, x in made.items() if x is not None}
