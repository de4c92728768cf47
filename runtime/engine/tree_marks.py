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
        self._n_runs = [0] * len(self._flags)

    @property
    def are_set(self) -> bool:
        return len(self._seen) == len(self._flags)

    def gone(self, trees: Iterable[int]) -> list[int]:
        """Returns the subset of `trees` (numbers) whose active cells may have changed since the marks were set."""
        flags, seen = self._flags, self._seen
        return [t for t in trees if not seen or seen[t] != flags[t].tobytes()]

    def are_behind(self, n_runs: int, trees: Iterable[int]) -> bool:
        """True if the marks were set behind `n_runs` runs or more in a row, between which no cell of `trees` has changed."""
        return all(self._n_runs[t] >= n_runs for t in trees)

    def begin(self) -> Sequence[int]:
        """Begins a run, which may change cells and lists: drops the marks.

        Returns the number of runs in a row before it, for each tree.
        """
        n_runs = self._kept(0)
        self._seen = []
        return n_runs

    def set(self, begun: Sequence[int] | None = None) -> None:
        """Sets the marks behind a run; `begun` is from its `begin`, without which it does not count as one more in a row.

        Nodes that have a mark keep it, since other `TreeMarks` may compare it.
        """
        self._n_runs = self._kept(1) if begun is None else [n + 1 for n in begun]
        for flags in self._flags:
            number = next(_numbers)
            flags[flags == 0] = -number
            flags[flags == 1] = number
        self._seen = [x.tobytes() for x in self._flags]

    def drop(self) -> None:
        """Drops the marks: all cells count as changed until marks are set again."""
        self._seen = []

    def _kept(self, other: int) -> list[int]:
        """Returns the number of runs in a row for each tree; `other` where its cells may have changed since."""
        gone = set(self.gone(range(len(self._flags))))
        return [other if t in gone else n for t, n in enumerate(self._n_runs)]
