"""Marks of trees: they tell whether active cells have changed since an earlier run, whoever has changed them.

Each change of a node's cells sets its flag to 1, and making its list sets it to 0 (kernels/sparse/layout.py). A mark is a number
that no other mark has, in place of the flag, with the flag's sign: so a change, and a list that was made behind it, leave no mark.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from numpy.typing import NDArray

from ...kernels.sparse.layout import CHANGED

_numbers = itertools.count(2)


class TreeMarks:
    """Marks of some trees, by their counters. They are compared at the cost of some bytes a tree."""

    def __init__(self, counters: Sequence[NDArray[Any]]) -> None:
        self._flags = [x[:-1, CHANGED] for x in counters]
        self._seen: list[bytes] = []

    @property
    def are_set(self) -> bool:
        return len(self._seen) == len(self._flags)

    def gone(self, trees: Iterable[int]) -> list[int]:
        """Those of some trees, by number, of which active cells may have changed since the marks were set."""
        flags, seen = self._flags, self._seen
        return [t for t in trees if not seen or seen[t] != flags[t].tobytes()]

    def set(self) -> None:
        """Sets the marks. Nodes that have one keep it: others may look for it."""
        for flags in self._flags:
            number = next(_numbers)
            flags[flags == 0] = -number
            flags[flags == 1] = number
        self._seen = [x.tobytes() for x in self._flags]

    def drop(self) -> None:
        """Drops the marks: until they are set again, cells may have changed."""
        self._seen = []
