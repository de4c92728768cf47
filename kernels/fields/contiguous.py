"""Contiguous boxes of a sparse tree: cells of a node that lie side by side in memory.

A box is the cells of the node in one cell of its last ancestor with a pool.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..sparse.layout import WORD, words
from .storage import TOP, TreeStorage

Array = NDArray[Any]


@dataclass(frozen=True)
class Boxes:
    """Allocated boxes of a node: blocks of its cells that are contiguous in memory.

    `at`: coordinates of each box, counted in boxes, by axis. `items`: number of each box in memory.
    `heads`: number of boxes along each axis. `tails`: axis and extent of each dimension of a box, in the order of memory.
    """

    storage: TreeStorage
    node: int
    at: tuple[Array, ...]
    items: Array
    heads: tuple[int, ...]
    tails: tuple[tuple[int, int], ...]

    @property
    def unit(self) -> int:
        """Number of cells in a box."""
        return prod(extent for _, extent in self.tails)

    def in_memory(self, values: Array) -> Array:
        """Returns a view (boxes, *box) of an array of one value per item, boxes that are not allocated included."""
        n = self.storage.layout.items[self.node]
        return values[:n].reshape(n // self.unit, *(extent for _, extent in self.tails))

    def in_space(self, elements: Array) -> Array:
        """Returns a view (*boxes, *box) of an array with one element for each index of the field."""
        shape, where = list[int](), dict[tuple[int, int], int]()
        for axis, head in enumerate(self.heads):
            where[axis, -1] = len(shape)
            shape.append(head)
            for k, (of, extent) in enumerate(self.tails):
                if of == axis:
                    where[axis, k] = len(shape)
                    shape.append(extent)
        order = [where[axis, -1] for axis in range(len(self.heads))]
        order += [where[axis, k] for k, (axis, _) in enumerate(self.tails)]
        return elements.reshape(shape).transpose(*order)

    def active(self) -> Array | None:
        """Returns the activity of each cell, as truth values of shape (boxes, unit).

        None if all cells are active.
        """
        t, masks = self.storage.tree, _masks(self.storage, self.node)
        if not masks:
            return None
        found = np.ones((len(self.items), 1), bool)
        for k, containers in _containers(self.storage, self.node, self.items):
            cells, n = t.nodes[k].cells, found.shape[1]
            bits: Array = np.ones(cells, bool)
            if k in masks:
                bits = self.storage.bits(k, containers).reshape(-1, n, cells)
            found = (found[..., None] & bits).reshape(-1, n * cells)
        return (
            found if found.shape[1] == self.unit else found.repeat(self.unit // found.shape[1], 1)
        )

    @property
    def are_in_pool(self) -> bool:
        """True if the boxes are in a pool, whose memory belongs to allocated boxes alone."""
        return _head(self.storage, self.node) > 0


def _masks(storage: TreeStorage, node: int) -> list[int]:
    """Returns the numbers of the nodes within a box that have an activity mask."""
    path = storage.tree.path(node)[_head(storage, node) :]
    return [k for k in path if storage.tree.nodes[k].has.mask]


def _containers(storage: TreeStorage, node: int, items: Array) -> Iterator[tuple[int, Array]]:
    """Yields each node within a box, to the last one with a mask, with its containers in the boxes `items`.

    A container is the array of a node's cells inside one cell of the parent.
    """
    path, last = storage.tree.path(node), storage.tree.last(node, "mask")
    containers = items
    for k in path[_head(storage, node) : path.index(last) + 1 if last >= 0 else 0]:
        yield k, containers
        if k != last:
            cells = storage.tree.nodes[k].cells
            containers = (containers[:, None] * cells + np.arange(cells)).ravel()


def activate_all(storage: TreeStorage, node: int) -> None:
    """Makes all cells of a node active, and the cells that contain them."""
    t, head = storage.tree, _head(storage, node)
    if head:
        upper = t.path(node)[head - 1]
        storage.activate(upper, [x.ravel() for x in np.indices(t.shape(upper))])
    for k, containers in _containers(storage, node, boxes_of(storage, node).items):
        n, cells = words(t.nodes[k].cells), t.nodes[k].cells
        if t.nodes[k].has.mask:
            all_set = np.full(n, ~np.uint64(0))
            all_set[-1] >>= np.uint64(-cells % WORD)
            at = containers[:, None] * n + np.arange(n)
            storage.n_changes += bool((storage.arrays[f"mask{k}"][at] != all_set).any())
            storage.arrays[f"mask{k}"][at] = all_set
            storage.changed(k)


def _head(storage: TreeStorage, node: int) -> int:
    """Returns the number of nodes on the path from the root to the last node with a pool; 0 if none has one."""
    path, last = storage.tree.path(node), storage.tree.last(node, "pool")
    return path.index(last) + 1 if last >= 0 else 0


def boxes_of(storage: TreeStorage, node: int) -> Boxes:
    """Returns the boxes of a node that are allocated now."""
    t, head = storage.tree, _head(storage, node)
    path, axes = t.path(node), t.axes(node)
    items, found = TOP
    for k in path[:head]:
        items, found = storage.active_in(k, items, found)
    at = tuple(found.get(a, np.zeros(len(items), np.int64)) for a in axes)
    heads = tuple(prod(t.split(node, a)[:head]) for a in axes)
    tails = tuple(
        (axes.index(a), extent)
        for k in path[head:]
        for a, extent in zip(t.nodes[k].axes, t.nodes[k].extents, strict=True)
    )
    return Boxes(storage, node, at, items, heads, tails)
