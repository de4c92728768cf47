"""How the threads of a CPU share out a loop."""

from __future__ import annotations

from ...kernels.ir.effects import task_reads
from ..backbone import OUTER, Dim
from ..draft import Draft, Family, all_but, bits
from ..targets.kind import CPU
from .order import APART, INSIDE, ORDER, OUTSIDE
from .tiling import PARALLEL, kinds_of, merged_equal

BLOCKED, CYCLIC = range(2)
SCHEDULE = (
    "BLOCKED",  # of a PARALLEL dim: each thread runs one contiguous part
    "CYCLIC",  # tiles go to the threads in turn, so that neighbouring tiles are worked on at the same time
)


def declare(s: Draft) -> None:
    for d in s.backbone.dims:
        if d.level == OUTER and has_schedules(s, d):
            s.v.schedule[d] = s.b.add("schedule", (d.name,), SCHEDULE)


def has_schedules(s: Draft, d: Dim) -> bool:
    """Whether it may matter which tiles of an outer dim run at the same time: they are parts of rows from beyond the cache."""
    task = s.problem.tasks[d.task]
    if not task.is_structured or len(task.loops) < 2 or not kinds_of(s, d) & bits(PARALLEL):
        return False
    accesses = (task.target, *(access for access, _ in task_reads(task)))
    return any(s.is_beyond_own_cache(access.array) for access in accesses)


def not_nested(a: int, b: int, order: int) -> bool:
    return not (a == b == PARALLEL) or order not in (INSIDE, OUTSIDE)


def merged_schedules(s: Draft) -> None:
    """Coherence: merged dims are one loop, shared out in one way."""
    for merge in s.backbone.merges:
        d, e = (levels[OUTER] for levels in s.levels_of(merge))
        order = s.order(d, e)
        schedules = [s.v.schedule[x] for x in (d, e) if x in s.v.schedule]
        if len(schedules) == 2:
            first, second = schedules
            s.b.table3("merged schedules", order, first, second, merged_equal, share=merged_equal)
        elif schedules:
            literals = [(order, APART), (schedules[0], bits(BLOCKED))]
            s.b.clause("merged schedules", literals)


def one_team(s: Draft) -> None:
    """Hardware: the team is one level of threads. Parallel dims are not nested, and a schedule is that of a parallel dim."""
    b, v = s.b, s.v
    for d, e in s.near_pairs([s.dims_at(t, OUTER) for t in range(s.n_tasks)]):
        kinds = (v.kind[d], v.kind[e])
        b.table3("one level of threads", *kinds, s.order(d, e), not_nested, share=not_nested)
    for d, var in v.schedule.items():
        b.clause("schedule of threads", [(var, bits(BLOCKED)), (v.kind[d], bits(PARALLEL))])
        # Each thread fills and finishes one block of the sums that a team keeps.
        around = [x for x in s.ordered_dims(d.task) if x.loop.is_reduction]
        for x in around if not d.loop.is_reduction else ():
            apart = (s.order(x, d), all_but(ORDER, OUTSIDE))
            b.clause("sums in blocks", [(var, bits(BLOCKED)), apart])


FAMILY = Family("schedule", {CPU: (merged_schedules, one_team)}, declare)
