"""Must-be-active analysis of cells: removes redundant activations, and finds the cells that are active after a statement."""

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
    """Removes redundant activations, by their numbers in the text.

    Also returns their cells, which are certainly active, with the numbers of the top-level statements that contain them.
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
    """The certainly active cells that are still so after a statement. Cells whose indices may have changed are left out."""
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
