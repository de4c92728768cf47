"""Sparse facts of a body: list uses of its loops, activations, and states that threads may safely change at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from . import kernel as ir
from .simplify import cast
from .walk import Renaming, children, nested_statements, walk, with_blocks

ANEW, IF_OLD, AS_IS = "GENERATE", "IF_CHANGED", "REUSE"  # the values of `listgen`
EACH, NEEDED, ONCE = "ACTIVATE", "DEMOTED", "ELEMENT"  # the values of `activate`


@dataclass(frozen=True)
class ListSite:
    """List use of a loop. `has_flag`: a flag records changes of cells since the list was made.

    `is_right`: the list that the same task made for an earlier loop is surely valid.
    """

    name: str
    has_flag: bool
    is_right: bool = False


@dataclass(frozen=True)
class TileSite:
    """Field whose neighbour cells a loop over the cells of leaves reads: they may be staged in local arrays of `n_bytes`.

    `n_crossed` is the maximal number of axes along which a read leaves the leaf. `field` is the field's array in the kernel.
    """

    name: str
    n_bytes: int
    n_crossed: int
    field: str


@dataclass(frozen=True)
class OnTrees:
    """Sparse facts of a body. `lists`: the list uses of a body that makes a list.

    `way`: the value of `activate` for a body that activates cells.

    `apart`: fields without conflicts between iterations of the outermost loop, by the coordinates of their cells. `shared`: states
    that several threads may change at once, with atomic updates (kernels/sparse/pools.py). `tiles`: fields that may be staged.
    `loops`: of a variant of the body, its loops with their names in the body that decisions are about.
    """

    lists: tuple[ListSite, ...] = ()
    way: str = ""
    apart: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()
    tiles: tuple[TileSite, ...] = ()
    loops: tuple[tuple[str, str], ...] = ()

    def name_of(self, loop: str) -> str:
        """The name of a loop of this body in decisions; "" for a loop that only this variant has."""
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
    """Returns the statements that make a list for all loops that use it, each in its way of `how`.

    Precondition: `statements` are one branch, which is taken where the list is outdated. A list that is surely valid is checked
    only at its first use: no cell has changed until the loop that uses it.
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
    """Stream compaction that makes a list: where `test` holds (None: always), `loop` stores elements in `array`.

    The local `count` numbers the elements. The stores `ends` mark the list as made; the first of them stores the count.
    """

    test: ir.Expr | None
    count: ir.Local
    loop: ir.For
    array: str
    ends: tuple[ir.Store, ...]

    @property
    def counting(self) -> tuple[ir.Stmt, ...]:
        """The loop's body without its stores. A nested loop that only counts its iterations is replaced by their number."""
        return _counted(_without_stores(self.loop.body), self.count)


def compactions(statements: tuple[ir.Stmt, ...]) -> tuple[Compaction, ...]:
    """Returns the compactions that the statements consist of, in order; () where the statements are something else."""
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
    """Returns the compaction at the begin of the statements, and the statements behind it."""
    match body:
        case [
            ir.SetLocal(name=name, value=ir.Const(value=0) as zero),
            ir.For() as loop,
            ir.Store() as first,
            *rest,
        ]:
            count = ir.Local(name, zero.dtype)
            arrays = {s.array for s in nested_statements(loop.body) if isinstance(s, ir.Store)}
            others = (
                s for s in nested_statements(loop.body) if isinstance(s, ir.Update | ir.While)
            )
            if first.value != count or len(arrays) != 1 or any(others):
                return None, []
            n = next((k for k, s in enumerate(rest) if not isinstance(s, ir.Store)), len(rest))
            ends = (first, *(s for s in rest[:n] if isinstance(s, ir.Store)))
            return Compaction(test, count, loop, arrays.pop(), ends), rest[n:]
    return None, []


def _without_stores(body: tuple[ir.Stmt, ...]) -> tuple[ir.Stmt, ...]:
    kept = (s for s in body if not isinstance(s, ir.Store))
    return tuple(with_blocks(s, _without_stores) for s in kept)


def _counted(body: tuple[ir.Stmt, ...], count: ir.Local) -> tuple[ir.Stmt, ...]:
    """Replaces loops that only add 1 to `count` by one addition of their extent."""
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
    """True if the only effect of a loop is that it adds its number of iterations to `count`.

    The locals that it sets are never read later, and before it only after they are set in the same block.
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


def _read(body: Sequence[ir.Stmt]) -> set[str]:
    """The locals that statements read."""
    every = (x for s in nested_statements(tuple(body)) for e in children(s) for x in walk(e))
    return {x.name for x in every if isinstance(x, ir.Local)}
