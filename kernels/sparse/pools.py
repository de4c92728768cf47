"""Changes of the set of active cells: activation, deactivation and append, as plain IR.

Several threads may change one entry of a table. The one that marks it BUSY takes a slot and puts it there, or takes it away; the
others spin until it is done. Slots that are given back can be taken from the next loop at top level on (reclaiming.py): another
thread may still write to the old cell.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from ..ir.kernel import Assert, DType, Expr, Local, LoopIndex, SetLocal, While
from ..ir.simplify import binary, cast, compare, const, select, unary
from ..ir.structure import StructureTree
from .cells import I64, U32, U64, Cells, Found, StatementBuilder, number, plus, quotient, times
from .directory import claim, clear
from .layout import (
    BUSY,
    CHANGED,
    FREE,
    FREED,
    FRESH,
    FULL,
    OUTSIDE,
    TAKEN,
    n_shared,
    nowhere,
    words,
)

OUTSIDE_TEXT = "an index of a sparse field is outside: nothing was written there"


def full_text(tree: StructureTree) -> str:
    """Message that cells of a tree had no room."""
    nodes = ", ".join(f"{n.kind} {' x '.join(map(str, n.extents))}" for n in tree.nodes)
    return (
        f"a tree of sparse fields is full ({nodes}): cells that had no room were not written; "
        "make others inactive before, or its nodes larger"
    )


def failures(kernel: str, tree: StructureTree) -> tuple[str, ...]:
    """Returns a kernel's messages about writes to a tree that were not made, by the column that records them."""
    texts = {OUTSIDE: OUTSIDE_TEXT, FULL: full_text(tree)}
    return tuple(f"kernel {kernel}: {texts[column]}" for column in sorted(texts))


class Pools:
    """Writer of statements that change the active cells of the trees of one kernel."""

    def __init__(self, cells: Cells) -> None:
        self.cells = cells
        self._going = ""  # the local that controls the current loop of rounds
        self.given_back: set[tuple[str, int]] = set()  # to be reclaimed before slots are taken
        self.may_fail: set[str] = set()  # trees with writes that may not be made

    # --- counters

    def set_counter(
        self, b: StatementBuilder, tree: str, node: int, column: int, value: Expr
    ) -> None:
        b.store(self.cells.array(tree, "counters"), (number(node), number(column)), value)

    def count(self, b: StatementBuilder, tree: str, node: int, column: int) -> Expr:
        """Appends an increment of the counter of a node in this column; returns its old value."""
        place = (number(node), number(column))
        return b.fetch(self.cells.array(tree, "counters"), place, "add", number(1))

    def fail(self, b: StatementBuilder, tree: str, column: int) -> None:
        """Appends a record that a write could not be made, in column `column` of the tree's counters."""
        self.may_fail.add(tree)
        last = len(self.cells.layouts[tree].tree.nodes)
        self.set_counter(b, tree, last, column, number(1))

    def check(self, b: StatementBuilder, kernel: str) -> None:
        """Appends assertions that all writes were made.

        They end the call with an error, after a reset of the records in all trees for the next call.
        """
        made = list[tuple[Expr, str]]()
        for tree in sorted(self.may_fail):
            t = self.cells.layouts[tree].tree
            for column, text in enumerate(failures(kernel, t)):
                seen = b.hold("failed", self.cells.counter(tree, len(t.nodes), column))
                self.set_counter(b, tree, len(t.nodes), column, number(0))
                made.append((compare("eq", seen, number(0)), text))
        for is_made, text in made:
            b.put(Assert(is_made, text, (), b.where))

    def note_change(self, b: StatementBuilder, tree: str, node: int) -> None:
        """Appends stores that mark lists of the node's cells as out of date."""
        t = self.cells.layouts[tree].tree
        for k in t.below(node):
            if t.nodes[k].has.is_listed:
                self.set_counter(b, tree, k, CHANGED, number(1))

    # --- activation

    def activate(self, b: StatementBuilder, tree: str, node: int, indices: Sequence[Expr]) -> Found:
        """Appends the activation of the cell of a node at these indices.

        Returns its item, and the condition that there was room.
        """
        cells = self.cells
        t = cells.layouts[tree].tree
        ok, inside = cells.inside(tree, node, indices)
        is_sure = ok == const(True, DType.bool_)
        if not is_sure:
            ok = b.hold("ok", ok)
            outside = b.inner()
            self.fail(outside, tree, OUTSIDE)
            b.branch(unary("not", ok), outside)
        names = cells.names
        item_name = names.fresh("item")
        b.set(item_name, number(0))
        inner = b if is_sure else b.inner()
        container: Expr = number(0)
        for n in t.path(node):
            cell = inner.hold("cell", cells.cell(t, n, node, inside))
            at = cells.above(t, node, n, inside) if t.nodes[n].has.directory else ()
            container = self._activated(inner, tree, n, container, cell, at)
        inner.set(item_name, container)
        if not is_sure:
            b.branch(ok, inner)
        item = Local(item_name, I64)
        if t.last(node, "pool") >= 0:
            return Found(item, compare("ne", item, number(0)), False)
        return Found(item, ok, False)

    def _activated(
        self,
        b: StatementBuilder,
        tree: str,
        n: int,
        container: Expr,
        cell: Expr,
        at: Sequence[Expr],
    ) -> Expr:
        """Appends the activation of a cell of one container of node `n`; returns its item.

        `at`: coordinates of the cell in a hash node.
        """
        t = self.cells.layouts[tree].tree
        node = t.nodes[n]
        slot: Expr | None = None
        if node.has.mask:
            self._set_bit(b, tree, n, container, cell)
        if node.has.directory:
            slot = self._hashed(b, tree, n, container, cell, at)
        elif node.has.pool:
            slot = self.slot_at(
                b, tree, n, b.hold("entry", self.cells.entry(t, n, container, cell))
            )
        item = b.hold("item", self.cells.item(t, n, container, cell, slot))
        if node.has.length:
            behind = cast(plus(cell, number(1)), DType.i32)
            length = self.cells.array(tree, f"length{n}")
            shorter = b.inner()
            old = shorter.fetch(length, (container,), "max", behind)
            self._fill_chunks(shorter, tree, n, container, cast(old, I64), cell)
            b.branch(compare("lt", self.cells.load(tree, f"length{n}", container), behind), shorter)
        return item

    def _hashed(
        self,
        b: StatementBuilder,
        tree: str,
        n: int,
        container: Expr,
        cell: Expr,
        at: Sequence[Expr],
    ) -> Expr:
        """Appends the allocation of a directory position and a slot for a cell of hash node `n` that has none.

        Returns its slot; 0 if there is no room. `at`: coordinates of the cell.
        """
        names, layout = self.cells.names, self.cells.layouts[tree]
        nobody = number(nowhere(layout.slots[n]))
        key = b.hold("key", self.cells.key(layout.tree, n, container, cell))
        place = names.fresh("place")
        found = b.set(place, self.cells.entry(layout.tree, n, container, cell, b))
        slow, full = b.inner(), b.inner()
        keys = self.cells.array(tree, f"keys{n}")
        claim(slow, keys, self.cells.starts(layout.tree, n, key, slow), key, place)
        b.branch(compare("eq", found, nobody), slow)
        slot = names.fresh("hashed")
        b.set(slot, number(0))
        inner = b.inner()
        inner.set(slot, self.slot_at(inner, tree, n, found, at))
        self.fail(full, tree, FULL)
        b.branch(compare("ne", found, nobody), inner, full)
        return Local(slot, I64)

    def _fill_chunks(
        self, b: StatementBuilder, tree: str, n: int, container: Expr, length: Expr, cell: Expr
    ) -> None:
        """Appends the allocation of slots for chunks of dynamic node `n`, from its end to a cell behind it.

        All cells up to that one become active. `length`: the number of active cells before.
        """
        node = self.cells.layouts[tree].tree.nodes[n]
        if node.entries == 1:
            return
        first = b.hold("first", quotient(length, node.chunk))
        n_chunks = b.hold("n_chunks", binary("sub", quotient(cell, node.chunk), first))
        name = self.cells.names.fresh("chunk")
        entry = plus(times(container, node.entries), first, LoopIndex(name, I64))
        inner = b.inner()
        self.slot_at(inner, tree, n, inner.hold("entry", entry))
        b.loop(name, binary("max", n_chunks, number(0)), inner)

    def _set_bit(self, b: StatementBuilder, tree: str, n: int, container: Expr, cell: Expr) -> None:
        t = self.cells.layouts[tree].tree
        w, bit = self.cells.bit(t, n, container, cell)
        w, bit = b.hold("word", w), b.hold("bit", bit)
        mask = self.cells.array(tree, f"mask{n}")
        absent = compare(
            "eq", binary("bit_and", self.cells.load(tree, f"mask{n}", w), bit), const(0, U64)
        )
        setting = b.inner()
        setting.fetch(mask, (w,), "bit_or", bit)
        self.note_change(setting, tree, n)
        b.branch(absent, setting)

    def slot_at(
        self, b: StatementBuilder, tree: str, n: int, entry: Expr, at: Sequence[Expr] = ()
    ) -> Expr:
        """Appends the allocation of a slot for an entry of node n's table without one; returns the slot.

        The slot is 0 if there is no room. `at`: coordinates of the cell in a hash node.
        """
        table, names = self.cells.array(tree, f"table{n}"), self.cells.names
        slot = names.fresh("slot")
        found = b.set(slot, self.cells.load(tree, f"table{n}", entry))
        busy, zero = const(BUSY, U32), const(0, U32)
        absent = binary("or", compare("eq", found, zero), compare("ge", found, busy))
        slow, old, is_left = self._marked(b, table, entry)
        # This thread owns the entry and fills it.
        filling = slow.inner()
        k = self.count(filling, tree, n, TAKEN)
        n_free = filling.hold("n_free", self.cells.counter(tree, n, FREE))
        again = compare("lt", k, n_free)
        place = select(again, binary("sub", binary("sub", n_free, number(1)), k), number(0))
        kept = cast(self.cells.load(tree, f"free{n}", place), I64)
        fresh = plus(self.cells.counter(tree, n, FRESH), binary("sub", k, n_free))
        taken = filling.hold("taken", select(again, kept, fresh))
        n_slots = self.cells.layouts[tree].slots[n]
        fits, full = filling.inner(), filling.inner()
        fits.set(slot, cast(taken, U32))
        for row, x in enumerate((entry, *at) if at else ()):
            fits.store(self.cells.array(tree, f"at{n}"), (number(row), taken), x)
        self.note_change(fits, tree, n)
        full.set(slot, zero)
        self.fail(full, tree, FULL)
        filling.branch(compare("lt", taken, number(n_slots)), fits, full)
        there = slow.inner()
        there.set(slot, old)
        mine = slow.inner()
        mine.branch(compare("eq", old, zero), filling, there)
        mine.store(table, (entry,), found)
        is_left(mine)
        slow.branch(compare("lt", old, busy), mine)
        b.branch(absent, self._rounds(b, slow))
        return cast(found, I64)

    def _marked(
        self, b: StatementBuilder, table: str, entry: Expr
    ) -> tuple[StatementBuilder, Local, Callable[[StatementBuilder], None]]:
        """Returns one iteration of a loop that tries to mark an entry BUSY, the old entry, and a writer.

        The writer appends the statement that ends the loop.
        A thread that found no mark owns the entry until it stores the new one.
        """
        self._going = self.cells.names.fresh("going")
        going, round_ = self._going, b.inner()
        old = round_.fetch(table, (entry,), "bit_or", const(BUSY, U32))
        return (
            round_,
            old,
            lambda last: last.put(SetLocal(going, const(False, DType.bool_), last.where)),
        )

    def _rounds(self, b: StatementBuilder, round_: StatementBuilder) -> StatementBuilder:
        """Returns a block with the loop that repeats the statements `round_` until they end the loop."""
        block = b.inner()
        going = block.set(self._going, const(True, DType.bool_))
        block.put(While(going, tuple(round_.statements), b.where))
        return block

    def append(
        self, b: StatementBuilder, tree: str, n: int, indices: Sequence[Expr], result: str
    ) -> Found:
        """Appends the activation of the next cell of dynamic node `n`; the local `result` gets the cell's index.

        `indices`: those of the container, in the node's parent.
        """
        cells, t = self.cells, self.cells.layouts[tree].tree
        node = t.nodes[n]
        container: Expr = number(0)
        ok: Expr = const(True, DType.bool_)
        if node.parent >= 0:
            above = self.activate(b, tree, node.parent, indices)
            container, ok = above.item, above.is_there
        item_name = cells.names.fresh("item")
        item = b.set(item_name, number(0))
        b.set(result, const(0, DType.i32))
        length = cells.array(tree, f"length{n}")
        adding = b.inner()
        k = adding.fetch(length, (container,), "add", const(1, DType.i32))
        adding.set(result, k)
        fits, full = adding.inner(), adding.inner()
        at = cast(k, I64)
        slot = self.slot_at(fits, tree, n, fits.hold("entry", cells.entry(t, n, container, at)))
        there = compare("ne", fits.hold("slot", slot), number(0))
        fits.set(item_name, select(there, cells.item(t, n, container, at, slot), number(0)))
        full.fetch(length, (container,), "add", const(-1, DType.i32))
        self.fail(full, tree, FULL)
        adding.branch(compare("lt", at, number(node.cells)), fits, full)
        if ok == const(True, DType.bool_):
            b.statements += adding.statements
        else:
            b.branch(ok, adding)
        return Found(item, compare("ne", item, number(0)), False)

    # --- deactivation

    def deactivate(self, b: StatementBuilder, tree: str, n: int, indices: Sequence[Expr]) -> None:
        """Appends the deactivation of a cell of node `n`; for a dynamic node, of all cells of a container."""
        cells, t = self.cells, self.cells.layouts[tree].tree
        node = t.nodes[n]
        if node.has.length:
            found = cells.container(tree, n, indices, b)
            is_there, first = found.is_there, n_shared(cells.layouts[tree], f"length{n}")
            if first:  # elements that inactive cells share are zero and never written
                is_there = binary("and", is_there, compare("ge", found.item, number(first)))
            self._if(b, is_there, lambda inner: self.clear(inner, tree, n, found.item))
            return
        ok, inside = cells.inside(tree, n, indices)
        parent = node.parent
        container: Expr = number(0)
        if parent >= 0:
            container = cells.find(tree, parent, cells.above(t, n, parent, inside), block=b).item
        cell = b.hold("cell", cells.cell(t, n, n, inside))
        self._if(b, ok, lambda inner: self._deactivated(inner, tree, n, container, cell))

    def _if(
        self, b: StatementBuilder, condition: Expr, write: Callable[[StatementBuilder], None]
    ) -> None:
        if condition == const(True, DType.bool_):
            write(b)
            return
        inner = b.inner()
        write(inner)
        b.branch(condition, inner)

    def _deactivated(
        self, b: StatementBuilder, tree: str, n: int, container: Expr, cell: Expr
    ) -> None:
        cells, t = self.cells, self.cells.layouts[tree].tree
        has = t.nodes[n].has
        if has.pool:
            self._give_back(b, tree, n, b.hold("entry", cells.entry(t, n, container, cell, b)))
            return
        w, bit = cells.bit(t, n, container, cell)
        w, bit = b.hold("word", w), b.hold("bit", bit)
        mask = cells.array(tree, f"mask{n}")
        present = compare(
            "ne", binary("bit_and", cells.load(tree, f"mask{n}", w), bit), const(0, U64)
        )
        clearing = b.inner()
        clearing.fetch(mask, (w,), "bit_and", unary("bit_not", bit))
        self.note_change(clearing, tree, n)
        self.clear_item(clearing, tree, n, cells.item(t, n, container, cell, None))
        b.branch(present, clearing)

    def _give_back(self, b: StatementBuilder, tree: str, n: int, entry: Expr) -> None:
        """Appends statements that empty an entry of the table of node `n` and give back its slot."""
        table = self.cells.array(tree, f"table{n}")
        round_, old, is_left = self._marked(b, table, entry)
        mine, giving = round_.inner(), round_.inner()
        k = self.count(giving, tree, n, FREED)
        giving.store(self.cells.array(tree, f"freed{n}"), (k,), old)
        self.note_change(giving, tree, n)
        mine.branch(compare("ne", old, const(0, U32)), giving)
        mine.store(table, (entry,), const(0, U32))
        is_left(mine)
        round_.branch(compare("lt", old, const(BUSY, U32)), mine)
        present = compare("ne", self.cells.load(tree, f"table{n}", entry), const(0, U32))
        b.branch(present, self._rounds(b, round_))

    def clear(self, b: StatementBuilder, tree: str, n: int, container: Expr) -> None:
        """Appends the deactivation of all cells of a container of node `n`."""
        cells, t = self.cells, self.cells.layouts[tree].tree
        node = t.nodes[n]
        if node.has.directory:
            clear(b, cells, tree, n, container, self._give_back)
        elif node.has.pool:
            b.repeat(
                node.entries,
                lambda inner, e: self._give_back(
                    inner, tree, n, plus(times(container, node.entries), e)
                ),
            )
        if node.has.length:
            b.store(cells.array(tree, f"length{n}"), (container,), const(0, DType.i32))
        if node.has.mask:
            n_words, mask = words(node.cells), cells.array(tree, f"mask{n}")
            b.repeat(
                n_words,
                lambda inner, w: inner.store(
                    mask, (plus(times(container, n_words), w),), const(0, U64)
                ),
            )
            self.note_change(b, tree, n)
        if not node.has.pool:
            b.repeat(
                node.cells,
                lambda inner, c: self.clear_item(
                    inner, tree, n, plus(times(container, node.cells), c)
                ),
            )

    def clear_item(self, b: StatementBuilder, tree: str, n: int, item: Expr) -> None:
        """Appends stores that set the contents of a cell of node `n` to zero: fields, and containers below it."""
        layout = self.cells.layouts[tree]
        for k, f in enumerate(layout.fields):
            if f.node == n:
                array = self.cells.array(tree, f"field{k}")
                self._zero(b, array, f.components, item, f.dtype)
        for child in layout.tree.nodes_in(n):
            self.clear(b, tree, child, item)

    def _zero(
        self, b: StatementBuilder, array: str, components: tuple[int, ...], item: Expr, dtype: DType
    ) -> None:
        for at in itertools.product(*map(range, components)):
            b.store(array, (*map(number, at), item), const(0, dtype))
