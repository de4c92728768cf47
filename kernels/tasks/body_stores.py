"""Dead stores of bodies to one array: their removal, while the other effects of the body stay."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from ..analysis.accesses import analyse
from ..analysis.effects import arrays_written
from ..ir.body import access_at
from ..ir.kernel import ArrayParam, Stmt, Store, Update
from ..ir.logical import LogicalKernel, LogicalLoop
from ..ir.task import Task
from ..ir.walk import children, loads, nested_statements, with_blocks
from ..transforms.dead_stores import without_unread


def may_lose_stores(task: Task, array: str) -> bool:
    """True if a body that writes several arrays only stores to `array`, so that these stores can be removed.

    False for parts of trees that are no fields.
    """
    if task.body is None or len(arrays_written(task)) < 2:
        return False
    is_field = task.logical is None or _field_in(task.logical, array) is not None
    return is_field and _only_stored(task.body.statements, array)


def without_stores(task: Task, array: str, known: Mapping[str, ArrayParam]) -> Task:
    """Returns the task without the stores of its body to `array`, one of several arrays that it writes.

    Cells that these stores would activate are still activated. Precondition: `may_lose_stores`.
    """
    body, logical = task.body, task.logical
    assert body is not None
    if logical is not None:
        field = _field_in(logical, array)
        assert field is not None
        logical = _without(logical, field)
    lists = frozenset(name for name, a in known.items() if a.is_list)
    statements = without_unread(without_stores_to(body.statements, (array,)))
    left = analyse(statements, task.scope, body.reason, lists)
    target, dtype = task.target, task.dtype
    if target.array == array:
        first = next(site for site in left.sites if site.writes)
        target = access_at(first, task.scope)
        dtype = known[target.array].dtype
    left = replace(left, trees=body.trees)
    return replace(task, target=target, dtype=dtype, body=left, logical=logical)


def without_stores_to(body: tuple[Stmt, ...], arrays: Collection[str]) -> tuple[Stmt, ...]:
    """Returns statements without stores to some arrays, and without updates of them."""
    left = (s for s in body if not (isinstance(s, Store | Update) and s.array in arrays))
    return tuple(with_blocks(s, lambda inner: without_stores_to(inner, arrays)) for s in left)


def _only_stored(body: tuple[Stmt, ...], array: str) -> bool:
    """True if the statements store to an array, and use the array in no other way."""
    every = list(nested_statements(body))
    if any(x.array == array for s in every for e in children(s) for x in loads(e)):
        return False
    return not any(isinstance(s, Update) and s.array == array and s.result for s in every)


def _field_in(loop: LogicalLoop, array: str) -> str | None:
    """Returns the name, in the kernel of a loop, of an array of the sequence.

    None if the array is a part of a tree other than a field.
    """
    call = loop.call
    for p in call.kernel.ir.placed:
        section = p.tree, f"field{call.kernel.fields[p.array]}"
        if call.sections.get(section) == array:
            return p.array
    if array in call.sections.values():
        return None
    return next((name for name, given in call.arrays.items() if given == array), None)


def _without(loop: LogicalLoop, field: str) -> LogicalLoop:
    """Returns the loop without stores to `field`, an array of its kernel."""
    kernel, top = loop.call.kernel, loop.top
    (s,) = without_stores_to((kernel.ir.body[top],), (field,))
    body = (*kernel.ir.body[:top], s, *kernel.ir.body[top + 1 :])
    made = LogicalKernel(replace(kernel.ir, body=body), kernel.fields, kernel.trees)
    return replace(loop, call=replace(loop.call, kernel=made))
