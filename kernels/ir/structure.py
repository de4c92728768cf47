"""Structure trees: layout of the cells of sparse fields. Kinds of nodes are rows of `KINDS`.

No other code is special to a kind.
A node splits each cell of its parent into a container of cells. Numbering containers and cells makes every kind alike: the cell `c`
of container `k` is item `k * cells + c`. The child's container in that cell has the item's number, and so has the element of each
field.
Nodes with a pool number items differently. A table has a slot for each of their cells, 0 where there is none. The slot is the item.
(In a dynamic node a slot is that of a chunk, and the item is a position in the chunk.) So item 0 of a pool is shared by all
inactive cells, and it stays zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

NodeKind = str  # a row of KINDS


@dataclass(frozen=True)
class Kind:
    """Kind of a structure node, by its storage besides the cells.

    `pool`: slots for active cells. `mask`: a bit per cell. `length`: the number of active cells, which are the first ones.
    `directory`: a hash table from keys of cells to slots, with entries only for cells that were active. `says`: user-facing text
    for its method of `SNode`.
    """

    says: str
    pool: bool = False
    mask: bool = False
    length: bool = False
    directory: bool = False

    @property
    def is_sparse(self) -> bool:
        """True if some cells of a node of this kind may be inactive."""
        return self.pool or self.mask or self.length

    @property
    def is_listed(self) -> bool:
        """True if loops over a node of this kind use a list of its active cells."""
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
    """Node of a structure tree. `parent` is the number of the node above, -1 for the topmost one.

    `axes`: the axes that the node splits. `extents`: the number of parts along each.
    `chunk` is the number of cells that a dynamic node allocates at once, else 1.
    """

    kind: NodeKind
    parent: int
    axes: tuple[int, ...]
    extents: tuple[int, ...]
    chunk: int = 1

    @cached_property
    def cells(self) -> int:
        """Number of cells of one container of the node."""
        return prod(self.extents)

    @cached_property
    def entries(self) -> int:
        """Number of entries of one container's table of slots: one for each chunk of cells."""
        return -(-self.cells // self.chunk)

    @property
    def has(self) -> Kind:
        return KINDS[self.kind]


@dataclass(frozen=True)
class StructureTree:
    """Structure tree: the nodes below one child of a root, parents before children. `nodes[0]` is that child."""

    name: str
    nodes: tuple[TreeNode, ...]

    def path(self, node: int) -> tuple[int, ...]:
        """Returns the numbers of the nodes from the topmost one down to `node`, which is the last; () for -1."""
        return () if node < 0 else self._paths[node]

    def axes(self, node: int) -> tuple[int, ...]:
        """Returns the axes by which cells of the node are indexed, in order; () for -1."""
        return () if node < 0 else self._axes[node]

    def shape(self, node: int) -> tuple[int, ...]:
        """Returns the number of cells of the whole tree along each axis of the node."""
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
        """Returns for each node of the path to `node` the number of parts into which it splits an axis."""
        return tuple(
            dict(zip(self.nodes[n].axes, self.nodes[n].extents, strict=True)).get(axis, 1)
            for n in self.path(node)
        )

    def nodes_in(self, node: int) -> tuple[int, ...]:
        """Returns the numbers of the children of the node."""
        return tuple(k for k, n in enumerate(self.nodes) if n.parent == node)

    def below(self, node: int) -> tuple[int, ...]:
        """Returns the numbers of the node and all its descendants, parents first."""
        return tuple(k for k in range(len(self.nodes)) if node in self.path(k))

    def last(self, node: int, kind: str) -> int:
        """Returns the lowest node on the path to `node` with a property of its kind; -1 if there is none.

        `kind`: the property, for instance "pool", "mask" or "is_listed".
        """
        found = [n for n in self.path(node) if getattr(self.nodes[n].has, kind)]
        return found[-1] if found else -1

    def is_sparse(self, node: int) -> bool:
        """True if cells of the node may be inactive."""
        return self.last(node, "is_sparse") >= 0
