"""Iterations that come to a place of a text, enumerated: which elements they touch, and whose these are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

_MOST_POINTS = 150_000  # of a nest in all steps
_KNOWN = {"min": np.minimum, "max": np.maximum, "__builtins__": {}}
Ints = NDArray[np.int64]


class TooManyPointsError(Exception):
    """A nest has more iterations than are enumerated."""


@dataclass(frozen=True)
class Points:
    """The iterations that come to a place, in all steps, and maybe others: the values of each variable there."""

    values: dict[str, Ints]

    @property
    def n(self) -> int:
        return max(map(len, self.values.values()), default=1)

    def of(self, text: str) -> Ints:
        """The values of an index."""
        return np.broadcast_to(np.asarray(eval(text, _KNOWN, self.values)), (self.n,))

    def inside(self, name: str, first: str, end: str) -> Points:
        """Those of a loop from `first` to `end`."""
        lo, hi = self.of(first), self.of(end)
        lengths = np.maximum(hi - lo, 0)
        if lengths.sum() > _MOST_POINTS:
            raise TooManyPointsError
        starts = np.repeat(lengths.cumsum() - lengths, lengths)
        index = np.arange(lengths.sum()) - starts + np.repeat(lo, lengths)
        return Points({k: np.repeat(v, lengths) for k, v in self.values.items()} | {name: index})

    def where(self, condition: str) -> Points:
        """Those that come through a condition."""
        held = self.of(condition).astype(bool)
        return Points({k: v[held] for k, v in self.values.items()})

    def is_within(self, text: str, extent: int) -> bool:
        """True if an index is inside of its array in all of them."""
        found = self.of(text)
        return bool(((found >= 0) & (found < extent)).all())


@dataclass
class Nest:
    """A loop of the top level while it is drawn, and what its iterations touch.

    Iterations of `outer` are of their "own" if none touches what another one writes, but for `shared` arrays, which they update.
    Others run in their order: an "affine" nest by the indices of its accesses, a "serial" one since the program says so, and
    one of "any" way since nobody but the meaning of its IR is asked.
    """

    way: str
    outer: str
    n_steps: int
    is_simple: bool
    shared: set[str] = field(default_factory=set)
    places: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)  # stored to
    _owners: dict[str, Ints] = field(default_factory=dict)
    _frozen: set[str] = field(default_factory=set)  # read by any iteration

    @property
    def is_own(self) -> bool:
        return self.way == "own"

    @property
    def is_in_order(self) -> bool:
        return self.way in ("serial", "any")

    def writes(self, name: str) -> bool:
        """True if elements of an array belong to iterations."""
        return name in self._owners

    def read(self, name: str) -> None:
        """Takes note that any iteration may read any element: none is to be written any more."""
        self._frozen.add(name)

    def may_share(self, name: str) -> bool:
        """True if updates of the array by all iterations are free of its other uses."""
        return name not in self._frozen and name not in self._owners

    def claim(self, name: str, shape: Sequence[int], points: Points, at: Sequence[str]) -> bool:
        """Makes elements the property of the iterations that store to them; False if some belong to two."""
        if name in self._frozen or name in self.shared:
            return False
        size = int(np.prod(shape))
        owners = self._owners.get(name, np.full(self.n_steps * size, -1)).copy()
        key, who = self._elements(shape, points, at)
        before = owners[key]
        owners[key] = who
        if ((before != -1) & (before != who)).any() or (owners[key] != who).any():
            return False
        self._owners[name] = owners
        return True

    def owns(self, name: str, shape: Sequence[int], points: Points, at: Sequence[str]) -> bool:
        """True if iterations read nothing that another one writes."""
        key, who = self._elements(shape, points, at)
        found = self._owners[name][key]
        is_right = bool(((found == -1) | (found == who)).all())
        if is_right and (found == -1).any():
            self._frozen.add(name)
        return is_right

    def _elements(
        self, shape: Sequence[int], points: Points, at: Sequence[str]
    ) -> tuple[Ints, Ints]:
        """The number of each element that is touched, by step, and the iteration that does."""
        flat = points.values.get("t", np.zeros(points.n, np.int64))
        for text, extent in zip(at, shape, strict=True):
            flat = flat * extent + points.of(text)
        return flat, points.values[self.outer]
