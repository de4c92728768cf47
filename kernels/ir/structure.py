"""Structure trees: how cells of sparse fields are found. Kinds of nodes are rows of `KINDS`; nothing else is special to one.

A node splits each cell of its parent into a container of cells. Numbering them makes every kind alike: the cell `c` of container
`k` is item `k * cells + c`, and the container of each child and the element of each field in that cell has the item's number.
Nodes with a pool number items otherwise: a table holds a slot for each of their cells, 0 where there is none, and the slot (of a
dynamic node the place in its chunk) is the item. So item 0 of a pool is what all inactive cells share, and it stays zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

NodeKind = str  # a row of KINDS


@dataclass(frozen=True)
class Kind:
    """What a kind of node has beside its cells: `pool`, slots for cells that are there; `mask`, a bit a cell; `length`, how many
    of its cells are there, from the first one on; `directory`: the table has places for cells that were active only, by their key.
    `says`: what its method of `SNode` does, for people.
    """

    says: str
    pool: bool = False
    mask: bool = False
    length: bool = False
    directory: bool = False

    @property
    def is_sparse(self) -> bool:
        """Whether some of its cells may be inactive."""
        return self.pool or self.mask or self.length

    @property
    def is_listed(self) -> bool:
        """Whether a list of its active cells is kept for loops."""
        return self.pool and not self.length


KINDS: dict[NodeKind, Kind] = {
    "dense": Kind(
        "Splits each cell; `dimensions` is one number for all axes, or one each. All cells are there."
    ),
    "bitmasked": Kind(
        "As `dense`, with a bit for each cell that says whether it is active.", mask=True
    ),
    "pointer": Kind("As `dense`, but only active cells have memory.", pool=True),
    "hash": Kind(
        "As `pointer`, with places for the cells that were active only.", pool=True, directory=True
    ),
    "dynamic": Kind(
        "Splits each cell along one axis into a list of at most `dimension` cells, which grows by `chunk_size` at once.",
        pool=True,
        length=True,
    ),
}


@dataclass(frozen=True)
class TreeNode:
    """`parent` is the number of the node above, -1 of the first one. `chunk`: cells that a dynamic node gets at once, else 1."""

    kind: NodeKind
    parent: int
    axes: tuple[int, ...]
    extents: tuple[int, ...]
    chunk: int = 1

    @cached_property
    def cells(self) -> int:
        """Cells of a container."""
        return prod(self.extents)

    @cached_property
    def entries(self) -> int:
        """Entries of a container's table of slots."""
        return -(-self.cells // self.chunk)

    @property
    def has(self) -> Kind:
        return KINDS[self.kind]


@dataclass(frozen=True)
class StructureTree:
    """Nodes below one child of a root, parents before children: `nodes[0]` is that child."""

    name: str
    nodes: tuple[TreeNode, ...]

    def path(self, node: int) -> tuple[int, ...]:
        """The nodes from the first one down to `node`, which is the last; () for -1."""
        return () if node < 0 else self._paths[node]

    def axes(self, node: int) -> tuple[int, ...]:
        """Axes that indices of a cell of the node have, in order; () for -1."""
        return () if node < 0 else self._axes[node]

    def shape(self, node: int) -> tuple[int, ...]:
        """Cells along each of these axes."""
        return () if node < 0 else self._shapes[node]

    @cached_property
    def _paths(self) -> tuple[tuple[int, ...], ...]:
        found: list[tuple[int, ...]] = []
        for k, n in enumerate(self.nodes):
            found.append((*(found[n.parent] if n.parent >= 0 else ()), k))
        return tuple(found)

    @cached_property
    def _axes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(
            tuple(sorted({a for n in path for a in self.nodes[n].axes})) for path in self._paths
        )

    @cached_property
    def _shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(
            tuple(prod(self.split(k, a)) for a in self.axes(k)) for k in range(len(self.nodes))
        )

    def split(self, node: int, axis: int) -> tuple[int, ...]:
        """For each node of the path, into how many parts it splits an axis."""
        return tuple(
            dict(zip(self.nodes[n].axes, self.nodes[n].extents, strict=True)).get(axis, 1)
            for n in self.path(node)
        )

    def nodes_in(self, node: int) -> tuple[int, ...]:
        """The nodes directly below."""
        return tuple(k for k, n in enumerate(self.nodes) if n.parent == node)

    def below(self, node: int) -> tuple[int, ...]:
        """The node and all below it, parents first."""
        return tuple(k for k in range(len(self.nodes)) if node in self.path(k))

    def last(self, node: int, kind: str) -> int:
        """The last node of the path that has something of this kind ("pool", "mask", "is_listed", ...); -1 where none has."""
        found = [n for n in self.path(node) if getattr(self.nodes[n].has, kind)]
        return found[-1] if found else -1

    def is_sparse(self, node: int) -> bool:
        """Whether cells of the node may be inactive."""
        return self.last(node, "is_sparse") >= 0
