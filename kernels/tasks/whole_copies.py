"""Copies of whole arrays, and tasks whose arrays are in the memory of others.

A copy is an assignment over a dense array, or a loop over a node that stores all values of one of its fields to another.
Both fields have values at the same cells, and zeros wherever the tree has no active cell, now or later: so the arrays of the two
hold the same behind the copy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..analysis.accesses import analyse
from ..analysis.effects import arrays_read, arrays_written, overwrites
from ..ir.access import Access, access_of
from ..ir.kernel import ArrayParam, Expr, ForActive, Load, Local, SetLocal, Stmt, Store, Update
from ..ir.logical import LogicalCall, LogicalLoop
from ..ir.on_trees import OnTrees
from ..ir.task import Task
from ..ir.walk import rewrite
from ..sparse.current_cell import without_own_activations
from .coverage import overwrites_active


@dataclass(frozen=True)
class Copy:
    """Copy of all elements of `source` to `target`, an array of equal shape and type. `at`: the position of its task."""

    at: int
    source: str
    target: str

    @property
    def pair(self) -> frozenset[str]:
        return frozenset((self.source, self.target))


def copies_of(
    tasks: Sequence[Task],
    known: Mapping[str, ArrayParam],
    staying: Collection[str],
    in_trees: Collection[str],
) -> Iterable[Copy]:
    """Yields the copies among tasks of arrays that may be in other memory.

    `known`: all arrays. `staying`: arrays that keep their memory. `in_trees`: the arrays of trees.
    """
    for k, task in enumerate(tasks):
        found = _copied_field(task, known) if task.logical else _copied_array(task, known)
        if found is None or not found.isdisjoint(staying):
            continue
        if task.logical is not None or found.isdisjoint(in_trees):
            (source,) = found - {task.target.array}
            yield Copy(k, source, task.target.array)


def _copied_array(task: Task, known: Mapping[str, ArrayParam]) -> frozenset[str] | None:
    """Returns the two arrays of a task that copies a whole dense array; None for other tasks."""
    value, target = task.value, task.target.array
    if task.body is not None or task.op is not None or task.is_guarded:
        return None
    if not isinstance(value, Load) or value.array == target or value.dtype != task.dtype:
        return None
    a, b = known[value.array], known[target]
    is_alike = (a.shape, a.dtype) == (b.shape, b.dtype) and not (a.is_list or b.is_list)
    is_whole = access_of(value).axes == task.target.axes and overwrites(task, target, b.shape)
    return frozenset((a.name, b.name)) if is_alike and is_whole else None


def _copied_field(task: Task, known: Mapping[str, ArrayParam]) -> frozenset[str] | None:
    """Returns the arrays of two fields of which a loop over their node copies one to the other; None for other tasks."""
    loop, target = task.logical, task.target.array
    if loop is None or not task.loops or set(arrays_written(task)) != {target}:
        return None
    s, call = loop.statement, loop.call
    if not isinstance(s, ForActive):
        return None
    tree = next(t for t, _ in call.kernel.trees if t.name == s.tree)
    plain = without_own_activations(s, tree)
    assert isinstance(plain, ForActive)
    pair = _stored_from(plain.body)
    placed = {p.array: p for p in call.kernel.ir.placed}
    if pair is None or not placed.keys() >= {*pair}:
        return None
    a, b = (placed[name] for name in pair)
    fields = {t.name: of_tree for t, of_tree in call.kernel.trees}
    numbers = [call.kernel.fields[p.array] for p in (a, b)]
    if a.tree != b.tree or fields[a.tree][numbers[0]] != fields[b.tree][numbers[1]]:
        return None
    if not overwrites_active(task, target, known[target].shape):
        return None
    arrays = frozenset(call.sections[a.tree, f"field{n}"] for n in numbers)
    return arrays if len(arrays) == 2 and target in arrays else None


def _stored_from(body: Sequence[Stmt]) -> tuple[str, str] | None:
    """Returns the arrays A and B of statements that only store elements of A to B, at equal indices; None for others."""
    values: dict[str, Expr] = {}
    pairs = set[tuple[str, str]]()
    for s in body:
        match s:
            case SetLocal() if s.name not in values:
                values[s.name] = s.value
            case Store():
                value = values.get(s.value.name) if isinstance(s.value, Local) else s.value
                if not isinstance(value, Load) or value.indices != s.indices:
                    return None
                pairs.add((value.array, s.array))
            case _:
                return None
    return pairs.pop() if len(pairs) == 1 else None


class Moved:
    """Tasks in the memory of other arrays. `lists`: the arrays that are lists of cells."""

    def __init__(self, lists: frozenset[str]) -> None:
        self._lists = lists
        self._calls: dict[tuple[LogicalCall, frozenset[tuple[str, str]]], LogicalCall] = {}

    def task(self, task: Task, names: Mapping[str, str]) -> Task:
        """Returns a task with its arrays in the memory of others. `names`: that of each array which has moved."""
        moved = {x: name for x, name in names.items() if name != x}
        used = {*arrays_read(task), *arrays_written(task)}
        if task.logical is not None:
            used |= {*task.logical.call.arrays.values(), *task.logical.call.sections.values()}
        if moved.keys().isdisjoint(used):
            return task

        def change(x: Any) -> Any:
            if isinstance(x, Access | Load | Store | Update):
                return replace(x, array=moved.get(x.array, x.array))
            return x

        if task.body is None:
            return rewrite(task, change)
        statements = rewrite(task.body.statements, change)
        body = analyse(statements, task.scope, task.body.reason, self._lists)
        body = replace(body, trees=_moved_facts(task.body.trees, moved))
        logical = task.logical and self._loop(task.logical, moved)
        return replace(task, target=change(task.target), body=body, logical=logical)

    def _loop(self, loop: LogicalLoop, moved: Mapping[str, str]) -> LogicalLoop:
        """Returns a loop whose call is given the memory of other arrays; loops of one call share one."""
        call, key = loop.call, (loop.call, frozenset(moved.items()))
        if key not in self._calls:
            self._calls[key] = replace(
                call,
                arrays={p: moved.get(x, x) for p, x in call.arrays.items()},
                sections={p: moved.get(x, x) for p, x in call.sections.items()},
            )
        return replace(loop, call=self._calls[key])


def _moved_facts(facts: OnTrees, moved: Mapping[str, str]) -> OnTrees:
    tiles = (replace(x, updated=moved.get(x.updated, x.updated)) for x in facts.tiles)
    apart = frozenset(moved.get(x, x) for x in facts.apart)
    return replace(facts, apart=apart, tiles=tuple(tiles))
