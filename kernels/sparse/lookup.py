"""Rewriting and filling that auxiliary lookup structures of sparse nodes have in common.

The structures are hash directories and slot tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ..analysis.accesses import analyse
from ..ir.body import Body
from ..ir.kernel import NOWHERE, DType, Expr, For, LoopIndex, Stmt
from ..ir.task import Task
from ..ir.walk import local_changed, nested_statements
from .cells import I64, CellNames, StatementBuilder, number, plus
from .converting import SOME_PAGES, converting


def again(
    task: Task, body: Body, statements: tuple[Stmt, ...], new: Mapping[str, tuple[str, ...]]
) -> Body:
    """Returns the body of a task with other statements, which also access new arrays.

    `new`: the names of the new arrays, by the array that they supplement.
    """
    added = {name for names in new.values() for name in names}
    inside = analyse(statements, task.scope, body.reason)
    sites = (*body.sites, *(s for s in inside.sites if s.state.name in added))
    shared = {x for name, names in new.items() if name in body.trees.shared for x in names}
    trees = replace(body.trees, shared=body.trees.shared | shared)
    return replace(body, statements=statements, sites=sites, shape=inside.shape, trees=trees)


def names_of(task: Task, body: Body) -> set[str]:
    """Returns the names of loops and locals of a task."""
    names = {loop.name for loop in task.loops}
    for s in nested_statements(body.statements):
        names |= {local_changed(s), *([s.loop] if isinstance(s, For) else [])}
    return names


def making(
    verb: str,
    name: str,
    n: int,
    write: Callable[[StatementBuilder, Expr], None],
    shared: str,
    used: Expr | None = None,
    at_once: int = SOME_PAGES,
) -> Task:
    """Returns a task that runs `write` for each number below `n`, or below `used`, to fill a lookup structure.

    `shared`: the array that threads change at the same time. `at_once`: how many numbers one iteration handles.
    """

    def block(begin: Expr, n_used: Expr, _: Expr) -> list[Stmt]:
        b = StatementBuilder(CellNames({"block", "n_used"}), NOWHERE)
        inner = b.inner()
        write(inner, inner.hold("item", plus(begin, LoopIndex("k", I64))))
        b.loop("k", n_used, inner)
        return b.statements

    what = "a table", n, number(n) if used is None else used
    task = converting(verb, name, what, block, DType.u32, at_once)
    assert task.body is not None
    trees = replace(task.body.trees, shared=frozenset({shared}))
    return replace(task, body=replace(task.body, trees=trees))
