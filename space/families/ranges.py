"""Loops inside of a body: one iteration after the other, or vectors along their range."""

from __future__ import annotations

from itertools import combinations

from ...kernels.analysis.inner_ranges import gathers, lane_ranges, widest
from ...kernels.ir.body import Body
from ...kernels.ir.domain import UNBOUNDED
from ...kernels.ir.kernel import Const, For, Store
from ...kernels.ir.on_trees import NO_TREES
from ...kernels.ir.per_object import per_object
from ...kernels.ir.task import Task
from ...kernels.ir.walk import nested_statements
from ..backbone import INNER
from ..draft import Draft, Family, bits
from ..targets.kind import CPU
from .tiling import ABSENT

IN_TURN, ALONG, ALONG_2, ALONG_4 = range(4)
RANGES = (
    "IN_TURN",  # one iteration after the other, each of them in the lanes of a loop around it where that is in vectors
    "ALONG",  # vectors along the range; sums are added up across lanes behind it (of a CSR row: Bell and Garland, SC 2009)
    "ALONG_2",  # two vectors at once: an operation on one hides the latency of that on the other
    "ALONG_4",  # four vectors at once
)
N_VECTORS = {RANGES[ALONG]: 1, RANGES[ALONG_2]: 2, RANGES[ALONG_4]: 4}


def declare(s: Draft) -> None:
    for t, task in enumerate(s.problem.tasks):
        for loop in ranges_of(s, task):
            s.v.ranges[t, loop.loop] = s.b.add("ranges", (f"{task.name}.{loop.loop}",), RANGES)


def ranges_of(s: Draft, task: Task) -> tuple[For, ...]:
    """Returns the inner loops of a task's body that can be vectorised, and are not surely shorter than a vector."""
    if task.body is None or not s.kind.has_teams:
        return ()
    known = _known(s)
    if task.name not in known:
        known[task.name] = _ranges_of(s, task, task.body)
    return known[task.name]


@per_object
def _known(s: Draft) -> dict[str, tuple[For, ...]]:
    """Returns the cache of `ranges_of` for this draft: four rules ask for each task."""
    return {}


def _ranges_of(s: Draft, task: Task, body: Body) -> tuple[For, ...]:
    found = lane_ranges(body.statements, s.problem, task.fast_math)
    return tuple(
        x
        for x in found
        if lanes_of(s, x) > 1
        and (not isinstance(x.extent, Const) or int(x.extent.value) >= lanes_of(s, x))
        and not (body.trees != NO_TREES and _has_rows(x))
    )


def _has_rows(loop: For) -> bool:
    """True if a loop over cells of a leaf has other choices of its vectors: it stores, or holds the loop that does.

    Where a loop gathers, compilers find no vectors.
    """
    inside = list(nested_statements(loop.body))
    if any(isinstance(x, For) for x in inside):
        return True
    return any(isinstance(x, Store) for x in inside) and not gathers(loop)


def lanes_of(s: Draft, loop: For) -> int:
    """Number of iterations of a range in one vector."""
    return s.target.lanes(_width_of(loop))


@per_object
def _width_of(loop: For) -> int:
    """Returns the `widest` type of a range: each constraint on it asks, and all expressions of the body are visited."""
    return widest(loop.body)


def one_direction(s: Draft) -> None:
    """Hardware: either the inner ranges of a body are vectorised, or its outer loop is, with a range per lane."""
    for (t, _), var in s.v.ranges.items():
        for d in s.dims_at(t, INNER):
            s.b.clause(
                "one direction of vectors", [(var, bits(IN_TURN)), (s.v.kind[d], bits(ABSENT))]
            )


def one_loop(s: Draft) -> None:
    """Hardware: of loops that lie in one another only one has its iterations in lanes."""
    for t, task in enumerate(s.problem.tasks):
        for outer, inner in combinations(ranges_of(s, task), 2):
            if any(x is inner for x in nested_statements(outer.body)):
                along = ((s.v.ranges[t, x.loop], bits(IN_TURN)) for x in (outer, inner))
                s.b.clause("one direction of vectors", list(along))


def whole_vectors(s: Draft) -> None:
    """Hardware: a loop has at least the iterations of the vectors that run at once."""
    for t, task in enumerate(s.problem.tasks):
        for x in ranges_of(s, task):
            n = int(x.extent.value) if isinstance(x.extent, Const) else UNBOUNDED
            fitting = (k for k, m in N_VECTORS.items() if m * lanes_of(s, x) <= n)
            allowed = bits(IN_TURN, *map(RANGES.index, fitting))
            s.b.clause("whole vectors", [(s.v.ranges[t, x.loop], allowed)])


FAMILY = Family("ranges", {CPU: (one_direction, one_loop, whole_vectors)}, declare)
