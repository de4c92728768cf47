"""Neighbour cells at constant offsets: slots of neighbour leaves are found once for all cells of a leaf.

Along the axis whose cells are contiguous, a row of cells is read from its first cell on. The one cell of the row that lies in the
next leaf replaces the last. So rows are vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..ir.affine import to_affine
from ..ir.kernel import DType, Expr, Load
from ..ir.simplify import binary, bitcast, cast, compare, const, select, unary
from .cells import Cells, StatementBuilder, number, plus, times

Direction = tuple[int, ...]


@dataclass
class Leaf:
    """Dense leaf around the current cell of a loop: the cells below one cell of a listed node.

    By axis: `coordinates` are those of the listed cell, `local` is the index of the current cell in the leaf.
    `element` is the block of statements that run once per leaf. `row` is that of statements that run once per row of contiguous
    cells.
    `found` are the slots of neighbour leaves that are known in `element`.
    """

    tree: str
    listed: int
    node: int
    element: StatementBuilder
    row: StatementBuilder
    coordinates: Mapping[int, Expr]
    local: Mapping[int, Expr]
    found: dict[Direction, Expr] = field(default_factory=dict)
    bases: dict[tuple[Direction, int], Expr] = field(default_factory=dict)

    def extents(self, cells: Cells) -> dict[int, int]:
        """The number of cells of the leaf along each axis."""
        t = cells.layouts[self.tree].tree
        node = t.nodes[self.node]
        return dict.fromkeys(t.axes(self.node), 1) | dict(zip(node.axes, node.extents, strict=True))

    def is_like(self, cells: Cells, node: int) -> bool:
        """True if the cells of another node have the same layout as those of this leaf."""
        t = cells.layouts[self.tree].tree
        a, b = t.nodes[node], t.nodes[self.node]
        return (a.kind, a.parent, a.axes, a.extents) == (b.kind, b.parent, b.axes, b.extents)

    def slot(self, cells: Cells, direction: Direction) -> Expr:
        """The slot of the neighbour leaf in a direction; 0 if there is none."""
        if direction not in self.found:
            axes = cells.layouts[self.tree].tree.axes(self.node)
            at = [
                plus(self.coordinates[a], number(d)) for a, d in zip(axes, direction, strict=True)
            ]
            sure = [k for k, d in enumerate(direction) if d == 0]
            near = cells.find(self.tree, self.listed, at, block=self.element, sure=sure)
            self.found[direction] = self.element.hold("near", near.item)
        return self.found[direction]

    def base(self, cells: Cells, direction: Direction, shift: int) -> Expr:
        """The item of the first cell of a neighbour leaf plus `shift`, as a local that is set once per leaf."""
        if (direction, shift) not in self.bases:
            n = cells.layouts[self.tree].tree.nodes[self.node].cells
            start = plus(times(self.slot(cells, direction), n), number(shift))
            self.bases[direction, shift] = self.element.hold("base", start)
        return self.bases[direction, shift]


def offsets(indices: Sequence[Expr], loops: Sequence[str]) -> tuple[int, ...] | None:
    """Constant differences between the indices of a cell and those of the loops; None if one is not constant."""
    found = []
    for x, loop in zip(indices, loops, strict=True):
        form = to_affine(x)
        if form is None or form.terms != ((loop, 1),):
            return None
        found.append(form.const)
    return tuple(found)


def near_load(
    cells: Cells, leaf: Leaf, b: StatementBuilder, load: Load, offset: tuple[int, ...]
) -> Expr | None:
    """The element of a field at an offset from the current cell.

    None if it is farther than in the neighbour leaves. `load`: a load of the field's array with the indices of components alone.
    """
    t = cells.layouts[leaf.tree].tree
    node, axes, extents = t.nodes[leaf.node], t.axes(leaf.node), leaf.extents(cells)
    if any(abs(o) > extents[a] for o, a in zip(offset, axes, strict=True)):
        return None
    crossing: dict[int, Expr] = {}
    for o, a in zip(offset, axes, strict=True):
        x, n = plus(leaf.local[a], number(o)), extents[a]
        if o:
            over = compare("ge", x, number(n)) if o > 0 else compare("lt", x, number(0))
            crossing[a] = const(True, over.dtype) if n == 1 else over
    step = dict(zip(axes, offset, strict=True))
    strides, n_cells = dict.fromkeys(axes, 0), 1
    for a in reversed(node.axes):
        strides[a], n_cells = n_cells, n_cells * extents[a]
    row = node.axes[-1]
    in_row = row in crossing and abs(step[row]) == 1 and extents[row] > 1
    others = [a for a in crossing if a != row or not in_row]

    def base(left: Sequence[int], direction: dict[int, int]) -> Expr:
        """The item of the cell less its position in the current leaf.

        It is selected among the neighbour leaves behind some of the axes `left`.
        """
        if not left:
            shift = sum(strides[a] * (step[a] - direction.get(a, 0) * extents[a]) for a in others)
            return leaf.base(cells, tuple(direction.get(a, 0) for a in axes), shift)
        first, rest = left[0], left[1:]
        over = base(rest, {**direction, first: 1 if step[first] > 0 else -1})
        return select(crossing[first], over, base(rest, direction))

    def start(where: Expr) -> Expr:
        """The item of the first cell of the current row, for a leaf whose first item is `where`."""
        cell = where
        for a in node.axes[:-1]:
            cell = plus(cell, times(leaf.local[a], strides[a]))
        return cell

    def value(at: Expr) -> Load:
        return Load(load.array, (*load.indices, at), load.dtype)

    is_fixed = row not in others and extents[row] > 1  # all of the row is in one leaf
    first = (leaf.row if is_fixed else b).hold("first", start(base(others, {})))
    own = leaf.local[row]
    if not in_row:
        return value(plus(first, own))
    beside = leaf.row.hold("beside", start(base(others, {row: step[row]})))
    at = plus(first, plus(own, number(step[row])))
    if others:  # the leaf may be the shared one of zeros, which is the first
        at = binary("max", at, number(0))
    edge = number(0) if step[row] > 0 else number(extents[row] - 1)
    across = leaf.row.hold("across", value(plus(beside, edge)))
    return _blend(crossing[row], across, b.hold("inside", value(at)))


_WORDS = {4: DType.i32, 8: DType.i64}


def _blend(condition: Expr, a: Expr, b: Expr) -> Expr:
    """The expression `a` if the condition holds, else `b`, selected by their bits.

    Compilers would move the loads of a selection into branches, and not vectorise them.
    """
    word = _WORDS.get(a.dtype.size_bytes)
    if word is None or a.dtype is DType.bool_:
        return select(condition, a, b)
    mask = unary("neg", cast(condition, word))
    x, y = (bitcast(e, word) for e in (a, b))
    mixed = binary("bit_xor", y, binary("bit_and", binary("bit_xor", x, y), mask))
    return bitcast(mixed, a.dtype)
