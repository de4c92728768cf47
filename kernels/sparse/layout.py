"""Where the states of a tree lie: arrays of one arena, each at its most. Pages that nobody touched cost address space only."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ..ir.errors import LanguageError
from ..ir.kernel import DType
from ..ir.structure import StructureTree

WORD = 64  # bits of a word of masks
BUSY = 1 << 31  # in a table: somebody is about to put a slot there
MOST_BYTES = 1 << 38  # of one tree, in address space
SPARE = 2  # slots for each cell of a pool: what a kernel gives back it cannot take again
_LEAST_SLOTS = 1 << 16  # pools are not made smaller than this

# Columns of `counters`, which has a row for each node and one more.
FREE, TAKEN, FRESH, FREED, CHANGED, COUNT = range(6)
OUTSIDE, FULL = range(2)  # columns of the row behind the last node's: writes that were not made
COLUMNS = 8  # a line of the cache
PADDING = 1  # elements behind those of a field, which rows of neighbours are read with


@dataclass(frozen=True)
class FieldPlace:
    """A field in a tree: its type, the shape of its components, and the node whose items are its elements."""

    dtype: DType
    components: tuple[int, ...]
    node: int


@dataclass(frozen=True)
class Section:
    """One array of the arena."""

    dtype: DType
    shape: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        return prod(self.shape) * self.dtype.size_bytes


@dataclass(frozen=True)
class Layout:
    """The sections of a tree with its fields, by key. Of each node: `containers`, `items`, and `slots` of its pool (0: none).

    `tableN`: slot of each entry; `freeN`, `freedN`: slots to be taken, and given back since the last settling; `listN`: item and
    coordinates of each active cell; `maskN`: words; `lengthN`: one a container; `fieldK`: components, then items.
    """

    tree: StructureTree
    fields: tuple[FieldPlace, ...]
    containers: tuple[int, ...]
    items: tuple[int, ...]
    slots: tuple[int, ...]
    sections: dict[str, Section]

    @property
    def n_bytes(self) -> int:
        return sum(s.n_bytes for s in self.sections.values())


def words(cells: int) -> int:
    """Words of a container's mask."""
    return -(-cells // WORD)


def layout_of(
    tree: StructureTree, fields: tuple[FieldPlace, ...], most_bytes: int = MOST_BYTES
) -> Layout:
    """The layout of a tree, pools as large as they can ever be, or as `most_bytes` leaves; LanguageError where it cannot be."""
    most = (1 << 31) - 1
    while True:
        found = _layout(tree, fields, most)
        if found.n_bytes <= most_bytes:
            return found
        if most < _LEAST_SLOTS:
            raise LanguageError(
                f"the tree {tree.name} has too many cells: {found.n_bytes >> 30} GiB for its tables alone; "
                "put another pointer node above"
            )
        most //= 2


def _layout(tree: StructureTree, fields: tuple[FieldPlace, ...], most: int) -> Layout:
    containers, items, slots = list[int](), list[int](), list[int]()
    n_cells = list[int]()  # of the node, in the whole tree
    sections = {"counters": Section(DType.i64, (len(tree.nodes) + 1, COLUMNS))}
    for k, node in enumerate(tree.nodes):
        n = 1 if node.parent < 0 else items[node.parent]
        above = 1 if node.parent < 0 else n_cells[node.parent]
        n_cells.append(above * node.cells)
        n_slots = 0
        if node.has.pool:
            n_entries = n * node.entries
            # Containers above that were given back have slots until they are settled, none of them twice.
            n_slots = min(SPARE * above * node.entries, most) + 1
            sections[f"table{k}"] = Section(DType.u32, (n_entries,))
            sections[f"free{k}"] = Section(DType.u32, (n_slots,))
            sections[f"freed{k}"] = Section(DType.u32, (n_slots,))
        if node.has.is_listed:
            sections[f"list{k}"] = Section(DType.i32, (1 + len(tree.axes(k)), n_slots))
        if node.has.mask:
            sections[f"mask{k}"] = Section(DType.u64, (n * words(node.cells),))
        if node.has.mask or node.has.length:
            n_items = n_slots * node.chunk if n_slots else n * node.cells
            sections[f"list{k}"] = Section(DType.i64, (1 + len(tree.axes(k)), n_items))
        if node.has.length:
            sections[f"length{k}"] = Section(DType.i32, (n,))
        containers.append(n)
        slots.append(n_slots)
        items.append(n_slots * node.chunk if n_slots else n * node.cells)
    for k, f in enumerate(fields):
        sections[f"field{k}"] = Section(f.dtype, (*f.components, items[f.node] + PADDING))
    return Layout(tree, fields, tuple(containers), tuple(items), tuple(slots), sections)


def wrong_tree(tree: StructureTree, fields: tuple[FieldPlace, ...]) -> str:
    """What is wrong with a tree that comes from a file, in a sentence; "" where nothing is."""
    if not tree.name.isidentifier() or not tree.nodes:
        return f"{tree.name!r:.60} is no tree of sparse fields"
    for k, node in enumerate(tree.nodes):
        is_first = k == 0 and node.parent == -1
        if not is_first and not 0 <= node.parent < k:
            return f"the node {k} of {tree.name} is below no node before it"
        axes, extents = node.axes, node.extents
        if len(axes) != len(extents) or len(set(axes)) != len(axes) or min(axes, default=0) < 0:
            return f"the node {k} of {tree.name} has no axes"
        if min(extents, default=1) < 1 or not 1 <= node.chunk <= max(1, node.cells):
            return f"the node {k} of {tree.name} has no cells"
        if node.has.length and len(axes) != 1:
            return f"the dynamic node {k} of {tree.name} has not one axis"
        if node.chunk > 1 and not node.has.length:
            return f"the node {k} of {tree.name} has chunks"
    for f in fields:
        if not 0 <= f.node < len(tree.nodes) or min(f.components, default=1) < 1:
            return f"a field of {tree.name} is in no node of it"
    return ""
