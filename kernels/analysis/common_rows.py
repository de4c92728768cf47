"""Rows that iterations of two tasks update in common: the loops of a mesh's forces and of their adjoint update the same nodes.

Both tasks are executed symbolically: an index becomes an expression in the iteration, constants and loads alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ..ir import kernel as ir
from ..ir.simplify import cast, simplified, unary
from ..ir.task import Task
from ..ir.walk import local_changed, mapped, nested_statements
from .updated_rows import UpdatedRows, inspector

_MOST_STATEMENTS = 4096  # executed for one iteration
_ITERATION = "iteration of a task"  # the index of its loop: no loop of a sequence has the name
_Row = tuple[
    frozenset[ir.Expr], ir.Expr
]  # conditions that hold where it is updated, and its number


def are_among(later: Task, x: UpdatedRows, earlier: Task, y: UpdatedRows) -> bool:
    """True if an iteration of `earlier` surely updates the rows of `y` whose numbers are those of `x` that it updates in `later`.

    The arrays with indices must be the same when both tasks run.
    """
    if x.extents != y.extents or later.loops[0].extent != earlier.loops[0].extent:
        return False
    wanted, found = _rows(later, x), _rows(earlier, y)
    if wanted is None or found is None:
        return False
    conditions: dict[ir.Expr, list[frozenset[ir.Expr]]] = {}
    for needed, number in found:
        conditions.setdefault(number, []).append(needed)
    return all(
        any(needed <= here for needed in conditions.get(number, ())) for here, number in wanted
    )


@lru_cache(maxsize=256)
def _rows(task: Task, x: UpdatedRows) -> frozenset[_Row] | None:
    """Returns the rows of an iteration; None if some number is no expression of that form."""
    made = inspector(task, (x,))
    if made is None or made.kept:
        return None
    reader = _Reader(task.loops[0].name, (made.n_found, made.changed))
    is_known = reader.block(made.statements, frozenset())
    return frozenset(reader.rows) if is_known else None


class _Reader:
    """Symbolic execution of an inspector. Methods return False where a value is unknown.

    `ignored`: locals on which no row depends.
    """

    def __init__(self, loop: str, ignored: Sequence[str]) -> None:
        self.loop, self.ignored = loop, ignored
        self.rows: list[_Row] = []
        self.locals: dict[str, ir.Expr] = {}
        self.steps: dict[str, int] = {}  # of the loops around
        self.n_left = _MOST_STATEMENTS
        self.is_known = True

    def block(self, body: Sequence[ir.Stmt], conditions: frozenset[ir.Expr]) -> bool:
        return all(self.statement(s, conditions) for s in body)

    def statement(self, s: ir.Stmt, conditions: frozenset[ir.Expr]) -> bool:
        self.n_left -= 1
        match s:
            case ir.SetLocal(name=name) | ir.UpdateLocal(name=name) if name in self.ignored:
                pass
            case ir.SetLocal(name=name, value=value):
                self.locals[name] = self.value(value)
            case ir.Store(value=value):
                self.rows.append((conditions, self.value(value)))
            case ir.If():
                self.branch(s, conditions)
            case ir.For(loop=loop, extent=ir.Const(value=extent), body=inner):
                for self.steps[loop] in range(int(extent)):
                    if not self.block(inner, conditions):
                        return False
            case _:
                return False
        return self.is_known and self.n_left >= 0

    def branch(self, s: ir.If, conditions: frozenset[ir.Expr]) -> None:
        """Executes both sides of a branch. What they set is unknown behind it."""
        holds = self.value(s.condition)
        if isinstance(holds, ir.Const):
            self.is_known &= self.block(s.then if holds.value else s.orelse, conditions)
            return
        before = dict(self.locals)
        for condition, side in ((holds, s.then), (unary("not", holds), s.orelse)):
            self.locals = dict(before)
            self.is_known &= self.block(side, conditions | {condition})
        changed = {local_changed(x) for x in nested_statements((s,))}
        self.locals = {name: value for name, value in before.items() if name not in changed}

    def value(self, e: ir.Expr) -> ir.Expr:
        """Returns an expression in terms of the iteration."""
        match e:
            case ir.Local(name=name, dtype=dtype):
                self.is_known &= name in self.locals
                return cast(self.locals.get(name, e), dtype)
            case ir.LoopIndex(loop=loop, dtype=dtype) if loop in self.steps:
                return ir.Const(self.steps[loop], dtype)
            case ir.LoopIndex(loop=loop, dtype=dtype) if loop == self.loop:
                return ir.LoopIndex(_ITERATION, dtype)
        return simplified(mapped(e, self.value, lambda s: s))
