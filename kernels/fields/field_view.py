"""Array interface of sparse fields for the interpreter, which reads and writes single numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .storage import TreeStorage

Array = NDArray[Any]


class FieldView:
    """Sparse field with the interpreter's array interface: components first, then indices of cells, unchecked.

    Inactive cells read as 0.
    """

    def __init__(self, storage: TreeStorage, number: int) -> None:
        self.storage, self.number = storage, number
        self.place = storage.layout.fields[number]
        self.values = storage.arrays[f"field{number}"]
        self.dtype = self.values.dtype
        self.shape = (*self.place.components, *storage.tree.shape(self.place.node))

    def split(self, indices: Sequence[Any]) -> tuple[tuple[Any, ...], Sequence[Array]]:
        n = len(self.place.components)
        return tuple(indices[:n]), [np.asarray([int(i)]) for i in indices[n:]]

    def read(self, indices: Sequence[Any]) -> Any:
        """Returns the number at `indices`: components first, then the indices of the cell."""
        at, cell = self.split(indices)
        item, active = self.storage.find(self.place.node, cell)
        return self.values[(*at, item[0])] if active[0] else self.dtype.type(0)

    def write(self, indices: Sequence[Any], value: Any) -> None:
        """Sets the number at `indices` to `value`; no effect on an inactive cell."""
        at, cell = self.split(indices)
        item, active = self.storage.find(self.place.node, cell)
        if active[0]:
            self.values[(*at, item[0])] = value
