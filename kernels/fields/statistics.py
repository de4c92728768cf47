"""Statistics of a tree of fields: for each node the containers, the cells, the active cells, and their bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ..sparse.layout import words
from .contiguous import boxes_of

if TYPE_CHECKING:
    from .storage import TreeStorage
    from .tree import SNode


@dataclass(frozen=True)
class NodeStatistics:
    """Statistics of one node of a tree.

    `depth`: nodes above it, without the root. `extents`: number of its cells in a container, by axis.
    `containers`: number in memory; they have `cells` cells, of which `active` are active.
    `table_bytes`: slots, masks and lengths of these containers. `value_bytes`: elements of the node's fields in cells with memory.
    """

    kind: str
    depth: int
    axes: tuple[int, ...]
    extents: tuple[int, ...]
    fields: tuple[str, ...]
    containers: int
    cells: int
    active: int
    table_bytes: int
    value_bytes: int

    @property
    def fill(self) -> float:
        """Active share of the cells in memory; 0 if there are none."""
        return self.active / self.cells if self.cells else 0.0

    @property
    def name(self) -> str:
        return f"{self.kind} {'x'.join(map(str, self.extents))}"


@dataclass(frozen=True)
class TreeStatistics:
    """Statistics of all nodes of a tree, parents before children. As text it is a table."""

    nodes: tuple[NodeStatistics, ...]

    @property
    def bytes(self) -> int:
        return sum(n.table_bytes + n.value_bytes for n in self.nodes)

    def __str__(self) -> str:
        head = ("node", "fields", "containers", "cells", "active", "fill", "tables", "values")
        rows = [head] + [
            (
                "  " * n.depth + n.name,
                ", ".join(n.fields),
                str(n.containers),
                str(n.cells),
                str(n.active),
                f"{n.fill:.1%}",
                _size(n.table_bytes),
                _size(n.value_bytes),
            )
            for n in self.nodes
        ]
        wide = [max(len(row[k]) for row in rows) for k in range(len(head))]
        return "\n".join(
            "  ".join(
                cell.ljust(w) if k < 2 else cell.rjust(w)
                for k, (cell, w) in enumerate(zip(row, wide, strict=True))
            ).rstrip()
            for row in rows
        )


def statistics_in(storage: TreeStorage, names: Sequence[str]) -> TreeStatistics:
    """Returns the statistics of a tree in memory. `names`: names of its fields."""
    tree, active = storage.tree, {-1: 1}
    found = []
    for k, node in enumerate(tree.nodes):
        above = active[node.parent]
        active[k] = _active(storage, k)
        held = active[k] if node.has.is_listed else above * node.cells
        held = _chunked(storage, k) if node.has.length else held
        fields = zip(storage.layout.fields, names, strict=True)
        own = [(f, name) for f, name in fields if f.node == k]
        found.append(
            NodeStatistics(
                kind=node.kind,
                depth=len(tree.path(k)) - 1,
                axes=node.axes,
                extents=node.extents,
                fields=tuple(name for _, name in own),
                containers=above,
                cells=above * node.cells,
                active=active[k],
                table_bytes=_table_bytes(storage, k, above) if tree.is_sparse(k) else 0,
                value_bytes=sum(held * prod(f.components) * f.dtype.size_bytes for f, _ in own),
            )
        )
    return TreeStatistics(tuple(found))


def statistics_of(top: SNode) -> TreeStatistics:
    """Returns the statistics of `top`, a node below a root, and of the nodes below it.

    Allocates sparse trees.
    """
    structure = next((n.structure for n in _nodes(top) if n.is_sparse), None)
    found: list[NodeStatistics] = []

    def visit(node: SNode, depth: int, above: int) -> None:
        """Adds the statistics of `node` and of nodes below.

        `above`: active cells of the parent, each a container.
        """
        n_cells = prod(node.extents)
        leaves = [b for b in node.below if b.kind == "place"]
        if structure is not None and node.is_sparse:
            number = structure.numbers[id(node)]
            active = _active(structure.storage, number)
            tables = _table_bytes(structure.storage, number, above)
            # Each cell of a dense or bitmasked container has its elements; of pools each active cell.
            held = active if structure.tree.nodes[number].has.is_listed else above * n_cells
            if structure.tree.nodes[number].has.length:
                held = _chunked(structure.storage, number)
        else:
            active, tables = above * n_cells, 0
            held = active
        values = sum(
            held * prod(b.leaf.element_shape) * b.leaf.dtype.size_bytes for b in leaves if b.leaf
        )
        names = tuple(b.leaf.name or "unnamed" for b in leaves if b.leaf)
        found.append(
            NodeStatistics(
                kind=node.kind,
                depth=depth,
                axes=node.axes,
                extents=node.extents,
                fields=names,
                containers=above,
                cells=above * n_cells,
                active=active,
                table_bytes=tables,
                value_bytes=values,
            )
        )
        for below in node.below:
            if below.kind != "place":
                visit(below, depth + 1, active)

    visit(top, 0, 1)
    return TreeStatistics(tuple(found))


def _nodes(node: SNode) -> Iterator[SNode]:
    yield node
    for below in node.below:
        yield from _nodes(below)


def _active(storage: TreeStorage, number: int) -> int:
    boxes = boxes_of(storage, number)
    active = boxes.active()
    return len(boxes.items) * boxes.unit if active is None else int(active.sum())


def _table_bytes(storage: TreeStorage, number: int, containers: int) -> int:
    node = storage.tree.nodes[number]
    if node.has.directory:  # a key and a slot of each place that somebody has
        return 12 * _active(storage, number)
    n = 4 * node.entries if node.has.pool else 0
    n += 8 * words(node.cells) if node.has.mask else 0
    n += 4 if node.has.length else 0
    return n * containers


def _chunked(storage: TreeStorage, number: int) -> int:
    """Returns the number of a dynamic node's cells that have memory: the cells of all allocated chunks."""
    table = storage.arrays[f"table{number}"]
    n_containers, _ = storage.used(number)
    node = storage.tree.nodes[number]
    return int((table[: n_containers * node.entries] != 0).sum()) * node.chunk


def _size(n: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if n < 10 * 1024:
            return f"{n} {unit}"
        n = round(n / 1024)
    return f"{n} GiB"
