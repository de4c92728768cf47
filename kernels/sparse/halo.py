"""Tiles with halos: local arrays for a leaf and the neighbour cells that its cells read, or update.

What is read is copied before any read. What is updated is summed up from the neutral element, and added behind the loops over
cells.
Neighbour leaves are found once per leaf. Loops over cells then access one array, like that of a dense field.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod

from ..ir import kernel as ir
from ..ir.simplify import binary, compare, const
from ..ir.structure import StructureTree
from ..ir.verify import LOCAL_ARRAY_BYTES
from ..ir.walk import children, loads, nested_statements, neutral_of
from .cells import I64, Cells, StatementBuilder, number, plus, times
from .lowered import HaloWindow
from .neighbour_cells import Direction, Leaf, near_load, offsets

Components = tuple[ir.Expr, ...]


@dataclass(frozen=True)
class HaloTile:
    """Local array for a leaf and its border, for one component of a field.

    By axis: `before` is the number of border cells in front of the leaf, and `strides` are those of the array.
    """

    name: str
    before: Mapping[int, int]
    strides: Mapping[int, int]

    def at(self, places: Mapping[int, ir.Expr]) -> ir.Expr:
        """The index in the local array of the cell with these coordinates in the leaf.

        The cell may lie in the border.
        """
        parts = [times(plus(x, number(self.before[a])), self.strides[a]) for a, x in places.items()]
        return plus(*parts)


@dataclass(frozen=True)
class Around:
    """Offsets from the current cell at which a loop reads a field, or updates it, and the size in bytes of its tiles.

    There is one tile for each component; each contains all offsets.
    """

    offsets: tuple[Direction, ...]
    n_bytes: int

    @property
    def n_crossed(self) -> int:
        """The largest number of axes along which one of the accesses may leave the leaf."""
        return max(sum(map(bool, offset)) for offset in self.offsets)


@dataclass(frozen=True)
class _Sum:
    """Tile in which the updates of one component of a field are summed up.

    `update`: one of them, with the indices of components.
    """

    leaf: Leaf
    update: ir.Update
    tile: HaloTile
    offsets: tuple[Direction, ...]

    def added(self, b: StatementBuilder, place: Mapping[int, ir.Expr], there: ir.Expr) -> None:
        """Appends the addition of a tile's cell to item `there` of the field."""
        s = self.update
        total = ir.LocalElement(self.tile.name, self.tile.at(place), s.value.dtype)
        b.put(ir.Update(s.array, (*s.indices, there), s.op, total, s.where))


@dataclass
class Staged:
    """Reads and updates around the current cell of a loop, by field (array of the kernel before lowering).

    Fields in `wanted` are in tiles. Tiles for reads are filled at the first read, those for updates are added by `add_up`.
    All fields that may be in tiles are collected in `near`.
    """

    reads: Mapping[str, Around]
    updates: Mapping[str, Around]
    wanted: frozenset[str]
    tiles: dict[ir.Load, HaloTile] = field(default_factory=dict)
    sums: dict[tuple[str, Components], _Sum] = field(default_factory=dict)
    near: dict[str, None] = field(default_factory=dict)

    def read(
        self,
        cells: Cells,
        leaf: Leaf,
        b: StatementBuilder,
        array: str,
        load: ir.Load,
        offset: Direction,
    ) -> ir.Expr | None:
        """Returns the value of a field at an offset from the current cell; None if it is too far (`near_load`).

        A field in `wanted` is read out of its tile, which is filled at the first read.
        """
        reads = self.reads.get(array)
        if reads is None or offset not in reads.offsets:
            return near_load(cells, leaf, b, load, offset)
        self.near[array] = None
        if array not in self.wanted:
            return near_load(cells, leaf, b, load, offset)
        if load not in self.tiles:
            self.tiles[load] = _filled(cells, leaf, load, reads.offsets)
        tile = self.tiles[load]
        return ir.LocalElement(tile.name, _place(cells, leaf, tile, offset), load.dtype)

    def update(
        self,
        cells: Cells,
        leaf: Leaf,
        b: StatementBuilder,
        array: str,
        s: ir.Update,
        offset: Direction,
    ) -> bool:
        """Appends an update of a field in `wanted` to block `b`, in the field's tile. Returns False for other fields.

        `s`: the update, of the field's array, with the indices of components alone.
        """
        updates = self.updates.get(array)
        if updates is None:
            return False
        self.near[array] = None
        if array not in self.wanted:
            return False
        key, dtype = (array, s.indices), s.value.dtype
        if key not in self.sums:
            tile = _declared(cells, leaf, neutral_of(s.op, dtype), updates.offsets)
            self.sums[key] = _Sum(leaf, s, tile, updates.offsets)
        tile = self.sums[key].tile
        at = _place(cells, leaf, tile, offset)
        total = binary(s.op, ir.LocalElement(tile.name, at, dtype), s.value)
        b.put(ir.SetElement(tile.name, at, total, s.where))
        return True

    def add_up(self, cells: Cells) -> None:
        """Appends the addition of all tiles that were updated to their fields, behind the loops over cells of the leaf.

        A leaf that is not active has no slot: what the tile holds for it is dropped, as the updates would be.
        """
        for x in self.sums.values():
            parts = _parts(x.offsets, _axes(cells, x.leaf), x.leaf.extents(cells))
            for direction, widths in parts.items():
                slot, inner = x.leaf.slot(cells, direction), x.leaf.element.inner()
                inner.statements += _over_part(cells, x.leaf, direction, widths, x.added)
                if any(direction):
                    x.leaf.element.branch(compare("ne", slot, number(0)), inner)
                else:
                    x.leaf.element.statements += inner.statements


def windows(loops: Iterable[tuple[int, Staged]]) -> tuple[HaloWindow, ...]:
    """Returns the windows (fields that may be in tiles of a loop) of all loops.

    `loops`: each with its number in the body before lowering.
    """
    return tuple(
        HaloWindow(top, array, x.n_bytes, x.n_crossed, array in staged.updates)
        for top, staged in loops
        for array in staged.near
        for x in (staged.reads.get(array) or staged.updates[array],)
    )


def reads_around(
    s: ir.ForActive, t: StructureTree, placed: Mapping[str, ir.Placed], written: Collection[str]
) -> dict[str, Around]:
    """Returns the reads of fields at constant offsets from the current cell of a loop, by field.

    The fields are of the loop's tree, and the loop does not write them. The offsets stay within neighbour leaves.

    Fields whose tiles exceed the size of a local array are left out.
    """
    found = _Collected(s, t, placed)
    for x in _loads(s):
        if x.array not in written:
            found.add(x.array, x.indices, x.dtype)
    return found.around()


def updates_around(
    s: ir.ForActive,
    t: StructureTree,
    placed: Mapping[str, ir.Placed],
    dtypes: Mapping[str, ir.DType],
    *,
    may_reorder: bool,
) -> dict[str, Around]:
    """Returns the updates of fields at constant offsets from the current cell of a loop, by field.

    The loop accesses the fields by updates of one kind alone, all at such offsets, as in `reads_around`. Their order is free.
    `dtypes`: of the fields. `may_reorder`: sums of floats may be.
    """
    found, ops = _Collected(s, t, placed), dict[str, set[ir.ReduceOp]]()
    others = {x.array for x in _loads(s)}
    for x in nested_statements(s.body):
        if isinstance(x, ir.Store):
            others.add(x.array)
        elif isinstance(x, ir.Update):
            ops.setdefault(x.array, set()).add(x.op)
            is_near = found.add(x.array, x.indices, x.value.dtype)
            if not is_near or x.result or x.value.dtype is not dtypes[x.array]:
                others.add(x.array)

    def is_free(array: str) -> bool:
        dtype = dtypes[array]
        # NaN is not neutral in extremes of floats; smaller types are updated by no hardware.
        exact = dtype.is_integer or (may_reorder and ops[array] == {"add"})
        return len(ops[array]) == 1 and exact and dtype.size_bytes >= 4

    return {a: x for a, x in found.around().items() if a not in others and is_free(a)}


def _loads(s: ir.ForActive) -> Iterator[ir.Load]:
    return (x for y in nested_statements(s.body) for e in children(y) for x in loads(e))


class _Collected:
    """Collector of a loop's accesses around its current cell."""

    def __init__(self, s: ir.ForActive, t: StructureTree, placed: Mapping[str, ir.Placed]) -> None:
        self.s, self.t, self.placed = s, t, placed
        node, self.axes = t.nodes[s.node], t.axes(s.node)
        own = dict(zip(node.axes, node.extents, strict=True))
        self.extents = dict.fromkeys(self.axes, 1) | own
        self.offsets: dict[str, dict[Direction, None]] = {}
        self.components: dict[str, set[Components]] = {}
        self.n_bytes: dict[str, int] = {}  # of an element

    def add(self, array: str, indices: Components, dtype: ir.DType) -> bool:
        """Records an access. Returns False if it is not at a constant offset within neighbour leaves."""
        p, loops = self.placed.get(array), self.s.loops
        if p is None or p.tree != self.s.tree:
            return False
        n = len(indices) - len(self.t.axes(p.node))
        cell = indices[n:]
        if len(cell) != len(loops) or not all(isinstance(i, ir.Const) for i in indices[:n]):
            return False
        offset = offsets(cell, loops)
        if offset is None or any(
            abs(o) > self.extents[a] for o, a in zip(offset, self.axes, strict=True)
        ):
            return False
        self.offsets.setdefault(array, {})[offset] = None
        self.components.setdefault(array, set()).add(indices[:n])
        self.n_bytes[array] = dtype.size_bytes
        return True

    def around(self) -> dict[str, Around]:
        """Returns the accesses of each field that is accessed in another cell than the current one."""
        found = {
            array: Around(tuple(of), self._of_tiles(array))
            for array, of in self.offsets.items()
            if any(any(o) for o in of)
        }
        return {array: x for array, x in found.items() if x.n_bytes <= LOCAL_ARRAY_BYTES}

    def _of_tiles(self, array: str) -> int:
        n_cells = prod(_sides(self.offsets[array], self.axes, self.extents).values())
        return len(self.components[array]) * self.n_bytes[array] * n_cells


def _sides(
    reads: Iterable[Direction], axes: tuple[int, ...], extents: Mapping[int, int]
) -> dict[int, int]:
    """Returns the number of cells of a tile along each axis, for a leaf of these extents and offsets `reads`."""
    ends = list(zip(*reads, strict=True))
    return {
        a: extents[a] + max(0, -min(of)) + max(0, *of) for a, of in zip(axes, ends, strict=True)
    }


def _declared(cells: Cells, leaf: Leaf, value: ir.Expr, around: tuple[Direction, ...]) -> HaloTile:
    """Returns a new tile, and appends its declaration to the statements that run once per leaf. Its elements are `value`."""
    axes, extents, b = _axes(cells, leaf), leaf.extents(cells), leaf.element
    before = {a: max(0, -min(of)) for a, of in zip(axes, zip(*around, strict=True), strict=True)}
    sides = _sides(around, axes, extents)
    strides: dict[int, int] = {}
    n = 1
    for a in reversed(_in_order(cells, leaf)):
        strides[a] = n
        n *= sides[a]
    tile = HaloTile(b.names.fresh("tile"), before, strides)
    b.put(ir.LocalArray(tile.name, n, value, b.where))
    return tile


def _filled(cells: Cells, leaf: Leaf, load: ir.Load, reads: tuple[Direction, ...]) -> HaloTile:
    """Returns a new tile, and appends its filling to the statements that run once per leaf.

    It is filled from the leaf itself, and from each neighbour leaf with possible reads.
    """
    b = leaf.element
    tile = _declared(cells, leaf, const(0, load.dtype), reads)

    def copied(inner: StatementBuilder, place: Mapping[int, ir.Expr], there: ir.Expr) -> None:
        value = ir.Load(load.array, (*load.indices, there), load.dtype)
        inner.put(ir.SetElement(tile.name, tile.at(place), value, b.where))

    parts = _parts(reads, _axes(cells, leaf), leaf.extents(cells))
    for direction, widths in parts.items():
        b.statements += _over_part(cells, leaf, direction, widths, copied)
    return tile


def _over_part(
    cells: Cells,
    leaf: Leaf,
    direction: Direction,
    widths: Mapping[int, int],
    write: Callable[[StatementBuilder, Mapping[int, ir.Expr], ir.Expr], None],
) -> list[ir.Stmt]:
    """Returns loops over the cells of a tile that are in one leaf.

    `write` appends the body, for coordinates of a cell relative to the tile's own leaf, and its item.
    `direction`: of the leaf. `widths`: number of its cells by axis.
    """
    node, extents = cells.layouts[leaf.tree].tree.nodes[leaf.node], leaf.extents(cells)
    b, axes = leaf.element, _axes(cells, leaf)
    inside, n_cells = dict.fromkeys(axes, 0), 1
    for a in reversed(node.axes):
        inside[a], n_cells = n_cells, n_cells * extents[a]
    there = times(leaf.slot(cells, direction), n_cells)
    levels: list[tuple[str, ir.Expr]] = []
    place = dict[int, ir.Expr]()
    for a, d in ((a, direction[axes.index(a)]) for a in _in_order(cells, leaf)):
        x: ir.Expr = number(0)
        if widths[a] > 1:
            levels.append((b.names.fresh("c"), number(widths[a])))
            cells.extents[levels[-1][0]] = widths[a]
            x = ir.LoopIndex(levels[-1][0], I64)
        first = {0: 0, 1: extents[a], -1: -widths[a]}[d]
        place[a] = plus(x, number(first))
        there = plus(there, times(plus(x, number(first - d * extents[a])), inside[a]))
    inner = b.inner()
    write(inner, place, there)
    for name, extent in reversed(levels):
        outer = b.inner()
        outer.loop(name, extent, inner)
        inner = outer
    return inner.statements


def _axes(cells: Cells, leaf: Leaf) -> tuple[int, ...]:
    return cells.layouts[leaf.tree].tree.axes(leaf.node)


def _in_order(cells: Cells, leaf: Leaf) -> list[int]:
    """Returns the axes of a leaf, those of its own node last: along the last one its cells are contiguous."""
    own = cells.layouts[leaf.tree].tree.nodes[leaf.node].axes
    return [*(a for a in _axes(cells, leaf) if a not in own), *own]


def _place(cells: Cells, leaf: Leaf, tile: HaloTile, offset: Direction) -> ir.Expr:
    """Returns the index in a tile of the cell at an offset from the current cell."""
    axes = _axes(cells, leaf)
    return tile.at({a: plus(leaf.local[a], number(o)) for a, o in zip(axes, offset, strict=True)})


def _parts(
    reads: tuple[Direction, ...], axes: tuple[int, ...], extents: Mapping[int, int]
) -> dict[Direction, dict[int, int]]:
    """Returns the neighbour leaves with possible reads, by direction, and the extents of the read cells by axis."""
    found: dict[Direction, dict[int, int]] = {}
    for read in reads:
        sides = [(0,) if o == 0 else (0, 1 if o > 0 else -1) for o in read]
        for direction in product(*sides):
            widths = found.setdefault(direction, dict.fromkeys(axes, 0))
            for a, d, o in zip(axes, direction, read, strict=True):
                widths[a] = extents[a] if d == 0 else max(widths[a], abs(o))
    return found
