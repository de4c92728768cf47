"""Where the iterations of a task do nothing: outside of affine bounds that its conditions say.

A loop whose range depends on the loops around it (kernels/offload/triangles.py), or a branch that a program writes, leaves such
bounds. They are no part of what a task means: its value and its condition are right in every iteration of its box. Whoever runs
through the box may leave out iterations outside, and counts only those inside.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .access import access_of
from .affine import Affine
from .body import guard_where
from .domain import Loop
from .kernel import Expr, Load, Select
from .task import Task
from .walk import is_neutral


@dataclass(frozen=True)
class Cut:
    """Iterations outside of low <= affine < high do nothing; FAR (kernels/ir/body.py) is no bound on that side."""

    affine: Affine
    low: int
    high: int

    @property
    def loops(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.affine.terms)


def cuts_of(task: Task) -> tuple[Cut, ...]:
    """The cuts of a task's iterations that name several loops."""
    if not task.is_structured:
        return ()
    found = [*_bounds(_branch(task), task.loops)]
    kept = _kept(task)
    if kept is not None:  # the whole sum is wanted for some results only
        found += _bounds(kept, tuple(x for x in task.loops if not x.is_reduction))
    return _of_several(found)


def branch_cuts(task: Task) -> tuple[Cut, ...]:
    """The cuts that say just where the branch of an iteration is taken; () where other conditions do as well, or there is none."""
    condition = _branch(task) if task.is_structured else None
    if condition is None:
        return ()
    guard = guard_where(condition, task.loops)
    cuts = _of_several(guard.bounds)
    is_all = guard.is_exact and not guard.residues and not guard.data
    return cuts if is_all and len(cuts) == len(set(guard.bounds)) else ()


def taken(task: Task) -> Expr:
    """What a task with a branch stores or adds where it is taken."""
    value = task.value
    if isinstance(value, Select) and not task.is_guarded:
        value = value.a
    assert value is not None
    return value


def _of_several(bounds: Iterable[tuple[Affine, int, int]]) -> tuple[Cut, ...]:
    cuts = (Cut(affine, low, high) for affine, low, high in bounds if len(affine.terms) > 1)
    return tuple(dict.fromkeys(cuts))


def _branch(task: Task) -> Expr | None:
    """The condition where it does not hold nothing is stored, or nothing is added."""
    if task.is_guarded:
        return task.condition
    if task.op is not None and isinstance(task.value, Select) and is_neutral(task.op, task.value.b):
        return task.value.condition
    return None


def _kept(task: Task) -> Expr | None:
    """The condition where it does not hold a finished reduction leaves what its target held."""
    match task.finish:
        case Select(condition, _, Load() as old) if access_of(old) == task.target:
            return condition
    return None


def _bounds(condition: Expr | None, loops: tuple[Loop, ...]) -> tuple[tuple[Affine, int, int], ...]:
    return () if condition is None else guard_where(condition, loops).bounds
