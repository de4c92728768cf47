"""Data-layout transformation of leaves: the same tasks on other arrays, and tasks that convert the fields.

They convert on entry and back on exit of the sequence.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from ..ir import kernel as ir
from ..ir.arrays import ArrayInfo
from ..ir.simplify import binary, cast, compare, const
from ..ir.task import Leaves, Problem, Task
from ..ir.walk import local_changed, mapped, nested_statements
from .cells import I64, number, plus, quotient, remainder, times
from .converting import SOME_PAGES, converting, in_use
from .orders import CellOrder

NO_ORDERS: Mapping[Leaves, CellOrder] = {}


def laid_out(
    problem: Problem,
    tiles: Mapping[Leaves, int],
    orders: Mapping[Leaves, CellOrder] = NO_ORDERS,
    at_once: int = SOME_PAGES,
) -> Problem:
    """Returns the problem with fields of these leaves stored in tiles of cells, one component after the other.

    `tiles`: the number of cells of a tile (1: all components of a cell side by side; 0: each component by itself).
    `orders`: new orders of the cells of leaves. `at_once`: number of cells that one iteration converts.
    """
    arrays, homes = list(problem.arrays), dict[str, _FieldHome]()
    taken = {a.name for a in arrays} | {p.name for p in problem.scalars}
    made = []
    for leaves, tile in tiles.items():
        parts = [problem.array(name) for name in leaves.arrays]
        name = fresh_name("cells", taken)
        n_items = max(a.shape[-1] for a in parts)
        n = sum(prod(a.shape[:-1]) for a in parts)
        shape = (n_items, n) if tile == 1 else (-(-n_items // max(tile, 1)), n, tile)
        shape = shape if tile else (n, n_items)
        order = orders.get(leaves)
        arrays.append(ArrayInfo(name, leaves.dtype, shape, "temp"))
        first = 0
        for a in parts:
            homes[a.name] = _FieldHome(name, leaves.dtype, tile, first, a.shape[:-1], order)
            first += prod(a.shape[:-1])
        made.append((leaves, parts))
    tasks = [_moved(t, homes) for t in problem.tasks]
    added = []
    for leaves, parts in made:
        added.append((_entering(leaves, parts, homes, at_once), False))
        written = [a for a in parts if a.role != "input"]
        if leaves.is_written:
            added.append((_leaving(leaves, written, homes, at_once), True))
    return problem.converting(tasks, arrays, added)


def fresh_name(stem: str, taken: set[str]) -> str:
    name, k = stem, 1
    while name in taken:
        name, k = f"{stem}{k}", k + 1
    taken.add(name)
    return name


@dataclass(frozen=True)
class _FieldHome:
    """New location of a field: components `first` and following of array `array`.

    `components`: shape of the field's components. `tile` and `order`: see `laid_out`.
    """

    array: str
    dtype: ir.DType
    tile: int
    first: int
    components: tuple[int, ...]
    order: CellOrder | None

    def place(self, indices: Sequence[ir.Expr], known: _Constants) -> tuple[ir.Expr, ...]:
        """The indices in the new array of the element at these indices of the field."""
        *own, item = indices
        at = number(self.first)
        for k, x in enumerate(own):
            at = plus(at, times(cast(x, I64), prod(self.components[k + 1 :])))
        if self.order is not None:
            item = _reordered(cast(item, I64), self.order, known)
        if self.tile == 0:
            return at, item
        if self.tile == 1:
            return item, at
        tile, cell = _split(cast(item, I64), self.tile, known)
        return tile, at, cell


def _reordered(item: ir.Expr, order: CellOrder, known: _Constants) -> ir.Expr:
    """The new number of a cell in the whole tree, if the cells of each leaf are stored in another order."""
    leaf, rest = _split(item, order.n_cells, known)
    at = list[ir.Expr]()
    for extent in reversed(order.extents):
        rest, own = _split(rest, extent, known)
        at.append(own)
    return plus(times(leaf, order.n_cells), order.place(at[::-1]))


_Homes = Mapping[str, _FieldHome]


@dataclass
class _Constants:
    """Constants of a body: constant extents of loops, and values of locals that are set once."""

    extents: dict[str, int] = field(default_factory=dict)
    locals: dict[str, ir.Expr] = field(default_factory=dict)

    @staticmethod
    def of(task: Task) -> _Constants:
        assert task.body is not None
        every = list(nested_statements(task.body.statements))
        changed = [local_changed(s) for s in every]
        known = _Constants({loop.name: loop.extent for loop in task.loops})
        for s in every:
            if isinstance(s, ir.For) and isinstance(s.extent, ir.Const):
                known.extents[s.loop] = int(s.extent.value)
            elif isinstance(s, ir.SetLocal) and changed.count(s.name) == 1:
                known.locals[s.name] = s.value
        return known

    def last(self, x: ir.Expr) -> int | None:
        """The largest value of an expression that is never negative; None if unknown."""
        match x:
            case ir.Const(value=int(n)) if n >= 0:
                return n
            case ir.LoopIndex(loop) if loop in self.extents:
                return max(self.extents[loop] - 1, 0)
            case ir.Cast(inner, dtype) if dtype.is_index:
                return self.last(inner)
        return None

    def is_multiple(self, x: ir.Expr, n: int) -> bool:
        """True if the value of an expression is surely a multiple of `n`."""
        match x:
            case ir.Const(value=int(value)):
                return value % n == 0
            case ir.Binary("add" | "sub", a, b):
                return self.is_multiple(a, n) and self.is_multiple(b, n)
            case ir.Binary("mul", a, ir.Const(value=int(factor))):
                return factor % n == 0 or self.is_multiple(a, n)
            case ir.Select(_, a, b):
                return self.is_multiple(a, n) and self.is_multiple(b, n)
            case ir.Local(name) if name in self.locals:
                return self.is_multiple(self.locals[name], n)
        return False


def _split(x: ir.Expr, n: int, known: _Constants) -> tuple[ir.Expr, ir.Expr]:
    """The expressions x // n and x % n, for an index that is not negative.

    Terms that move by whole tiles are separated from terms within a tile, so that a row of cells is a row of a tile.
    """
    whole, rest, most = number(0), number(0), 0
    for term, factor in _terms(x, 1):
        last = known.last(term)
        if factor % n == 0:
            whole = plus(whole, times(term, factor // n))
        elif factor == 1 and known.is_multiple(term, n):
            whole = plus(whole, quotient(term, n))
        elif last is not None and factor > 0:
            most += last * factor
            rest = plus(rest, times(term, factor))
        else:
            most = n
    return (whole, rest) if most < n else (quotient(x, n), remainder(x, n))


def _terms(x: ir.Expr, factor: int) -> list[tuple[ir.Expr, int]]:
    match x:
        case ir.Binary("add", a, b):
            return [*_terms(a, factor), *_terms(b, factor)]
        case ir.Binary("mul", a, ir.Const(value=int(n))):
            return _terms(a, factor * n)
        case ir.Const(value=int(n)):
            return [(number(1), factor * n)]
    return [(x, factor)]


def _moved(task: Task, homes: _Homes) -> Task:
    """Returns the task rewritten to access the new arrays instead of fields.

    Its sites still name the fields: no two fields share an element.
    """
    if task.body is None or homes.keys().isdisjoint(s.state.name for s in task.body.sites):
        return task
    known = _Constants.of(task)

    def expr(e: ir.Expr) -> ir.Expr:
        found = mapped(e, expr, stmt)
        if isinstance(found, ir.Load) and found.array in homes:
            home = homes[found.array]
            return replace(found, array=home.array, indices=home.place(found.indices, known))
        return found

    def stmt(s: ir.Stmt) -> ir.Stmt:
        found = mapped(s, expr, stmt)
        if isinstance(found, ir.Store | ir.Update) and found.array in homes:
            home = homes[found.array]
            return replace(found, array=home.array, indices=home.place(found.indices, known))
        return found

    statements = tuple(stmt(s) for s in task.body.statements)
    return replace(task, body=replace(task.body, statements=statements))


# --- conversion


def _entering(leaves: Leaves, parts: Sequence[ArrayInfo], homes: _Homes, at_once: int) -> Task:
    """Returns the task that copies fields to their new array on entry, `at_once` cells an iteration.

    Cells that get a slot later are set to zero.
    """

    def copy(a: ArrayInfo, indices: tuple[ir.Expr, ...]) -> ir.Stmt:
        home = homes[a.name]
        value = ir.Load(a.name, indices, a.dtype)
        return ir.Store(home.array, home.place(indices, _Constants()), value, ir.NOWHERE)

    def clear(a: ArrayInfo, indices: tuple[ir.Expr, ...]) -> ir.Stmt:
        home = homes[a.name]
        return ir.Store(
            home.array, home.place(indices, _Constants()), const(0, a.dtype), ir.NOWHERE
        )

    def loops(begin: ir.Expr, n_used: ir.Expr, room: ir.Expr) -> list[_Part]:
        found = [_Part("item", begin, n_used, copy)]
        if leaves.slots is not None and leaves.slots.may_grow:
            rest = binary("sub", room, n_used)
            found.append(_Part("rest", plus(begin, n_used), rest, clear))
        return found

    return _converting("enter", leaves, parts, loops, at_once)


def _leaving(leaves: Leaves, parts: Sequence[ArrayInfo], homes: _Homes, at_once: int) -> Task:
    """Returns the task that copies the fields `parts` back on exit, `at_once` cells an iteration.

    These are the fields that may have been written.
    """

    def copy(a: ArrayInfo, indices: tuple[ir.Expr, ...]) -> ir.Store:
        home = homes[a.name]
        value = ir.Load(home.array, home.place(indices, _Constants()), a.dtype)
        return ir.Store(a.name, indices, value, ir.NOWHERE)

    def copy_wrong(a: ArrayInfo, indices: tuple[ir.Expr, ...]) -> ir.Stmt:
        """Returns a store of values other than 0 to elements that inactive cells share.

        These are never written, so errors become visible.
        """
        s = copy(a, indices)
        return ir.If(compare("ne", s.value, const(0, a.dtype)), (s,), (), ir.NOWHERE)

    def loops(begin: ir.Expr, n_used: ir.Expr, _: ir.Expr) -> list[_Part]:
        if not leaves.n_shared:
            return [_Part("item", begin, n_used, copy)]
        left = binary("max", number(0), binary("sub", number(leaves.n_shared), begin))
        n = binary("min", left, n_used)
        behind = _Part("item", plus(begin, n), binary("sub", n_used, n), copy)
        return [_Part("shared", begin, n, copy_wrong), behind]

    return _converting("leave", leaves, parts, loops, at_once)


@dataclass(frozen=True)
class _Part:
    """Part of a block's conversion: a loop over `extent` cells from `first` on that copies a component.

    `copy`: the statement that copies one component of one cell.
    """

    name: str
    first: ir.Expr
    extent: ir.Expr
    copy: Callable[[ArrayInfo, tuple[ir.Expr, ...]], ir.Stmt]


def _converting(
    verb: str,
    leaves: Leaves,
    parts: Sequence[ArrayInfo],
    loops: Callable[[ir.Expr, ir.Expr, ir.Expr], list[_Part]],
    at_once: int,
) -> Task:
    """Returns a conversion task: each iteration converts all components of a block of `at_once` cells.

    `loops`: the loops over the cells of a block, from its first cell, the number of its cells in use, and the number of its cells.
    """
    names = itertools.count()

    def components(a: ArrayInfo, item: ir.Expr, part: _Part) -> ir.Stmt:
        own = [f"c{next(names)}" for _ in a.shape[:-1]]
        s = part.copy(a, (*(ir.LoopIndex(x, I64) for x in own), item))
        for loop, n in reversed(list(zip(own, a.shape, strict=False))):
            s = ir.For(loop, number(n), (s,), ir.NOWHERE)
        return s

    def write(begin: ir.Expr, n_used: ir.Expr, room: ir.Expr) -> Sequence[ir.Stmt]:
        made: list[ir.Stmt] = []
        for part in loops(begin, n_used, room):
            item = plus(part.first, ir.LoopIndex(part.name, I64))
            inside = tuple(components(a, item, part) for a in parts)
            made.append(ir.For(part.name, part.extent, inside, ir.NOWHERE))
        return made

    n_items = max(a.shape[-1] for a in parts)  # fields of one node all have the same number
    used = "leaves", n_items, in_use(leaves.slots, n_items)
    return converting(verb, leaves.name, used, write, leaves.dtype, at_once)
