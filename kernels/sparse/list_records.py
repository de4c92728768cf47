"""Record formats of lists of active cells: item and coordinates, as in a program, or one cell number only.

The number of a cell (its place) is row-major in its node, counted over the whole tree. Coordinates follow from it by divisions, and
the item by a walk down the tables. So a record is one number of 32 bits, where the program has an item and a coordinate an axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from ..analysis.effects import arrays_read, arrays_written
from ..ir import kernel as ir
from ..ir.arrays import ArrayInfo
from ..ir.simplify import binary, cast
from ..ir.task import ListRecords, Problem, Task
from ..ir.walk import blocks, children, mapped, nested_statements, walk, with_blocks
from .cells import I64, U32, CellNames, Cells, number, plus, quotient, remainder, times
from .converting import SOME_PAGES, converting
from .layout import COUNT
from .leaf_layout import fresh_name
from .leaves import kept_in, read_ahead
from .recorded import UsedTree

PLACE = ir.Local("place", I64)
_MOST_CELLS = 1 << 32


def lists_of(
    trees: Iterable[UsedTree],
    kernels: Iterable[ir.KernelIR],
    arrays: Sequence[ArrayInfo],
    tasks: Sequence[Task],
) -> tuple[ListRecords, ...]:
    """Returns the lists of a sequence of `kernels` on trees whose records may become cell numbers.

    Their cells stay active: no statement deactivates cells of their node or of nodes above, so a loop finds the same cells as the
    list's maker. No node above is a hash node, where a walk would search for keys. Loops use a list at least twice: with one use,
    the conversion costs as much as it saves.
    """
    every = [s for k in kernels for s in nested_statements(k.body)]
    shrunk = {(s.tree, s.node) for s in every if isinstance(s, ir.Deactivate)}
    found, known = list[ListRecords](), {a.name for a in arrays}
    problem = Problem("", tuple(arrays), (), tuple(tasks), "")
    kept = {name for t in tasks for name in kept_in(t, problem) | read_ahead(t)}
    written = {name for t in tasks for name in arrays_written(t)}
    taken: dict[str, int] = {}
    for t in tasks:
        for name in set(arrays_read(t)):
            taken[name] = taken.get(name, 0) + t.n_runs
    for used in trees:
        tree, of_tree = used.tree, used.arrays
        counters = of_tree.get("counters", "")
        for n, node in enumerate(tree.nodes):
            array = of_tree.get(f"list{n}", "")
            path = tree.path(n)
            if (
                not node.has.is_listed
                or {array, counters} - known
                or array in kept
                or taken.get(array, 0) < 2
                or tree.last(n, "directory") >= 0
                or any((tree.name, k) in shrunk for k in path)
                or prod(tree.shape(n)) > _MOST_CELLS
            ):
                continue
            item = _item(used, n, known, written)
            n_parts = 1 + len(tree.shape(n))
            if item is not None and all(_is_plain(t, array, n_parts) for t in tasks):
                where = counters, n, COUNT
                is_written = array in written
                name = f"{tree.name}.{n}"
                found.append(ListRecords(name, array, *where, tree.shape(n), item, is_written))
    return tuple(found)


def _item(used: UsedTree, n: int, known: set[str], written: set[str]) -> ir.Expr | None:
    """The item of a cell as an expression of its number (`place`).

    None if the walk down the tree needs arrays that the sequence does not have.
    """
    tree = used.tree
    names = CellNames(set())
    cells = Cells({tree.name: used.layout}, names)
    path = tree.path(n)
    cells.busy = {(tree.name, k) for k in path if used.arrays.get(f"table{k}") in written}
    node = tree.nodes[n]
    if path == (n,) and node.axes == tree.axes(n):
        slot = cells.slot(tree.name, n, cells.entry(tree, n, number(0), PLACE))
        item = cells.item(tree, n, number(0), PLACE, slot)
    else:
        at = _coordinates(PLACE, tree.shape(n))
        item = cells.find(tree.name, n, at, sure=range(len(at))).item
    homes = {array: used.arrays.get(key, "") for array, (_, key) in names.arrays.items()}
    return _renamed(item, homes) if set(homes.values()) <= known else None


def _renamed(e: ir.Expr, names: Mapping[str, str]) -> ir.Expr:
    found = mapped(e, lambda x: _renamed(x, names), lambda s: s)
    return replace(found, array=names[found.array]) if isinstance(found, ir.Load) else found


def _coordinates(place: ir.Expr, shape: Sequence[int]) -> list[ir.Expr]:
    found = []
    for k, n in enumerate(shape):
        behind = prod(shape[k + 1 :])
        x = quotient(place, behind) if behind > 1 else place
        found.append(number(0) if n == 1 else remainder(x, n) if k else x)
    return found


def _place(coordinates: Sequence[ir.Expr], shape: Sequence[int]) -> ir.Expr:
    at = number(0)
    for x, n in zip(coordinates, shape, strict=True):
        at = plus(times(at, n), cast(x, I64))
    return cast(at, U32)


# --- a sequence whose lists have places


def with_places(
    problem: Problem, lists: Sequence[ListRecords], at_once: int = SOME_PAGES
) -> Problem:
    """Returns the problem with cell numbers as records of these lists, which then are temporary arrays.

    The program's lists are read on entry and written on exit. `at_once`: number of records that one iteration converts.
    """
    taken = {a.name for a in problem.arrays} | {p.name for p in problem.scalars}
    arrays, homes = list(problem.arrays), dict[str, _Home]()
    for x in lists:
        info, name = problem.array(x.array), fresh_name("places", taken)
        arrays.append(ArrayInfo(name, U32, info.shape[-1:], "temp"))
        homes[x.array] = _Home(x, name)
    tasks = [_moved(t, homes) for t in problem.tasks]
    added = []
    for x in lists:
        info = problem.array(x.array)
        added.append((_converting("enter", info, homes[x.array], at_once), False))
        if x.is_written:
            added.append((_converting("leave", info, homes[x.array], at_once), True))
    return problem.converting(tasks, arrays, added)


class _Home:
    """New location of a list: the array of its cell numbers, and expressions for items and coordinates."""

    def __init__(self, x: ListRecords, array: str) -> None:
        self.x, self.array = x, array

    def read(self, component: int, element: ir.Expr, dtype: ir.DType) -> ir.Expr:
        """The item (component 0) or a coordinate (components from 1 on) of an element of the list."""
        place = cast(ir.Load(self.array, (element,), U32), I64)
        if component:
            return cast(_coordinates(place, self.x.shape)[component - 1], dtype)
        return cast(_at(self.x.item, place), dtype)

    def stored(self, parts: Mapping[int, ir.Store]) -> ir.Store:
        """Returns the store of a cell number that replaces the stores of all components of a record."""
        *_, last = parts.values()
        at = [parts[1 + k].value for k in range(len(self.x.shape))]
        return ir.Store(self.array, last.indices[1:], _place(at, self.x.shape), last.where)


def _at(e: ir.Expr, place: ir.Expr) -> ir.Expr:
    return place if e == PLACE else mapped(e, lambda x: _at(x, place), lambda s: s)


def _moved(task: Task, homes: Mapping[str, _Home]) -> Task:
    """Returns the task rewritten to access cell numbers instead of the lists.

    Its sites still name the lists: their facts on elements hold for cell numbers, too.
    """
    if task.body is None or homes.keys().isdisjoint(x.state.name for x in task.body.sites):
        return task

    def expr(e: ir.Expr) -> ir.Expr:
        found = mapped(e, expr, lambda s: s)
        if isinstance(found, ir.Load) and found.array in homes:
            return homes[found.array].read(_component(found), found.indices[1], found.dtype)
        return found

    def block(body: tuple[ir.Stmt, ...]) -> tuple[ir.Stmt, ...]:
        made: list[ir.Stmt] = []
        parts: dict[int, ir.Store] = {}
        for s in body:
            found = mapped(with_blocks(s, block), expr, lambda x: x)
            if isinstance(found, ir.Store) and found.array in homes:
                home = homes[found.array]
                parts[_component(found)] = found
                if len(parts) > len(home.x.shape):
                    made.append(home.stored(parts))
                    parts = {}
            else:
                made.append(found)
        return tuple(made)

    return replace(task, body=replace(task.body, statements=block(task.body.statements)))


def _component(x: ir.Load | ir.Store) -> int:
    first = x.indices[0]
    assert isinstance(first, ir.Const)
    return int(first.value)


def _is_plain(task: Task, array: str, n: int) -> bool:
    """True if a task reads only constant components of a list, and writes all `n` of a record in a row."""
    if array not in {*arrays_read(task), *arrays_written(task)}:
        return True
    if task.body is None:
        return False
    for s in nested_statements(task.body.statements):
        every = (x for e in children(s) for x in walk(e))
        found = (x for x in every if isinstance(x, ir.Load) and x.array == array)
        if not all(isinstance(x.indices[0], ir.Const) for x in found):
            return False
        if isinstance(s, ir.Update) and s.array == array:
            return False
    return all(_is_written_whole(b, array, n) for b in _blocks(task.body.statements))


def _blocks(body: tuple[ir.Stmt, ...]) -> Iterator[tuple[ir.Stmt, ...]]:
    yield body
    for s in body:
        for inner in blocks(s):
            yield from _blocks(inner)


def _is_written_whole(body: tuple[ir.Stmt, ...], array: str, n: int) -> bool:
    stores = [(k, s) for k, s in enumerate(body) if isinstance(s, ir.Store) and s.array == array]
    wanted = [number(k) for k in range(n)]
    for first in range(0, len(stores), n):
        at, run = zip(*stores[first : first + n], strict=True)
        is_whole = [s.indices[0] for s in run] == wanted and len({s.indices[1:] for s in run}) == 1
        if not is_whole or at[-1] - at[0] != n - 1:
            return False
    return True


def _converting(verb: str, info: ArrayInfo, home: _Home, at_once: int) -> Task:
    """Returns the task that computes cell numbers of the program's list on entry, or its records on exit.

    An iteration converts `at_once` records.
    """
    x, n_items = home.x, info.shape[-1]
    indices = number(x.row), number(x.column)
    used = binary("min", ir.Load(x.counters, indices, I64), number(n_items))
    components = range(1 + len(x.shape))

    def copied(element: ir.Expr) -> tuple[ir.Stmt, ...]:
        if verb == "enter":
            at = [ir.Load(info.name, (number(k), element), info.dtype) for k in components[1:]]
            return (ir.Store(home.array, (element,), _place(at, x.shape), ir.NOWHERE),)
        return tuple(
            ir.Store(info.name, (number(k), element), home.read(k, element, info.dtype), ir.NOWHERE)
            for k in components
        )

    def write(begin: ir.Expr, n_used: ir.Expr, _: ir.Expr) -> Sequence[ir.Stmt]:
        element = plus(begin, ir.LoopIndex("item", I64))
        return (ir.For("item", n_used, copied(element), ir.NOWHERE),)

    what = "records", n_items, used
    return converting(verb, f"list {x.name}", what, write, info.dtype, at_once)
