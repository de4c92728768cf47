"""Lists of active cells: where loops take them, and the ways in which they have one that is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .kernel import For, If, LoopIndex, Stmt
from .walk import Renaming, nested_statements

ANEW, IF_OLD, AS_IS = "GENERATE", "IF_CHANGED", "REUSE"  # the values of `listgen`


@dataclass(frozen=True)
class ListSite:
    """A loop takes a list. `has_flag`: something says whether cells have changed since the list was made; `is_right`: the list that
    the same task made for an earlier loop is surely right.
    """

    name: str
    has_flag: bool
    is_right: bool = False


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
