"""Schedules of loops in bodies: wavefronts, lanes, and prefetches of later blocks."""

from __future__ import annotations

from dataclasses import dataclass

from ...kernels.analysis.prefetch_sites import PrefetchCandidates
from ...kernels.analysis.wavefronts import Sweep


@dataclass(frozen=True)
class Wave:
    """Tiles of `rows` outer iterations and `columns` skewed inner indices.

    If `along_diagonals`, a tile runs diagonal by diagonal: the iterations of all rows with one skewed index are independent. Else
    it runs row by row.
    """

    sweep: Sweep
    rows: int
    columns: int
    along_diagonals: bool

    @property
    def n_rows(self) -> int:
        """The number of rows of tiles."""
        return -(-self.sweep.extent // self.rows)

    @property
    def n_columns(self) -> int:
        return max(1, -(-self.sweep.width // self.columns))


@dataclass(frozen=True)
class Lanes:
    """The loop `loop` runs `width` iterations at once, on vectors of `vector_bytes`."""

    loop: str
    width: int
    vector_bytes: int


@dataclass(frozen=True)
class BlockPrefetch:
    """A prefetch of the blocks of a later iteration: `distance` places further on in the list."""

    blocks: PrefetchCandidates
    distance: int
