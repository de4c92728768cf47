"""A judge of sums that are added up beside a result in their terms: may a sum so far be corrected when the result changes?

It evaluates terms on drawn numbers, before and after a maximum grew. All terms so far have to change by one factor, or to
count no more. Beside a mean, sums have to be least at it. It shares no code with kernels/analysis/rescaling.py, and looks at
no form of a term.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


@dataclass
class _Place:
    """A result of a sum, the iterations of the sum, and those of tasks whose results its terms read, with these results."""

    mine: list[Point]
    theirs: list[list[Point]]
    results: list[Any]


def _drawn_place(
    bases: Sequence[Task], task: Task, steps: Point, rng: np.random.Generator
) -> _Place | None:
    """A result that is drawn; None where its terms do not read one result of each of `bases`."""
    free = {x.name: int(rng.integers(x.extent)) for x in task.loops if not x.is_reduction}
    found = _Place([steps | free | p for p in _inside(task)], [], [])
    for base in bases:
        reads = {read(x, found.mine[0]) for x in loads(task.value) if x.array == base.target.array}
        places = {written(base, p): free_point(base, p) for p in _points(base)}
        if len(reads) != 1 or not reads <= places.keys():
            return None
        (place,) = reads
        found.theirs.append([steps | places[place] | p for p in _inside(base)])
        found.results.append(place)
    is_same = all(len(x) == len(found.mine) for x in found.theirs)
    return found if is_same else None


def _trial(base: Task, task: Task, steps: Point, rng: np.random.Generator) -> bool:
    numbers, at = _Drawn(rng), _drawn_place([base], task, steps, rng)
    if at is None:
        return False
    few, more = sorted(int(k) for k in rng.integers(1, len(at.mine) + 1, 2))
    terms = [value_of(base.value, p, numbers) for p in at.theirs[0]]

    def largest(n: int) -> Any:
        total = reduce(OPS[str(base.op)].numpy, terms[:n])
        return _finished(base, at.theirs[0][0], numbers, total)

    def beside(m: Any) -> list[Any]:
        numbers[at.results[0]] = m
        return [value_of(task.value, p, numbers) for p in at.mine[:few]]

    old, new = beside(largest(few)), beside(largest(more))
    return _change_alike(task, at.mine[0], numbers, old, new)


def _finished(task: Task, at: Point, numbers: dict[Any, float], total: Any) -> Any:
    numbers[_ACC] = total
    found = total if task.finish is None else value_of(task.finish, at, numbers)
    del numbers[_ACC]
    return found


def is_about_mean(bases: Sequence[Task], task: Task, steps: Point) -> bool:
    """True if a sum is least at the mean of its terms so far, and grows by the square of the distance to it, times their weight.

    The mean is the first of `bases` over the second, or the first over the number of all iterations.
    """
    if {x.op for x in (*bases, task)} != {"add"}:
        return False
    rng, curvatures = np.random.default_rng(len(task.loops)), list[float]()
    for _ in range(_TRIALS):
        numbers, at = _Drawn(rng), _drawn_place(bases, task, steps, rng)
        if at is None:
            return False
        few = int(rng.integers(1, len(at.mine) + 1))
        totals = [
            sum(value_of(x.value, p, numbers) for p in points[:few])
            for x, points in zip(bases, at.theirs, strict=True)
        ]
        weight = totals[1] if len(bases) > 1 else few
        if not weight:
            continue
        if len(bases) == 1:
            totals[0] *= len(at.mine) / few
        for x, points, place, total in zip(bases, at.theirs, at.results, totals, strict=True):
            numbers[place] = _finished(x, points[0], numbers, total)
        mean, sums = numbers[at.results[0]], list[float]()
        for shift in (0.0, 1.0, -1.0):
            numbers[at.results[0]] = mean + shift * (totals[1] if len(bases) > 1 else 1.0)
            sums.append(float(sum(value_of(task.value, p, numbers) for p in at.mine[:few])))
        if not np.isclose(sums[1], sums[2], rtol=1e-6, atol=1e-6):
            return False
        curvatures.append((sums[1] - sums[0]) / weight)
    return bool(curvatures) and bool(np.allclose(curvatures, curvatures[0], rtol=1e-4, atol=1e-6))


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

    total = reduce(OPS[str(task.op)].numpy, new)
    ends = (_finished(task, point, numbers, x) for x in (total, nothing))
    return bool(next(ends) == next(ends))


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
