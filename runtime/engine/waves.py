"""Chooses sequential loops that run by wavefronts, and their tiles (codegen/bodies/wavefronts.py)."""

from __future__ import annotations

from collections.abc import Sequence

from ...codegen.plan.kernel_plan import WaveStep
from ...codegen.plan.schedules import Wave
from ...kernels.analysis.wavefronts import sweep_at
from ...kernels.ir.kernel import Stmt
from ...kernels.tasks import work

# Of a tile: its rows and the two next to them fit the first cache, and so many iterations are independent of each other. One of
# 32 x 256 takes tens of microseconds, a barrier one.
_ROWS, _COLUMNS = 32, 256
_LEAST_ROWS, _LEAST_COLUMNS = 8, 32
_PARTS = 8  # rows of tiles a thread, and tiles in each: fewer leave threads without one at the first and last diagonals
_LEAST_NS = 2_000.0  # of a whole sweep that is worth it


def wave_at(body: Sequence[Stmt], k: int, cores: int) -> tuple[WaveStep, int] | None:
    """Returns the wavefronts for the statements from statement k on, and the number of these statements; None if they run in order.

    Wavefronts pay where threads share them, or where an iteration depends on the one before: the iterations of one diagonal are
    independent.
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
    rows = max(_LEAST_ROWS, min(_ROWS, sweep.extent // (_PARTS * threads)))
    columns = max(_LEAST_COLUMNS, min(_COLUMNS, sweep.width // (_PARTS * threads)))
    wave = Wave(sweep, rows, columns, sweep.has_chain)
    return WaveStep(wave, threads, sweep.inner.where), n
