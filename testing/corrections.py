"""A judge of sums that are added up beside the maximum in their terms: may a sum so far be corrected when the maximum grows?

It evaluates terms on drawn numbers, before and after the maximum grew. All terms so far have to change by one factor, or to
count no more. It shares no code with kernels/analysis/rescaling.py, and looks at no form of a term.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from itertools import product
from typing import Any

import numpy as np

from ..kernels.ir import kernel as ir
from ..kernels.ir.ops import OPS
from ..kernels.ir.task import Task
from .meaning import Point, free_point, loads, read, written

_TRIALS = 12
_ACC = ("accumulator", ())
Numbers = Mapping[Any, float]


def value_of(e: Any, at: Point, numbers: Numbers) -> Any:
    """Returns the value of an expression in 64 bits, with these numbers in memory."""

    def value(x: Any) -> Any:
        return value_of(x, at, numbers)

    match e:
        case ir.Const(value=x):
            return x
        case ir.LoopIndex(loop=loop):
            return at[loop]
        case ir.Load():
            return numbers[read(e, at)]
        case ir.Accumulator():
            return numbers[_ACC]
        case ir.Cast(x=x):
            return value(x)
        case ir.Unary(op=op, x=x):
            return OPS[op].numpy(value(x))
        case ir.Binary(op=op, a=a, b=b) | ir.Compare(op=op, a=a, b=b):
            return OPS[op].numpy(value(a), value(b))
        case ir.Select(condition=c, a=a, b=b):
            return value(a) if value(c) else value(b)
    raise AssertionError(f"no number: {e}")


class _Drawn(dict[Any, float]):
    """Numbers in memory, each drawn when it is read first. Few different ones, so that some are equal."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__()
        self._rng = rng

    def __missing__(self, key: Any) -> float:
        self[key] = float(self._rng.integers(-3, 4))
        return self[key]


def is_correctable(base: Task, task: Task, steps: Point) -> bool:
    """True if sums of `task` over a part of its iterations can be corrected when the result of `base` grows by more of them."""
    rng = np.random.default_rng(len(task.loops))
    with np.errstate(all="ignore"):
        return all(_trial(base, task, steps, rng) for _ in range(_TRIALS))


def _trial(base: Task, task: Task, steps: Point, rng: np.random.Generator) -> bool:
    numbers = _Drawn(rng)
    free = {x.name: int(rng.integers(x.extent)) for x in task.loops if not x.is_reduction}
    mine = [steps | free | p for p in _inside(task)]
    # The result that terms of this point read: that of the base at the point which stores it.
    held = [x for x in loads(task.value) if x.array == base.target.array]
    reads = {read(x, mine[0]) for x in held}
    places = {written(base, p): free_point(base, p) for p in _points(base)}
    if len(reads) != 1 or not reads <= places.keys():
        return False
    (place,) = reads
    theirs = [steps | places[place] | p for p in _inside(base)]
    if len(theirs) != len(mine):
        return False
    few, more = sorted(int(k) for k in rng.integers(1, len(mine) + 1, 2))
    terms = [value_of(base.value, p, numbers) for p in theirs]

    def largest(n: int) -> Any:
        numbers[_ACC] = reduce(OPS[str(base.op)].numpy, terms[:n])
        total = numbers[_ACC] if base.finish is None else value_of(base.finish, theirs[0], numbers)
        del numbers[_ACC]
        return total

    def at(m: Any) -> list[Any]:
        numbers[place] = m
        return [value_of(task.value, p, numbers) for p in mine[:few]]

    return _change_alike(task, mine[0], numbers, at(largest(few)), at(largest(more)))


def _change_alike(
    task: Task, point: Point, numbers: dict[Any, float], old: list[Any], new: list[Any]
) -> bool:
    """True if all terms change by one factor, or count no more than none at all."""
    nothing = OPS[str(task.op)].neutral
    if task.dtype.is_integer and nothing in (-np.inf, np.inf):
        nothing = task.dtype.range[nothing > 0]
    changed = [
        (a, b) for a, b in zip(old, new, strict=True) if not (a == b == 0 or a == b == nothing)
    ]
    if not changed or all(a == b for a, b in changed):
        return True
    ratios = [b / a for a, b in changed if a not in (0, nothing)]
    if task.op == "add" and len(ratios) == len(changed) and np.ptp(ratios) <= 1e-9 * max(ratios):
        return True

    def finished(total: Any) -> Any:
        numbers[_ACC] = total
        found = total if task.finish is None else value_of(task.finish, point, numbers)
        del numbers[_ACC]
        return found

    return bool(finished(reduce(OPS[str(task.op)].numpy, new)) == finished(nothing))


def _inside(task: Task) -> list[Point]:
    """Returns the iterations of a task's reduction loops."""
    reduced = [x for x in task.loops if x.is_reduction]
    cells = product(*(range(x.extent) for x in reduced))
    return [dict(zip((x.name for x in reduced), cell, strict=True)) for cell in cells]


def _points(task: Task) -> list[Point]:
    free = [x for x in task.loops if not x.is_reduction]
    cells = product(*(range(x.extent) for x in free))
    first = {x.name: 0 for x in task.loops if x.is_reduction}
    return [first | dict(zip((x.name for x in free), cell, strict=True)) for cell in cells]
