"""The current cell of a loop over active cells, and effects of the loop on it and on other cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..ir import kernel as ir
from ..ir.domain import BOX, Active, Domain
from ..ir.structure import StructureTree
from ..ir.walk import nested_statements, with_blocks
from .cells import number
from .neighbour_cells import Leaf


@dataclass(frozen=True)
class Own:
    """Current cell of a loop over active cells: tree, node, indices, and its item at each node of the path.

    `loops`: names of the loop's indices. An item is a position in the arrays of the node's fields.
    """

    tree: StructureTree
    node: int
    loops: tuple[str, ...]
    items: Mapping[int, ir.Expr]
    leaf: Leaf | None = None

    def item(self, tree: str, node: int, indices: tuple[ir.Expr, ...]) -> ir.Expr | None:
        """The item of a cell if it is the current cell; None for other cells.

        It is known as well for a cell with the same indices in a node of equal layout.
        """
        t = self.tree
        if t.name != tree or len(indices) != len(self.loops):
            return None
        if t.axes(node) != t.axes(self.node) or t.shape(node) != t.shape(self.node):
            return None
        for x, loop in zip(indices, self.loops, strict=True):
            while isinstance(x, ir.Cast) and x.x.dtype.is_index:
                x = x.x
            if not isinstance(x, ir.LoopIndex) or x.loop != loop:
                return None
        if node not in self.items and self.lies_alike(node):
            return self.items.get(self.node)
        return self.items.get(node)

    def lies_alike(self, node: int) -> bool:
        """True if cells of node `node` and of the loop's node with equal indices have equal items.

        Both then have equal dense nodes below one node of the path.
        """
        ours, others = self.tree.path(self.node), self.tree.path(node)
        n_common = sum(a == b for a, b in zip(ours, others, strict=False))
        ours, others = ours[n_common:], others[n_common:]
        nodes = self.tree.nodes
        return len(ours) == len(others) and all(
            not nodes[a].has.is_sparse
            and not nodes[b].has.is_sparse
            and (nodes[a].axes, nodes[a].extents) == (nodes[b].axes, nodes[b].extents)
            for a, b in zip(ours, others, strict=True)
        )


def own_of(s: ir.ForActive, t: StructureTree) -> Own:
    """Returns the current cell of a loop, with placeholders for its items."""
    return Own(t, s.node, s.loops, {n: number(0) for n in t.path(s.node)})


def shrinks(s: ir.ForActive) -> bool:
    """True if the body of a loop over active cells may deactivate cells of the loop's tree."""
    return any(isinstance(x, ir.Deactivate) and x.tree == s.tree for x in nested_statements(s.body))


def changing(s: ir.ForActive, t: StructureTree) -> int:
    """Returns the lowest node of the loop's path without a stored list whose cells the loop changes; -1 if none.

    A change is an activation or deactivation; activations of the current cell do not count.
    A list of the node is made before the loop. Otherwise the loop would search for active cells while it changes them.
    """
    own, path = own_of(s, t), t.path(s.node)
    found: set[int] = set()
    for x in nested_statements(s.body):
        if isinstance(x, ir.Activate | ir.Append) and x.tree == s.tree:
            found |= set(t.path(x.node))
        elif isinstance(x, ir.Deactivate) and x.tree == s.tree:
            is_list = t.nodes[x.node].has.length
            if is_list or own.item(x.tree, x.node, x.indices) is None:
                found |= set(t.below(x.node))
    seen = [n for n in path if t.nodes[n].has.mask or t.nodes[n].has.length]
    return max((n for n in seen if n in found), default=-1)


def lists_made(s: ir.ForActive, t: StructureTree) -> Iterator[int]:
    """Yields the nodes whose lists a loop over active cells needs, the node of its own list first.

    A list is made from that of the next listed node above; one of a hash node from its directory.
    """
    node = max(t.last(s.node, "is_listed"), changing(s, t))
    while node >= 0:
        yield node
        has, parent = t.nodes[node].has, t.nodes[node].parent
        node = -1 if has.directory else t.last(parent, "is_listed")


def active_cells(s: ir.ForActive, t: StructureTree) -> Domain:
    """Returns the domain of a lowered loop: the active cells below a listed node.

    A loop without a list has a box of all cells.
    """
    listed = next(lists_made(s, t), -1)
    if listed < 0:
        return BOX
    path = t.path(s.node)
    below = path[path.index(listed) + 1 :]
    leaf = dict.fromkeys(t.axes(s.node), 1)
    for n in below:
        for axis, extent in zip(t.nodes[n].axes, t.nodes[n].extents, strict=True):
            leaf[axis] *= extent
    tests_cells = any(t.nodes[n].has.is_sparse for n in below)
    return Active(s.tree, listed, tuple(leaf.values()), tests_cells)


def without_own_activations(s: ir.ForActive, t: StructureTree) -> ir.Stmt:
    """Returns a loop without activations of its current cell, which is active.

    A loop that deactivates cells is returned unchanged.
    """
    if shrinks(s):
        return s
    own = own_of(s, t)

    def kept(body: tuple[ir.Stmt, ...]) -> tuple[ir.Stmt, ...]:
        return tuple(
            with_blocks(x, kept)
            for x in body
            if not isinstance(x, ir.Activate) or own.item(x.tree, x.node, x.indices) is None
        )

    return with_blocks(s, kept)


def written(s: ir.ForActive, t: StructureTree, placed: Mapping[str, ir.Placed]) -> dict[str, bool]:
    """Returns the fields that a loop stores to or updates, each with True if only the current cell is written."""
    own = own_of(s, t)
    found: dict[str, bool] = {}
    for x in nested_statements(s.body):
        if isinstance(x, ir.Store | ir.Update) and x.array in placed:
            p = placed[x.array]
            cell = x.indices[len(x.indices) - len(s.loops) :]
            is_own = own.item(p.tree, p.node, cell) is not None
            found[x.array] = found.get(x.array, True) and is_own
    return found
