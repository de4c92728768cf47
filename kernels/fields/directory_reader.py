"""Hash directory of a hash node in memory, accessed from Python: each key may be in two windows of places."""

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
    """Hash directory of one node of a tree.

    Containers and cells are arrays of one length; a place is an entry of the node's table.
    """

    def __init__(self, layout: TreeLayout, arrays: Mapping[str, Array], node: int) -> None:
        self.entries = layout.tree.nodes[node].entries
        self.n_slots = layout.slots[node]
        self.keys, self.table, self.at = (arrays[f"{k}{node}"] for k in ("keys", "table", "at"))

    def _key(self, container: Array, cell: Array) -> Array:
        return (container * self.entries + cell + 1).astype(np.uint64)

    def _places(self, key: Array) -> list[Array]:
        """The candidate places of each key, in the order in which they are claimed."""
        shift = np.uint64(64 - (n_places(self.n_slots).bit_length() - 1))
        starts = [((key * np.uint64(mix)) >> shift).astype(np.int64) for mix in MIX]
        return [start + w for start in starts for w in range(WINDOW)]

    def find(self, container: Array, cell: Array) -> Array:
        """The places of cells; the place after all others for cells without one."""
        key = self._key(container, cell)
        found = np.full(len(key), nowhere(self.n_slots))
        for p in self._places(key):
            found = np.where(self.keys[p] == key, p, found)
        return found

    def claim(self, container: Array, cell: Array) -> Array:
        """Assigns places to cells and returns them. LanguageError if there is no place; nothing is changed then."""
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
        """Frees the places of slots that were given back, unless their cells have other slots."""
        places = self.at[0, slots]
        self.keys[places[self.table[places] == 0]] = 0

    def within(self, containers: Array, n_slots: int) -> Array:
        """The places of cells with slots that belong to some containers; `n_slots` slots may be in use."""
        slots = np.arange(1, n_slots)
        places = self.at[0, slots]
        own = (self.keys[places].astype(np.int64) - 1) // self.entries
        found: Array = places[(self.table[places] == slots) & np.isin(own, containers)]
        return found

    def order(self, slots: Array, containers: Array) -> Array:
        """The positions of the slots that belong to `containers`, in the order of the containers and of the cells in each."""
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
        """Frees all places; `n_slots` slots may be in use. If slots ran out, cells without a slot have places, too."""
        ran_out = n_slots >= self.n_slots
        places = np.nonzero(self.keys)[0] if ran_out else self.at[0, 1:n_slots]
        self.keys[places] = 0
        self.table[places] = 0
