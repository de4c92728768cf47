"""Access to single cells of a sparse tree, computed with Python's own numbers.

For a single cell `TreeStorage`, which works on arrays of cells, is tens of times slower.
"""

from __future__ import annotations

from functools import cached_property
from math import prod

import numpy as np

from ..sparse.layout import WORD, words
from .storage import TreeStorage

Index = tuple[int, ...]


class OneCell:
    """Access to single cells of one node of a sparse tree, by index."""

    def __init__(self, storage: TreeStorage, node: int) -> None:
        self.storage, self.node = storage, node

    @cached_property
    def _steps(self) -> tuple[tuple[int, tuple[tuple[int, int, int], ...]], ...]:
        """Nodes on the path to the node, each with the terms of the cell number in it.

        A term is (position in the index, divisor, modulus): index // divisor % modulus.
        """
        t, node = self.storage.tree, self.node
        axes = t.axes(node)
        return tuple(
            (
                k,
                tuple(
                    (axes.index(axis), prod(t.split(node, axis)[at + 1 :]), extent)
                    for axis, extent in zip(t.nodes[k].axes, t.nodes[k].extents, strict=True)
                ),
            )
            for at, k in enumerate(t.path(node))
        )

    @cached_property
    def _is_plain(self) -> bool:
        return not any(
            self.storage.tree.nodes[k].has.directory or self.storage.tree.nodes[k].has.length
            for k, _ in self._steps
        )

    def find(self, index: Index) -> tuple[int, bool]:
        """Returns the item (number in memory) of the cell at an index, and True if the cell is active."""
        if not self._is_plain:
            item, active = self.storage.find(self.node, [np.asarray([i]) for i in index])
            return int(item[0]), bool(active[0])
        arrays, container, is_active = self.storage.arrays, 0, True
        for k, parts in self._steps:
            has, cells = self.storage.tree.nodes[k].has, self.storage.tree.nodes[k].cells
            cell = _cell(parts, index)
            if has.mask:
                word = int(arrays[f"mask{k}"][container * words(cells) + cell // WORD])
                is_active = is_active and bool(word >> cell % WORD & 1)
            if has.pool:
                container = int(arrays[f"table{k}"][container * cells + cell])
                is_active = is_active and container != 0
            else:
                container = container * cells + cell
        return container, is_active

    def activate(self, index: Index) -> int:
        """Makes the cell at an index active, and returns its item (number in memory)."""
        item, is_active = self.find(index)
        if is_active:
            return item
        if not self._is_plain:
            return int(self.storage.activate(self.node, [np.asarray([i]) for i in index])[0])
        storage, container = self.storage, 0
        storage.n_changes += 1
        for k, parts in self._steps:
            has, cells = storage.tree.nodes[k].has, storage.tree.nodes[k].cells
            cell = _cell(parts, index)
            if has.mask:
                mask, w = storage.arrays[f"mask{k}"], container * words(cells) + cell // WORD
                mask[w] |= np.uint64(1 << cell % WORD)
                storage.changed(k)
            if has.pool:
                table, entry = storage.arrays[f"table{k}"], container * cells + cell
                if not table[entry]:
                    table[entry] = storage.taken(k, np.asarray([entry]))[0]
                    storage.changed(k)
                container = int(table[entry])
            else:
                container = container * cells + cell
        return container


def _cell(parts: tuple[tuple[int, int, int], ...], index: Index) -> int:
    cell = 0
    for axis, divisor, extent in parts:
        cell = cell * extent + index[axis] // divisor % extent
    return cell
