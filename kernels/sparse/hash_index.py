"""Hash index of pointer nodes: directories in addition to tables, which find a slot by the key of an entry.

A directory has the entries of a table that hold a slot, in buckets of a few positions (Knuth, vol. 3, 6.4). It is made when a
sequence begins. The table is unchanged and stays valid: each change of an entry first changes the directory, while no other thread
can change that entry. So lists are still made by walking the table, and nothing is converted back. A key whose bucket is full is
looked up in the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ..ir.arrays import ArrayInfo
from ..ir.kernel import NOWHERE, Expr, Load, Stmt, Store, While
from ..ir.simplify import binary, cast, compare, const, select
from ..ir.task import Problem, SlotTable, Task
from ..ir.walk import mapped, with_blocks
from . import cells
from .directory import claim
from .layout import BUSY, CLAIMED
from .leaf_layout import fresh_name
from .leaves import kept_in
from .lookup import again, making, names_of

_ENTRIES = 16  # of the table, for a place: where more of them are active, its lines are as full as those of a directory
_MOST_PLACES = 1 << 20
_WAYS = 4  # places of a bucket: half a line of keys


@dataclass(frozen=True)
class _Directory:
    """Directory that supplements a table: array `keys` with entries of the table plus one, and array `slots`.

    `nowhere` is the position of all keys without a position; it has no slot. `crowded` is that of a key whose bucket is full, so
    that only the table has its slot.
    """

    table: SlotTable
    n_entries: int
    keys: str
    slots: str
    n_places: int

    @property
    def nowhere(self) -> int:
        return self.n_places

    @property
    def crowded(self) -> int:
        return self.n_places + 1

    def place(self, b: cells.StatementBuilder, entry: Expr) -> tuple[Expr, Expr, Expr]:
        """The key of a table's entry, the begin of its bucket, and its position in the directory."""
        key = b.hold("key", cast(cells.plus(entry, cells.number(1)), cells.U64))
        start = b.hold("start", cells.times(cells.starts_of(key, self.n_places // _WAYS)[0], _WAYS))

        def seen(place: Expr) -> Expr:
            found = Load(self.keys, (place,), cells.U64)
            is_free = not self.table.is_written
            return found if is_free else binary("bit_and", found, const(CLAIMED - 1, cells.U64))

        last = seen(cells.plus(start, cells.number(_WAYS - 1)))
        has_room = compare("eq", last, const(0, cells.U64))
        nobody = select(has_room, cells.number(self.nowhere), cells.number(self.crowded))
        return key, start, cells.place_of(seen, (start,), key, nobody, _WAYS)

    def slot(self, b: cells.StatementBuilder, load: Load) -> Expr:
        """The slot at a table's entry, looked up in the directory; read from the table if the bucket is full."""
        entry = b.hold("entry", cast(load.indices[0], cells.I64))
        place = b.hold("place", self.place(b, entry)[2])
        found = b.hold("found", Load(self.slots, (place,), cells.U32))
        return select(compare("eq", found, const(BUSY, cells.U32)), load, found)

    def publish(self, b: cells.StatementBuilder, entry: Expr, slot: Expr) -> None:
        """Appends statements that store the slot of an entry in the directory.

        No other thread does so for the same entry at that time.
        """
        entry = b.hold("entry", cast(entry, cells.I64))
        key, start, found = self.place(b, entry)
        place = b.names.fresh("place")
        at = b.set(place, found)
        slow, fits = b.inner(), b.inner()
        fits.store(self.slots, (at,), slot)
        if slot != const(0, cells.U32):
            claim(slow, self.keys, (start,), key, place, _WAYS)
            b.branch(compare("eq", at, cells.number(self.nowhere)), slow)
        b.branch(compare("lt", at, cells.number(self.nowhere)), fits)


def keyed(problem: Problem, tables: Iterable[SlotTable]) -> Problem:
    """Returns the problem with a directory for each of these tables, and with tasks that fill the directories.

    These tasks are behind the problem's own.
    """
    taken = {a.name for a in problem.arrays} | {p.name for p in problem.scalars}
    arrays, found = list(problem.arrays), dict[str, _Directory]()
    for x in tables:
        n = problem.array(x.array).shape[0]
        n_places = min(1 << max(-(-n // _ENTRIES) - 1, 2 * _WAYS - 1).bit_length(), _MOST_PLACES)
        d = _Directory(x, n, fresh_name("keys", taken), fresh_name("slots", taken), n_places)
        arrays += [
            ArrayInfo(name, dtype, (d.crowded + 1,), "temp")
            for name, dtype in ((d.keys, cells.U64), (d.slots, cells.U32))
        ]
        found[x.array] = d
    tasks = [_through(t, problem, found, taken) for t in problem.tasks]
    made = [(x, False) for d in found.values() for x in (_clearing(d), _filling(d))]
    return problem.converting(tasks, arrays, made)


def _through(
    task: Task, problem: Problem, found: Mapping[str, _Directory], taken: set[str]
) -> Task:
    """Returns the task rewritten to look up slots in directories, and to change them with their tables."""
    body = task.body
    if body is None or found.keys().isdisjoint(s.state.name for s in body.sites):
        return task
    kept = kept_in(task, problem)
    read = {x: d for x, d in found.items() if x not in kept and not body.trees.lists}
    names = cells.CellNames(taken | names_of(task, body))

    def block(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        made: list[Stmt] = []
        for s in statements:
            b = cells.StatementBuilder(names, NOWHERE)
            known = dict[Expr, Expr]()

            def expr(
                e: Expr, b: cells.StatementBuilder = b, known: dict[Expr, Expr] = known
            ) -> Expr:
                if e in known:
                    return known[e]
                x = mapped(e, expr, lambda inner: inner)
                if isinstance(x, Load) and x.array in read:
                    x = known[e] = b.hold("slot", read[x.array].slot(b, x))
                return x

            # A condition of `while` is computed in each round, by the table, which stays valid.
            new = s if isinstance(s, While) else mapped(s, expr, lambda inner: inner)
            if isinstance(new, Store) and new.array in found:
                found[new.array].publish(b, new.indices[0], new.value)
            made += [*b.statements, with_blocks(new, block)]
        return tuple(made)

    new = {name: (d.keys, d.slots) for name, d in found.items()}
    return replace(task, body=again(task, body, block(body.statements), new))


# --- construction


def _clearing(d: _Directory) -> Task:
    def write(b: cells.StatementBuilder, place: Expr) -> None:
        b.store(d.keys, (place,), const(0, cells.U64))
        is_crowded = compare("eq", place, cells.number(d.crowded))
        b.store(d.slots, (place,), select(is_crowded, const(BUSY, cells.U32), const(0, cells.U32)))

    return making("clear", d.table.name, d.crowded + 1, write, d.keys)


def _filling(d: _Directory) -> Task:
    def write(b: cells.StatementBuilder, entry: Expr) -> None:
        slot = b.hold("slot", Load(d.table.array, (entry,), cells.U32))
        active = b.inner()
        d.publish(active, entry, slot)
        b.branch(compare("ne", slot, const(0, cells.U32)), active)

    return making("enter", d.table.name, d.n_entries, write, d.keys)
