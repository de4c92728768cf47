"""Must-be-active analysis: removes redundant activations, and finds cells that are surely active."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TypeVar

from ..ir import kernel as ir
from ..ir.walk import loads, local_changed, locals_read, nested_statements, walk, with_blocks

Cell = tuple[str, int, tuple[ir.Expr, ...]]  # of a tree, at a node
T = TypeVar("T")


def without_activations(
    body: tuple[ir.Stmt, ...], demoted: frozenset[int]
) -> tuple[tuple[ir.Stmt, ...], set[tuple[int, str, int, tuple[ir.Expr, ...]]]]:
    """Returns the body without the activations `demoted`, and the cells of these activations.

    The activations are given by their numbers in the order of the text. Each of their cells is surely active: it is returned as
    (number of the top-level statement, tree, node, indices).
    """
    sure: set[tuple[int, str, int, tuple[ir.Expr, ...]]] = set()
    counted = itertools.count()

    def kept(body: tuple[ir.Stmt, ...], top: int) -> tuple[ir.Stmt, ...]:
        found = []
        for s in body:
            if isinstance(s, ir.Activate) and next(counted) in demoted:
                sure.add((top, s.tree, s.node, s.indices))
            else:
                found.append(with_blocks(s, lambda inner: kept(inner, top)))
        return tuple(found)

    if not demoted:
        return body, sure
    return tuple(x for top, s in enumerate(body) for x in kept((s,), top)), sure


def still_active(active: Mapping[Cell, T], s: ir.Stmt) -> dict[Cell, T]:
    """Returns the cells of `active` that are surely active after statement `s`, too.

    Cells whose indices `s` may change are left out.
    """
    inside = list(nested_statements((s,)))
    if any(isinstance(x, ir.Deactivate) for x in inside):
        return {}
    names = {local_changed(x) for x in inside} - {""}
    arrays = {x.array for x in inside if isinstance(x, ir.Store | ir.Update)}
    is_change = any(isinstance(x, ir.Activate | ir.Append) for x in inside)
    if isinstance(s, ir.Append):
        names -= {s.result}
    return {
        key: found
        for key, found in active.items()
        if not any(
            names & set(locals_read(i))
            or any(x.array in arrays for x in loads(i))
            or (
                is_change and any(isinstance(x, ir.IsActive | ir.Length | ir.Item) for x in walk(i))
            )
            for i in key[2]
        )
    }
