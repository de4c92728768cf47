"""Rounding analysis by random perturbation: tolerances of results, and elements that lie on a branch.

The tolerance of `verify.py` covers sums. A recurrence, a division or a difference may amplify each rounding far more. A threshold
turns one unit in the last place into another value. So if a candidate exceeds that tolerance, the reference runs again: once in
the types of the sequence, and if need be several times with every rounded result moved by a unit in the last place, up or down at
random (kernels/interpret/moved.py). This is done at the first need, and for one input set: most sequences never need it.

The run in the types of the sequence is the program itself: its values are right, however many of them a candidate has. Where it
leaves the tolerance at few elements only, these are looked at first. This is stricter than perturbed runs, and often enough.

The perturbed runs can show two different things for an element.

They spread. Rounding is amplified more than by sums, and a candidate may lie `MARGIN` times as far from the reference as the
farthest of the runs among 64 neighbours. With four samples of a normal distribution a factor of 8.3 covers 99 % of it with a
confidence of 95 % (Howe, Two-sided tolerance limits for normal populations, 1969; Sohier et al., Confidence intervals for
stochastic arithmetic, 2021, apply this to Monte Carlo arithmetic). Neighbours make it many more samples than four. A unit in the
last place is 3.5 times the standard deviation of a rounding.

So one perturbed run has 64 samples, and it is compared first: of long programs a run takes seconds, and each input set needs its
own. One run does not tell a spread from a branch. Elements that are far off keep their plain tolerance at first, and their
neighbours do not see them. That is stricter than more runs.

They agree on a few values that lie far apart: the element lies on a branch. It is undecided, either side is right, and a
candidate must have one of these values, within the tolerance of its neighbours. Values at equal steps on both sides of the
expected one are a spread all the same: of a division by nearly zero a single rounding counts, which is moved by whole units. An
integer that is not equal in all runs is undecided, too. If it takes many values, as the steps of an orbit near the edge of a
Mandelbrot set, it may lie `MARGIN` times as far from them as they do. A candidate may have values of perturbed runs at a `share`
of the elements of an array, and at one in any case: more would be no verification.

If few elements are still wrong there are `_SAMPLES[-1]` runs, since the branch that a run takes is left to chance.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..api.outcome import UNDECIDED, Disagreement
from ..forked import Stopped
from .verify import Expected, UndecidedElements, allowed_error

Array = NDArray[Any]


class BegunRun(Protocol):
    """A run of the reference that is in progress."""

    def result(self) -> Mapping[str, Array]:
        """Waits, and returns the results in the dtypes of the sequence.

        Raises Stopped, IndexError and AssertionError.
        """

    def end(self) -> None:
        """Ends a run whose result is not needed."""


MARGIN = 8.0  # how much farther than any run the result of a candidate may lie
_SAMPLES = (0, 1, 4, 16)  # perturbed runs of each level
MEASURED = _SAMPLES.index(4) + 1  # the level that tells spreads from branches
# Share of elements up to which those of the unperturbed run are looked at by themselves.
_OWN_VALUES = 1e-2
_NEIGHBOURS = (
    64  # elements that are looked at together: a few samples of one may lie near by chance
)
_FEW_NEIGHBOURS = 8  # less say nothing of each other
_JUMP = (
    256.0  # how many times the noise of its neighbours an element must be off to lie on a branch
)
_SIDES = 3  # runs that have the same value, on the average: by chance few do
_UNEVEN = 0.1  # part of a step by which noise at equal steps may miss whole multiples of it
_CHUNK = 1 << 15  # elements looked at together, whose buffers stay in L2
_ONE_AT_A_TIME = threading.Lock()  # several workers may be prepared with one input set
_FEW = 1e-3  # share of wrong elements up to which more runs may show that they are undecided


@dataclass
class Rounding:
    """Lazy analysis: effects of rounding on the results of one input set.

    `plain` are the expected results before the analysis.
    """

    plain: Mapping[str, Expected]
    begin: Callable[[int | None], BegunRun]  # perturbed by a seed, or not; raises Stopped
    is_over: Callable[[], bool]
    share: float = UNDECIDED
    at_once: int = 1  # runs side by side

    def __post_init__(self) -> None:
        self._n_run = 0
        self._seen: dict[str, _Runs] = {}
        self._found: dict[int, Mapping[str, Expected]] = {0: self.plain}

    def is_worth(self, level: int, at: Disagreement) -> bool:
        """True if an analysis at `level` may show that the disagreement `at` is an effect of rounding."""
        is_few = at.n_wrong <= max(1.0, _FEW * at.n_elements)
        return level < len(_SAMPLES) or (level == len(_SAMPLES) and is_few)

    def expected(self, level: int) -> Mapping[str, Expected]:
        """Returns the expected values at a level: 0 without further runs, 1 without perturbed ones, each further level with more.

        Raises Stopped.
        """
        with _ONE_AT_A_TIME:
            if level not in self._found:
                self._take(_SAMPLES[level - 1])
                self._found[level] = {
                    name: self._expected(self._seen[name], level) if name in self._seen else e
                    for name, e in self.plain.items()
                }
            return self._found[level]

    def _expected(self, seen: _Runs, level: int) -> Expected:
        if not _SAMPLES[level - 1]:
            return seen.of_first_run()
        return seen.expected(self.share, tells_branches=level >= MEASURED)

    def _take(self, n: int) -> None:
        """Runs the reference plain, then perturbed, up to `n` perturbed runs.

        Runs that index out of range or do not end are skipped.
        """
        begun: deque[BegunRun] = deque()
        left = iter(range(self._n_run, n + 1))
        try:
            while self._n_run <= n:
                with np.errstate(all="ignore"):  # also in children
                    more = islice(left, self.at_once - len(begun))
                    begun.extend(self.begin(k or None) for k in more)
                sample = self._result(begun.popleft())
                self._n_run += 1
                self._add(sample)
        finally:
            for run in begun:
                run.end()

    def _result(self, run: BegunRun) -> Mapping[str, Array]:
        """Returns the results of a run; {} if it failed. Raises Stopped once `is_over`."""
        try:
            return run.result()
        except (IndexError, AssertionError):
            return {}
        except Stopped:
            if self.is_over():
                raise
            return {}

    def _add(self, sample: Mapping[str, Array]) -> None:
        for name, e in self.plain.items():
            if name in sample and sample[name].shape == e.want.shape and e.want.size:
                seen = self._seen.get(name)
                if seen is None:
                    seen = self._seen[name] = _Runs(e, sample[name].dtype)
                    if self._n_run > 1:  # the first one failed
                        seen.add(e.want)
                seen.add(sample[name])


class _Runs:
    """Runs of one output in the types of the sequence, the first without perturbation.

    For each element it stores the largest distance from the expected value, and for each run the elements outside the tolerance.
    """

    def __init__(self, plain: Expected, dtype: np.dtype[Any]) -> None:
        self._plain, self._dtype = plain, dtype
        self._want = plain.want.reshape(-1)
        self._is_float = plain.want.dtype.kind == "f"
        self._apart = np.zeros(self._want.size if self._is_float else 0)
        self._off: list[tuple[Array, Array]] = []  # of each run: places, values

    def add(self, sample: Array) -> None:
        """Adds the results of one run."""
        flat, places = sample.reshape(-1), []
        for start in range(0, flat.size, _CHUNK):
            part = slice(start, min(start + _CHUNK, flat.size))
            off = self._look(flat[part], part) if self._is_float else flat[part] != self._want[part]
            places.append(np.flatnonzero(off) + start)
        at = np.concatenate(places)
        self._off.append((at, flat[at]))

    def _look(self, sample: Array, part: slice) -> NDArray[np.bool_]:
        """Returns a mask of elements farther from the expected value than the plain tolerance; updates distances.

        `part`: the elements of the flat output to which `sample` belongs.
        """
        want = self._want[part]
        with np.errstate(invalid="ignore", over="ignore"):
            far = np.abs(np.subtract(sample, want, dtype=np.float64))
        if not np.isfinite(far.max()):
            same = (sample == want) | (np.isnan(sample) & np.isnan(want))
            far = np.where(same, 0.0, np.nan_to_num(far, nan=np.inf, posinf=np.inf))
        np.maximum(self._apart[part], far, out=self._apart[part])
        off: NDArray[np.bool_] = far > allowed_error(self._plain, self._dtype, part)
        return off

    def of_first_run(self) -> Expected:
        """Returns the expected values, or in their place those of the first run where these are others.

        They are unchanged if the values of that run are others at more than a few elements: it carries rounding far, then.
        """
        at, values = self._off[0]
        if not 0 < at.size <= max(1.0, _OWN_VALUES * self._want.size):
            return self._plain
        either = UndecidedElements(at, values[:, None], np.zeros(at.size), n_allowed=0)
        return replace(self._plain, branches=either)

    def expected(self, share: float, *, tells_branches: bool) -> Expected:
        """Returns the expected values with the tolerances and branches that the runs show.

        They are unchanged if the runs show nothing. `share`: part of the elements that a candidate may have on another branch.
        `tells_branches`: the runs are enough to tell a spread from a branch.
        """
        plain = self._plain
        if not self._is_float:
            at = np.unique(np.concatenate([places for places, _ in self._off]))
            return (
                replace(plain, branches=self._branches(at, share, tells_branches))
                if at.size
                else plain
            )
        base = np.asarray(allowed_error(plain, self._dtype)).reshape(-1)
        if not (self._apart > base / MARGIN).any():
            return plain
        (silent, alone), apart = self._silent(base, tells_branches), self._apart.copy()
        apart[silent] = apart[alone] = 0.0  # they say nothing of their neighbours
        allowed = np.maximum(MARGIN * _of_neighbours(apart), base)
        allowed[alone] = np.maximum(allowed[alone], MARGIN * self._apart[alone])
        allowed = allowed.reshape(plain.want.shape)
        scale = plain.factor * float(np.finfo(self._dtype).eps)
        found = replace(plain, magnitude=allowed / scale)
        if tells_branches:
            return replace(found, branches=self._branches(silent, share, tells_branches))
        return replace(found, branches=self.of_first_run().branches)

    def _silent(self, base: Array, tells_branches: bool) -> tuple[Array, Array]:
        """Returns the sorted indices of elements on a branch, and of those that spread by themselves.

        On a branch values are few and far apart. A spread is at equal steps. Without `tells_branches` all that are far off count as
        on a branch. `base`: plain tolerance of the elements.
        """
        at = np.flatnonzero(self._apart > _JUMP * base)
        own = np.broadcast_to(base, self._apart.shape)[at]
        noise = np.maximum(own, MARGIN * _typical(self._apart, at))
        is_far = self._apart[at] > _JUMP * noise
        at, noise = at[is_far], noise[is_far]
        if at.size == 0 or not tells_branches:
            return at, at[:0]
        largest = np.finfo(np.float64).max
        values = np.concatenate([self._want[at, None], self._values(at)], axis=1, dtype=np.float64)
        values = np.nan_to_num(values, nan=np.inf, posinf=largest, neginf=-largest)
        with np.errstate(invalid="ignore", over="ignore"):
            steps = np.diff(np.sort(values, axis=1), axis=1) > noise[:, None]
        n_values = 1 + np.count_nonzero(steps, axis=1)
        is_few = n_values <= values.shape[1] // _SIDES
        is_even = _are_at_equal_steps(values, steps)
        return at[is_few & ~is_even], at[is_few & is_even]

    def _branches(self, at: Array, share: float, tells_branches: bool) -> UndecidedElements | None:
        if at.size == 0:
            return None
        values, reach = self._values(at), np.zeros(at.size)
        if not self._is_float and tells_branches:
            every = np.sort(np.column_stack([self._want[at], values]), axis=1)
            n_values = 1 + np.count_nonzero(np.diff(every, axis=1), axis=1)
            width = every[:, -1].astype(np.float64) - every[:, 0].astype(np.float64)
            reach = np.where(n_values > every.shape[1] // _SIDES, MARGIN * width, 0.0)
        return UndecidedElements(at, values, reach, max(1, int(share * self._want.size)))

    def _values(self, at: Array) -> Array:
        """Returns the values of each run at these indices, one row per index.

        A run within the tolerance counts with the expected value.
        """
        columns = []
        for places, values in self._off:
            column = self._want[at].astype(self._dtype)
            if places.size:
                k = np.minimum(np.searchsorted(places, at), places.size - 1)
                column = np.where(places[k] == at, values[k], column)
            columns.append(column)
        return np.stack(columns, axis=1)


def _are_at_equal_steps(values: Array, steps: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """True for rows of values that lie whole multiples of one step apart, on both sides of the first value.

    `steps`: where the sorted values of a row jump. Such values are noise of a few amplified roundings, not sides of a branch.
    """
    expected = values[:, :1]
    with np.errstate(invalid="ignore", over="ignore"):
        gaps = np.where(steps, np.diff(np.sort(values, axis=1), axis=1), 0.0)
        least = np.where(steps, gaps, np.inf).min(axis=1, keepdims=True)
        in_steps = gaps / least
        are_whole = (np.abs(in_steps - np.round(in_steps)) < _UNEVEN).all(axis=1)
        is_below = (values < expected - least / 2).any(axis=1)
        is_above = (values > expected + least / 2).any(axis=1)
    found: NDArray[np.bool_] = are_whole & is_below & is_above
    return found


def branch_sentences(expected: Mapping[str, Expected]) -> tuple[str, ...]:
    """Returns one sentence for each array with elements on a branch."""
    found = []
    for name, e in expected.items():
        if e.branches is not None:
            n, verb = e.branches.at.size, "lies" if e.branches.at.size == 1 else "lie"
            found.append(f"{n:,} of {e.want.size:,} elements of {name} {verb} on a branch")
    return tuple(found)


def branch_notes(by_set: Mapping[int, tuple[str, ...]]) -> tuple[str, ...]:
    """Returns the sentences of `branch_sentences` for several input sets, each with the set's number."""
    return tuple(f"input set {k}: {s}" for k in sorted(by_set) for s in by_set[k])


def _of_neighbours(apart: Array) -> Array:
    """Returns for each element the larger of its own distance and the largest finite one in its block."""
    starts = np.arange(0, apart.size, _NEIGHBOURS)
    most = np.maximum.reduceat(np.where(np.isfinite(apart), apart, 0.0), starts)
    found: Array = np.maximum(apart, np.repeat(most, np.diff(starts, append=apart.size)))
    return found


def _typical(apart: Array, at: Array) -> Array:
    """Returns the median distance in the block of each index; 0 if the block is too small."""
    blocks, inverse = np.unique(at // _NEIGHBOURS, return_inverse=True)
    found = np.zeros(blocks.size)
    for k, block in enumerate(blocks):
        around = apart[block * _NEIGHBOURS : (block + 1) * _NEIGHBOURS]
        if around.size >= _FEW_NEIGHBOURS:
            found[k] = np.median(around)
    typical: Array = np.where(np.isfinite(found), found, 0.0)[inverse]
    return typical
