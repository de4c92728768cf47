"""Repeat detection (tandem repeats): runs of equal calls in a sequence are recorded once, with their count.

A Python loop around kernels calls them again and again. Calls that equal those just before form a repeat of their period, which may
contain further repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .domain import Loop

# Sequences of so many calls stay calls: they may share loops and launches with one another.
FEW_CALLS = 16
# In longer ones, so many calls that repeat are a repeat. `kernels/tasks/unfolding.py` unfolds those whose steps may share a loop.
_LEAST_CALLS = 4
_LONGEST_PERIOD = 256  # calls that repeat together
_FEWEST_GROWING = 3  # steps from which growth counts as linear: two numbers always grow linearly


@dataclass(frozen=True)
class Repeat:
    """Repeat: members (calls or tasks) `first` to `stop - 1` of a sequence run `count` times in a row.

    Two repeats of a sequence are nested or disjoint. `index` is the name of the loop index that numbers the steps. `until`: array
    of one integer; the repeat ends after the first step that leaves it other than 0, or after `count` steps. "": no such array.
    """

    first: int
    stop: int
    count: int
    index: str = ""
    until: str = ""

    @property
    def least(self) -> int:
        """Number of steps that surely run."""
        return least_steps(self.count, self.until)

    @property
    def members(self) -> range:
        return range(self.first, self.stop)

    def is_inside(self, outer: Repeat) -> bool:
        """True if each step of repeat `outer` contains this repeat."""
        return self != outer and outer.first <= self.first and self.stop <= outer.stop


@dataclass(frozen=True)
class Ended:
    """Repeat that array `until` may end, after `count` steps at the latest: calls `first` to `stop - 1` are those of one step."""

    first: int
    stop: int
    count: int
    until: str


def least_steps(count: int, until: str) -> int:
    """Returns the number of steps of a repeat that surely run: one if an array may end it."""
    return min(1, count) if until else count


@dataclass(frozen=True)
class Folded:
    """Folded sequence: calls that repeat are recorded once.

    `kept` are the positions of the remaining calls. `repeats` are the repeats over the remaining calls, outer ones first.
    `slopes`: for each remaining call the growth of its number arguments per step of a repeat, by the repeat's position in
    `repeats`.
    """

    kept: tuple[int, ...]
    repeats: tuple[Repeat, ...]
    slopes: tuple[dict[int, tuple[int, ...]], ...]


def fold(
    calls: Sequence[int] | NDArray[np.int64],
    few: int = FEW_CALLS,
    numbers: NDArray[np.int64] | None = None,
    ended: Sequence[Ended] = (),
) -> Folded:
    """Returns a sequence of calls with its repeats folded: each call of a repeat is recorded once.

    `calls`: labels of the calls. Calls that differ only in their `numbers` (a row of number arguments each) have equal labels. The
    numbers must grow by a constant per step of a repeat.

    The repeat that saves most calls is found first, then repeats before it, inside of it and behind it. Sequences of at most `few`
    calls have none; a repeat whose numbers grow has more than `few` calls. `ended`: repeats of the program that an array ends, in
    order. They stay whole, however few calls they have; their steps must be equal.
    """
    every = np.asarray(calls, np.int64)
    folding = _Folding(few, len(every))
    if numbers is None or not numbers.size:
        numbers = np.zeros((len(every), 0), np.int64)
    at = 0
    for r in ended:
        folding.add(every[at : r.first], numbers[at : r.first], at)
        folding.add_ended(every, numbers, r)
        at = r.stop
    folding.add(every[at:], numbers[at:], at)
    return Folded(
        tuple(folding.kept), tuple(folding.repeats), tuple(map(folding.slopes_at, folding.kept))
    )


def in_order(n_members: int, repeats: Sequence[Repeat]) -> Iterator[int]:
    """Yields the positions of the members of a sequence in order of execution, with repeats run `count` times."""
    return (member for member, _ in with_steps(n_members, repeats))


def with_steps(
    n_members: int, repeats: Sequence[Repeat], is_set: Callable[[str], bool] | None = None
) -> Iterator[tuple[int, dict[str, int]]]:
    """Yields the positions of members in order of execution, each with the step of each repeat around it.

    The steps are by the name of the repeat's index. Precondition: outer `repeats` come first.
    `is_set`: true if the array of this name ends its repeat now; called when the members of a step have run. Without it repeats
    run all of their steps.
    """
    return _run(0, n_members, tuple(repeats), {}, is_set)


def flag_of(arrays: Mapping[str, NDArray[Any]]) -> Callable[[str], bool]:
    """Returns the `is_set` of `with_steps` for members that run on these arrays."""
    return lambda name: bool(arrays[name].any())


def times(n_members: int, repeats: Sequence[Repeat]) -> tuple[int, ...]:
    """Returns for each member of a sequence the number of its runs in all steps of the repeats around it, at most."""
    found = [1] * n_members
    for r in repeats:
        for member in r.members:
            found[member] *= r.count
    return tuple(found)


def are_nested(n_members: int, repeats: Sequence[Repeat]) -> bool:
    """True if the repeats lie within the sequence, outer ones come first, and each two are nested or disjoint."""
    ends = [n_members]
    at = 0
    for r in repeats:
        while len(ends) > 1 and ends[-1] <= r.first:
            ends.pop()
        if not (at <= r.first < r.stop <= ends[-1]) or r.count < 1:
            return False
        at = r.first
        ends.append(r.stop)
    return True


def repeats_of(around: Sequence[tuple[Loop, ...]]) -> tuple[Repeat, ...]:
    """Returns the repeats of a sequence, given the repeat loops around each member.

    `around`: for each member these loops, outermost first. Consecutive members with the same loop are in one repeat.
    """
    found: list[Repeat] = []
    opened: list[tuple[Loop, int]] = []  # with its place in `found`
    for k, loops in enumerate((*around, ())):
        depth = 0
        while depth < min(len(loops), len(opened)) and opened[depth][0] == loops[depth]:
            depth += 1
        for _, place in opened[depth:]:
            found[place] = replace(found[place], stop=k)
        del opened[depth:]
        for loop in loops[depth:]:
            opened.append((loop, len(found)))
            found.append(Repeat(k, k + 1, loop.extent, loop.name, loop.until))
    return tuple(found)


def _run(
    first: int,
    stop: int,
    repeats: tuple[Repeat, ...],
    steps: dict[str, int],
    is_set: Callable[[str], bool] | None,
) -> Iterator[tuple[int, dict[str, int]]]:
    at = first
    while repeats and at < stop:
        outer = repeats[0]
        yield from ((k, steps) for k in range(at, outer.first))
        inside = tuple(r for r in repeats[1:] if r.first < outer.stop)
        for step in range(outer.count):
            yield from _run(outer.first, outer.stop, inside, {**steps, outer.index: step}, is_set)
            if is_set is not None and outer.until and is_set(outer.until):
                break
        at, repeats = outer.stop, repeats[1 + len(inside) :]
    yield from ((k, steps) for k in range(at, stop))


class _Folding:
    def __init__(self, few: int, n_calls: int) -> None:
        self.few = few
        self.is_long = n_calls > few
        self.kept: list[int] = []
        self.repeats: list[Repeat] = []
        self.slopes: list[tuple[int, NDArray[np.int64]]] = []  # from which place on; of each repeat

    def add(self, calls: NDArray[np.int64], numbers: NDArray[np.int64], place: int) -> None:
        """Folds the calls of a part of the sequence that begins at position `place`.

        `calls`: their labels. `numbers`: their number arguments, a row each.
        """
        found = self.most_saving(calls, numbers) if self.is_long else None
        if found is None:
            self.kept += range(place, place + len(calls))
            return
        begin, period, count = found
        end, once = begin + period * count, slice(begin, begin + period)
        self.add(calls[:begin], numbers[:begin], place)
        number, first = len(self.repeats), len(self.kept)
        slopes = numbers[begin + period : begin + 2 * period] - numbers[once]
        self.repeats.append(Repeat(first, first, count))
        self.slopes.append((place + begin, slopes))
        self.add(_apart(calls[once], slopes), numbers[once], place + begin)
        self.repeats[number] = Repeat(first, len(self.kept), count)
        self.add(calls[end:], numbers[end:], place + end)

    def add_ended(self, calls: NDArray[np.int64], numbers: NDArray[np.int64], r: Ended) -> None:
        """Folds a repeat that an array ends. Repeats inside of its first step are found as elsewhere."""
        number, first = len(self.repeats), len(self.kept)
        self.repeats.append(Repeat(first, first, r.count, until=r.until))
        self.slopes.append((0, numbers[:0]))
        once = slice(r.first, r.stop)
        self.add(calls[once], numbers[once], r.first)
        self.repeats[number] = replace(self.repeats[number], stop=len(self.kept))

    def slopes_at(self, place: int) -> dict[int, tuple[int, ...]]:
        """Returns the growth of the numbers of the call at `place` per step, for each repeat around it."""
        found = {}
        for k, (first, slopes) in enumerate(self.slopes):
            if first <= place < first + len(slopes) and slopes[place - first].any():
                found[k] = tuple(int(x) for x in slopes[place - first])
        return found

    def most_saving(
        self, calls: NDArray[np.int64], numbers: NDArray[np.int64]
    ) -> tuple[int, int, int] | None:
        """Returns the begin, period and count of the repeat that saves most calls; None if none saves enough.

        Ties go to the shortest period and then to the first repeat.
        """
        n, saved, found = len(calls), 0, None
        for period in range(1, min(n // 2, _LONGEST_PERIOD) + 1):
            if n - period <= saved:
                break
            begin, length, grows = _longest_run(calls, numbers, period)
            count = length // period + 1
            if count < _FEWEST_GROWING and grows:
                continue
            least = self.few + 1 if grows else min(_LEAST_CALLS, self.few + 1)
            if count > 1 and period * count >= least and period * (count - 1) > saved:
                saved, found = period * (count - 1), (begin, period, count)
        return found


def _longest_run(
    calls: NDArray[np.int64], numbers: NDArray[np.int64], period: int
) -> tuple[int, int, bool]:
    """Returns the longest run of calls that equal those a period later: its begin, length, and a flag.

    The flag is True if some number arguments grow. They must grow by the same amount each time.
    """
    n = len(calls) - period
    growth = numbers[period:] - numbers[:-period]
    differs = np.flatnonzero(calls[period:] != calls[:-period])
    bends = period + np.flatnonzero((growth[period:] != growth[:-period]).any(axis=1))
    begins = np.concatenate(([0], differs + 1, bends - period + 1))
    ends = np.concatenate((differs, [n]))
    stops = ends[np.searchsorted(ends, np.minimum(begins, n))]
    bent = np.concatenate((bends, [n]))
    stops = np.minimum(stops, bent[np.minimum(np.searchsorted(bent, begins + period), len(bends))])
    lengths = np.maximum(stops - begins, 0)
    run = int(np.argmax(lengths))
    begin, length = int(begins[run]), int(lengths[run])
    return begin, length, bool(growth[begin : begin + length].any())


def _apart(calls: NDArray[np.int64], slopes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns new labels of calls, equal if the old labels and the growth of their numbers (`slopes`) are equal."""
    if not slopes.any():
        return calls
    rows = np.column_stack((calls, slopes))
    return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
