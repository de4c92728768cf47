"""Hash directory of a hash node in memory, accessed from Python.

A key may be in one of two windows of table entries, which two hash functions give.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..ir.errors import ProgramRuntimeError
from ..sparse.layout import MIX, WINDOW, TreeLayout, n_places, nowhere
from .caller_location import fail

Array = NDArray[Any]


class Directory:
    """Hash directory of one hash node: maps (container, cell) to an entry of the node's table, its *place*.

    Arguments are arrays with one number for each cell: `container` is the instance of the node, `cell` the number in it.
    """

    def __init__(self, layout: TreeLayout, arrays: Mapping[str, Array], node: int) -> None:
        self.entries = layout.tree.nodes[node].entries
        self.n_slots = layout.slots[node]
        self.keys, self.table, self.at = (arrays[f"{k}{node}"] for k in ("keys", "table", "at"))

    def _key(self, container: Array, cell: Array) -> Array:
        return (container * self.entries + cell + 1).astype(np.uint64)

    def _places(self, key: Array) -> list[Array]:
        """Returns the candidate places of each key, in the order in which `claim` tries them."""
        shift = np.uint64(64 - (n_places(self.n_slots).bit_length() - 1))
        starts = [((key * np.uint64(mix)) >> shift).astype(np.int64) for mix in MIX]
        return [start + w for start in starts for w in range(WINDOW)]

    def find(self, container: Array, cell: Array) -> Array:
        """Returns the place of each cell; the number behind the last place for a cell that has none."""
        key = self._key(container, cell)
        found = np.full(len(key), nowhere(self.n_slots))
        for p in self._places(key):
            found = np.where(self.keys[p] == key, p, found)
        return found

    def claim(self, container: Array, cell: Array) -> Array:
        """Assigns places to cells and returns them.

        LanguageError, without changes, if a cell has no free place.
        """
        found = self.find(container, cell)
        key = self._key(container, cell)
        is_new = found == nowhere(self.n_slots)
        for p in self._places(key):
            (left,) = np.nonzero((found == nowhere(self.n_slots)) & (self.keys[p] == 0))
            places, first = np.unique(p[left], return_index=True)
            self.keys[places] = key[left[first]]
            found = np.where(self.keys[p] == key, p, found)
        has_none = found == nowhere(self.n_slots)
        if has_none.any():
            self.keys[found[is_new & ~has_none]] = 0
            fail(
                "the tree is full: a hash node has no place for one of its cells",
                ProgramRuntimeError,
            )
        return found

    def leave(self, slots: Array) -> None:
        """Frees the places of slots that cells have returned, unless the cell has another slot now."""
        places = self.at[0, slots]
        self.keys[places[self.table[places] == 0]] = 0

    def within(self, containers: Array, n_slots: int) -> Array:
        """Returns the places of the cells in `containers` that have a slot; slots in use are below `n_slots`."""
        slots = np.arange(1, n_slots)
        places = self.at[0, slots]
        own = (self.keys[places].astype(np.int64) - 1) // self.entries
        found: Array = places[(self.table[places] == slots) & np.isin(own, containers)]
        return found

    def order(self, slots: Array, containers: Array) -> Array:
        """Returns the positions in `slots` of those that belong to `containers`.

        They are in the order of the containers, and of the cell numbers in each.
        """
        if not len(containers):
            return np.zeros(0, np.int64)
        cells = self.keys[self.at[0, slots]].astype(np.int64) - 1
        own, cell = cells // self.entries, cells % self.entries
        by_number: Array = np.argsort(containers)
        at = np.searchsorted(containers[by_number], own)
        rank: Array = by_number[np.minimum(at, len(containers) - 1)]
        (found,) = np.nonzero(containers[rank] == own)
        ordered: Array = found[np.lexsort((cell[found], rank[found]))]
        return ordered

    def empty(self, n_slots: int) -> None:
        """Frees all places; only slots below `n_slots` are in use.

        If the pool ran out of slots, places of cells without a slot are freed, too.
        """
        ran_out = n_slots >= self.n_slots
        places = np.nonzero(self.keys)[0] if ran_out else self.at[0, 1:n_slots]
        self.keys[places] = 0
        self.table[places] = 0
