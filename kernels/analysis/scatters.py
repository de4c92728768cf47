"""Scatter detection: arrays of which several iterations update the same elements, in any order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from ..ir import kernel as ir
from ..ir.arrays import ArrayInfo
from ..ir.body import Body
from ..ir.domain import Loop
from ..ir.task import Problem, Task
from ..ir.walk import loads, local_changed, locals_read, nested_statements, walk
from .conflicts import conflicting
from .reach import Reach, reach
from .speculation import is_safe
from .updated_rows import UpdatedRows, updated_rows

# Types whose updates no hardware makes at once.
_LACKING = (ir.DType.f16, ir.DType.bool_)


@dataclass(frozen=True)
class Scatter:
    """Scatter: an array with elements that several iterations update, all by operation `op`.

    `window` has a range per axis if all updates of an iteration lie in a box whose origin can be computed before the first of them.
    Else it is (). `rows`: the parts of the array that an iteration updates, if they are known before it runs.
    `extents`: of the space in which boxes lie: the array, or (`is_in_tree`) its components and the cells of a tree by coordinates.
    """

    array: str
    op: ir.ReduceOp
    window: tuple[Reach, ...] = ()
    rows: UpdatedRows | None = None
    extents: tuple[int, ...] = ()
    is_in_tree: bool = False

    @property
    def bases(self) -> tuple[ir.Expr, ...]:
        """Expressions for the origin of the box of an iteration's updates, axis by axis."""
        return tuple(r.base for r in self.window if r.base is not None)


@dataclass(frozen=True)
class Placing:
    """Computation of the origin of an iteration's box: run `statements`, if all `conditions` hold.

    `kept`: locals that are computed from floats. They are not computed twice: a second computation may round to another element.
    """

    conditions: tuple[ir.Expr, ...]
    statements: tuple[ir.SetLocal, ...]
    kept: tuple[ir.Local, ...] = ()

    def arrays_read(self, bases: Sequence[ir.Expr]) -> tuple[str, ...]:
        """Returns the names of the arrays that the computation of `bases` loads from."""
        values = (*self.conditions, *bases, *(s.value for s in self.statements))
        return tuple(dict.fromkeys(x.array for e in values for x in loads(e)))


def scatters(task: Task, problem: Problem) -> tuple[Scatter, ...]:
    """Returns the scatters of a task with one loop; () if other accesses keep its iterations in order.

    Sums of floats may be reordered where `fast_math` allows it.
    """
    if task.body is None or len(task.loops) != 1:
        return ()
    if not any(s.op == "update" for s in task.body.sites):
        return ()
    names = dict.fromkeys(s.state.name for s in task.body.sites)
    return _of_body(task, tuple(problem.array(name) for name in names))


@lru_cache(maxsize=256)  # several families ask for each loop
def _of_body(task: Task, arrays: tuple[ArrayInfo, ...]) -> tuple[Scatter, ...]:
    assert task.body is not None
    by_name = {a.name: a for a in arrays}
    every = tuple(nested_statements(task.body.statements))
    if any(isinstance(s, ir.Print) for s in every):
        return ()
    found = []
    for array in _shared(task.body, task.scope):
        updates = [s for s in every if isinstance(s, ir.Update) and s.array == array]
        sites = [s for s in task.body.sites if s.state.name == array]
        ops = {s.op for s in updates}
        dtype = by_name[array].dtype
        is_free = task.fast_math or dtype.is_integer
        if (
            not all(s.op == "update" for s in sites)
            or len(ops) != 1
            or any(s.result for s in updates)
            or dtype in _LACKING
            or not is_free
        ):
            return ()
        rows, op = updated_rows(task, by_name[array]), ops.pop()
        made = Scatter(array, op, (), rows, by_name[array].shape)
        window = _window(task, updates, by_name)
        cells = None if window else _cells_updated(task, by_name[array])
        if cells is not None:
            box = _box(cells.updates, cells.around, cells.extents)
            bases = [r.base for r in box if r.base is not None]
            is_named = all(isinstance(b, ir.Local) for b in bases)
            if box and is_named and _is_ready(task, updates, bases, by_name):
                made = replace(made, window=box, extents=cells.extents, is_in_tree=True)
        found.append(replace(made, window=window) if window else made)
    return tuple(found)


@dataclass(frozen=True)
class _Cells:
    """Updates of a field of a tree as the program states them, in statements `around`. `extents`: of components and coordinates."""

    updates: tuple[ir.Update, ...]
    around: tuple[ir.Stmt, ...]
    extents: tuple[int, ...]


def _cells_updated(task: Task, array: ArrayInfo) -> _Cells | None:
    """Returns the updates of a sparse field by coordinates of cells; None for other arrays, or in loops over a tree.

    Cells with other coordinates are other elements of the field's array. Sparse lowering keeps the locals of the program.
    """
    if task.logical is None or not isinstance(task.logical.statement, ir.For):
        return None
    call, body = task.logical.call, task.logical.statement.body
    trees, fields = {t.name: t for t in call.kernel.ir.trees}, call.kernel.fields
    placed = {
        p.array: p
        for p in call.kernel.ir.placed
        if call.sections.get((p.tree, f"field{fields[p.array]}")) == array.name
    }
    updates = [s for s in nested_statements(body) if isinstance(s, ir.Update) and s.array in placed]
    shapes = {trees[p.tree].shape(p.node) for p in placed.values()}
    if not updates or len(shapes) != 1:
        return None
    extents = (*array.shape[:-1], *shapes.pop())
    is_whole = all(len(s.indices) == len(extents) for s in updates)
    return _Cells(tuple(updates), body, extents) if is_whole else None


def placing(task: Task, bases: Sequence[ir.Expr]) -> Placing | None:
    """Returns the computation of the origin of an iteration's box (`bases`), before any update of the iteration.

    None if it is not simple: it involves locals that are set several times, local arrays, or arrays that the task writes. A base
    that is computed from floats must be a local, too.
    """
    assert task.body is not None
    conditions, body = _inside(task.body.statements)
    written = {s.state.name for s in task.body.sites if s.writes}
    changed = [local_changed(s) for s in nested_statements(body) if local_changed(s)]
    wanted = {name for e in bases for name in locals_read(e)}
    taken: list[ir.SetLocal] = []
    for s in reversed(body):
        if isinstance(s, ir.SetLocal) and s.name in wanted:
            taken.append(s)
            wanted |= set(locals_read(s.value))
    values = (*conditions, *bases, *(s.value for s in taken))
    is_plain = (
        wanted == {s.name for s in taken}
        and all(changed.count(name) == 1 for name in wanted)
        and not any(
            isinstance(x, ir.LocalElement) or (isinstance(x, ir.Load) and x.array in written)
            for e in values
            for x in walk(e)
        )
    )
    rounded = [e for e in bases if _is_rounded(e, taken)]
    kept = tuple(dict.fromkeys(e for e in rounded if isinstance(e, ir.Local)))
    if not is_plain or not all(isinstance(e, ir.Local) for e in rounded):
        return None
    return Placing(conditions, tuple(reversed(taken)), kept)


def _is_rounded(e: ir.Expr, statements: Sequence[ir.SetLocal]) -> bool:
    """True if the value of an expression depends on floats through locals that `statements` set."""
    names, values = set(locals_read(e)), [e]
    for s in statements:  # the last one first
        if s.name in names:
            names |= set(locals_read(s.value))
            values.append(s.value)
    return any(x.dtype.is_float for value in values for x in walk(value))


def _inside(body: tuple[ir.Stmt, ...]) -> tuple[tuple[ir.Expr, ...], tuple[ir.Stmt, ...]]:
    """Returns the conditions of the branches that enclose all statements of a body, and the enclosed statements."""
    conditions: list[ir.Expr] = []
    while len(body) == 1 and isinstance(body[0], ir.If) and not body[0].orelse:
        conditions.append(body[0].condition)
        body = body[0].then
    return tuple(conditions), body


def _shared(body: Body, loops: tuple[Loop, ...]) -> list[str]:
    """Returns arrays with a conflict between iterations of `loops`, except those that are safe to share.

    The iterations are in one step of the repeats.
    """
    return [array for array in conflicting(body.sites, loops) if array not in body.trees.safe]


# --- windows -------------------------------------------------------------------------------------


def _window(
    task: Task, updates: Sequence[ir.Update], arrays: Mapping[str, ArrayInfo]
) -> tuple[Reach, ...]:
    """Returns the box of all updates of an iteration, a range per axis.

    An axis along which the box does not move is clipped to the array.
    () if there is no such box, or if its origin cannot be computed before the first update.
    """
    assert task.body is not None
    shape = arrays[updates[0].array].shape
    window = _box(updates, task.body.statements, shape)
    bases = [r.base for r in window if r.base is not None]
    return window if bases and _is_ready(task, updates, bases, arrays) else ()


def _box(
    updates: Sequence[ir.Update], body: tuple[ir.Stmt, ...], extents: tuple[int, ...]
) -> tuple[Reach, ...]:
    """Returns the box of updates in a body, a range per axis, in a space of these extents. () if there is no box that moves."""
    lengths = {
        s.loop: int(s.extent.value) if isinstance(s.extent, ir.Const) else 0
        for s in nested_statements(body)
        if isinstance(s, ir.For)
    }
    window: list[Reach] = []
    for s in updates:
        here = [reach(e, lengths) for e in s.indices]
        if window and [r and r.base for r in here] != [r.base for r in window]:
            return ()
        known = [r for r in here if r is not None]
        if len(known) < len(here):
            return ()
        window = [a.with_(b) for a, b in zip(window or known, known, strict=True)]
    inside = tuple(
        r if r.base is not None else Reach(None, max(0, r.least), min(n - 1, r.largest))
        for r, n in zip(window, extents, strict=True)
    )
    moves = any(r.base is not None for r in inside)
    return inside if moves and all(r.span > 0 for r in inside) else ()


def _is_ready(
    task: Task,
    updates: Sequence[ir.Update],
    bases: Sequence[ir.Expr],
    arrays: Mapping[str, ArrayInfo],
) -> bool:
    """True if the origin of the box (`bases`) can be computed before the updates of each iteration.

    That holds also in iterations whose guards skip all of these updates.
    """
    assert task.body is not None
    made = placing(task, bases)
    if made is None:
        return False
    sure = tuple(_surely(_inside(task.body.statements)[1]))
    values = [s.value for s in made.statements if s not in sure]
    if not any(u in sure for u in updates):
        values += bases
    return all(is_safe(e, task.scope, lambda name: arrays[name].shape) for e in values)


def _surely(body: Sequence[ir.Stmt]) -> Iterator[ir.Stmt]:
    """Yields the statements that run in each execution of a body, up to the first that may end the call."""
    for s in body:
        if any(isinstance(x, ir.Assert) for x in nested_statements((s,))):
            return
        yield s
        if isinstance(s, ir.For) and isinstance(s.extent, ir.Const) and s.extent.value > 0:
            yield from _surely(s.body)
