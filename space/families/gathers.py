"""Neighbouring loads in vectorised loops: one gather per element, or loads of rows that registers transpose."""

from __future__ import annotations

from ...kernels.analysis.neighbour_loads import has_near_loads
from ...kernels.ir.kernel import DType
from ..backbone import INNER
from ..draft import Draft, Family, Phrases, bits
from ..targets.kind import CPU
from .tiling import VECTOR, runs_in_lanes

_ROW_BYTES = 16

ONE_BY_ONE, TRANSPOSED = range(2)
GATHERS = (
    "ONE_BY_ONE",  # a gather for each element
    "TRANSPOSED",  # each lane loads its row at once, and a transposition in registers makes vectors of lanes
)


def declare(s: Draft) -> None:
    for t, task in enumerate(s.problem.tasks):
        if task.body is None or not any(runs_in_lanes(s, task, d) for d in s.dims_at(t, INNER)):
            continue
        if has_near_loads(task.body.statements, lambda name: s.array(name).shape, longest):
            s.v.of_tasks["gathers"][t] = s.b.add("gathers", (task.name,), GATHERS)


def longest(dtype: DType) -> int:
    """Number of elements in a row of 16 bytes; 1 for dtypes of less than 4 bytes."""
    return _ROW_BYTES // dtype.size_bytes if dtype.size_bytes >= 4 else 1


def lanes_gather(s: Draft) -> None:
    """Coherence: a loop without vectors has no gathers, so the choice has its first value."""
    for t, var in s.v.of_tasks["gathers"].items():
        (d,) = (x for x in s.dims_at(t, INNER) if runs_in_lanes(s, s.problem.tasks[t], x))
        s.b.clause("lanes gather", [(var, bits(ONE_BY_ONE)), (s.v.kind[d], bits(VECTOR))])


PHRASES = Phrases(
    "gathers",
    "loads",
    {"TRANSPOSED": "loads neighbouring elements at once, and transposes them"},
    {"TRANSPOSED": "transposes what it gathers"},
)

FAMILY = Family("gathers", {CPU: (lanes_gather,)}, declare, (PHRASES,))
