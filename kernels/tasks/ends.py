"""Ends of repeats: which problems have repeats that an array may end, and what such a problem must hold to.

A step of such a repeat writes the array. Equal calls of the sequence run equal numbers of steps, so that times are comparable.
"""

from __future__ import annotations

from math import prod

from ..analysis.effects import arrays_read, arrays_written, effects, region_of
from ..ir.access import State, whole
from ..ir.arrays import ArrayInfo
from ..ir.errors import LanguageError
from ..ir.repeats import Repeat
from ..ir.task import Problem


def check_ends(problem: Problem) -> None:
    """Raises LanguageError if an array cannot end its repeat.

    It has one integer, is no temporary and no part of a sparse field, and is written in each step. No array from which it is
    computed has, at the end of a call, other values than at its begin.
    """
    for r in problem.repeats:
        if r.until:
            _check_array(problem, r)
            changed = sorted(_sources(problem, r.until) & _changed(problem))
            if changed:
                raise LanguageError(
                    f"{changed[0]} decides when {r.until} ends a repeat, and {problem.name} changes it, so that each call "
                    f"would run another number of steps: write all of {changed[0]} by a kernel before the repeat"
                )


def _check_array(problem: Problem, r: Repeat) -> None:
    array = next((a for a in problem.arrays if a.name == r.until and a.role != "temp"), None)
    if array is None:
        raise LanguageError(f"{r.until} cannot end a repeat: it is no array of the caller")
    if prod(array.shape) != 1 or not array.dtype.is_integer:
        raise LanguageError(
            f"{r.until} cannot end a repeat: it has {array.dtype.name} and {prod(array.shape)} elements, "
            "and one integer is needed"
        )
    if not any(r.until in arrays_written(problem.tasks[t]) for t in r.members):
        raise LanguageError(f"{r.until} cannot end a repeat: no kernel of the repeat writes it")
    in_trees = {name for x in problem.parts.leaves for name in x.arrays}
    if r.until in in_trees | problem.parts.structure:
        raise LanguageError(f"{r.until} cannot end a repeat: it is part of a sparse field")


def _changed(problem: Problem) -> set[str]:
    """Returns the arrays of the caller that the sequence changes and does not write as a whole before it reads them."""
    return {a.name for a in problem.arrays if a.role == "inout" and _begins_with(problem, a)}


def _begins_with(problem: Problem, array: ArrayInfo) -> bool:
    """True if the sequence reads elements of an array before it has written all of them.

    An iteration of a body may read the element that it writes: sums in memory begin with a store.
    """
    state = State("value", array.name)
    for task in problem.tasks:
        e = effects(task)
        writes = [x for s, x, is_sure in e.writes if s == state and is_sure]
        over = [x for x in writes if region_of(x, array.shape).covers(whole(array.shape))]
        own = () if task.is_structured else tuple(x.index for x in over)
        if any(s == state and x.index not in own for s, x in e.reads):
            return True
        if over:
            return False
    return True


def _sources(problem: Problem, array: str) -> set[str]:
    """Returns the arrays from which the values of an array are computed, itself among them."""
    found, left = {array}, [array]
    while left:
        at = left.pop()
        for task in problem.tasks:
            if at in arrays_written(task):
                left += set(arrays_read(task)) - found
                found.update(arrays_read(task))
    return found
