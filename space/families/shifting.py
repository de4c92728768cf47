"""Loop shifting: a retimed (late) task runs inside the loop that it would otherwise follow, one iteration behind."""

from __future__ import annotations

from dataclasses import dataclass

from ...kernels.analysis.effects import task_reads
from ..backbone import INNER, MID, OUTER, Dim, Flow, Shift
from ..draft import Draft, Family, bits
from ..targets.kind import CPU
from ..values import IN_STEP, LATE
from .memory import GLOBAL, REGISTER, SHARED
from .order import APART, INSIDE, MERGED, OUTSIDE
from .packing import DIRECT
from .tiling import ABSENT, PARALLEL, kinds_of

SHIFT = (
    "IN_STEP",  # the task runs after what it waits for, in the same iteration of the loop that they share
    "LATE",  # it runs one iteration late, inside the loop that it would have waited for: loop shifting
)


def declare(s: Draft) -> None:
    for x in s.backbone.shifts:
        if is_worth_it(s, x):
            s.v.shift[x] = s.b.add("shift", (x.name,), SHIFT)


def is_worth_it(s: Draft, x: Shift) -> bool:
    """True if the consumer reads an array beyond the private caches again, and threads can share the loop."""
    shared = zip((x.producer, x.consumer), x.shared, strict=True)
    kinds = [kinds_of(s, s.backbone.dim(t, loop, OUTER)) for t, loop in shared]
    reads = {access.array for access, _ in task_reads(s.problem.tasks[x.consumer])}
    return all(k & bits(PARALLEL) for k in kinds) and any(map(s.is_beyond_own_cache, reads))


@dataclass(frozen=True)
class LateSizes:
    """Predicate: loops that a retimed task shares with another task have equal register tiles."""

    a: tuple[int, ...]
    b: tuple[int, ...]

    def __call__(self, shift: int, a: int, b: int) -> bool:
        return shift != LATE or self.a[a] == self.b[b]


def shifts(s: Draft) -> None:
    """Semantics: a retimed task runs inside its producer's shared loop, one iteration behind it, on the same thread.

    In each iteration it runs first. So it still reads the values that this iteration of the shared
    loop overwrites. These are rows of a panel that its producer's loop fills row by row, and all
    values that are written after that loop.
    """
    for x, var in s.v.shift.items():
        _late_loops(s, x, var)
        _late_neighbours(s, x, var)
        _late_values(s, x, var)


def _late_loops(s: Draft, x: Shift, var: int) -> None:
    b, v = s.b, s.v
    in_step = (var, bits(IN_STEP))
    tasks = (x.producer, x.consumer)
    shared = [s.levels(t, loop) for t, loop in zip(tasks, x.shared, strict=True)]
    inside = [s.levels(t, loop) for t, loop in zip(tasks, x.inside, strict=True)]

    def related(d: Dim, e: Dim, value: int) -> tuple[int, int]:
        return s.order(d, e), bits(value)

    b.clause("shifted in one loop", [in_step, related(shared[0][OUTER], shared[1][OUTER], MERGED)])
    b.clause("shifted on one thread", [in_step, (v.kind[shared[0][OUTER]], bits(PARALLEL))])
    for c, d in zip(shared, inside, strict=True):
        b.clause("shifted loops are nested", [in_step, related(c[OUTER], d[OUTER], OUTSIDE)])
        b.clause("shifted in every tile", [in_step, (v.kind[d[MID]], bits(ABSENT))])
        absent = (v.kind[c[MID]], bits(ABSENT))
        between = related(c[MID], d[OUTER], INSIDE)
        b.clause("shifted loops are adjacent", [in_step, absent, between])
    first, second = inside[0][INNER], inside[1][INNER]
    agree = LateSizes(v.universe[first], v.universe[second])
    b.table3("shifted tiles agree", var, v.size[first], v.size[second], agree)


def _late_neighbours(s: Draft, x: Shift, var: int) -> None:
    """The loop of a retimed task merges with no other loop, and no operand is packed for the task."""
    in_step = (var, bits(IN_STEP))
    moved = s.levels(x.consumer, x.inside[1])[OUTER]
    for e in s.backbone.partners[moved]:
        s.b.clause("shifted alone", [in_step, (s.order(moved, e), APART)])
    for o, staged in s.v.staged.items():
        if o.task == x.consumer:
            s.b.clause("shifted without packing", [in_step, (staged, bits(DIRECT))])


def _late_values(s: Draft, x: Shift, var: int) -> None:
    """Values that a thread stores for a retimed task are filled row by row in the task's loop, or after it."""
    in_step = (var, bits(IN_STEP))
    for f, space in s.v.mem_space.items():
        if x.consumer not in (f.producer, f.consumer):
            continue
        allowed = bits(GLOBAL)
        if f.consumer == x.consumer and _is_row_by_row(x, f):
            allowed |= bits(SHARED)
        s.b.clause(f"shifted values of {f.name}", [in_step, (space, allowed)])
        mapped = {c: p for p, c in f.pairs}
        if allowed & bits(SHARED) and f.producer != x.producer:
            filled = s.backbone.dim(f.producer, mapped[x.inside[1]], OUTER)
            runs = s.backbone.dim(x.producer, x.inside[0], OUTER)
            together = (s.order(filled, runs), bits(MERGED))
            literals = [in_step, (space, bits(REGISTER, GLOBAL)), together]
            s.b.clause(f"shifted rows of {f.name}", literals)


def _is_row_by_row(x: Shift, f: Flow) -> bool:
    """True if the rows of a flow are iterations of the retimed task's loop, or its values are finished after that loop."""
    if f.producer == x.producer and not f.is_read:
        return True
    row = {c: p for p, c in f.pairs}.get(x.inside[1])
    return row is not None and (f.producer != x.producer or row == x.inside[0])


FAMILY = Family("shifting", {CPU: (shifts,)}, declare)
