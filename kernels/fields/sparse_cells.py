"""Elements of one sparse field, read and written from Python."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .caller_location import fail
from .contiguous import Boxes, activate_all, boxes_of
from .host_access import settle_for_reading, settle_for_writing
from .matrix import Matrix
from .scalar_access import OneCell
from .storage import TreeStorage

if TYPE_CHECKING:
    from .tree import SNode, Structure

Array = NDArray[Any]


class SparseCells:
    """Elements of one sparse field, in the cells of the node above it.

    `values`: the field's array, shape (*components, items). Indices begin at 0, whatever the field's offset.
    """

    def __init__(self, structure: Structure, number: int) -> None:
        self.structure = structure
        self.number = number
        self.node = structure.layout.fields[number].node
        self.values = structure.memory.arrays[f"field{number}"]

    @property
    def storage(self) -> TreeStorage:
        """Storage of the tree for a read of the field, after deferred kernels have run."""
        settle_for_reading(self)
        return self.structure.memory

    @property
    def writable(self) -> TreeStorage:
        """Storage of the tree for a write to the field, after deferred kernels have run."""
        settle_for_writing(self)
        return self.structure.memory

    @property
    def label(self) -> str:
        """The name of the field in messages."""
        structure = self.structure
        return structure.label if structure.released else structure.leaf(self.number).label

    def arrays(self) -> Iterable[Array]:
        """Returns the arrays of the tree; deferred kernels are not run first."""
        return self.structure.arrays()

    @staticmethod
    def of(place: SNode) -> SparseCells:
        """Returns the cells of the field at `place`; allocates the memory of its tree if it has none."""
        structure = place.structure
        assert structure is not None
        return SparseCells(structure, structure.fields[id(place)])

    @cached_property
    def _one(self) -> OneCell:
        return OneCell(self.structure.memory, self.node)

    def read(self, index: tuple[int, ...]) -> Array:
        """Returns the components of the element at an index; zeros if the cell is inactive."""
        settle_for_reading(self)
        item, active = self._one.find(index)
        if active:
            return np.asarray(self.values[..., item])
        return np.zeros(self.values.shape[:-1], self.values.dtype)

    def element(self, index: tuple[int, ...]) -> Matrix:
        """Returns the vector or matrix at an index as a view; writing a component activates the cell."""
        return Matrix.of_element(
            self.read(index), lambda: np.asarray(self.values[..., self.activated(index)]), self
        )

    def activated(self, index: tuple[int, ...]) -> int:
        """Makes the cell at an index active, for a write, and returns its item (number in memory)."""
        settle_for_writing(self)
        return self._one.activate(index)

    def dense(self, shape: tuple[int, ...]) -> Array:
        """Returns all elements of a field of extents `shape`: components, then indices; zero where inactive.

        LanguageError if they exceed the machine's memory.
        """
        whole = (*self.values.shape[:-1], *shape)
        try:
            result = np.zeros(whole, self.values.dtype)
        except (MemoryError, ValueError):
            n_gib = prod(whole) * self.values.itemsize / (1 << 30)
            fail(
                f"an array of all elements of this sparse field, {' x '.join(map(str, whole))}, takes {n_gib:,.0f} GiB, "
                "more than there is memory: copy the active ones in a kernel"
            )
        boxes = boxes_of(self.storage, self.node)
        for at in np.ndindex(*self.values.shape[:-1]):
            boxes.in_space(result[at])[boxes.at] = boxes.in_memory(self.values[at])[boxes.items]
        return result

    def take(self, given: Array) -> None:
        """Sets the active elements from an array that has all elements."""
        boxes = boxes_of(self.writable, self.node)
        active = boxes.active()
        for at in np.ndindex(*self.values.shape[:-1]):
            found = boxes.in_space(np.ascontiguousarray(given[at]))[boxes.at]
            _set(self.values[at], boxes, active, found.reshape(-1, boxes.unit))

    def take_all(self, given: Array) -> None:
        """Makes all elements active, and sets them from an array."""
        activate_all(self.writable, self.node)
        self.take(given)

    def fill(self, value: Array) -> None:
        """Sets the active elements to one value."""
        boxes = boxes_of(self.writable, self.node)
        active = boxes.active()
        for at in np.ndindex(*self.values.shape[:-1]):
            _set(self.values[at], boxes, active, value[at])


def _set(values: Array, boxes: Boxes, active: Array | None, new: Array) -> None:
    """Sets the active cells of `boxes` in `values`, the array of one component.

    `active`: activity of each cell, None if all are active. `new`: one value, or one for each cell, of shape (boxes, cells of a
    box).
    """
    whole = boxes.in_memory(values).reshape(-1, boxes.unit)
    if active is None:
        whole[boxes.items] = new
    elif boxes.are_in_pool:
        whole[boxes.items] = np.where(active, new, values.dtype.type(0))
    else:  # the memory of cells that never were active stays untouched: it may be more than there is
        whole[0, active[0]] = new if new.ndim == 0 else new[active]
