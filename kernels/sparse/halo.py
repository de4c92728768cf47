"""Tiles with halos: local arrays with copies of a leaf and of the neighbour cells that its cells read.

The copies are made before any read. Neighbour leaves are found once per leaf. Loops over cells then read one array, like that of a
dense field.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod

from ..ir import kernel as ir
from ..ir.simplify import const
from ..ir.structure import StructureTree
from ..ir.verify import LOCAL_ARRAY_BYTES
from ..ir.walk import children, loads, nested_statements
from .cells import I64, Cells, StatementBuilder, number, plus, times
from .lowered import HaloWindow
from .neighbour_cells import Direction, Leaf, near_load, offsets


@dataclass(frozen=True)
class HaloTile:
    """Local array with a copy of a leaf and its border, for one component of a field.

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
class Reads:
    """Offsets from the current cell at which a loop reads a field, and the size in bytes of its tiles.

    There is one tile for each component that is read; each contains all offsets.
    """

    offsets: tuple[Direction, ...]
    n_bytes: int

    @property
    def n_crossed(self) -> int:
        """The largest number of axes along which one of the reads may leave the leaf."""
        return max(sum(map(bool, offset)) for offset in self.offsets)


@dataclass
class Staged:
    """Reads around the current cell of a loop, by field (array of the kernel before lowering).

    Fields in `wanted` are read out of tiles, which are filled at the first read. All fields that may be read so are collected in
    `near`.
    """

    reads: Mapping[str, Reads]
    wanted: frozenset[str]
    tiles: dict[ir.Load, HaloTile] = field(default_factory=dict)
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
        tile, axes = self.tiles[load], cells.layouts[leaf.tree].tree.axes(leaf.node)
        place = {a: plus(leaf.local[a], number(o)) for a, o in zip(axes, offset, strict=True)}
        return ir.LocalElement(tile.name, tile.at(place), load.dtype)


def windows(loops: Iterable[tuple[int, Staged]]) -> tuple[HaloWindow, ...]:
    """Returns the windows (fields that a loop may read out of tiles) of all loops.

    `loops`: each with its number in the body before lowering.
    """
    return tuple(
        HaloWindow(top, array, reads.n_bytes, reads.n_crossed)
        for top, staged in loops
        for array in staged.near
        for reads in (staged.reads[array],)
    )


def around(
    s: ir.ForActive, t: StructureTree, placed: Mapping[str, ir.Placed], written: Collection[str]
) -> dict[str, Reads]:
    """Returns the reads of fields at constant offsets from the current cell of a loop, by field.

    The fields are of the loop's tree, and the loop does not write them. The offsets stay within neighbour leaves.

    Fields whose tiles exceed the size of a local array are left out.
    """
    node, axes = t.nodes[s.node], t.axes(s.node)
    extents = dict.fromkeys(axes, 1) | dict(zip(node.axes, node.extents, strict=True))
    found: dict[str, dict[Direction, None]] = {}
    components: dict[str, set[tuple[ir.Expr, ...]]] = {}
    n_bytes: dict[str, int] = {}  # of an element
    for x in (x for y in nested_statements(s.body) for e in children(y) for x in loads(e)):
        p = placed.get(x.array)
        if p is None or p.tree != s.tree or x.array in written:
            continue
        n = len(x.indices) - len(t.axes(p.node))
        cell = x.indices[n:]
        if len(cell) != len(s.loops) or not all(isinstance(i, ir.Const) for i in x.indices[:n]):
            continue
        offset = offsets(cell, s.loops)
        if offset is None or any(abs(o) > extents[a] for o, a in zip(offset, axes, strict=True)):
            continue
        found.setdefault(x.array, {})[offset] = None
        components.setdefault(x.array, set()).add(x.indices[:n])
        n_bytes[x.array] = x.dtype.size_bytes

    def of_tiles(array: str) -> int:
        n_cells = prod(_sides(found[array], axes, extents).values())
        return len(components[array]) * n_bytes[array] * n_cells

    reads = {
        array: Reads(tuple(of), of_tiles(array))
        for array, of in found.items()
        if any(any(o) for o in of)
    }
    return {array: of for array, of in reads.items() if of.n_bytes <= LOCAL_ARRAY_BYTES}


def _sides(
    reads: Iterable[Direction], axes: tuple[int, ...], extents: Mapping[int, int]
) -> dict[int, int]:
    """Returns the number of cells of a tile along each axis, for a leaf of these extents and offsets `reads`."""
    ends = list(zip(*reads, strict=True))
    return {
        a: extents[a] + max(0, -min(of)) + max(0, *of) for a, of in zip(axes, ends, strict=True)
    }


def _filled(cells: Cells, leaf: Leaf, load: ir.Load, reads: tuple[Direction, ...]) -> HaloTile:
    """Returns a new tile, and appends its filling to the statements that run once per leaf.

    It is filled from the leaf itself, and from each neighbour leaf with possible reads.
    """
    t = cells.layouts[leaf.tree].tree
    node, axes, extents = t.nodes[leaf.node], t.axes(leaf.node), leaf.extents(cells)
    b = leaf.element
    order = [*(a for a in axes if a not in node.axes), *node.axes]
    before = {a: max(0, -min(of)) for a, of in zip(axes, zip(*reads, strict=True), strict=True)}
    sides = _sides(reads, axes, extents)
    strides: dict[int, int] = {}
    n = 1
    for a in reversed(order):
        strides[a] = n
        n *= sides[a]
    tile = HaloTile(b.names.fresh("tile"), before, strides)
    b.put(ir.LocalArray(tile.name, n, const(0, load.dtype), b.where))
    inside, n_cells = dict.fromkeys(axes, 0), 1
    for a in reversed(node.axes):
        inside[a], n_cells = n_cells, n_cells * extents[a]
    for direction, widths in _parts(reads, axes, extents).items():
        start = times(leaf.slot(cells, direction), n_cells)
        levels: list[tuple[str, ir.Expr]] = []
        there, place = start, dict[int, ir.Expr]()
        for a, d in ((a, direction[axes.index(a)]) for a in order):
            x: ir.Expr = number(0)
            if widths[a] > 1:
                levels.append((b.names.fresh("c"), number(widths[a])))
                cells.extents[levels[-1][0]] = widths[a]
                x = ir.LoopIndex(levels[-1][0], I64)
            first = {0: 0, 1: extents[a], -1: -widths[a]}[d]
            place[a] = plus(x, number(first))
            there = plus(there, times(plus(x, number(first - d * extents[a])), inside[a]))
        inner = b.inner()
        value = ir.Load(load.array, (*load.indices, there), load.dtype)
        inner.put(ir.SetElement(tile.name, tile.at(place), value, b.where))
        for name, extent in reversed(levels):
            outer = b.inner()
            outer.loop(name, extent, inner)
            inner = outer
        b.statements += inner.statements
    return tile


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
