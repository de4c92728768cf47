"""A judge of sums that are added up beside a result in their terms: may a sum so far be corrected when the result changes?

It evaluates terms on drawn numbers, before and after a maximum grew. All terms so far have to change by one factor, or to
count no more. Beside a mean, sums have to be least at it. `restores` runs a correction itself, tile by tile, and compares its
sum with that of the final results. The judge looks at no form of a term, and shares no code with
kernels/analysis/rescaling.py but the names of what corrections read.

Numbers are few different ones, zeros, numbers far apart, or partly infinite. Nothing is compared with an infinite sum. No
number stays none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import product
from typing import Any

import numpy as np

from ..kernels.analysis.rescaling import COUNT, Rescaling, before, now
from ..kernels.ir import kernel as ir
from ..kernels.ir.ops import OPS
from ..kernels.ir.task import Task
from ..space.backbone import Rescaled
from .meaning import Point, free_point, loads, read, written

_TRIALS = 15
_ACC = ("accumulator", ())
_FIRST = -1.0
_FAR = 1000.0  # whose exponential no float holds, and whose squares leave a double room for sums
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
        case ir.Local(name=name):
            return numbers[name]
        case ir.Cast(x=x):
            return value(x)
        case ir.Unary(op=op, x=x):
            return OPS[op].numpy(value(x))
        case ir.Binary(op=op, a=a, b=b) | ir.Compare(op=op, a=a, b=b):
            return OPS[op].numpy(value(a), value(b))
        case ir.Select(condition=c, a=a, b=b):
            return value(a) if value(c) else value(b)
    raise AssertionError(f"no number: {e}")


_FINITE = ("few", "zeros", "far")
_ALL = (*_FINITE, "least", "largest")


class _Drawn(dict[Any, float]):
    """Numbers in memory, each drawn when it is read first; all of an array are of one of the `kinds`.

    Numbers are few different ones, so that some are equal. Of other kinds a share is 0, far from the others,
    minus infinity, or infinity. In every third trial all are few; the others have all pairs of kinds in turn.
    """

    def __init__(self, rng: np.random.Generator, kinds: Sequence[str], trial: int) -> None:
        super().__init__()
        self._rng, self._kinds, self._trial = rng, kinds, trial
        self._of_array: dict[str, str] = {}
        # The share of numbers that are of the kind, by array; _FIRST: the first ones.
        self._share: dict[str, float] = {}

    def __missing__(self, key: Any) -> float:
        array, at = key
        if array not in self._of_array:
            n, (turn, is_mixed) = len(self._kinds), divmod(self._trial, 3)
            place = (2 * turn + is_mixed - 1) // n ** len(self._of_array) % n if is_mixed else 0
            self._of_array[array] = self._kinds[place]
            self._share[array] = float(self._rng.choice((0.25, 0.5, 1.0, _FIRST)))
        number = few = float(self._rng.integers(-3, 4))
        share = self._share[array]
        is_first = share == _FIRST and bool(at) and at[-1] < 3
        if is_first or self._rng.random() < share:
            kind = self._of_array[array]
            others = {"zeros": 0.0, "far": few * _FAR, "least": -np.inf, "largest": np.inf}
            number = others.get(kind, few)
        self[key] = number
        return number

    def infinite(self) -> set[str]:
        """The arrays with infinite elements."""
        return {array for array, kind in self._of_array.items() if kind not in _FINITE}


def is_correctable(base: Task, task: Task, steps: Point, n_trials: int = _TRIALS) -> bool:
    """True if sums of `task` over a part of its iterations can be corrected when the result of `base` grows by more of them."""
    rng = np.random.default_rng(len(task.loops))
    with np.errstate(all="ignore"):
        return all(_trial(base, task, steps, rng, k) for k in range(n_trials))


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
        places = _places(base)
        if len(reads) != 1 or not reads <= places.keys():
            return None
        (place,) = reads
        found.theirs.append([steps | places[place] | p for p in _inside(base)])
        found.results.append(place)
    is_same = all(len(x) == len(found.mine) for x in found.theirs)
    return found if is_same else None


def _trial(base: Task, task: Task, steps: Point, rng: np.random.Generator, trial: int) -> bool:
    numbers, at = _Drawn(rng, _ALL, trial), _drawn_place([base], task, steps, rng)
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

    everything = _total(task, beside(largest(len(at.mine))))
    old, new = beside(largest(few)), beside(largest(more))
    if not np.isfinite(_finished(task, at.mine[0], numbers, everything)):
        return True
    return _change_alike(task, at.mine[0], numbers, old, new)


def _total(task: Task, terms: Sequence[Any]) -> Any:
    return reduce(OPS[str(task.op)].numpy, terms, _nothing(task))


def _nothing(task: Task) -> Any:
    """Returns the result of a reduction over no iterations."""
    nothing = OPS[str(task.op)].neutral
    assert nothing is not None
    if task.dtype.is_integer and nothing in (-np.inf, np.inf):
        return task.dtype.range[nothing > 0]
    return nothing


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
    with np.errstate(all="ignore"):
        return _is_about_mean(bases, task, steps)


def _is_about_mean(bases: Sequence[Task], task: Task, steps: Point) -> bool:
    rng, curvatures = np.random.default_rng(len(task.loops)), list[float]()
    for trial in range(_TRIALS):
        numbers, at = _Drawn(rng, _FINITE, trial), _drawn_place(bases, task, steps, rng)
        if at is None:
            return False
        few = int(rng.integers(1, len(at.mine) + 1))
        totals = [
            sum(value_of(x.value, p, numbers) for p in points[:few])
            for x, points in zip(bases, at.theirs, strict=True)
        ]
        weight = totals[1] if len(bases) > 1 else few
        if not weight:
            if not _are_nothing(task, at, few, numbers):
                return False
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


def _are_nothing(task: Task, at: _Place, few: int, numbers: dict[Any, float]) -> bool:
    """True if terms that have no weight, and so no mean, add nothing beside any."""
    for total in (0.0, 1.0, -2.0):
        numbers[at.results[0]], numbers[at.results[1]] = total, 1.0
        if any(value_of(task.value, p, numbers) for p in at.mine[:few]):
            return False
    return True


def restores(
    rescaled: Rescaled, tasks: Sequence[Task], steps: Point, n_trials: int = _TRIALS
) -> bool:
    """True if a sum that is corrected as `rescaled` says becomes that of the final results, whatever its tiles are."""
    rng = np.random.default_rng(len(tasks))
    with np.errstate(all="ignore"):
        return all(_is_restored(rescaled, tasks, steps, rng, k) for k in range(n_trials))


def _is_restored(
    rescaled: Rescaled,
    tasks: Sequence[Task],
    steps: Point,
    rng: np.random.Generator,
    trial: int,
) -> bool:
    task, bases = tasks[rescaled.task], [tasks[p] for p in rescaled.bases]
    numbers, at = _Drawn(rng, _ALL, trial), _drawn_place(bases, task, steps, rng)
    if at is None:
        return False
    first = at.mine[0]
    values = [
        [value_of(x.value, points[0] | {q: p[r] for q, r in pairs}, numbers) for p in at.mine]
        for x, points, pairs in zip(bases, at.theirs, rescaled.pairs, strict=True)
    ]

    def so_far(n: int) -> list[Any]:
        """The results of `bases`, as if their loops ended after `n` iterations."""
        totals = [_total(x, terms[:n]) for x, terms in zip(bases, values, strict=True)]
        if rescaled.action.is_mean:
            totals = [x * len(at.mine) / n for x in totals]
        points = (x[0] for x in at.theirs)
        return [_finished(x, p, numbers, y) for x, p, y in zip(bases, points, totals, strict=True)]

    def summed(terms: Sequence[Point], results: Sequence[Any]) -> Any:
        numbers.update(zip(at.results, results, strict=True))
        return _total(task, [value_of(task.value, p, numbers) for p in terms])

    wanted = _finished(task, first, numbers, summed(at.mine, so_far(len(at.mine))))
    of_bases = {x.array for base in bases for x in loads(base.value)}
    if np.isinf(wanted) or (np.isnan(wanted) and not numbers.infinite() <= of_bases):
        return True  # an infinite weight times what is rounded to 0
    total, old, begin = _nothing(task), [_nothing(x) for x in bases], 0
    while begin < len(at.mine):
        most = int(rng.choice((3, len(at.mine))))
        end = int(rng.integers(begin + 1, min(begin + most, len(at.mine)) + 1))
        new = so_far(end)
        names = [x.target.array for x in bases]
        held = {before(name): x for name, x in zip(names, old, strict=True)}
        held |= {now(name): x for name, x in zip(names, new, strict=True)}
        total = _corrected(task, rescaled.action, total, {**held, COUNT: begin})
        total = OPS[str(task.op)].numpy(total, summed(at.mine[begin:end], new))
        begin, old = end, new
    found = _finished(task, first, numbers, total)
    return bool(np.isclose(found, wanted, rtol=1e-6, atol=1e-6, equal_nan=True))


def _corrected(task: Task, action: Rescaling, total: Any, held: Numbers) -> Any:
    """Returns the sum so far, corrected. `held`: results so far and before, by the names of locals."""
    if action.is_lost is not None and value_of(action.is_lost, {}, held):
        total = _nothing(task)
    elif action.factor is not None:
        total = total * value_of(action.factor, {}, held)
    return total if action.added is None else total + value_of(action.added, {}, held)


def _change_alike(
    task: Task, point: Point, numbers: dict[Any, float], old: list[Any], new: list[Any]
) -> bool:
    """True if all terms change by one factor, or count no more than none at all."""
    nothing = _nothing(task)
    changed = [
        (a, b)
        for a, b in zip(old, new, strict=True)
        if not (a == b == 0 or a == b == nothing or (np.isnan(a) and np.isnan(b)))
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


@lru_cache(maxsize=64)
def _places(task: Task) -> dict[Any, Point]:
    """Returns for each element that a reduction writes the iteration of its other loops."""
    return {written(task, p): free_point(task, p) for p in _points(task)}


def _points(task: Task) -> list[Point]:
    free = [x for x in task.loops if not x.is_reduction]
    cells = product(*(range(x.extent) for x in free))
    first = {x.name: 0 for x in task.loops if x.is_reduction}
    return [first | dict(zip((x.name for x in free), cell, strict=True)) for cell in cells]
