"""The cells of one sparse field, as Python reads and writes them."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .matrix import Matrix
from .place import fail
from .storage import TreeStorage

if TYPE_CHECKING:
    from .tree import SNode, Structure

Array = NDArray[Any]


class SparseCells:
    """Values of shape (*components, items). Indices begin at 0."""

    def __init__(self, structure: Structure, number: int) -> None:
        self.structure = structure
        self.number = number
        self.node = structure.layout.fields[number].node
        self.values = structure.memory.arrays[f"field{number}"]

    @property
    def storage(self) -> TreeStorage:
        """The memory of the tree, when kernels that wait have run."""
        return self.structure.storage

    @staticmethod
    def of(place: SNode) -> SparseCells:
        """Of the field at a place, whose tree gets its memory now."""
        structure = place.structure
        assert structure is not None
        return SparseCells(structure, structure.fields[id(place)])

    def find(self, index: tuple[int, ...]) -> tuple[int, bool]:
        """The item of one cell, and whether it is active."""
        item, active = self.storage.find(self.node, [np.asarray([i]) for i in index])
        return int(item[0]), bool(active[0])

    def read(self, index: tuple[int, ...]) -> Array:
        """The components of an element."""
        item, active = self.find(index)
        if active:
            return np.asarray(self.values[..., item])
        return np.zeros(self.values.shape[:-1], self.values.dtype)

    def element(self, index: tuple[int, ...]) -> Matrix:
        """A vector or matrix: writing a component activates it."""
        return Matrix.of_element(
            self.read(index), lambda: np.asarray(self.values[..., self.activated(index)])
        )

    def activated(self, index: tuple[int, ...]) -> int:
        """The item of a cell, which is active then."""
        return int(self.storage.activate(self.node, [np.asarray([i]) for i in index])[0])

    def dense(self, shape: tuple[int, ...]) -> Array:
        """All elements: components, then indices; zero where inactive. LanguageError where that is more than there is memory."""
        whole = (*self.values.shape[:-1], *shape)
        try:
            result = np.zeros(whole, self.values.dtype)
        except (MemoryError, ValueError):
            n_gib = prod(whole) * self.values.itemsize / (1 << 30)
            fail(
                f"an array of all elements of this sparse field, {' x '.join(map(str, whole))}, takes {n_gib:,.0f} GiB, "
                "more than there is memory: copy the active ones in a kernel"
            )
        active = self.storage.active(self.node)
        item, _ = self.storage.find(self.node, active)
        place: tuple[Any, ...] = (..., *active)
        result[place] = self.values[..., item]
        return result

    def take(self, given: Array) -> None:
        """Sets the active elements from an array of all."""
        active = self.storage.active(self.node)
        item, _ = self.storage.find(self.node, active)
        place: tuple[Any, ...] = (..., *active)
        self.values[..., item] = given[place].astype(self.values.dtype)

    def take_all(self, given: Array) -> None:
        """Sets all elements, which are active then."""
        n = self.values.ndim - 1
        indices = [x.ravel() for x in np.indices(given.shape[n:])]
        item = self.storage.activate(self.node, indices)
        self.values[..., item] = given.reshape(*given.shape[:n], -1).astype(self.values.dtype)

    def fill(self, value: Array) -> None:
        """Sets the active elements to one."""
        starts, unit = self.storage.blocks(self.node)
        n = self.storage.layout.items[self.node]
        whole = self.values[..., :n].reshape(*self.values.shape[:-1], n // unit, unit)
        whole[..., starts // unit, :] = value[..., None, None]
