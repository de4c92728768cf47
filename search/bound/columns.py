"""Tables of numbers for compiled functions, and the sizes that bits stand for."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from ...space.backbone import Dim
from ...space.engine.candidate import Space

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def int_rows(rows: Iterable[tuple[int, ...]], width: int) -> Ints:
    return np.array(list(rows), np.int64).reshape(-1, width)


class Universes:
    """The sizes that bits of size variables stand for, each universe kept once."""

    def __init__(self, space: Space) -> None:
        self._of: dict[Dim, tuple[int, ...]] = space.variables.universe
        self._at: dict[tuple[int, ...], int] = {}
        self._flat: list[int] = []

    def at(self, d: Dim) -> int:
        sizes = self._of[d]
        if sizes not in self._at:
            self._at[sizes] = len(self._flat)
            self._flat.extend(sizes)
        return self._at[sizes]

    def array(self) -> Ints:
        return np.array([*self._flat, 1], np.int64)
