"""Stores in turn to elements next to one another, as to the colours of a pixel: apart, each goes through all of the memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from ..ir.body import Closure, Reason
from ..ir.task import Task


def in_turn(tasks: Sequence[Task]) -> Reason | None:
    """Why the tasks of a nest are better the statements of one; None where they are not.

    Two of them store to elements next to one another along which no loop goes: vectors of iterations of one alone have gaps.
    """
    if any(loop.is_reduction for t in tasks for loop in t.loops):
        return None
    for a, b in combinations(tasks, 2):
        if _are_next(a, b):
            return Reason(
                Closure.IN_TURN, f"stores in turn to elements of {a.target.array}", a.where
            )
    return None


def _are_next(a: Task, b: Task) -> bool:
    if a.target.array != b.target.array or a.loops != b.loops or not a.loops:
        return False
    (*rows, x), (*other_rows, y) = a.target.axes, b.target.axes
    if rows != other_rows or x is None or y is None or x.terms or y.terms:
        return False
    return abs(x.const - y.const) == 1
