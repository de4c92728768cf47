"""Iteration-domain constraints: affine bounds outside of which the iterations of a task have no effect.

A loop whose range depends on the loops around it (kernels/tasks/triangles.py) has such bounds, and so has a branch of a program.
They are not part of a task's meaning: its value and its condition are right in every iteration of its box. Code generation may omit
iterations outside of the constraints, and the lower bound of the time counts only iterations inside.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from ..ir.access import access_of
from ..ir.affine import Affine
from ..ir.body import guard_where
from ..ir.domain import Loop
from ..ir.kernel import Expr, Load, Select
from ..ir.task import Task
from ..ir.walk import is_neutral


@dataclass(frozen=True)
class Cut:
    """Iteration-domain constraint: iterations outside of low <= affine < high have no effect.

    A side without a bound has the value FAR or -FAR (kernels/ir/body.py).
    """

    affine: Affine
    low: int
    high: int

    @property
    def loops(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.affine.terms)


def cuts_of(task: Task) -> tuple[Cut, ...]:
    """Returns the constraints of a task's iteration domain that involve several loops each."""
    if not task.is_structured:
        return ()
    found = [*_bounds(_branch(task), task.loops)]
    kept = _kept(task)
    if kept is not None:  # the whole sum is wanted for some results only
        found += _bounds(kept, tuple(x for x in task.loops if not x.is_reduction))
    return _of_several(found)


def branch_cuts(task: Task) -> tuple[Cut, ...]:
    """Returns constraints that hold exactly in the iterations of a task that take its branch.

    () if the condition also has parts that are not affine constraints, or if the task has no branch.
    """
    condition = _branch(task) if task.is_structured else None
    return () if condition is None else _just(condition, task.loops)


def _just(condition: Expr, loops: tuple[Loop, ...]) -> tuple[Cut, ...]:
    """Returns constraints on the indices of `loops` that are equivalent to a condition; () if there are none."""
    guard = guard_where(condition, loops)
    cuts = _of_several(guard.bounds)
    is_all = guard.is_exact and not guard.residues and not guard.data
    return cuts if is_all and len(cuts) == len(set(guard.bounds)) else ()


def finish_cuts(task: Task) -> tuple[Cut, ...]:
    """Returns constraints that hold exactly for the results of a reduction that the task stores.

    () if the condition also has parts that are not affine constraints, or if all results are stored.
    """
    kept = _kept(task)
    return () if kept is None else _just(kept, tuple(x for x in task.loops if not x.is_reduction))


def taken(task: Task) -> Expr:
    """Returns the value that a task stores or adds in an iteration that takes its branch.

    Without a branch it is the task's value.
    """
    value = task.value
    if isinstance(value, Select) and not task.is_guarded:
        value = value.a
    assert value is not None
    return value


def _of_several(bounds: Iterable[tuple[Affine, int, int]]) -> tuple[Cut, ...]:
    cuts = (Cut(affine, low, high) for affine, low, high in bounds if len(affine.terms) > 1)
    return tuple(dict.fromkeys(cuts))


def _branch(task: Task) -> Expr | None:
    """Returns the condition under which an iteration stores or adds something; None where there is none."""
    if task.is_guarded:
        return task.condition
    if task.op is not None and isinstance(task.value, Select) and is_neutral(task.op, task.value.b):
        return task.value.condition
    return None


def _kept(task: Task) -> Expr | None:
    """Returns the condition under which a task stores a finished reduction; None if it stores all of them.

    Where the condition is false, the target element keeps its old value.
    """
    match task.finish:
        case Select(condition, _, Load() as old) if access_of(old) == task.target:
            return condition
    return None


def _bounds(condition: Expr | None, loops: tuple[Loop, ...]) -> tuple[tuple[Affine, int, int], ...]:
    return () if condition is None else guard_where(condition, loops).bounds


# --- how many iterations there are ----------------------------------------------------------------

_MOST_COUNTED = 1 << 22  # rows of a polyhedron that are counted one by one


def points(task: Task, names: Iterable[str] | None = None) -> int:
    """Returns a lower bound of the number of distinct indices of the loops `names` within all constraints.

    `names` are all loops by default.
    A step of a repeat in a constraint counts as the average over all steps. The number is exact if each group of constraints that
    share loops names at most one loop outside of `names`.
    """
    steps = [loop.name for loop in task.steps]
    extents = {loop.name: loop.extent for loop in task.scope}
    wanted = frozenset(extents if names is None else (*names, *steps))
    total, left = 1, dict(extents)
    for group in _groups(cuts_of(task)):
        loops = frozenset[str]().union(*(cut.loops for cut in group))
        sized = tuple((name, extents[name]) for name in sorted(loops))
        if not loops & wanted:
            if not _count(group, sized):  # no iteration, or too many rows to count
                return 0
            continue
        others = loops - wanted
        if len(others) == 1:
            total *= _count(group, sized, next(iter(others)))
        else:
            total *= -(-_count(group, sized) // prod(extents[name] for name in others))
        for name in loops:
            left.pop(name)
    total *= prod(n for name, n in left.items() if name in wanted)
    return total // prod(extents[name] for name in steps)


def _groups(cuts: tuple[Cut, ...]) -> list[tuple[Cut, ...]]:
    """Returns the constraints partitioned into groups; constraints of different groups have no loop in common."""
    groups: list[tuple[Cut, ...]] = []
    for cut in cuts:
        near = [g for g in groups if any(cut.loops & other.loops for other in g)]
        groups = [g for g in groups if g not in near]
        groups.append((*(x for g in near for x in g), cut))
    return groups


@lru_cache(maxsize=1 << 10)
def _count(cuts: tuple[Cut, ...], loops: tuple[tuple[str, int], ...], among: str = "") -> int:
    """Returns the number of iterations of loops within the constraints; 0 if there are too many rows to count.

    `loops`: names and extents. `among`: a loop that is not counted: the number is that of distinct indices of the other loops. The
    count goes row by row along loop `among`, or else along the longest loop.
    """
    along = among or max(loops, key=lambda loop: loop[1])[0]
    length = dict(loops)[along]
    others = [(name, n) for name, n in loops if name != along]
    if prod(n for _, n in others) > _MOST_COUNTED:
        return 0
    shape = tuple(n for _, n in others)
    grid = dict(zip((name for name, _ in others), np.indices(shape, np.int64), strict=True))
    first, last = np.zeros(shape, np.int64), np.full(shape, length, np.int64)
    for cut in cuts:
        rest = np.full(shape, cut.affine.const, np.int64)
        step = cut.affine.coefficient(along)
        for name, k in cut.affine.terms:
            if name != along:
                rest += k * grid[name]
        low, high = cut.low - rest, cut.high - 1 - rest  # low <= step * index <= high
        if step < 0:
            step, low, high = -step, -high, -low
        if step:
            first = np.maximum(first, -(-low // step))
            last = np.minimum(last, high // step + 1)
        else:
            last = np.where((low <= 0) & (high >= 0), last, 0)
    lengths = np.maximum(last - first, 0)
    return int((lengths > 0).sum() if among else lengths.sum())
