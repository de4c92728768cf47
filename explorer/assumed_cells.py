"""Assumed cells of a stored plan: lists and active cells of its trees, as the run before on the same fields has left them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..runtime.engine.tree_marks import TreeMarks

_MOST_KEPT = 64  # fields of a program that one sequence runs on


class AssumedCells:
    """The trees of one sequence on which its plan assumes something: do they hold what its last run has left?

    `counters` are those of the trees. `are_changed`: the plan itself may change active cells or make lists of these trees.
    """

    def __init__(self, counters: Sequence[Any], are_changed: bool) -> None:
        self.counters = tuple(counters)
        self._are_changed = are_changed
        self._marks = TreeMarks(self.counters)
        self._trees = range(len(self.counters))

    @property
    def hold(self) -> bool:
        """True if the sequence has run, and no active cell of its trees has changed since."""
        return not self._marks.gone(self._trees)

    def drop(self) -> None:
        """Drops what the last run has left: the next one cannot assume it."""
        self._marks.drop()

    def take(self) -> None:
        """Records the present state as that after a run of the sequence."""
        self._marks.set()

    def begin(self) -> None:
        """Begins a run of the plan: if it is interrupted, nothing holds any more."""
        if self._are_changed:
            self._marks.drop()

    def end(self) -> None:
        """Ends a run of the plan that was not interrupted."""
        if self._are_changed:
            self._marks.set()


class AssumedByFields:
    """The assumed cells of one sequence by the fields that it runs on. `names`: of the counters of its trees with assumptions."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._found: dict[tuple[int, ...], AssumedCells] = {}

    def of(self, arrays: Mapping[str, Any], written: frozenset[str]) -> AssumedCells | None:
        """Returns the assumed cells of these arrays, by name; None if the sequence assumes nothing.

        `written`: names of the arrays that the sequence's plan may write.
        """
        if not self._names:
            return None
        counters = [arrays[name] for name in self._names]
        key = tuple(map(id, counters))  # which are kept alive
        if key not in self._found:
            if len(self._found) >= _MOST_KEPT:
                self._found.clear()
            self._found[key] = AssumedCells(counters, not written.isdisjoint(self._names))
        return self._found[key]

    def clear(self) -> None:
        """Forgets all fields, which may be deleted."""
        self._found.clear()
