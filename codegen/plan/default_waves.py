"""Default rules for wavefronts (codegen/bodies/wavefront_sweeps.py): loop nests to run by diagonals, and their tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...kernels.analysis.wavefronts import Sweep
from ...kernels.ir.kernel import Stmt
from ...kernels.tasks import work
from ...space.backbone import OUTER
from ...space.families.tiling import DIM_KIND, LOOP, PARALLEL
from ...space.families.wavefronts import BY_DIAGONALS, BY_ROWS, WAVES
from .nest_facts import sweep_at

# Of a tile: its rows and the two next to them fit the first cache, and so many iterations are independent of each other. One of
# 32 x 256 takes tens of microseconds, a barrier one.
_ROWS, _COLUMNS = 32, 256
_LEAST_ROWS, _LEAST_COLUMNS = 8, 32
_PARTS = 8  # rows of tiles a thread, and tiles in each: fewer leave threads without one at the first and last diagonals
_LEAST_NS = 2_000.0  # of a whole sweep that is worth it


@dataclass(frozen=True)
class DefaultWave:
    """Wavefront execution of a sweep (two dependent loops).

    `n_statements`: statements of the body that the sweep replaces.
    """

    sweep: Sweep
    n_statements: int
    threads: int

    @property
    def decisions(self) -> Iterator[tuple[str, Any, str]]:
        """Yields (kind, object, value) of each decision that stands for the wavefronts."""
        sweep, site = self.sweep, (0, self.sweep.outer)
        rows = max(_LEAST_ROWS, min(_ROWS, sweep.extent // (_PARTS * self.threads)))
        columns = max(_LEAST_COLUMNS, min(_COLUMNS, sweep.width // (_PARTS * self.threads)))
        yield "waves", site, WAVES[BY_DIAGONALS if sweep.has_chain else BY_ROWS]
        yield "wave_rows", site, str(rows)
        yield "wave_columns", site, str(columns)
        kind = PARALLEL if self.threads > 1 else LOOP
        yield "dim_kind", (*site, OUTER), DIM_KIND[kind]


def wave_at(body: tuple[Stmt, ...], k: int, cores: int) -> DefaultWave | None:
    """Returns the wavefronts of the sweep that begins at statement `k`; None if it runs in program order.

    Wavefronts pay if threads share them, or if each inner iteration depends on the previous one:
    iterations of one diagonal are independent.
    """
    found = sweep_at(body, k)
    if found is None:
        return None
    sweep, n = found
    x = sweep.inner_extent
    middle = x.const + x.coefficient(sweep.outer) * sweep.extent // 2
    whole_ns = sweep.extent * max(0, middle) * work.iteration_ns(sweep.inner.body)
    threads = cores if work.pays(whole_ns) else 1
    if whole_ns < _LEAST_NS or (threads == 1 and not sweep.has_chain):
        return None
    return DefaultWave(sweep, n, threads)
