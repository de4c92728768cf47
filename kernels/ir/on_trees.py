"""Sparse facts of a body: list uses of its loops, activations, and states safe for concurrent changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from . import kernel as ir
from .simplify import cast
from .walk import Renaming, children, nested_statements, walk, with_blocks

ANEW, IF_OLD, AS_IS = "GENERATE", "IF_CHANGED", "REUSE"  # the values of `listgen`
EACH, NEEDED, ONCE = "ACTIVATE", "DEMOTED", "ELEMENT"  # the values of `activate`


@dataclass(frozen=True)
class ListSite:
    """Use of a list of active cells by a loop of a body.

    `has_flag`: a flag records changes of cells since the list was made.
    `is_right`: the list that the same task made for an earlier loop is surely still valid.
    """

    name: str
    has_flag: bool
    is_right: bool = False


@dataclass(frozen=True)
class TileSite:
    """Field of which a loop over the cells of leaves reads, or updates, neighbour cells: it may be staged in local arrays.

    The local arrays have `n_bytes`. `n_crossed` is the maximal number of axes along which an access leaves the leaf.
    `field` is the field's array in the kernel. `updated`: its array in the sequence, if the loop updates it; else "".
    """

    name: str
    n_bytes: int
    n_crossed: int
    field: str
    updated: str = ""


@dataclass(frozen=True)
class OnTrees:
    """Sparse facts of a body: list uses, activations, and arrays that are safe for concurrent access.

    `lists`: the list uses, for a body that makes a list. `way`: the value of the choice `activate`, for a body that activates
    cells.

    `apart`: fields without conflicts between iterations of the outermost loop, proved by the coordinates of their cells. `shared`:
    states that several threads may change at once, with atomic updates (kernels/sparse/pools.py). `tiles`: fields that may be
    staged.
    `loops`: of a variant of a body, pairs of a loop's name here and in the original body, which decisions refer to.
    `sums`: of a variant of a body, pairs of a field that it updates and the array, over all cells, that has the sums first.
    `cell_blocks`: where loops of the body over cells became loops of the task (`kernels/tasks/leaf_loops.py`), numbers of their
    basic blocks in the original body, outermost first.
    """

    lists: tuple[ListSite, ...] = ()
    way: str = ""
    apart: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()
    tiles: tuple[TileSite, ...] = ()
    loops: tuple[tuple[str, str], ...] = ()
    sums: tuple[tuple[str, str], ...] = ()
    cell_blocks: tuple[int, ...] = ()

    def name_of(self, loop: str) -> str:
        """The name by which decisions refer to loop `loop`; "" for a loop that only this variant has."""
        return dict(self.loops).get(loop, "") if self.loops else loop

    @property
    def activates(self) -> bool:
        """True if the body may activate cells."""
        return self.way in (EACH, ONCE)

    @property
    def safe(self) -> frozenset[str]:
        """Arrays that concurrent iterations may access without further synchronisation."""
        return self.apart | self.shared


NO_TREES = OnTrees()


def making(statements: tuple[ir.Stmt, ...], how: Sequence[str]) -> tuple[ir.Stmt, ...]:
    """Returns the statements that make a list, once for each loop that uses the list, in the ways `how`.

    A way is a value of the choice `listgen`: make the list anew, make it if it is outdated, or reuse it.
    Precondition: `statements` are one branch, which is taken if the list is outdated. A list that is surely valid is checked only
    at its first use: no cell has changed until the loop that uses it.
    """
    (test,) = statements
    assert isinstance(test, ir.If)
    loops = [s.loop for s in nested_statements(statements) if isinstance(s, ir.For)]
    made: list[ir.Stmt] = []
    for k, way in enumerate(how):
        again = Renaming(loops={name: ir.LoopIndex(f"{name}@{k}") for name in loops} if k else {})
        here = again.apply_stmt(test)
        assert isinstance(here, ir.If)
        if way == ANEW:
            made += here.then
        elif way == IF_OLD:
            made.append(here)
    return tuple(made)


@dataclass(frozen=True)
class Compaction:
    """Stream compaction that makes a list: `loop` stores in `array` the elements that it selects.

    It runs if `test` holds (None: always). The local `count` is the number of elements so far. The stores `ends` mark the list as
    made; the first of them stores the count.
    """

    test: ir.Expr | None
    count: ir.Local
    loop: ir.For
    array: str
    ends: tuple[ir.Store, ...]

    @property
    def counting(self) -> tuple[ir.Stmt, ...]:
        """Statements of the loop's body that count elements, without the stores.

        A nested loop that only counts its iterations is replaced by one addition.
        """
        return _counted(_without_stores(self.loop.body), self.count)


def compactions(statements: tuple[ir.Stmt, ...]) -> tuple[Compaction, ...]:
    """Returns the compactions that the statements consist of, in order; () if there are other statements."""
    found: list[Compaction] = []
    rest = list(statements)
    while rest:
        test: ir.Expr | None = None
        if isinstance(rest[0], ir.If) and not rest[0].orelse:
            test, inner = rest[0].condition, list(rest[0].then)
            rest = rest[1:]
        else:
            inner, rest = rest, []
        made, left = _compaction(test, inner)
        if made is None or (test is not None and left):
            return ()
        found.append(made)
        rest = [*left, *rest]
    return tuple(found)


def _compaction(
    test: ir.Expr | None, body: list[ir.Stmt]
) -> tuple[Compaction | None, list[ir.Stmt]]:
    """Returns the compaction at the begin of `body`, None if there is none, and the statements behind it."""
    match body:
        case [
            ir.SetLocal(name=name, value=ir.Const(value=0) as zero),
            ir.SetLocal(name=held, value=value),
            ir.For(extent=ir.Local(name=extent)) as loop,
            *rest,
        ] if held == extent and held not in _read((*loop.body, *_leading_stores(rest))):
            return _compaction(test, [body[0], replace(loop, extent=value), *rest])
        case [
            ir.SetLocal(name=name, value=ir.Const(value=0) as zero),
            ir.For() as loop,
            ir.Store() as first,
            *rest,
        ]:
            count = ir.Local(name, zero.dtype)
            arrays = {s.array for s in nested_statements(loop.body) if isinstance(s, ir.Store)}
            updates = any(isinstance(s, ir.Update) for s in nested_statements(loop.body))
            if first.value != count or len(arrays) != 1 or updates:
                return None, []
            ends = (first, *_leading_stores(rest))
            return Compaction(test, count, loop, arrays.pop(), ends), rest[len(ends) - 1 :]
    return None, []


def _without_stores(body: tuple[ir.Stmt, ...]) -> tuple[ir.Stmt, ...]:
    kept = (s for s in body if not isinstance(s, ir.Store))
    return tuple(with_blocks(s, _without_stores) for s in kept)


def _counted(body: tuple[ir.Stmt, ...], count: ir.Local) -> tuple[ir.Stmt, ...]:
    """Returns the statements with each loop that only adds 1 to `count` replaced by one addition of its extent."""
    made: list[ir.Stmt] = []
    for k, s in enumerate(body):
        if isinstance(s, ir.For) and _only_counts(s, count, body[:k], body[k + 1 :]):
            made.append(ir.UpdateLocal(count.name, "add", cast(s.extent, count.dtype), s.where))
        else:
            made.append(with_blocks(s, lambda inner: _counted(inner, count)))
    return tuple(made)


def _only_counts(
    loop: ir.For, count: ir.Local, before: Sequence[ir.Stmt], behind: Sequence[ir.Stmt]
) -> bool:
    """True if the only effect of a loop is to add its number of iterations to `count`.

    No statement behind the loop reads a local that the loop sets. Statements before it read such a local only after they set it.
    `before` and `behind`: the statements of the same block.
    """
    adds = [s for s in loop.body if isinstance(s, ir.UpdateLocal)]
    others = [s for s in loop.body if isinstance(s, ir.SetLocal)]
    is_one = len(adds) == 1 and adds[0].name == count.name and adds[0].op == "add"
    if not is_one or adds[0].value != ir.Const(1, count.dtype) or len(loop.body) != 1 + len(others):
        return False
    own = {s.name for s in others}
    if any(own & _read((s,)) for s in behind) or count.name in _read(loop.body):
        return False
    seen = set[str]()
    for s in before:
        if (own - seen) & _read((s,)):
            return False
        seen |= {s.name} if isinstance(s, ir.SetLocal) else set()
    return True


def _leading_stores(body: Sequence[ir.Stmt]) -> tuple[ir.Store, ...]:
    n = len(list(takewhile(lambda s: isinstance(s, ir.Store), body)))
    return tuple(s for s in body[:n] if isinstance(s, ir.Store))


def _read(body: Sequence[ir.Stmt]) -> set[str]:
    """Returns names of the locals that statements read."""
    every = (x for s in nested_statements(tuple(body)) for e in children(s) for x in walk(e))
    return {x.name for x in every if isinstance(x, ir.Local)}
