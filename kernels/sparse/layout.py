"""Memory layout of a tree: arrays (sections) of one arena for its states, each of its largest possible size.

Untouched pages only cost address space.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from ..ir.errors import LanguageError
from ..ir.kernel import DType
from ..ir.logical import FieldPlace
from ..ir.structure import StructureTree

WORD = 64  # bits of a word of masks
BUSY = 1 << 31  # in a table: a thread is about to put a slot there
MOST_BYTES = 1 << 38  # of one tree, in address space
SPARE = 2  # slots for each cell of a pool: a kernel cannot take again the slots that it gives back
# Minimal slots of a pool while the tree fits into `_SPARE_BYTES`: one loop may use many.
_SPARE_SLOTS = (1 << 12, 1 << 10, 1 << 8)
_SPARE_BYTES = 1 << 20
_LEAST_SLOTS = 1 << 16  # pools are not made smaller than this
MOST_HASHED = 1 << 20  # slots of a hash node, whatever its extents
WINDOW = 8  # places side by side, behind each of two hashed numbers, where the key of a cell of a hash node may be
MIX = (
    0x9E3779B97F4A7C15,
    0xC2B2AE3D27D4EB4F,
)  # odd multipliers, whose high bits are hashed numbers (Knuth, vol. 3, 6.4)
CLAIMED = 1 << 62  # in a directory: a thread is about to put a key there; keys are smaller
_PLACES = 16  # of a directory, per slot: both windows of a key are full less than once in 10^12

# Columns of `counters`, which has a row for each node and one more. CHANGED is positive where cells have changed since the list was
# made: 1 behind a change, 0 behind the list; other numbers are marks of who looks for changes later (runtime/engine/tree_marks.py).
FREE, TAKEN, FRESH, FREED, CHANGED, COUNT = range(6)
OUTSIDE, FULL = range(2)  # columns of the row behind the last node's: writes that were not made
_MOST_KEPT = 256  # layouts
COLUMNS = 8  # a line of the cache
PADDING = 1  # elements behind those of a field: rows of neighbours are read beyond its end


@dataclass(frozen=True)
class Section:
    """One array of a tree's memory: an array of the arena with type and shape."""

    dtype: DType
    shape: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        return prod(self.shape) * self.dtype.size_bytes


@dataclass(frozen=True)
class TreeLayout:
    """Memory layout of a tree with its fields: its sections (arrays) by key.

    By node: the number of `containers`, of `items`, and of `slots` of its pool (0 without a pool).
    `tableN`: slot of each entry; `freeN`: free slots; `freedN`: slots given back since the pool was last reclaimed; `listN`: item
    and coordinates of each active cell; `maskN`: words; `lengthN`: one a container; `fieldK`: components, then items. For a hash
    node an entry is a position in its directory: `keysN` has the key of the cell at each position, `atN` the position and the
    coordinates of each slot.
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
    """Number of words of a container's mask, for this number of cells."""
    return -(-cells // WORD)


def n_places(n_slots: int) -> int:
    """Number of positions of a directory to which keys are hashed: a power of two."""
    return 1 << (_PLACES * n_slots - 1).bit_length()


def nowhere(n_slots: int) -> int:
    """The common directory position of all cells without one, behind all others."""
    return n_places(n_slots) + WINDOW


@lru_cache(maxsize=_MOST_KEPT)
def layout_of(
    tree: StructureTree, fields: tuple[FieldPlace, ...], most_bytes: int = MOST_BYTES
) -> TreeLayout:
    """Returns the memory layout of a tree.

    Pools have their largest possible size, or the largest with which the tree fits into `most_bytes`.
    Raises LanguageError if the tree has too many cells.
    """
    most = (1 << 31) - 1
    for spare in _SPARE_SLOTS:
        found = _layout(tree, fields, most, spare)
        if found.n_bytes <= min(_SPARE_BYTES, most_bytes):
            return found
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


def _layout(
    tree: StructureTree, fields: tuple[FieldPlace, ...], most: int, spare: int = 0
) -> TreeLayout:
    containers, items, slots = list[int](), list[int](), list[int]()
    n_cells = list[int]()  # of the node, in the whole tree
    for k in range(len(tree.nodes)):
        if max(tree.shape(k), default=1) > 1 << 31:
            raise LanguageError(
                f"a node of {tree.name} has the shape {tree.shape(k)}: indices are i32, so an axis has at most 2^31 cells"
            )
    sections = {"counters": Section(DType.i64, (len(tree.nodes) + 1, COLUMNS))}
    for k, node in enumerate(tree.nodes):
        n = 1 if node.parent < 0 else items[node.parent]
        above = 1 if node.parent < 0 else n_cells[node.parent]
        n_cells.append(above * node.cells)
        n_slots = 0
        if node.has.pool:
            n_entries = n * node.entries
            # Containers above that were given back have slots until they are reclaimed, none of them twice.
            n_slots = min(max(SPARE * above * node.entries, spare), most) + 1
            if node.has.directory:
                n_slots = min(n_slots, MOST_HASHED)
                if n_entries >= CLAIMED:
                    raise LanguageError(
                        f"the hash node of shape {tree.shape(k)} has more than 2^62 cells in all containers: make it smaller"
                    )
                n_entries = nowhere(n_slots) + 1
                sections[f"keys{k}"] = Section(DType.u64, (n_entries,))
                sections[f"at{k}"] = Section(DType.i64, (1 + len(tree.axes(k)), n_slots))
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
    return TreeLayout(tree, fields, tuple(containers), tuple(items), tuple(slots), sections)


def n_shared(layout: TreeLayout, key: str) -> int:
    """Number of elements at the begin of each row of a section that belong to slot 0 of a pool.

    Inactive cells read them; they are never written.
    """
    stem = key.rstrip("0123456789")
    number = int(key[len(stem) :] or 0)
    tree = layout.tree
    if stem == "field":
        node = layout.fields[number].node
        pool = tree.last(node, "pool")
        return layout.items[node] // layout.slots[pool] if pool >= 0 else 0
    above = tree.nodes[number]
    pool = tree.last(above.parent, "pool")
    if pool < 0 or (stem == "table" and above.has.directory):
        return 0
    each = {"table": above.entries, "mask": words(above.cells), "length": 1}.get(stem, 0)
    return layout.containers[number] // layout.slots[pool] * each


def wrong_tree(tree: StructureTree, fields: tuple[FieldPlace, ...]) -> str:
    """Message on the first error of a tree that was read from a file; "" if there is none."""
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


def pools_below(t: StructureTree, nodes: set[int]) -> list[int]:
    """Returns the nodes with a pool among `nodes` and all nodes below them, upper ones first."""
    return [k for k, n in enumerate(t.nodes) if n.has.pool and nodes & set(t.path(k))]
