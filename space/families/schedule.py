"""Loop schedule: the partition of a loop's iterations among the threads of a CPU."""

from __future__ import annotations

from collections.abc import Sequence

from ...kernels.analysis.effects import task_reads
from ...kernels.analysis.inner_ranges import RowStarts, end_of, is_uneven, row_starts
from ...kernels.ir.kernel import If, Stmt
from ...kernels.ir.task import Task
from ...kernels.ir.walk import nested_statements
from ..backbone import OUTER, Dim
from ..draft import Draft, Family, all_but, bits
from ..targets.kind import CPU
from .order import APART, INSIDE, ORDER, OUTSIDE
from .tiling import PARALLEL, kinds_of, merged_equal

BLOCKED, CYCLIC, GUIDED, BALANCED = range(4)
SCHEDULE = (
    "BLOCKED",  # of a PARALLEL dim: each thread runs one contiguous part
    "CYCLIC",  # tiles go to the threads in turn: neighbouring tiles are worked on at the same time, long and short rows are mixed
    "GUIDED",  # of uneven iterations: who is done takes a part of what is left, from a counter that the threads share
    "BALANCED",  # of rows that follow one another: each thread has about as many rows and elements of them (by bisection)
)
# Parts of what is left, a thread: with one, the first threads could take most of the work of rows that get shorter. With four a
# thread takes a quarter of its share at first, and a loop of 10^6 iterations about 50 times.
GUIDED_PARTS = 4


def declare(s: Draft) -> None:
    for d in s.backbone.dims:
        if d.level == OUTER and has_schedules(s, d):
            s.v.schedule[d] = s.b.add("schedule", (d.name,), SCHEDULE, schedules_of(s, d))


def schedules_of(s: Draft, d: Dim) -> int:
    """Returns the possible schedules (bit mask) of one dim alone."""
    task = s.problem.tasks[d.task]
    if task.body is None:
        return bits(BLOCKED, CYCLIC)
    return bits(BLOCKED, CYCLIC, GUIDED, *([BALANCED] if rows_of(task) else []))


def rows_of(task: Task) -> RowStarts | None:
    """Returns the row starts of a task's iterations, if each iteration is one row of consecutive entries.

    Otherwise it returns None.
    """
    if task.body is None or len(task.loops) != 1 or not task.has_known_extents:
        return None
    return row_starts(task.loops[0].name, task.body.statements)


def has_schedules(s: Draft, d: Dim) -> bool:
    """True if it may matter which tiles of an outer dim run at the same time.

    Either the tiles are parts of rows in an array beyond the cache, or the time of each tile is
    only known at run time.
    """
    task = s.problem.tasks[d.task]
    if task.body is not None:
        # Iterations with scatters are shared out as these say: all are declared before.
        scatters = any(t == d.task for t, _ in s.v.scatter)
        may_split = bool(kinds_of(s, d) & bits(PARALLEL)) and not scatters
        statements = task.body.statements
        if not task.has_known_extents:
            return may_split and end_of(d.loop, statements) is not None and is_tested(statements)
        return may_split and is_uneven(statements)
    if not task.is_structured or len(task.loops) < 2 or not kinds_of(s, d) & bits(PARALLEL):
        return False
    accesses = (task.target, *(access for access, _ in task_reads(task)))
    return any(s.is_beyond_own_cache(access.array) for access in accesses)


def is_tested(body: Sequence[Stmt]) -> bool:
    """True if the work per list element depends on data: the body tests its cells, or has loops of run-time length."""
    n_branches = sum(isinstance(x, If) for x in nested_statements(tuple(body)))
    return n_branches > 1 or is_uneven(body)


def not_nested(a: int, b: int, order: int) -> bool:
    return not (a == b == PARALLEL) or order not in (INSIDE, OUTSIDE)


def merged_schedules(s: Draft) -> None:
    """Coherence: merged dims are one loop, with one schedule."""
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


def uneven_parts(s: Draft) -> None:
    """Hardware: a loop with a schedule for uneven iterations is inside no other loop, and merges with none.

    Its counter of parts is initialised before a team begins, and the rows of one task do not
    describe those of another.
    """
    even = bits(BLOCKED, CYCLIC)
    for merge in s.backbone.merges:
        d, e = (levels[OUTER] for levels in s.levels_of(merge))
        for x in (d, e):
            if x in s.v.schedule:
                literals = [(s.v.schedule[x], even), (s.order(d, e), APART)]
                s.b.clause("uneven loops merge with none", literals)
    for d, var in s.v.schedule.items():
        for x in s.near_dims(d.task) if not s.problem.tasks[d.task].is_structured else ():
            if x != d:
                inside = (s.order(x, d), all_but(ORDER, OUTSIDE))
                s.b.clause("uneven loops are in none", [(var, even), inside])


def one_team(s: Draft) -> None:
    """Hardware: a team is one level of threads, so parallel dims are not nested.

    Schedules other than BLOCKED need a parallel dim.
    """
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


FAMILY = Family("schedule", {CPU: (merged_schedules, uneven_parts, one_team)}, declare)
