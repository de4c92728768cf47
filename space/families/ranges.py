"""Inner loops of run-time length in a body: scalar, or vectorised along the loop's range."""

from __future__ import annotations

from ...kernels.analysis.inner_ranges import lane_ranges, widest
from ...kernels.ir.kernel import Const, For
from ...kernels.ir.task import Task
from ..backbone import INNER
from ..draft import Draft, Family, bits
from ..targets.kind import CPU
from .tiling import ABSENT

IN_TURN, ALONG = range(2)
RANGES = (
    "IN_TURN",  # one iteration after the other, each of them in the lanes of a loop around it where that is in vectors
    "ALONG",  # vectors along the range, added up across their lanes behind it (of a CSR row: Bell and Garland, SC 2009)
)


def declare(s: Draft) -> None:
    for t, task in enumerate(s.problem.tasks):
        for loop in ranges_of(s, task):
            s.v.ranges[t, loop.loop] = s.b.add("ranges", (f"{task.name}.{loop.loop}",), RANGES)


def ranges_of(s: Draft, task: Task) -> tuple[For, ...]:
    """Returns the inner loops of a task's body that can be vectorised, and are not surely shorter than a vector."""
    if task.body is None or not s.kind.has_teams:
        return ()
    found = lane_ranges(task.body.statements, s.problem, task.fast_math)
    return tuple(
        x
        for x in found
        if lanes_of(s, x) > 1
        and (not isinstance(x.extent, Const) or int(x.extent.value) >= lanes_of(s, x))
    )


def lanes_of(s: Draft, loop: For) -> int:
    """Number of iterations of a range in one vector."""
    return s.target.lanes(widest(loop.body))


def one_direction(s: Draft) -> None:
    """Hardware: either the inner ranges of a body are vectorised, or its outer loop is, with a range per lane."""
    for (t, _), var in s.v.ranges.items():
        for d in s.dims_at(t, INNER):
            s.b.clause(
                "one direction of vectors", [(var, bits(IN_TURN)), (s.v.kind[d], bits(ABSENT))]
            )


FAMILY = Family("ranges", {CPU: (one_direction,)}, declare)
