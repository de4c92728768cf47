"""Wavefront order of a sweep: two nested loops whose iterations depend on earlier ones (kernels/analysis/wavefronts.py)."""

from __future__ import annotations

from functools import lru_cache

from ...kernels.analysis.wavefronts import Sweep, sweep_at
from ...kernels.ir.kernel import Stmt
from ...kernels.ir.task import Task
from ..draft import Draft, Family, bits
from ..targets.kind import CPU

IN_ORDER, BY_ROWS, BY_DIAGONALS = range(3)
WAVES = (
    "IN_ORDER",  # one iteration after the other, by one thread
    "ROWS",  # tiles of the skewed nest, those of a diagonal by several threads at once; in each of them row by row
    "DIAGONALS",  # the same, and in each tile one skewed column after the other, whose iterations need nothing of one another
)
WAVE_ROWS, WAVE_COLUMNS = (8, 16, 32, 64), (32, 64, 128, 256, 512)  # of tiles


def declare(s: Draft) -> None:
    for t, task in enumerate(s.problem.tasks):
        sweep = sweep_of(task) if s.kind.has_teams else None
        if sweep is None:
            continue
        s.v.waves[t] = s.b.add("waves", (task.name,), WAVES)
        for k, (kind, sizes, most) in enumerate(
            (("wave_rows", WAVE_ROWS, sweep.extent), ("wave_columns", WAVE_COLUMNS, sweep.width))
        ):
            fitting = tuple(n for n in sizes if n <= most) or sizes[:1]
            s.v.wave_sizes[t, k] = s.b.add(kind, (task.name,), tuple(map(str, fitting)))


def sweep_of(task: Task) -> Sweep | None:
    """Returns the wavefront sweep that a task consists of; None if it is anything else."""
    if task.body is None or task.loops:
        return None
    return _whole(task.body.statements)


@lru_cache(maxsize=64)  # asked by the space and by each plan
def _whole(body: tuple[Stmt, ...]) -> Sweep | None:
    found = sweep_at(body, 0)
    return found[0] if found is not None and found[1] == len(body) else None


def tiles_of_waves(s: Draft) -> None:
    """Coherence: a sweep in program order has no tiles."""
    for (t, _), size in s.v.wave_sizes.items():
        literals = [(s.v.waves[t], bits(BY_ROWS, BY_DIAGONALS)), (size, bits(0))]
        s.b.clause("tiles of wavefronts", literals)


FAMILY = Family("wavefronts", {CPU: (tiles_of_waves,)}, declare)
