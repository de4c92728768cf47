"""Dependences between tasks, and which pairs of loops keep them point to point when merged (DESIGN
section 4).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Literal

from ..ir.access import Access, Region
from ..ir.affine import Affine, combine, feasible, rename
from ..ir.domain import Loop
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
    touching: dict[str, list[int]] = {}
    reads = [_by_array(_reads(task)) for task in problem.tasks]
    writes = [_by_array(_writes(task)) for task in problem.tasks]
    for k in range(len(problem.tasks)):
        for array in {**reads[k], **writes[k]}:
            touching.setdefault(array, []).append(k)
    overwriting = _Overwriting(problem)
    found: list[tuple[tuple[int, int, int], Dependence]] = []
    for source, u in enumerate(problem.tasks):
        uses: tuple[tuple[Kind, dict[str, _Uses], list[dict[str, _Uses]]], ...] = (
            ("flow", writes[source], reads),
            ("anti", reads[source], writes),
            ("output", writes[source], writes),
        )
        for rank, (kind, before, after) in enumerate(uses):
            for array, here in before.items():
                for sink in overwriting.until(source, array, kind, touching[array]):
                    there = after[sink].get(array)
                    v = problem.tasks[sink]
                    mapped = _conflict(u.loops, here, v.loops, there) if there else None
                    if mapped is not None:
                        dep = Dependence(source, sink, array, kind, mapped)
                        found.append(((source, sink, rank), dep))
    # A stable sort: of one pair and kind, arrays stay in the order in which the source has them.
    return tuple(d for _, d in sorted(found, key=lambda pair: pair[0]))


def shared_reads(problem: Problem, within: int | None = None) -> tuple[SharedRead, ...]:
    """Loads that two tasks could share, one entry for each consistent way of merging loops.

    Of tasks less than `within` apart, where that is given.
    """
    found: list[SharedRead] = []
    n_tasks = len(problem.tasks)
    reads = [_by_array(_reads(task)) for task in problem.tasks]
    for first, u in enumerate(problem.tasks):
        written = {a.array for a in task_writes(u)}
        last = n_tasks if within is None else min(n_tasks, first + within)
        for second in range(first + 1, last):
            v = problem.tasks[second]
            written |= {a.array for a in task_writes(v)}
            for array in (x for x in reads[first] if x in reads[second] and x not in written):
                for (a, _), (b, _) in product(reads[first][array], reads[second][array]):
                    mapped = _identity(u, v, a, b)
                    if mapped:
                        found.append(SharedRead(first, second, array, mapped))
    return tuple(dict.fromkeys(found))


_Use = tuple[Access, frozenset[str]]  # an access with the loops that it may be mapped by
_Uses = tuple[_Use, ...]


def _outer_loops(task: Task) -> frozenset[str]:
    return frozenset(loop.name for loop in task.loops if not loop.is_reduction)


def _reads(task: Task) -> _Uses:
    """Reads of `value` happen in every iteration, reads of `finish` after the reduction loops."""
    everywhere, outer = frozenset(loop.name for loop in task.loops), _outer_loops(task)
    return tuple((a, outer if in_finish else everywhere) for a, in_finish in task_reads(task))


def _writes(task: Task) -> _Uses:
    return tuple((a, _outer_loops(task)) for a in task_writes(task))


def _by_array(uses: _Uses) -> dict[str, _Uses]:
    found: dict[str, list[_Use]] = {}
    for use in uses:
        found.setdefault(use[0].array, []).append(use)
    return {array: tuple(of) for array, of in found.items()}


_Loops = tuple[Loop, ...]
_Pair = tuple[Access, frozenset[str], Access, frozenset[str]]


@lru_cache(maxsize=1 << 14)  # long programs are made of few different tasks
def _conflict(loops_u: _Loops, before: _Uses, loops_v: _Loops, after: _Uses) -> Mapped | None:
    """The loops that keep all conflicts of these uses of one array in one iteration; None where there is no conflict."""
    pairs = [
        (a, of_a, b, of_b)
        for (a, of_a), (b, of_b) in product(before, after)
        if _may_meet(loops_u, a, loops_v, b)
    ]
    return _mapped(loops_u, loops_v, pairs) if pairs else None


def may_meet(u: Task, a: Access, v: Task, b: Access) -> bool:
    """Whether access a of task u and access b of task v may touch one element."""
    return _may_meet(u.loops, a, v.loops, b)


def _may_meet(loops_u: _Loops, a: Access, loops_v: _Loops, b: Access) -> bool:
    names_u = {loop.name: "u:" + loop.name for loop in loops_u}
    names_v = {loop.name: "v:" + loop.name for loop in loops_v}
    bounds = {names_u[x.name]: (0, x.extent - 1) for x in loops_u}
    bounds |= {names_v[x.name]: (0, x.extent - 1) for x in loops_v}
    equations: list[Affine] = []
    for x, y in zip(a.axes, b.axes, strict=True):
        if x is not None and y is not None:
            equations.append(combine([(1, rename(x, names_u)), (-1, rename(y, names_v))]))
    return feasible(equations, bounds)


def _mapped(loops_u: _Loops, loops_v: _Loops, pairs: list[_Pair]) -> Mapped:
    return tuple(
        (p.name, c.name)
        for p, c in product(loops_u, loops_v)
        if p.extent == c.extent and all(_follows(p.name, c.name, pair) for pair in pairs)
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


class _Overwriting:
    """What of arrays the tasks of a problem write, each box made once."""

    def __init__(self, problem: Problem) -> None:
        self._tasks = problem.tasks
        self._shape = {a.name: a.shape for a in problem.arrays}
        self._written: dict[tuple[int, str], Region | None] = {}

    def until(self, source: int, array: str, kind: Kind, touching: list[int]) -> Iterator[int]:
        """Tasks after the source that touch the array, up to the first that writes all that the source touched: the order of
        later ones follows through it.
        """
        touched = self.written(source, array)
        if kind == "anti":
            touched = read_region(self._tasks[source], array, self._shape[array])
        for k in touching[bisect_right(touching, source) :]:
            yield k
            written = self.written(k, array)
            if touched is not None and written is not None and written.covers(touched):
                return

    def written(self, k: int, array: str) -> Region | None:
        if (k, array) not in self._written:
            region = written_region(self._tasks[k], array, self._shape[array])
            self._written[k, array] = region
        return self._written[k, array]
