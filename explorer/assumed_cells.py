"""Assumed cells of a stored plan: lists and active cells of its trees, as its runs before on the same fields have left them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..runtime.engine.tree_marks import TreeMarks

_MOST_KEPT = 64  # fields of a program that one sequence runs on


class AssumedCells:
    """The trees of one sequence on which its plan assumes something: do they hold what its last runs have left?

    `counters` are those of the trees, and `n_runs` the runs in a row that make the assumptions true. `are_changed`: the plan itself
    may change active cells or make lists of these trees.
    """

    def __init__(self, counters: Sequence[Any], n_runs: int, are_changed: bool) -> None:
        self.counters = tuple(counters)
        self._n_runs, self._are_changed = n_runs, are_changed
        self._marks = TreeMarks(self.counters)
        self._trees = range(len(self.counters))
        self._begun: Sequence[int] = ()

    @property
    def hold(self) -> bool:
        """True if the sequence has run so often in a row, and no active cell of its trees has changed between or since."""
        trees = self._trees
        return not self._marks.gone(trees) and self._marks.are_behind(self._n_runs, trees)

    def begin(self) -> None:
        """Begins a run of the sequence by its kernels: if it is interrupted, nothing holds any more."""
        self._begun = self._marks.begin()

    def end(self) -> None:
        """Ends a run that was not interrupted."""
        self._marks.set(self._begun)

    def begin_plan(self) -> None:
        """Begins a run of the sequence by its plan, as `begin` does."""
        if self._are_changed:
            self.begin()

    def end_plan(self) -> None:
        """Ends a run of the plan that was not interrupted."""
        if self._are_changed:
            self.end()


class AssumedByFields:
    """The assumed cells of one sequence by the fields that it runs on.

    `names`: of the counters of its trees with assumptions. `n_runs`: runs in a row that make these true.
    """

    def __init__(self, names: Sequence[str], n_runs: int) -> None:
        self._names, self.n_runs = tuple(names), n_runs
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
            are_changed = not written.isdisjoint(self._names)
            self._found[key] = AssumedCells(counters, self.n_runs, are_changed)
        return self._found[key]

    def clear(self) -> None:
        """Forgets all fields, which may be deleted."""
        self._found.clear()
