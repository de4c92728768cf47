"""Numeric tables with named columns for compiled functions, and the lists of sizes that size variables can have."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ...space.backbone import Dim
from ...space.candidate import Space

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


Table = Any  # an array of records: numba reads `table[k].column`, and type checkers know no columns


def table(rows: Iterable[tuple[float, ...]], integers: str, floats: str = "") -> Table:
    """Returns the rows as a table with named columns: integer columns first, then floating-point ones."""
    return np.array(list(rows), _row(integers, floats))


@cache  # numba looks types up by their identity first
def _row(integers: str, floats: str) -> np.dtype[np.void]:
    columns: list[tuple[str, type[np.generic]]] = [(name, np.int64) for name in integers.split()]
    columns += [(name, np.float64) for name in floats.split()]
    hidden = sorted({name for name, _ in columns} & set(dir(np.record)))
    assert not hidden, (
        f"records have methods of these names: {hidden}"
    )  # interpreted code would find those
    return np.dtype((np.record, np.dtype(columns, align=True)))


class Universes:
    """Lists of the sizes that the bits of size variables stand for; equal lists are stored once."""

    def __init__(self, space: Space) -> None:
        self._of: dict[Dim, tuple[int, ...]] = space.variables.universe
        self._at: dict[tuple[int, ...], int] = {}
        self._flat: list[int] = []

    def at(self, d: Dim) -> int:
        return self.at_sizes(self._of[d])

    def at_sizes(self, sizes: tuple[int, ...]) -> int:
        if sizes not in self._at:
            self._at[sizes] = len(self._flat)
            self._flat.extend(sizes)
        return self._at[sizes]

    def array(self) -> Ints:
        return np.array([*self._flat, 1], np.int64)
