"""Slot tables of hash nodes: a problem in which a table lookup replaces the search for a key in a directory.

A table has the directory position of each cell, active or not. It is made when a sequence begins. The directory is unchanged and
stays valid. A thread that gives a key its position changes the table before. A cell without a position in the table is searched in
the directory before it gets one. Nothing is converted back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ..ir.arrays import ArrayInfo
from ..ir.kernel import Expr, Load, SetLocal, Stmt, Store
from ..ir.simplify import binary, cast, compare, const
from ..ir.task import Keys, Problem, SlotTable, Task
from ..ir.walk import children, locals_read, mapped, nested_statements, with_blocks
from .cells import I64, U32, U64, CellNames, StatementBuilder, looked_for, number
from .converting import SOME_PAGES, in_use
from .layout import CLAIMED
from .leaf_layout import fresh_name
from .lookup import again, making, names_of


@dataclass(frozen=True)
class _Places:
    """Slot table of a hash node: the directory position of each key.

    The first entry belongs to no key: it is written and never read.
    """

    table: SlotTable
    keys: Keys
    array: str
    nowhere: int

    def read(self, key: Expr) -> Expr:
        return cast(Load(self.array, (cast(key, I64),), U32), I64)

    def key_at(self, place: Expr) -> Expr:
        """The key at a position of the directory."""
        return binary("bit_and", Load(self.keys.array, (place,), U64), const(CLAIMED - 1, U64))

    def enter(self, b: StatementBuilder, key: Expr, place: Expr) -> None:
        b.store(self.array, (cast(key, I64),), cast(place, U32))

    def publish(self, b: StatementBuilder, s: Store) -> None:
        """Appends the update of the table that must precede `s`, a store to the directory's keys."""
        (place,) = s.indices
        if s.value == const(0, U64):
            self.enter(b, b.hold("key", self.key_at(place)), number(self.nowhere))
        else:
            self.enter(b, s.value, place)


def tabled(problem: Problem, tables: Iterable[SlotTable], at_once: int = SOME_PAGES) -> Problem:
    """Returns the problem with a slot table for each of these hash nodes, and with tasks that fill the tables.

    These tasks are behind the problem's own. `at_once`: number of slots that one iteration enters.
    """
    taken = {a.name for a in problem.arrays} | {p.name for p in problem.scalars}
    arrays, found, before = list(problem.arrays), dict[str, _Places](), list[Task]()
    for x in tables:
        assert x.keys is not None
        n_places = problem.array(x.keys.array).shape[0]
        p = _Places(x, x.keys, fresh_name("places_of", taken), n_places - 1)
        arrays.append(ArrayInfo(p.array, U32, (x.keys.n_cells + 1,), "temp"))
        found[x.keys.array] = p
        before += [_clearing(p, at_once), _filling(p, problem, at_once)]
    tasks = [_through(t, found, taken) for t in problem.tasks]
    return problem.converting(tasks, arrays, [(x, False) for x in before])


def _through(task: Task, found: Mapping[str, _Places], taken: set[str]) -> Task:
    """Returns the task rewritten to look up positions in tables, and to change tables with their directories."""
    body = task.body
    if body is None or found.keys().isdisjoint(s.state.name for s in body.sites):
        return task
    names = CellNames(taken | names_of(task, body))

    def expr(e: Expr) -> Expr:
        wanted = looked_for(e)
        if wanted is not None and wanted[0] in found:
            array, key = wanted
            return found[array].read(expr(key))
        return mapped(e, expr, lambda inner: inner)

    def block(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        b = StatementBuilder(names)
        for s in statements:
            new = mapped(s, expr, lambda inner: inner)
            b.where = new.where
            if isinstance(new, Store) and new.array in found:
                found[new.array].publish(b, new)
            b.put(with_blocks(new, block))
        return tuple(b.statements)

    new = {name: (p.array,) for name, p in found.items()}
    left = block(body.statements)
    return replace(
        task, body=again(task, body, _without(left, _read(body.statements) - _read(left)), new)
    )


def _read(body: tuple[Stmt, ...]) -> set[str]:
    """Returns names of the locals that statements read."""
    return {x for s in nested_statements(body) for e in children(s) for x in locals_read(e)}


def _without(body: tuple[Stmt, ...], names: set[str]) -> tuple[Stmt, ...]:
    """Returns the statements without assignments to the locals `names`."""
    some = (s for s in body if not (isinstance(s, SetLocal) and s.name in names))
    return tuple(with_blocks(s, lambda inner: _without(inner, names)) for s in some)


# --- construction


def _clearing(p: _Places, at_once: int) -> Task:
    def write(b: StatementBuilder, key: Expr) -> None:
        p.enter(b, key, number(p.nowhere))

    n = p.keys.n_cells + 1
    return making("clear", p.table.name, n, write, p.array, at_once=at_once)


def _filling(p: _Places, problem: Problem, at_once: int) -> Task:
    """Returns the task that stores the positions of active cells in a table.

    Inactive cells need no position: without one a search in the directory finds that they are absent.
    """

    def of_slot(b: StatementBuilder, slot: Expr) -> None:
        place = b.hold("place", Load(p.keys.at, (number(0), slot), I64))
        entering = b.inner()
        p.enter(entering, p.key_at(place), place)
        has = Load(p.table.array, (place,), U32)
        b.branch(compare("eq", has, cast(slot, U32)), entering)

    def of_place(b: StatementBuilder, place: Expr) -> None:
        entering = b.inner()
        p.enter(entering, p.key_at(place), place)
        has = Load(p.table.array, (place,), U32)
        b.branch(compare("ne", has, const(0, U32)), entering)

    if not p.keys.at:
        return making("enter", p.table.name, p.nowhere, of_place, p.array, at_once=at_once)
    n = problem.array(p.keys.at).shape[1]
    used = in_use(p.keys.slots, n)
    return making("enter", p.table.name, n, of_slot, p.array, used, at_once)
