"""Marks of sparse trees: they detect changes of active cells since an earlier run, by anyone.

Each change of a node's cells sets its flag to 1, and rebuilding its list sets it to 0 (kernels/sparse/layout.py). A mark replaces
the flag by a unique number with a sign for the flag's value: a change, or a rebuilt list, overwrites the mark.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from numpy.typing import NDArray

from ...kernels.sparse.layout import CHANGED

_numbers = itertools.count(2)


class TreeMarks:
    """Marks of some trees in their counters. Comparing them reads a few bytes per tree."""

    def __init__(self, counters: Sequence[NDArray[Any]]) -> None:
        self._flags = [x[:-1, CHANGED] for x in counters]
        self._seen: list[bytes] = []

    @property
    def are_set(self) -> bool:
        return len(self._seen) == len(self._flags)

    def gone(self, trees: Iterable[int]) -> list[int]:
        """Returns the subset of `trees` (numbers) whose active cells may have changed since the marks were set."""
        flags, seen = self._flags, self._seen
        return [t for t in trees if not seen or seen[t] != flags[t].tobytes()]

    def set(self) -> None:
        """Sets the marks. Nodes that have a mark keep it, since other `TreeMarks` may compare it."""
        for flags in self._flags:
            number = next(_numbers)
            flags[flags == 0] = -number
            flags[flags == 1] = number
        self._seen = [x.tobytes() for x in self._flags]

    def drop(self) -> None:
        """Drops the marks: all cells count as changed until marks are set again."""
        self._seen = []
