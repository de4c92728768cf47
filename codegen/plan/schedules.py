"""Records of decided schedules of loops in bodies: wavefronts, lanes, and prefetches of later blocks."""

from __future__ import annotations

from dataclasses import dataclass

from ...kernels.analysis.inner_ranges import widest
from ...kernels.analysis.prefetch_sites import PrefetchCandidates
from ...kernels.analysis.wavefronts import Sweep
from ...kernels.ir.kernel import For
from ...kernels.transforms.lane_fronts import Front
from ...space.families.ranges import N_VECTORS
from ...space.families.remainders import MASKED, REMAINDERS
from ...space.targets.target import Target


@dataclass(frozen=True)
class Wave:
    """Wavefront execution of a sweep, in tiles of `rows` outer iterations and `columns` skewed inner indices.

    `along_diagonals`: a tile runs one skewed index after the other; the iterations of all rows with
    the same index are independent. Otherwise a tile runs row by row.
    """

    sweep: Sweep
    rows: int
    columns: int
    along_diagonals: bool

    @property
    def n_rows(self) -> int:
        """Number of rows of tiles."""
        return -(-self.sweep.extent // self.rows)

    @property
    def n_columns(self) -> int:
        return max(1, -(-self.sweep.width // self.columns))


@dataclass(frozen=True)
class Lanes:
    """A vectorised loop: `width` iterations of `loop` run at once, in registers of `vector_bytes` bytes.

    `masks_rest`: of a loop inside of a body, iterations that do not fill all lanes are one vector with a mask.
    `parts`: the body in two parts, of which the first runs in lanes and the second lane by lane; None: all of it runs in lanes.
    """

    loop: str
    width: int
    vector_bytes: int
    masks_rest: bool = False
    parts: Front | None = None


def range_lanes(loop: For, how: str, remainder: str, target: Target) -> Lanes:
    """Returns the lanes of a loop inside of a body. `how`, `remainder`: values of the choices `ranges` and `remainders`."""
    width = N_VECTORS[how] * target.lanes(widest(loop.body))
    return Lanes(loop.loop, width, target.vector_bytes, remainder == REMAINDERS[MASKED])


@dataclass(frozen=True)
class BlockPrefetch:
    """A prefetch of the block that an index list names `distance` entries after the current one."""

    blocks: PrefetchCandidates
    distance: int
