"""Interleaved stores to adjacent elements, such as the colours of a pixel: tasks that stay in one loop.

In separate loops each would go through all the memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from ..ir.body import Closure, Reason
from ..ir.task import Task


def in_turn(tasks: Sequence[Task]) -> Reason | None:
    """Returns the reason to keep the tasks of a nest as statements of one loop (interleaved stores); else None.

    Two of them store to adjacent elements along an axis without a loop. So the vectors of one task alone would have gaps.
    """
    if any(loop.is_reduction for t in tasks for loop in t.loops):
        return None
    for a, b in combinations(tasks, 2):
        if _are_next(a, b):
            return Reason(
                Closure.IN_TURN, f"interleaved stores to elements of {a.target.array}", a.where
            )
    return None


def _are_next(a: Task, b: Task) -> bool:
    if a.target.array != b.target.array or a.loops != b.loops or not a.loops:
        return False
    (*rows, x), (*other_rows, y) = a.target.axes, b.target.axes
    if rows != other_rows or x is None or y is None or x.terms or y.terms:
        return False
    return abs(x.const - y.const) == 1
