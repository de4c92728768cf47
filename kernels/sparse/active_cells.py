"""Cells that are surely active: activations that are needless, and which cells still are active behind a statement."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TypeVar

from ..ir.kernel import (
    Activate,
    Append,
    Deactivate,
    Expr,
    IsActive,
    Item,
    Length,
    Stmt,
    Store,
    Update,
)
from ..ir.walk import loads, local_changed, locals_read, nested_statements, walk, with_blocks

Cell = tuple[str, int, tuple[Expr, ...]]  # of a tree, at a node
T = TypeVar("T")


def without_activations(
    body: tuple[Stmt, ...], demoted: frozenset[int]
) -> tuple[tuple[Stmt, ...], set[tuple[int, str, int, tuple[Expr, ...]]]]:
    """A kernel without activations that are needless, by their numbers in the text; and their cells, which are surely active, with
    the numbers of the statements at top level that they are in.
    """
    sure: set[tuple[int, str, int, tuple[Expr, ...]]] = set()
    counted = itertools.count()

    def kept(body: tuple[Stmt, ...], top: int) -> tuple[Stmt, ...]:
        found = []
        for s in body:
            if isinstance(s, Activate) and next(counted) in demoted:
                sure.add((top, s.tree, s.node, s.indices))
            else:
                found.append(with_blocks(s, lambda inner: kept(inner, top)))
        return tuple(found)

    if not demoted:
        return body, sure
    return tuple(x for top, s in enumerate(body) for x in kept((s,), top)), sure


def still_active(active: Mapping[Cell, T], s: Stmt) -> dict[Cell, T]:
    """Of cells that are surely active those that still are behind a statement: not those whose indices may be others now."""
    inside = list(nested_statements((s,)))
    if any(isinstance(x, Deactivate) for x in inside):
        return {}
    names = {local_changed(x) for x in inside} - {""}
    arrays = {x.array for x in inside if isinstance(x, Store | Update)}
    is_change = any(isinstance(x, Activate | Append) for x in inside)
    if isinstance(s, Append):
        names -= {s.result}
    return {
        key: found
        for key, found in active.items()
        if not any(
            names & set(locals_read(i))
            or any(x.array in arrays for x in loads(i))
            or (is_change and any(isinstance(x, IsActive | Length | Item) for x in walk(i)))
            for i in key[2]
        )
    }
