"""What a body on sparse fields has besides statements: lists that loops take, activations, and what threads may touch at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .kernel import For, If, LoopIndex, Stmt
from .walk import Renaming, nested_statements

if TYPE_CHECKING:
    from .body import Body

ANEW, IF_OLD, AS_IS = "GENERATE", "IF_CHANGED", "REUSE"  # the values of `listgen`
EACH, NEEDED = "ACTIVATE", "DEMOTED"  # the values of `activate`


@dataclass(frozen=True)
class ListSite:
    """A loop takes a list. `has_flag`: something says whether cells have changed since the list was made; `is_right`: the list that
    the same task made for an earlier loop is surely right.
    """

    name: str
    has_flag: bool
    is_right: bool = False


@dataclass(frozen=True)
class TileSite:
    """A field of which a loop over the cells of leaves reads neighbours: they may be copied to a local array of so many bytes.
    `n_crossed`: axes along which a read may leave the leaf, at most.
    """

    name: str
    n_bytes: int
    n_crossed: int


@dataclass(frozen=True)
class OnTrees:
    """Of a body that makes a list: where it is taken. Of one that activates cells: its value of `activate`, and other bodies with
    theirs.

    `apart`: fields of which no two iterations of the outermost loop touch one element that one of them writes, by the coordinates
    of their cells. `shared`: states that several threads may change at once, where updates are atomic (kernels/sparse/pools.py).
    `forms` are the bodies with some of the `tiles`, by their names.
    """

    lists: tuple[ListSite, ...] = ()
    way: str = ""
    others: tuple[tuple[str, Body], ...] = ()
    apart: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()
    tiles: tuple[TileSite, ...] = ()
    forms: tuple[tuple[frozenset[str], Body], ...] = ()

    @property
    def safe(self) -> frozenset[str]:
        """Arrays of which threads that run iterations at once need no other care."""
        return self.apart | self.shared


NO_TREES = OnTrees()


def making(statements: tuple[Stmt, ...], how: Sequence[str]) -> tuple[Stmt, ...]:
    """What makes a list for all loops that take it, in the ways of `how`. `statements`: one branch, where the list is old.

    A list that is surely right is looked after where it was made first: no cell has changed until the loop that takes it.
    """
    (test,) = statements
    assert isinstance(test, If)
    loops = [s.loop for s in nested_statements(statements) if isinstance(s, For)]
    made: list[Stmt] = []
    for k, way in enumerate(how):
        again = Renaming(loops={name: LoopIndex(f"{name}@{k}") for name in loops} if k else {})
        here = again.apply_stmt(test)
        assert isinstance(here, If)
        if way == ANEW:
            made += here.then
        elif way == IF_OLD:
            made.append(here)
    return tuple(made)
