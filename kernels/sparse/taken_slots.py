"""Upper bounds on the slots that a kernel takes from the pools of its trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod

from ..ir import kernel
from ..ir.structure import StructureTree
from ..ir.walk import blocks

# Iterations of a loop whose extent is known at run time only: more than any pool has slots.
_UNKNOWN = 1 << 62


@dataclass(frozen=True)
class Taking:
    """An activation: at most `n` slots of the pool of a tree's node, for each item of the node `element` of a tree.

    `element`: None where no loop over active cells is around it.
    """

    tree: str
    node: int
    n: int
    element: tuple[str, int] | None


def takings(
    body: tuple[kernel.Stmt, ...], trees: Mapping[str, StructureTree]
) -> tuple[Taking, ...]:
    """Returns the activations of a kernel on sparse fields, in the order of the text."""
    return tuple(_takings(body, trees, 1, None))


def most_taken(
    found: tuple[Taking, ...],
    n_items: Callable[[str, int, Mapping[int, int]], int],
    before: Mapping[str, Mapping[int, int]],
    n_calls: int = 1,
) -> dict[str, dict[int, int]]:
    """Returns by tree and node how many slots `n_calls` calls take at most, with those that were taken `before`.

    `n_items`: returns how many items of a tree's node may be active when further slots, by node, have been taken.
    """
    most = {tree: dict(x) for tree, x in before.items()}
    for x in found:
        taken = most.setdefault(x.tree, {})
        n = x.n * n_calls
        if x.element is not None:
            tree, node = x.element
            n *= n_items(tree, node, most.get(tree, {}))
        taken[x.node] = min(taken.get(x.node, 0) + n, _UNKNOWN)
    return most


def _takings(
    body: tuple[kernel.Stmt, ...],
    trees: Mapping[str, StructureTree],
    n: int,
    active: kernel.ForActive | None,
) -> Iterator[Taking]:
    for s in body:
        around, inner = n, active
        match s:
            case kernel.Activate() | kernel.Append():
                for k in trees[s.tree].path(s.node):
                    if trees[s.tree].nodes[k].has.pool:
                        yield _taking(s, trees[s.tree], k, n, active)
            case kernel.For():
                extent = s.extent
                times = int(extent.value) if isinstance(extent, kernel.Const) else _UNKNOWN
                around = n * max(times, 0)
            case kernel.While():
                around = _UNKNOWN
            case kernel.ForActive():
                around, inner = (n, s) if active is None else (_UNKNOWN, active)
        for block in blocks(s):
            yield from _takings(block, trees, min(around, _UNKNOWN), inner)


def _taking(
    s: kernel.Activate | kernel.Append,
    tree: StructureTree,
    k: int,
    n: int,
    active: kernel.ForActive | None,
) -> Taking:
    """Returns what a statement, in `n` iterations of the loops in the loop `active`, takes from the pool of node `k`."""
    node = tree.nodes[k]
    # All chunks before a cell of a list get slots; an append begins at most one.
    if node.has.length and not (isinstance(s, kernel.Append) and k == s.node):
        n *= node.entries
    if active is None:
        return Taking(s.tree, k, n, None)
    n_touched = _n_touched(s, tree, k, active)
    if n_touched:
        return Taking(s.tree, k, n * n_touched, (s.tree, k))
    return Taking(s.tree, k, n, (active.tree, active.node))


def _n_touched(
    s: kernel.Activate | kernel.Append, tree: StructureTree, k: int, active: kernel.ForActive
) -> int:
    """Returns how many cells of node `k` a statement touches for the loop's cells in one of them; 0 if that is unknown.

    It is known where each index is that of the loop with a constant distance: a box that is moved touches two along an axis.
    """
    if (active.tree, active.node) != (s.tree, s.node) or isinstance(s, kernel.Append):
        return 0
    if any(tree.nodes[x].has.length for x in tree.path(s.node)):
        return 0
    n, level = 1, tree.path(s.node).index(k)
    for axis, loop, index in zip(tree.axes(s.node), active.loops, s.indices, strict=True):
        distance = _distance(index, loop)
        if distance is None:
            return 0
        if distance % prod(tree.split(s.node, axis)[level + 1 :]):
            n *= 2
    return n


def _distance(index: kernel.Expr, loop: str) -> int | None:
    """Returns the constant that is added to the index of a loop; None if `index` is another expression."""
    match index:
        case kernel.Cast(x):
            return _distance(x, loop)
        case kernel.LoopIndex(name):
            return 0 if name == loop else None
        case kernel.Binary("add", kernel.LoopIndex(name), kernel.Const(value)) if name == loop:
            return int(value)
        case kernel.Binary("sub", kernel.LoopIndex(name), kernel.Const(value)) if name == loop:
            return -int(value)
    return None
