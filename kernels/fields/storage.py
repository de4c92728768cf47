"""Storage of a tree of sparse fields, and operations on it from Python: NumPy on the arrays that kernels use.

Indices are arrays, one for each axis of the node, all of one length, and inside the node. A container is the array of a node's
cells in one cell of its parent; an item is a cell's number in memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..ir.errors import ProgramRuntimeError
from ..sparse.layout import (
    CHANGED,
    FREE,
    FREED,
    FRESH,
    PADDING,
    TAKEN,
    WORD,
    TreeLayout,
    words,
)
from .arena import Arena
from .caller_location import fail
from .directory_reader import Directory

Array = NDArray[Any]
Indices = Sequence[Array]
TOP: tuple[Array, dict[int, Array]] = (np.zeros(1, np.int64), {})  # the root's one cell
NO_MORE: Mapping[int, int] = {}


class TreeStorage:
    """Memory of one tree of sparse fields: arrays of its nodes (tables, masks, lists) and of its fields."""

    def __init__(self, layout: TreeLayout, arrays: dict[str, Array] | None = None) -> None:
        """`arrays`: existing arrays of the tree, by section name; None allocates new ones."""
        self.layout, self.tree = layout, layout.tree
        self.n_changes = 0  # of active cells, by Python or the interpreter
        if arrays is not None:
            self.arrays = arrays
            return
        numbered = enumerate(layout.fields)
        pooled = [f"field{k}" for k, f in numbered if layout.tree.last(f.node, "pool") >= 0]
        self.arrays = Arena(layout.sections, pooled).arrays
        counters = self.arrays["counters"]
        counters[:-1, FRESH] = 1
        counters[:-1, CHANGED] = 1

    # --- where cells are

    def _cells(self, node: int, target: int, indices: Indices) -> Array:
        """Returns for each cell of the node `target` the number of the cell of `node` that contains it."""
        t = self.tree
        axes, at = t.axes(target), t.path(target).index(node)
        cell = np.zeros(len(indices[0]) if indices else 1, np.int64)
        for axis, extent in zip(t.nodes[node].axes, t.nodes[node].extents, strict=True):
            parts = t.split(target, axis)
            x = indices[axes.index(axis)] // prod(parts[at + 1 :]) % extent
            cell = cell * extent + x
        return cell

    def find(self, node: int, indices: Indices) -> tuple[Array, Array]:
        """Returns the item of each cell (its number in memory), and truth values for the active ones."""
        t = self.tree
        n = len(indices[0]) if indices else 1
        container, active = np.zeros(n, np.int64), np.ones(n, bool)
        for k in t.path(node):
            node_k = t.nodes[k]
            cell = self._cells(k, node, indices)
            if node_k.has.mask:
                w = container * words(node_k.cells) + cell // WORD
                bits = self.arrays[f"mask{k}"][w] >> (cell % WORD).astype(np.uint64)
                active &= (bits & np.uint64(1)).astype(bool)
            if node_k.has.length:
                active &= cell < self.arrays[f"length{k}"][container]
            if node_k.has.pool:
                entry = self._entry(k, container, cell)
                slot = self.arrays[f"table{k}"][entry].astype(np.int64)
                active &= slot != 0
                container = slot * node_k.chunk + cell % node_k.chunk
            else:
                container = container * node_k.cells + cell
        return container, active

    def _entry(self, node: int, container: Array, cell: Array) -> Array:
        """Returns the entry of a node's table that belongs to each cell; cells are given by container and number."""
        node_k = self.tree.nodes[node]
        if node_k.has.directory:
            return Directory(self.layout, self.arrays, node).find(container, cell)
        entry: Array = container * node_k.entries + cell // node_k.chunk
        return entry

    def containers(self, node: int, indices: Indices) -> tuple[Array, Array]:
        """Returns a node's container in each cell of the parent node, and truth values for active cells."""
        parent = self.tree.nodes[node].parent
        if parent < 0:
            return np.zeros(1, np.int64), np.ones(1, bool)
        return self.find(parent, indices)

    # --- what is there

    def activate(self, node: int, indices: Indices) -> Array:
        """Makes cells active and returns their items."""
        t = self.tree
        self.n_changes += not bool(self.find(node, indices)[1].all())
        container = np.zeros(len(indices[0]) if indices else 1, np.int64)
        for k in t.path(node):
            node_k = t.nodes[k]
            cell = self._cells(k, node, indices)
            if node_k.has.mask:
                w = container * words(node_k.cells) + cell // WORD
                bits = np.uint64(1) << (cell % WORD).astype(np.uint64)
                np.bitwise_or.at(self.arrays[f"mask{k}"], w, bits)
                self.changed(k)
            if node_k.has.length:
                np.maximum.at(self.arrays[f"length{k}"], container, cell + 1)
            if node_k.has.pool:
                entry = self._entry(k, container, cell)
                if node_k.has.directory:
                    self.settle(k)  # what it gives up is not what is claimed now
                    entry = Directory(self.layout, self.arrays, k).claim(container, cell)
                table = self.arrays[f"table{k}"]
                wanted = self._chunks(k, np.unique(container)) if node_k.has.length else entry
                new = np.unique(wanted[table[wanted] == 0])
                if len(new):
                    table[new] = self.taken(k, new)
                    self.changed(k)
                if node_k.has.directory:
                    at = self._above(node, k, indices)
                    self.arrays[f"at{k}"][:, table[entry]] = [entry, *at]
                container = table[entry].astype(np.int64) * node_k.chunk + cell % node_k.chunk
            else:
                container = container * node_k.cells + cell
        return container

    def _chunks(self, node: int, containers: Array) -> Array:
        """Returns the table entries of all chunks in use by these containers (lists) of a dynamic node."""
        node_k = self.tree.nodes[node]
        counts = -(-self.arrays[f"length{node}"][containers].astype(np.int64) // node_k.chunk)
        before = np.repeat(np.cumsum(counts) - counts, counts)
        first = np.repeat(containers * node_k.entries, counts)
        return first + np.arange(len(first)) - before

    def append(self, node: int, indices: Indices) -> tuple[int, int]:
        """Appends a cell to one list of a dynamic node; returns the cell's item, and its index in the list."""
        t = self.tree
        container = np.zeros(1, np.int64)
        if t.nodes[node].parent >= 0:
            container = self.activate(t.nodes[node].parent, indices)
        k = int(self.arrays[f"length{node}"][container[0]])
        node_k = t.nodes[node]
        if k >= node_k.cells:
            fail(f"a dynamic node of {node_k.cells} cells is full", ProgramRuntimeError)
        entry = container[0] * node_k.entries + k // node_k.chunk
        table = self.arrays[f"table{node}"]
        if not table[entry]:
            table[entry] = self.taken(node, entry[None])[0]
        self.arrays[f"length{node}"][container[0]] = k + 1
        self.n_changes += 1
        return int(table[entry]) * node_k.chunk + k % node_k.chunk, k

    def length(self, node: int, indices: Indices) -> int:
        """Returns the number of cells in one list of a dynamic node."""
        container, active = self.containers(node, indices)
        return int(self.arrays[f"length{node}"][container[0]]) if active[0] else 0

    def deactivate(self, node: int, indices: Indices) -> None:
        """Makes cells of a node inactive, with all cells in them.

        For a dynamic node `indices` are those of the parent's cells: all cells of these lists become inactive.
        """
        node_k = self.tree.nodes[node]
        if node_k.has.length:
            container, active = self.containers(node, indices)
            self.n_changes += bool(active.any())
            self._clear(node, container[active])
            return
        item, active = self.find(node, indices)
        self.n_changes += bool(active.any())
        if not node_k.has.pool:
            if node_k.has.mask:
                w = item // node_k.cells * words(node_k.cells) + item % node_k.cells // WORD
                bits = ~(np.uint64(1) << (item % node_k.cells % WORD).astype(np.uint64))
                np.bitwise_and.at(self.arrays[f"mask{node}"], w[active], bits[active])
            self.changed(node)
            self._clear_items(node, np.unique(item[active]))
            return
        container = np.zeros(len(item), np.int64)
        if node_k.parent >= 0:
            container = self.find(node_k.parent, self._above(node, node_k.parent, indices))[0]
        entry = self._entry(node, container, self._cells(node, node, indices))
        self._give_back(node, np.unique(entry[active]))

    def _above(self, node: int, upper: int, indices: Indices) -> list[Array]:
        """Returns the indices of the cell of `upper`, a node above, that contains each cell of `node`."""
        t = self.tree
        return [
            x // prod(t.split(node, a)[len(t.path(upper)) :])
            for x, a in zip(indices, t.axes(node), strict=True)
            if a in t.axes(upper)
        ]

    def deactivate_all(self, node: int) -> None:
        """Makes all cells of a node inactive, with all cells in them; of a dense node, the cells of nodes below."""
        if not self.tree.nodes[node].has.is_sparse:
            for child in self.tree.nodes_in(node):
                self.deactivate_all(child)
            return
        self.n_changes += 1
        used = {k: self.used(k) for k in self.tree.below(node)}
        for k, (n_containers, n_items) in used.items():
            node_k = self.tree.nodes[k]
            counters = self.arrays["counters"]
            if node_k.has.directory:
                Directory(self.layout, self.arrays, k).empty(n_items)
            elif node_k.has.pool:
                self.arrays[f"table{k}"][: n_containers * node_k.entries] = 0
            if node_k.has.pool:
                counters[k, [FREE, TAKEN, FREED]] = 0
                counters[k, FRESH] = 1
            if node_k.has.mask:
                self.arrays[f"mask{k}"][: n_containers * words(node_k.cells)] = 0
            if node_k.has.length:
                self.arrays[f"length{k}"][:n_containers] = 0
            for number, f in enumerate(self.layout.fields):
                if f.node == k:
                    self.arrays[f"field{number}"][..., :n_items] = 0
        self.changed(node)

    def used(self, node: int, more: Mapping[int, int] = NO_MORE) -> tuple[int, int]:
        """Returns how many containers and how many items of a node, from the first on, may have been written.

        `more`: by node, slots that may have been taken and that the counters do not tell of.
        """
        node_k = self.tree.nodes[node]
        n = 1 if node_k.parent < 0 else self.used(node_k.parent, more)[1]
        if not node_k.has.pool:
            return n, n * node_k.cells
        free, taken, fresh = self.arrays["counters"][node, [FREE, TAKEN, FRESH]]
        n_slots = int(fresh + max(taken - free, 0)) + more.get(node, 0)
        n_slots = min(n_slots, self.layout.slots[node])
        return n, n_slots * node_k.chunk

    def n_used(self, key: str, more: Mapping[int, int] = NO_MORE) -> int:
        """Returns how many elements of each row of a section, from the first on, kernels may access; `more` is that of `used`."""
        stem = key.rstrip("0123456789")
        number = int(key[len(stem) :] or 0)
        nodes, n = self.tree.nodes, int(self.arrays[key].shape[-1])
        if stem in ("counters", "keys") or (stem == "table" and nodes[number].has.directory):
            return n
        if stem == "field":
            return min(n, self.used(self.layout.fields[number].node, more)[1] + PADDING)
        n_containers, n_items = self.used(number, more)
        each = {"table": nodes[number].entries, "mask": words(nodes[number].cells), "length": 1}
        return min(n, n_containers * each[stem] if stem in each else n_items)

    def active(self, node: int) -> tuple[Array, ...]:
        """Returns the indices of a node's active cells, one array for each axis."""
        items, found = TOP
        for k in self.tree.path(node):
            items, found = self.active_in(k, items, found)
        return tuple(found[a] for a in self.tree.axes(node))

    def active_in(
        self, node: int, containers: Array, found: dict[int, Array]
    ) -> tuple[Array, dict[int, Array]]:
        """Returns the items of the active cells in some containers of a node, and their indices by axis.

        `found`: indices, by axis, of the parent's cell that has each container. The cells are in the order of the containers.
        """
        node_k = self.tree.nodes[node]
        if node_k.has.directory:
            slots, at = self._hashed(node)
            own = Directory(self.layout, self.arrays, node).order(slots, containers)
            return slots[own], {a: x[own] for a, x in at.items()}
        there = self._there(node, containers)
        owner, cell = np.divmod(there, node_k.cells)
        upper = containers[owner]
        found = {a: x[owner] for a, x in found.items()}
        rest = cell
        for axis, extent in zip(reversed(node_k.axes), reversed(node_k.extents), strict=True):
            found[axis] = found.get(axis, 0) * extent + rest % extent
            rest = rest // extent
        if not node_k.has.pool:
            return upper * node_k.cells + cell, found
        slot = self.arrays[f"table{node}"][upper * node_k.entries + cell // node_k.chunk]
        return slot.astype(np.int64) * node_k.chunk + cell % node_k.chunk, found

    def items_in(self, node: int, containers: Array) -> Array:
        """Returns the items of all cells in some containers of a dense node, in the order of the containers."""
        cells = self.tree.nodes[node].cells
        return (containers[:, None] * cells + np.arange(cells)).ravel()

    def bits(self, node: int, containers: Array) -> Array:
        """Returns the activity of each cell in some containers of a node, as truth values (containers, cells)."""
        cells = self.tree.nodes[node].cells
        n = words(cells)
        rows = self.arrays[f"mask{node}"][containers[:, None] * n + np.arange(n)]
        bits = np.unpackbits(rows.astype("<u8").view(np.uint8), axis=1, bitorder="little")
        return bits[:, :cells].view(bool)

    def _there(self, node: int, containers: Array) -> Array:
        """Returns the numbers of the active cells in some containers, counted over all cells of these."""
        node_k, there = self.tree.nodes[node], None
        shape = len(containers), node_k.cells
        if node_k.has.mask:
            there = self.bits(node, containers)
        if node_k.has.length:
            there = np.arange(node_k.cells) < self.arrays[f"length{node}"][containers][:, None]
        if node_k.has.pool:
            at = containers[:, None] * node_k.entries + np.arange(node_k.entries)
            taken = self.arrays[f"table{node}"][at] != 0
            taken = np.repeat(taken, node_k.chunk, axis=1)[:, : node_k.cells]
            there = taken if there is None else there & taken
        return np.arange(shape[0] * shape[1]) if there is None else np.flatnonzero(there)

    def _hashed(self, node: int) -> tuple[Array, dict[int, Array]]:
        """Returns the items of a hash node's active cells, and their indices by axis."""
        slots = np.arange(1, self.used(node)[1])
        at = self.arrays[f"at{node}"][1:, slots]
        there = self.find(node, list(at))[0] == slots
        return slots[there], dict(zip(self.tree.axes(node), at[:, there], strict=True))

    # --- pools

    def changed(self, node: int) -> None:
        """Marks the lists of active cells of the node, and of nodes below, as outdated."""
        self.arrays["counters"][list(self.tree.below(node)), CHANGED] = 1

    def settle(self, node: int) -> None:
        """Reclaims freed slots in the pools of a node and of the nodes below.

        Slots that kernels have taken count as used, and freed ones as free, from then on.
        """
        for k in self.tree.below(node):
            node_k = self.tree.nodes[k]
            if not node_k.has.pool:
                continue
            row = self.arrays["counters"][k]
            free, taken, n_freed = int(row[FREE]), int(row[TAKEN]), int(row[FREED])
            row[FRESH] = min(row[FRESH] + max(taken - free, 0), self.layout.slots[k])
            free = max(free - taken, 0)
            freed = self.arrays[f"freed{k}"][:n_freed].astype(np.int64)
            if node_k.has.directory:
                Directory(self.layout, self.arrays, k).leave(freed)
            self.arrays[f"free{k}"][free : free + n_freed] = freed
            row[FREE], row[TAKEN], row[FREED] = free + n_freed, 0, 0
            items = freed[:, None] * node_k.chunk + np.arange(node_k.chunk)
            self._clear_items(k, items.ravel())

    def taken(self, node: int, entries: Array) -> Array:
        """Takes one unused slot from a node's pool for each of `entries` of its table, and returns the slots.

        LanguageError if there are too few. The places of a hash node that were claimed for them are then freed.
        """
        self.settle(node)
        n = len(entries)
        row = self.arrays["counters"][node]
        again = min(n, int(row[FREE]))
        kept = self.arrays[f"free{node}"][int(row[FREE]) - again : int(row[FREE])].copy()
        fresh = np.arange(row[FRESH], row[FRESH] + n - again, dtype=np.uint32)
        if row[FRESH] + n - again > self.layout.slots[node]:
            if self.tree.nodes[node].has.directory:
                self.arrays[f"keys{node}"][entries] = 0
            fail(
                f"the tree is full: it has room for {self.layout.slots[node] - 1} cells of a "
                f"{self.tree.nodes[node].kind} node",
                ProgramRuntimeError,
            )
        row[FREE] -= again
        row[FRESH] += n - again
        return np.concatenate([kept, fresh])

    def _give_back(self, node: int, entries: Array) -> None:
        table, row = self.arrays[f"table{node}"], self.arrays["counters"][node]
        slots = table[entries]
        slots = slots[slots != 0]
        table[entries] = 0
        n = int(row[FREED])
        self.arrays[f"freed{node}"][n : n + len(slots)] = slots
        row[FREED] = n + len(slots)
        self.changed(node)

    def _clear(self, node: int, containers: Array) -> None:
        """Makes all cells in some containers of a node inactive."""
        node_k = self.tree.nodes[node]
        if node_k.has.directory:
            places = Directory(self.layout, self.arrays, node).within(
                containers, self.used(node)[1]
            )
            self._give_back(node, places)
        elif node_k.has.pool:
            entries = containers[:, None] * node_k.entries + np.arange(node_k.entries)
            self._give_back(node, entries.ravel())
        if node_k.has.length:
            self.arrays[f"length{node}"][containers] = 0
        if node_k.has.mask:
            n = words(node_k.cells)
            self.arrays[f"mask{node}"][containers[:, None] * n + np.arange(n)] = 0
            self.changed(node)
        if not node_k.has.pool:
            items = containers[:, None] * node_k.cells + np.arange(node_k.cells)
            self._clear_items(node, items.ravel())

    def _clear_items(self, node: int, items: Array) -> None:
        for number, f in enumerate(self.layout.fields):
            if f.node == node:
                for at in itertools.product(*map(range, f.components)):
                    self.arrays[f"field{number}"][at][items] = 0
        for child in self.tree.nodes_in(node):
            self._clear(child, items)
