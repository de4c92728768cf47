"""Loops over cells of leaves as loops of their tasks: so the threads of a block may share the cells of a leaf.

The statements between two loops become those of each cell. They set locals only, from values that the task does not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..analysis.accesses import analyse
from ..analysis.effects import are_independent
from ..ir import kernel as ir
from ..ir.access import Access
from ..ir.body import access_at
from ..ir.domain import Active, Loop
from ..ir.task import Problem, Task
from ..ir.walk import children, loads, local_changed, nested_statements, written_in

Block = tuple[ir.Stmt, ...]


def with_leaf_loops(problem: Problem) -> Problem:
    """Returns the problem in which each loop over a list has the loops over the cells of its elements, where it may."""
    lists = frozenset(x.array for x in problem.parts.states if x.kind == "list")
    tasks = tuple(_of_cells(t, lists) for t in problem.tasks)
    return problem if tasks == problem.tasks else replace(problem, tasks=tasks)


def _of_cells(task: Task, lists: frozenset[str]) -> Task:
    """Returns the task over elements and their cells; the task itself if cells of an element depend on one another."""
    body = task.body
    if body is None or not isinstance(task.domain, Active) or body.trees.way or body.trees.lists:
        return task
    hoisted, statements = _hoisted(body.statements)
    if not hoisted:
        return task
    loops = tuple(loop for _, loop in hoisted)
    scope = (*task.scope, *loops)
    made = analyse(statements, scope, body.reason, lists)
    first = next(site for site in made.sites if site.writes)
    target: Access = access_at(first, scope)
    trees = replace(body.trees, tiles=(), cell_blocks=tuple(block for block, _ in hoisted))
    cells = replace(
        task, loops=(*task.loops, *loops), target=target, body=replace(made, trees=trees)
    )
    return cells if all(are_independent(cells, x) for x in loops) else task


def _hoisted(body: Block, block: int = 0) -> tuple[tuple[tuple[int, Loop], ...], Block]:
    """Returns the loops of constant extent that can be around all statements, outermost first, and these statements.

    Each loop has the number of its basic block in the original body. `block`: that of `body`.
    """
    match body:
        case (ir.If(then=then, orelse=()) as test,):
            loops, inner = _hoisted(then, block + 1)
            return loops, (replace(test, then=inner),)
        case (*before, ir.For(extent=ir.Const(value=int(n))) as loop) if _is_repeatable(
            before, loop
        ):
            loops, inner = _hoisted(loop.body, block + 1)
            return ((block + 1, Loop(loop.loop, n, False)), *loops), (*before, *inner)
    return (), body


def _is_repeatable(before: Sequence[ir.Stmt], loop: ir.For) -> bool:
    """True if each iteration of a loop may run the statements before it again."""
    written, changed = (
        written_in(loop.body),
        {local_changed(s) for s in nested_statements(loop.body)},
    )
    return all(
        isinstance(s, ir.SetLocal)
        and s.name not in changed
        and all(x.array not in written for e in children(s) for x in loads(e))
        for s in before
    )
