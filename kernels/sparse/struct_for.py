"""Struct-for loops as plain IR: loops over the active cells of trees, and the lists of cells that they use."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir.kernel import Expr, Local, LoopIndex
from ..ir.simplify import binary, cast, compare, const, unary
from .cells import I64, U32, U64, Cells, StatementBuilder, number, plus, quotient, remainder, times
from .directory import over_slots
from .layout import CHANGED, COUNT, WORD, words
from .pools import Pools

_GROUP = 8  # entries of a table that are tested together: most are empty in a sparse tree


class CellLoops:
    """Writer of the struct-for loops of one kernel. `independent`: loops without dependences between iterations.

    While the body of a loop is written, `inner` has the index of the innermost loop along each axis, and `row` the statements
    before the innermost loop.
    """

    def __init__(self, cells: Cells, pools: Pools) -> None:
        self.cells, self.pools, self.names = cells, pools, cells.names
        self.independent: list[str] = []
        self.made: list[tuple[int, str, int]] = []  # places of statements that make lists, of nodes
        self.inner: dict[int, Expr] = {}
        self.row = StatementBuilder(self.names)
        self.is_listing = False  # while a loop that makes a list is written

    def over_list(
        self,
        b: StatementBuilder,
        tree: str,
        node: int,
        write: Callable[[StatementBuilder, Expr, dict[int, Expr]], None],
    ) -> None:
        """Appends a loop over the list of a node; `write` gets the item and the coordinates of each cell."""
        t = self.cells.layouts[tree].tree
        name = self.names.fresh("element")
        e, inner = LoopIndex(name, I64), b.inner()
        slot = cast(self.cells.load(tree, f"list{node}", number(0), e), I64)
        item = inner.hold("own", slot)
        found = {
            axis: inner.hold(
                "at", cast(self.cells.load(tree, f"list{node}", number(1 + k), e), I64)
            )
            for k, axis in enumerate(t.axes(node))
        }
        write(inner, item, found)
        b.loop(name, self.cells.counter(tree, node, COUNT), inner)

    def nest(
        self,
        b: StatementBuilder,
        tree: str,
        nodes: Sequence[int],
        container: Expr,
        items: dict[int, Expr],
        coordinates: dict[int, Expr],
        write: Callable[[StatementBuilder, dict[int, Expr], dict[int, Expr]], None],
        is_leaf: bool = False,
    ) -> None:
        """Appends nested loops over the active cells of a container, for a path of nodes.

        The first loop is over cells of the first node, the next over those of the next node in each of these cells. `write` appends
        the body of the innermost loop.
        """
        if not nodes:
            write(b, items, coordinates)
            return
        t, n = self.cells.layouts[tree].tree, nodes[0]
        node = t.nodes[n]
        if self.is_listing and node.has.mask and not node.has.pool:
            self.over_bits(b, tree, nodes, container, items, coordinates, write)
            return
        found = dict(coordinates)
        cell = first = number(0)
        inner = b.inner()
        levels: list[tuple[str, Expr]] = []
        is_table = node.has.pool and not (node.has.length or node.has.mask)
        # A table is scanned for a list in groups along the last axis: `member` is the loop within one.
        is_grouped = self.is_listing and is_table and node.cells > 1
        is_grouped = is_grouped and node.extents[-1] % _GROUP == 0
        member = ""
        for axis, extent in zip(node.axes, node.extents, strict=True):
            index: Expr = number(0)
            if node.has.length or extent > 1:
                name = self.names.fresh("c")
                in_groups = is_grouped and axis == node.axes[-1]
                levels.append((name, number(extent // _GROUP if in_groups else extent)))
                index = LoopIndex(name, I64)
                self.cells.extents[name] = extent // _GROUP if in_groups else extent
                if in_groups:
                    member = self.names.fresh("c")
                    index = plus(times(index, _GROUP), LoopIndex(member, I64))
            self.inner[axis] = index
            first = times(cell, extent)
            found[axis] = plus(times(found.get(axis, number(0)), extent), index)
            cell = plus(first, index)
        if node.has.length:
            levels = [(levels[0][0], cast(self.cells.load(tree, f"length{n}", container), I64))]
        row = self.row = b.inner()
        slot: Expr | None = None
        if node.has.pool:
            slot = inner.hold(
                "slot", self.cells.slot(tree, n, self.cells.entry(t, n, container, cell))
            )
        item = self.cells.item(t, n, container, cell, slot)
        below = inner.inner() if node.has.mask or slot is not None else inner
        if nodes[1:] and not isinstance(item, Local):
            item = below.hold("item", item)
        self.nest(below, tree, nodes[1:], item, {**items, n: item}, found, write, is_leaf)
        if node.has.mask:
            extent, last = node.extents[-1], self.inner_index(levels, node.extents[-1])
            if last is None or extent > WORD // 2 or WORD % extent:
                inner.branch(self.cells.has_bit(tree, n, container, cell), below)
            else:
                bits = self.bits_of_row(row, tree, n, container, first)
                bit = binary("shl", const(1, U32), cast(last, U32))
                met = binary("bit_and", bits, bit)
                inner.branch(compare("ne", met, const(0, U32)), below)
        elif slot is not None:
            inner.branch(compare("ne", slot, number(0)), below)
        if member:
            start = plus(first, times(LoopIndex(levels[-1][0], I64), _GROUP))
            inner = self._where_any(
                b, tree, n, self.cells.entry(t, n, container, start), (member, inner)
            )
        for name, extent_of in reversed(levels):
            outer = b.inner()
            outer.statements += row.statements
            row = b.inner()
            outer.loop(name, extent_of, inner)
            inner = outer
            if is_leaf:
                self.independent.append(name)
        b.statements += row.statements
        b.statements += inner.statements

    def over_bits(
        self,
        b: StatementBuilder,
        tree: str,
        nodes: Sequence[int],
        container: Expr,
        items: dict[int, Expr],
        coordinates: dict[int, Expr],
        write: Callable[[StatementBuilder, dict[int, Expr], dict[int, Expr]], None],
    ) -> None:
        """Appends loops over the active cells of a container with a mask: over words, and the 1 bits of each.

        The bits are in order (Lemire and Muła, 2018). `write` appends the body of the inner loop.
        """
        t, n = self.cells.layouts[tree].tree, nodes[0]
        node = t.nodes[n]
        n_words, names = words(node.cells), self.names
        w, k = names.fresh("w"), names.fresh("k")
        at: Expr = LoopIndex(w, I64) if n_words > 1 else number(0)
        outer, inner = b.inner(), b.inner()
        place = plus(times(container, n_words), at)
        left = names.fresh("word")
        bits = outer.set(left, self.cells.load(tree, f"mask{n}", place))
        n_set = outer.hold("n_set", cast(unary("popcnt", bits), I64))
        bit = cast(unary("ctz", bits), I64)
        cell = inner.hold("cell", plus(times(at, WORD), bit))
        inner.set(left, binary("bit_and", bits, binary("sub", bits, const(1, U64))))
        found, rest = dict(coordinates), cell
        for axis, extent in reversed(list(zip(node.axes, node.extents, strict=True))):
            own = remainder(rest, extent) if axis != node.axes[0] else rest
            above = times(found.get(axis, number(0)), extent)
            found[axis] = inner.hold("at", plus(above, own))
            rest = quotient(rest, extent)
        item: Expr = self.cells.item(t, n, container, cell, None)
        if nodes[1:]:
            item = inner.hold("item", item)
        self.nest(inner, tree, nodes[1:], item, {**items, n: item}, found, write)
        outer.loop(k, n_set, inner)
        if n_words > 1:
            b.loop(w, number(n_words), outer)
        else:
            b.statements += outer.statements

    def _where_any(
        self,
        b: StatementBuilder,
        tree: str,
        node: int,
        entry: Expr,
        loop: tuple[str, StatementBuilder],
    ) -> StatementBuilder:
        """Returns a block with a loop over a group of a table's entries, skipped if none of them has a slot.

        `loop`: its name and its body. `entry`: the first entry of the group.
        """
        found: Expr = self.cells.load(tree, f"table{node}", entry)
        for k in range(1, _GROUP):
            one = self.cells.load(tree, f"table{node}", plus(entry, number(k)))
            found = binary("bit_or", found, one)
        name, inner = loop
        group, some = b.inner(), b.inner()
        some.loop(name, number(_GROUP), inner)
        group.branch(compare("ne", found, const(0, U32)), some)
        return group

    @staticmethod
    def inner_index(levels: Sequence[tuple[str, Expr]], extent: int) -> Expr | None:
        """The index along the last axis, of this extent, if the innermost of the loops `levels` runs over it.

        None if the extent is 1, or without loops.
        """
        return LoopIndex(levels[-1][0], I64) if levels and extent > 1 else None

    def bits_of_row(
        self, row: StatementBuilder, tree: str, node: int, container: Expr, first: Expr
    ) -> Expr:
        """The mask bits of a row of cells that begins at cell `first` of its container, from the lowest bit on.

        They are read once: so a compiler has a mask of lanes for the row.
        """
        t = self.cells.layouts[tree].tree
        w, _ = self.cells.bit(t, node, container, first)
        shift = cast(remainder(first, WORD), U64)
        word = binary("shr", self.cells.load(tree, f"mask{node}", w), shift)
        return row.hold("bits", cast(word, U32))

    def make_list(self, b: StatementBuilder, tree: str, node: int) -> None:
        """Appends statements that make the list of a node's active cells, unless a stored list is up to date."""
        t = self.cells.layouts[tree].tree
        upper = t.last(t.nodes[node].parent, "is_listed")
        if upper >= 0 and not t.nodes[node].has.directory:
            self.make_list(b, tree, upper)
        is_kept = t.nodes[node].has.is_listed  # others are made anew for each loop that needs them
        making = b.inner()
        n = self.names.fresh("n")
        making.set(n, number(0))
        count = Local(n, I64)
        array = self.cells.array(tree, f"list{node}")

        def push(inner: StatementBuilder, items: dict[int, Expr], found: dict[int, Expr]) -> None:
            dtype = self.cells.dtype(tree, f"list{node}")
            inner.store(array, (number(0), count), cast(items[node], dtype))
            for k, axis in enumerate(t.axes(node)):
                inner.store(array, (number(1 + k), count), cast(found[axis], dtype))
            inner.update_local(n, "add", number(1))

        path = t.path(node)
        outside, self.is_listing = self.is_listing, True
        if t.nodes[node].has.directory:
            self._over_directory(making, tree, node, push)
        elif upper < 0:
            self.nest(making, tree, path, number(0), {}, {}, push)
        else:
            rest = path[path.index(upper) + 1 :]
            self.over_list(
                making,
                tree,
                upper,
                lambda inner, item, found: self.nest(inner, tree, rest, item, {}, found, push),
            )
        self.is_listing = outside
        self.pools.set_counter(making, tree, node, COUNT, count)
        if is_kept:
            self.pools.set_counter(making, tree, node, CHANGED, number(0))
        is_old = compare("gt", self.cells.counter(tree, node, CHANGED), number(0))
        # A branch even where it is always taken: loops at top level are parallel.
        always = compare("ge", self.cells.counter(tree, node, COUNT), number(0))
        b.branch(is_old if is_kept else always, making)
        self.made.append((len(b.statements) - 1, tree, node))

    def _over_directory(
        self,
        b: StatementBuilder,
        tree: str,
        node: int,
        write: Callable[[StatementBuilder, dict[int, Expr], dict[int, Expr]], None],
    ) -> None:
        """Appends a loop over the slots of a hash node whose cells are active; `write` appends its body.

        A search by the coordinates of a slot's cell finds that it is active.
        """
        axes = self.cells.layouts[tree].tree.axes(node)

        def look(inner: StatementBuilder, slot: Expr) -> None:
            at = [
                inner.hold("at", self.cells.load(tree, f"at{node}", number(1 + k), slot))
                for k in range(len(axes))
            ]
            there = self.cells.find(tree, node, at, block=inner)
            below = inner.inner()
            write(below, {node: slot}, dict(zip(axes, at, strict=True)))
            inner.branch(compare("eq", there.item, slot), below)

        over_slots(b, self.cells, tree, node, look)
