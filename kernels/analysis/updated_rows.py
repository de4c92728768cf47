"""Rows of an array that an iteration updates, and the part of a body that finds them: an inspector (Saltz et al., 1991).

A row is a part of the array with the same indices along the axes on which updates move: the node at a corner of an element of a
mesh, a cell of a sparse field. The inspector has the loops and branches around the updates, and what sets their indices.
An index that follows from floats, as the cell of a particle, is a local that is computed once: the inspector keeps it for the body,
since a second computation might round to another cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from math import prod
from typing import TypeGuard

from ..ir import kernel as ir
from ..ir.arrays import ArrayInfo
from ..ir.simplify import cast
from ..ir.task import Task
from ..ir.walk import (
    children,
    identified,
    loads,
    local_changed,
    locals_read,
    nested_statements,
    walk,
)
from .reach import reach

MAX_ROWS = 512  # of an iteration: more than a leaf of 4^3 cells updates with six neighbours
FOUND = "rows of iterations"  # what the inspector stores: an array, by iteration and number; no array of a sequence has the name
N_FOUND, ROW, CHANGED = "n_found", "row", "changed"  # its locals, behind the first free number


@dataclass(frozen=True)
class UpdatedRows:
    """Rows of an array that one iteration updates, at most `most`.

    `axes`: those along which rows differ. `extents`: of the array, along these axes.
    """

    array: str
    axes: tuple[int, ...]
    extents: tuple[int, ...]
    most: int = 0

    @property
    def n_rows(self) -> int:
        """Number of rows of the array."""
        return prod(self.extents)


@dataclass(frozen=True)
class Inspector:
    """Statements that store the rows of an iteration in FOUND, and names of their locals.

    `n_found`: how many rows they have stored. `changed`: 1 if one of them differs from what FOUND held.
    `kept`: locals that are computed from floats, each stored for the body by the number of the iteration (`kept_name`).
    """

    statements: tuple[ir.Stmt, ...]
    n_found: str
    changed: str
    kept: tuple[ir.Local, ...] = ()

    @property
    def arrays_read(self) -> tuple[str, ...]:
        """Names of the arrays from which rows are computed."""
        found = (
            x.array
            for s in nested_statements(self.statements)
            for e in children(s)
            for x in loads(e)
        )
        return tuple(name for name in dict.fromkeys(found) if name != FOUND)


def updated_rows(task: Task, array: ArrayInfo) -> UpdatedRows | None:
    """Returns the rows of an array that an iteration of a task updates; None if they are too many, or unknown before it runs."""
    assert task.body is not None
    lengths = {
        s.loop: int(s.extent.value) if isinstance(s.extent, ir.Const) else 0
        for s in nested_statements(task.body.statements)
        if isinstance(s, ir.For)
    }
    updates = [s for s in nested_statements(task.body.statements) if _is_update(s, array.name)]
    boxes = [[reach(e, lengths) for e in s.indices] for s in updates]
    moving = [[r is None or r.base is not None for r in box] for box in boxes]
    axes = tuple(k for k in range(len(array.shape)) if any(box[k] for box in moving))
    found = UpdatedRows(array.name, axes, tuple(array.shape[k] for k in axes))
    made = inspector(task, (found,)) if axes else None
    most = 0 if made is None else _n_stores(made.statements, lengths)
    return replace(found, most=most) if 0 < most <= MAX_ROWS else None


def _is_update(s: ir.Stmt, array: str) -> TypeGuard[ir.Update]:
    return isinstance(s, ir.Update) and s.array == array


def _n_stores(body: Sequence[ir.Stmt], lengths: Mapping[str, int]) -> int:
    """Returns the greatest number of rows that statements of an inspector store; too many, if a loop has no known length."""
    n = 0
    for s in body:
        match s:
            case ir.Store(array=array):
                n += array == FOUND
            case ir.For(loop=loop, extent=extent, body=inner):
                often = max(0, lengths[loop]) if isinstance(extent, ir.Const) else MAX_ROWS + 1
                n += often * _n_stores(inner, lengths)
            case ir.If(then=then, orelse=orelse):
                n += _n_stores((*then, *orelse), lengths)
    return n


# --- the inspector ---------------------------------------------------------------------------


@lru_cache(maxsize=256)  # asked for each value of a choice
def inspector(task: Task, rows: tuple[UpdatedRows, ...]) -> Inspector | None:
    """Returns the part of a task's body that finds rows of arrays, numbered on from array to array.

    None if it would depend on what the task itself writes, on rounding more than once, or on statements that do more than the
    iteration.
    """
    assert task.body is not None
    body = task.body.statements
    if any(isinstance(s, _REFUSED) for s in nested_statements(body)) or task.body.trees.activates:
        return None
    own = frozenset(x.array for x in rows)
    rounded = {s.name: ir.Local(s.name, s.value.dtype) for s in _rounded(body)}
    part = _part(task, own, frozenset()) or _part(task, own, frozenset(rounded))
    if part is None:
        return None
    names = {local_changed(s) for s in nested_statements(body)}
    n_found, row, changed = (_free(x, names) for x in (N_FOUND, ROW, CHANGED))
    kept = tuple(x for name, x in rounded.items() if name in part.kept)
    writer = _Slice(task.loops[0].name, rows, part.wanted, n_found, row, changed, kept)
    start = tuple(ir.SetLocal(x, ir.Const(0, ir.DType.i64), ir.NOWHERE) for x in (n_found, changed))
    return Inspector(identified((*start, *writer.sliced(body))), n_found, changed, kept)


def kept_name(local: ir.Local) -> str:
    """Returns the name of the array in which the inspector stores a local; no array of a sequence has the name."""
    return f"{local.name} of iterations"


@dataclass(frozen=True)
class _Part:
    """The part of a body that finds rows: the locals that it sets, and those of them that it keeps for the body."""

    wanted: frozenset[str]
    kept: frozenset[str]


def _part(task: Task, own: frozenset[str], rounded: frozenset[str]) -> _Part | None:
    """Returns the part that finds rows of the arrays `own`, if rows depend on no other rounding than that of locals `rounded`."""
    assert task.body is not None
    every = tuple(nested_statements(task.body.statements))
    written = {s.state.name for s in task.body.sites if s.writes}
    wanted = _wanted(every, own, rounded)
    found = [s for s in every if _is_kept(s, own, wanted)]
    values = [e for s in found for e in _values(s, rounded)]
    if not all(_is_exact(e, written) for e in values):
        return None
    whole = _wanted(every, own, frozenset())
    sliced = [s for s in every if _is_kept(s, own, whole)]
    is_set = whole <= {local_changed(s) for s in sliced}
    behind = (e for s in sliced for e in _values(s, frozenset()))
    if not is_set or not all(_is_pure(e, written) for e in behind):
        return None
    if any(isinstance(s, ir.Update) and s.result for s in sliced):
        return None
    return _Part(whole, wanted & rounded)


def _rounded(body: Sequence[ir.Stmt]) -> Iterator[ir.SetLocal]:
    """Yields the statements, in no loop, that alone set an integer local, from floats."""
    changed = [local_changed(s) for s in nested_statements(tuple(body))]
    for s in _in_no_loop(body):
        if isinstance(s, ir.SetLocal) and changed.count(s.name) == 1:
            is_rounded = any(x.dtype.is_float for x in walk(s.value))
            if is_rounded and s.value.dtype.is_integer:
                yield s


def _in_no_loop(body: Sequence[ir.Stmt]) -> Iterator[ir.Stmt]:
    for s in body:
        yield s
        if isinstance(s, ir.If):
            yield from _in_no_loop((*s.then, *s.orelse))


_REFUSED = (
    ir.While, ir.Assert, ir.Print, ir.ForActive, ir.Activate, ir.Deactivate, ir.Append,
)  # fmt: skip


def _free(stem: str, names: set[str]) -> str:
    return (
        stem
        if stem not in names
        else next(x for k in range(1, len(names) + 2) if (x := f"{stem}{k}") not in names)
    )


def _is_kept(s: ir.Stmt, arrays: frozenset[str], wanted: frozenset[str]) -> bool:
    """True if a statement sets one of the locals `wanted`, updates one of the arrays, or holds a statement that does."""
    return any(
        (isinstance(x, ir.Update) and x.array in arrays) or local_changed(x) in wanted
        for x in nested_statements((s,))
    )


def _wanted(
    every: Sequence[ir.Stmt], arrays: frozenset[str], rounded: frozenset[str]
) -> frozenset[str]:
    """Returns the locals on which indices of updates, and the branches and loops around them, depend.

    `every`: all statements of a body. `rounded`: locals that are known, whatever they depend on.
    """
    wanted: frozenset[str] = frozenset()
    while True:
        kept = (s for s in every if _is_kept(s, arrays, wanted))
        values = (e for s in kept for e in _values(s, rounded))
        more = wanted.union(name for e in values for name in locals_read(e))
        if more == wanted:
            return wanted
        wanted = more


def _values(s: ir.Stmt, rounded: frozenset[str]) -> tuple[ir.Expr, ...]:
    """Returns the expressions of a kept statement on which rows depend: not the value of an update, nor of a local in `rounded`."""
    if isinstance(s, ir.SetLocal) and s.name in rounded:
        return ()
    return s.indices if isinstance(s, ir.Update) else children(s)


def _is_pure(e: ir.Expr, written: set[str]) -> bool:
    """True if an expression may be computed before the loop: it reads nothing that the task writes, and draws no random number."""
    return all(
        isinstance(x, _PURE) and not (isinstance(x, ir.Load) and x.array in written)
        for x in walk(e)
    )


_PURE = (
    ir.Load, ir.Const, ir.Param, ir.Local, ir.LoopIndex, ir.Compare, ir.Select, ir.Cast, ir.Bitcast, ir.Unary, ir.Binary,
)  # fmt: skip


def _is_exact(e: ir.Expr, written: set[str]) -> bool:
    """True if an expression has the same value wherever it is computed: no floats are rounded, nothing is read that changes."""
    for x in walk(e):
        match x:
            case ir.Load(array=array) if array in written:
                return False
            case (
                ir.Load()
                | ir.Const()
                | ir.Param()
                | ir.Local()
                | ir.LoopIndex()
                | ir.Compare()
                | ir.Select()
            ):
                continue
            case ir.Cast(x=inner, dtype=dtype) if (
                not dtype.is_float or inner.dtype.is_integer or inner.dtype is dtype
            ):
                continue
            case ir.Unary() | ir.Binary() if not x.dtype.is_float:
                continue
        return False
    return True


def _strides(extents: tuple[int, ...]) -> Iterator[int]:
    return (prod(extents[k + 1 :]) for k in range(len(extents)))


@dataclass(frozen=True)
class _Slice:
    """Writer of an inspector's statements."""

    loop: str
    rows: tuple[UpdatedRows, ...]
    wanted: frozenset[str]
    n_found: str
    row: str
    changed: str
    kept: tuple[ir.Local, ...]

    def sliced(self, body: Sequence[ir.Stmt]) -> tuple[ir.Stmt, ...]:
        """Returns the inspector of a block. A row that the block has found before is not stored again."""
        made: list[ir.Stmt] = []
        seen: set[tuple[str, tuple[ir.Expr, ...]]] = set()
        for s in body:
            inner = self._statement(s)
            if isinstance(s, ir.Update):
                axes = next((x.axes for x in self.rows if x.array == s.array), ())
                row = s.array, tuple(s.indices[k] for k in axes)
                inner = () if row in seen else inner
                seen.add(row)
            elif any(isinstance(x, ir.SetLocal | ir.UpdateLocal) for x in nested_statements(inner)):
                seen.clear()  # a local of an index may have changed
            made += inner
        return tuple(made)

    def _statement(self, s: ir.Stmt) -> tuple[ir.Stmt, ...]:
        match s:
            case ir.Update():
                found = (
                    self._found(s, x, k) for k, x in enumerate(self.rows) if x.array == s.array
                )
                return next(found, ())
            case ir.SetLocal() | ir.UpdateLocal():
                stores = (
                    ir.Store(kept_name(x), (ir.LoopIndex(self.loop),), x, s.where)
                    for x in self.kept
                    if x.name == s.name
                )
                return (s, *stores) if s.name in self.wanted else ()
            case ir.For():
                inner = self.sliced(s.body)
                if self._is_once(s, inner):
                    return inner
                return (ir.For(s.loop, s.extent, inner, s.where),) if inner else ()
            case ir.If():
                then, orelse = self.sliced(s.then), self.sliced(s.orelse)
                return (ir.If(s.condition, then, orelse, s.where),) if then or orelse else ()
        return ()

    def _is_once(self, s: ir.For, inner: tuple[ir.Stmt, ...]) -> bool:
        """True if all iterations of a loop find the same rows, as those over the components of a vector."""
        every = tuple(nested_statements(inner))
        indices = (
            x for y in every for e in children(y) for x in walk(e) if isinstance(x, ir.LoopIndex)
        )
        is_same = all(x.loop != s.loop for x in indices)
        sets = any(local_changed(y) in self.wanted for y in every)
        return isinstance(s.extent, ir.Const) and s.extent.value > 0 and is_same and not sets

    def _found(self, s: ir.Update, x: UpdatedRows, k: int) -> tuple[ir.Stmt, ...]:
        """Returns the statements that store the row of an update."""
        long, short = ir.DType.i64, ir.DType.i32
        before = sum(y.n_rows for y in self.rows[:k])
        terms: list[ir.Expr] = [ir.Const(before, long)] if before else []
        for axis, stride in zip(x.axes, _strides(x.extents), strict=True):
            at = cast(s.indices[axis], long)
            terms.append(at if stride == 1 else ir.Binary("mul", at, ir.Const(stride, long), long))
        number = reduce(lambda a, b: ir.Binary("add", a, b, long), terms)
        place = (ir.LoopIndex(self.loop), ir.Local(self.n_found, long))
        row = ir.Local(self.row, short)
        differs = ir.Compare("ne", ir.Load(FOUND, place, short), row)
        one, changed = ir.Const(1, long), ir.Local(self.changed, long)
        return (
            ir.SetLocal(self.row, cast(number, short), s.where),
            ir.SetLocal(self.changed, ir.Select(differs, one, changed, long), s.where),
            ir.Store(FOUND, place, row, s.where),
            ir.UpdateLocal(self.n_found, "add", one, s.where),
        )
