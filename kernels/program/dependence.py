"""Dependences between tasks, and which pairs of loops keep them point to point when merged (DESIGN
section 4).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Literal

from ..ir.access import Access
from ..ir.affine import Affine, combine, feasible, rename
from ..ir.effects import read_region, task_reads, task_writes, written_region
from ..ir.task import Problem, Task, extents

Kind = Literal["flow", "anti", "output"]
Mapped = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Dependence:
    """Task `source` must come before task `sink` (indexes into Problem.tasks, source < sink)
    because of `array`.

    `mapped` are pairs (loop of source, loop of sink) of equal extent which every conflicting pair
    of accesses follows with distance 0: merged into one loop, the dependence stays within one
    iteration.
    """

    source: int
    sink: int
    array: str
    kind: Kind
    mapped: Mapped


@dataclass(frozen=True)
class SharedRead:
    """Tasks `first` < `second` both load `array` at the same index once the loop pairs of `mapped`
    are merged; nobody writes it between.
    """

    first: int
    second: int
    array: str
    mapped: Mapped


def dependences(problem: Problem) -> tuple[Dependence, ...]:
    """All dependences of program order, without those that a task between makes superfluous by
    overwriting.
    """
    found: list[Dependence] = []
    for source, sink in _pairs(problem):
        u, v = problem.tasks[source], problem.tasks[sink]
        kinds: tuple[tuple[Kind, _Uses, _Uses], ...] = (
            ("flow", _writes(u), _reads(v)),
            ("anti", _reads(u), _writes(v)),
            ("output", _writes(u), _writes(v)),
        )
        for kind, before, after in kinds:
            for array in dict.fromkeys(a.array for a, _ in before):
                pairs = _conflicts(u, v, array, before, after)
                if pairs and not _is_overwritten(problem, source, sink, array, kind):
                    found.append(Dependence(source, sink, array, kind, _mapped(u, v, pairs)))
    return tuple(found)


def shared_reads(problem: Problem) -> tuple[SharedRead, ...]:
    """Loads that two tasks could share, one entry for each consistent way of merging loops."""
    found: list[SharedRead] = []
    for first, second in _pairs(problem):
        u, v = problem.tasks[first], problem.tasks[second]
        last = problem.tasks[first : second + 1]
        written = {a.array for task in last for a in task_writes(task)}
        for (a, _), (b, _) in product(_reads(u), _reads(v)):
            if a.array == b.array and a.array not in written:
                mapped = _identity(u, v, a, b)
                if mapped:
                    found.append(SharedRead(first, second, a.array, mapped))
    return tuple(dict.fromkeys(found))


_Uses = tuple[tuple[Access, frozenset[str]], ...]  # accesses with the loops they may be mapped by


def _pairs(problem: Problem) -> Iterable[tuple[int, int]]:
    n = len(problem.tasks)
    return ((u, v) for u in range(n) for v in range(u + 1, n))


def _outer_loops(task: Task) -> frozenset[str]:
    return frozenset(loop.name for loop in task.loops if not loop.is_reduction)


def _reads(task: Task) -> _Uses:
    """Reads of `value` happen in every iteration, reads of `finish` after the reduction loops."""
    everywhere, outer = frozenset(loop.name for loop in task.loops), _outer_loops(task)
    return tuple((a, outer if in_finish else everywhere) for a, in_finish in task_reads(task))


def _writes(task: Task) -> _Uses:
    return tuple((a, _outer_loops(task)) for a in task_writes(task))


_Pair = tuple[Access, frozenset[str], Access, frozenset[str]]


def _conflicts(u: Task, v: Task, array: str, before: _Uses, after: _Uses) -> list[_Pair]:
    return [
        (a, loops_a, b, loops_b)
        for (a, loops_a), (b, loops_b) in product(before, after)
        if a.array == array == b.array and may_meet(u, a, v, b)
    ]


def may_meet(u: Task, a: Access, v: Task, b: Access) -> bool:
    """Whether access a of task u and access b of task v may touch one element."""
    names_u = {loop.name: "u:" + loop.name for loop in u.loops}
    names_v = {loop.name: "v:" + loop.name for loop in v.loops}
    bounds = {names_u[x.name]: (0, x.extent - 1) for x in u.loops}
    bounds |= {names_v[x.name]: (0, x.extent - 1) for x in v.loops}
    equations: list[Affine] = []
    for x, y in zip(a.axes, b.axes, strict=True):
        if x is not None and y is not None:
            equations.append(combine([(1, rename(x, names_u)), (-1, rename(y, names_v))]))
    return feasible(equations, bounds)


def _mapped(u: Task, v: Task, pairs: list[_Pair]) -> Mapped:
    extents_u, extents_v = extents(u), extents(v)
    return tuple(
        (p, c)
        for p, c in product(extents_u, extents_v)
        if extents_u[p] == extents_v[c] and all(_follows(p, c, pair) for pair in pairs)
    )


def _follows(p: str, c: str, pair: _Pair) -> bool:
    """Whether some axis ties p to c with distance 0: `k*p + m` against `k*c + m`."""
    a, loops_a, b, loops_b = pair
    if p not in loops_a or c not in loops_b:
        return False
    return any(
        x is not None
        and y is not None
        and x.const == y.const
        and len(x.terms) == 1
        and x.terms[0][0] == p
        and y.terms == ((c, x.terms[0][1]),)
        for x, y in zip(a.axes, b.axes, strict=True)
    )


def _identity(u: Task, v: Task, a: Access, b: Access) -> Mapped:
    """The loop pairs under which a and b are one index map; () where there are none."""
    extents_u, extents_v = extents(u), extents(v)
    found: dict[str, str] = {}
    for x, y in zip(a.axes, b.axes, strict=True):
        if x is None or y is None or x.const != y.const or len(x.terms) != len(y.terms):
            return ()
        by_coefficient = {k: name for name, k in y.terms}
        for name, k in x.terms:
            other = by_coefficient.get(k)
            if len(by_coefficient) != len(y.terms) or other is None:
                return ()
            if extents_u[name] != extents_v[other] or found.setdefault(name, other) != other:
                return ()
    return tuple(sorted(found.items())) if len(set(found.values())) == len(found) else ()


def _is_overwritten(problem: Problem, source: int, sink: int, array: str, kind: Kind) -> bool:
    """Whether a task between writes all that the source touched, so that the order follows through
    it.
    """
    shape = problem.array(array).shape
    u = problem.tasks[source]
    region_of = read_region if kind == "anti" else written_region
    touched = region_of(u, array, shape)
    for w in problem.tasks[source + 1 : sink]:
        written = written_region(w, array, shape)
        if touched is not None and written is not None and written.covers(touched):
            return True
    return False
