"""Recurrence of the state that decides control flow: a call leaves arrays as they were, trees up to the numbers of their slots.

Slots that a call gives back are taken again in another order, so lists that each call makes anew hold other slots. The path of the
next call stays: it depends on active cells, on values at these, and on counters of pools and lists. No program sees the order of
the cells in a list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..fields.canonical_state import SOUND, canonical
from ..ir.arrays import ArrayInfo
from ..sparse.layout import FREED
from ..sparse.recorded import UsedTree

Arrays = Mapping[str, NDArray[Any]]
_AT_ONCE = 1 << 20  # bytes that are compared


class Recurrence:
    """Comparison of the arrays before and after a call. `trees`: those of the sequence, with all arrays of the comparison."""

    def __init__(self, trees: Iterable[UsedTree], before: Arrays, after: Arrays) -> None:
        self._before, self._after = before, after
        self._trees = tuple(x for x in trees if _has_free_slots(x))

    def holds(self, array: ArrayInfo) -> bool:
        """True if the array decides the next call's path as it decided that of this call.

        Equal floats here may differ in a build with other, equally valid rounding.
        """
        name = array.name
        if array.dtype.is_float:
            return False
        return _is_same(self._before[name], self._after[name]) or name in self._up_to_slots

    @cached_property
    def _up_to_slots(self) -> frozenset[str]:
        """Arrays of trees that are equal but for the numbers of slots, and for the order of lists."""
        return frozenset(x for used in self._trees for x in self._of_tree(used))

    def _of_tree(self, used: UsedTree) -> Iterator[str]:
        known = self._before.keys() & self._after.keys()
        used = replace(used, sections=tuple(x for x in used.sections if x[1] in known))
        counters, tree = used.arrays.get("counters", ""), used.tree.name
        if not counters or not _is_same(self._before[counters], self._after[counters]):
            return
        if _has_unsettled_pools(used, self._before[counters]):
            return
        first, second = (
            canonical((used,), {name: x[name] for _, name in used.sections})
            for x in (self._before, self._after)
        )
        cells = [key for key in first if key.startswith(f"{tree}.cells")]
        is_sound = not any(x[f"{tree}.{SOUND}"].any() for x in (first, second))
        if not is_sound or not all(_is_same(first[key], second[key]) for key in cells):
            return
        for key, name in used.sections:
            stem = key.rstrip("0123456789")
            if stem == "field":
                stays = _is_same(first[name], second[name])
            else:
                stays = stem == "counters" or f"{tree}.cells{key[len(stem) :]}" in first
            if stays:
                yield name


def _has_free_slots(used: UsedTree) -> bool:
    """True if the numbers of slots decide nothing else in a tree.

    The place of a key in the directory of a hash node decides how long it is searched, and appended
    cells are in the order of the appends.
    """
    return not used.appended and not any(node.has.directory for node in used.tree.nodes)


def _has_unsettled_pools(used: UsedTree, counters: NDArray[Any]) -> bool:
    """True if slots to be reclaimed may hold slots of pools below, whose number is in no active cell."""
    n_pools = sum(node.has.pool for node in used.tree.nodes)
    return n_pools > 1 and bool(counters[: len(used.tree.nodes), FREED].any())


def _is_same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """True if two arrays hold the same bits."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    parts = [np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (a, b)]
    steps = range(0, parts[0].size, _AT_ONCE)
    first, second = parts
    return all(np.array_equal(first[k : k + _AT_ONCE], second[k : k + _AT_ONCE]) for k in steps)
