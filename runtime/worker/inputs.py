"""Construction of input sets for a recorded sequence, with the expected results.

Set 0 holds the caller's own arguments and is the one that is timed; further arguments of the caller follow. The next holds small
integers: if the sequence is linear its results are exact in any order of summation, so that one lost element is detected. All
others hold values of mixed sign. With huge arguments only the integers are verified: they show more than any tolerance on 2^26
summands does.

Arrays that decide the control flow of a program (`Influence.steering`) are not drawn but taken from the caller. Integers stay,
floats change a little: so no pivot becomes zero, no index is out of range, and lists keep their order. If a set still leads to
NaN or infinite results, all of it is taken from the caller, and changed less and less.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...kernels.fields.canonical_state import canonical, without_inactive
from ...kernels.frontend.recorder import Recording
from ...kernels.ir.kernel import Binary, Const, DType, Unary
from ...kernels.ir.task import Problem
from ...kernels.ir.walk import rewrite
from ...kernels.tasks.flow import Influence, flow_of
from ...kernels.tasks.naive_activation import as_run, cell_by_cell
from ..api.outcome import UNDECIDED
from .input_sets import InputSet, InputSets
from .rounding import Rounding
from .verify import (
    Expected,
    integers_like,
    near,
    poison_value,
    signed_like,
    tolerance_factor,
)

if TYPE_CHECKING:
    from ..reference import Reference, RunApart

Array = NDArray[Any]
Number = float | int | bool
Range = tuple[int | float, int | float]  # of integers whole numbers: a float has not all of 64 bits

_MANY_BYTES = 64 << 20  # from here on checking costs more than running: two sets are enough
_HUGE_BYTES = 192 << 20  # from here on one: memory fresh from the system costs up to 2 s a GB
_CHANGES = (0.25, 2**-5, 2**-9, 2**-14)  # relative changes of values that are not drawn
# Sums of integers up to here are exact in a type, a few of them.
_WHOLE = {DType.f16: 2.0**8, DType.f32: 2.0**20, DType.f64: 2.0**48}
_MOST_AT_ONCE = 4  # runs that measure rounding; each has copies of the arrays
_PERIODS = 2  # further sets, on the state after the previous one: an outdated sparse list shows only in the next
_CHUNK = 1 << 20  # elements looked at together, so that no temporary is large


class ArgumentsError(Exception):
    """Arguments do not fit the sequence. The message is one sentence."""


@dataclass(frozen=True)
class Arguments:
    """One set of arguments of a sequence: arrays and scalars by name."""

    arrays: Mapping[str, Array]
    scalars: Mapping[str, Number]


def ranges_of(arguments: Arguments) -> dict[str, Range]:
    """Returns the least and largest finite value of every array, by name."""
    found = {}
    for name, array in arguments.arrays.items():
        found[name] = _range(array)
    return found


def _range(array: Array) -> Range:
    if array.dtype.kind != "f":
        return (int(array.min()), int(array.max())) if array.size else (0, 0)
    if array.size and np.isfinite(low := float(array.min())) and np.isfinite(array.max()):
        return low, float(array.max())
    finite = array[np.isfinite(array)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


def draw(
    recording: Recording,
    ranges: Mapping[str, Range],
    scalars: Mapping[str, Number],
    rng: np.random.Generator,
) -> Arguments:
    """Returns random arguments with the shapes of the recording; elements are spread evenly over `ranges`."""
    arrays = {}
    for p in recording.arrays:
        low, high = ranges[p.name]
        if p.dtype.is_float:
            drawn = rng.random(p.shape, np.float64 if p.dtype is DType.f64 else np.float32)
            arrays[p.name] = between(low, high, drawn).astype(p.dtype.numpy, copy=False)
        else:
            arrays[p.name] = _whole(low, high, p.shape, p.dtype.numpy, rng)
    return Arguments(arrays, dict(scalars))


def between(low: float, high: float, share: Array) -> Array:
    """Returns floats low + share * (high - low), computed without overflow, in the dtype of `share`."""
    if high - low <= float(np.finfo(share.dtype).max):
        return share * (high - low) + low
    return share * high + (1 - share) * low  # the way is longer than the type is wide


def whole_ends(low: float, high: float, dtype: np.dtype[Any]) -> tuple[int, int]:
    """Returns the ends of a range as integers of `dtype`; floats of older files just outside are clamped."""
    least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    first, last = (min(max(int(x), int(least)), int(most)) for x in (low, high))
    return first, last


def _whole(
    low: float, high: float, shape: tuple[int, ...], dtype: np.dtype[Any], rng: np.random.Generator
) -> Array:
    """Returns random integers from `low` to `high`."""
    least, most = whole_ends(low, high, dtype)
    return rng.integers(least, most, shape, dtype, endpoint=True)


def make_input_sets(
    recording: Recording,
    problem: Problem,
    first: Arguments,
    rng: np.random.Generator,
    n_sets: int = 3,
    reference: Reference | None = None,
    is_enough: Callable[[], bool] = lambda: False,
    more: Sequence[Arguments] = (),
    undecided: float = UNDECIDED,
) -> InputSets:
    """Returns all input sets for the verification and timing of a problem's candidates.

    `first`, the caller's arguments, is not changed. `more` are further arguments of the caller. `undecided` is the share of an
    array's elements that may lie on branches. Once `is_enough`, no further sets are made. Raises ArgumentsError if the caller's
    arguments lead to an index out of range or fail an assertion.
    """
    reference = reference or _new_reference()
    made = unrounded_input_sets(recording, problem, first, rng, n_sets, reference, is_enough, more)
    return with_rounding(recording, made, reference, undecided)


def with_rounding(
    recording: Recording,
    made: InputSets,
    reference: Reference | None = None,
    undecided: float = UNDECIDED,
    is_over: Callable[[], bool] = lambda: False,
) -> InputSets:
    """Returns the input sets, with a lazy analysis of how rounding changes their results.

    It runs when a candidate first differs from a result.
    """
    used, recording = reference or _new_reference(), as_run(cell_by_cell(recording))

    def measurable(s: InputSet) -> InputSet:
        def begin(seed: int | None) -> RunApart:
            finish = partial(canonical, recording.trees)
            return used.begin_apart(recording, s.arrays, s.scalars, seed, is_over, finish)

        at_once = min(_MOST_AT_ONCE, len(os.sched_getaffinity(0)))
        return replace(s, rounding=Rounding(s.expected, begin, is_over, undecided, at_once))

    return replace(made, sets=tuple(measurable(s) if s.expected else s for s in made.sets))


def _new_reference() -> Reference:
    from ..reference import Reference  # brings LLVM, see `Worker`

    return Reference()


@np.errstate(over="ignore", invalid="ignore")  # arguments may lie at the ends of their types
def unrounded_input_sets(
    recording: Recording,
    problem: Problem,
    first: Arguments,
    rng: np.random.Generator,
    n_sets: int,
    reference: Reference,
    is_enough: Callable[[], bool],
    more: Sequence[Arguments],
) -> InputSets:
    """Returns the input sets of `make_input_sets` without analysis of rounding, so that they can be pickled."""
    recording = as_run(cell_by_cell(recording))
    roles = {p.name: problem.array(p.name).role for p in recording.arrays}
    n_bytes = sum(a.nbytes for a in first.arrays.values())
    is_huge = n_bytes > _HUGE_BYTES and n_sets > 1
    if n_bytes > _MANY_BYTES:
        n_sets = min(n_sets, 2)
    maker = _Maker(recording, problem, roles, reference)
    try:
        sets = [maker.unverified(first) if is_huge else maker.plain(first)]
        sets += [maker.plain(given) for given in more if not is_huge]
        sets += maker.later(first, 0 if is_huge else _PERIODS)
    except IndexError as e:
        raise ArgumentsError(f"with these arguments, {e}: no kernel may leave its arrays") from e
    except AssertionError as e:
        raise ArgumentsError(f"with these arguments, {e}") from e
    variants = _Variants(recording, first, maker.flow, roles, rng)
    for k in range(1, n_sets):
        if is_enough() and not is_huge:
            break
        for drawn in variants.tries(integers_like if k == 1 else signed_like):
            try:
                made = maker.exact(drawn) if k == 1 else maker.plain(drawn)
            except IndexError as e:  # which elements are reached may depend on values
                if is_huge:
                    raise ArgumentsError(
                        f"with drawn values, {e}: no kernel may leave its arrays"
                    ) from e
                continue
            except AssertionError:  # assertions may depend on values, too
                continue
            if is_huge or _n_lost(made) <= _n_lost(sets[0]):
                sets.append(made)
                break
    return InputSets(roles, tuple(sets), recording.trees)


def _n_lost(made: InputSet) -> int:
    """Returns the number of NaN and infinite expected values, including unwritten elements, equally many in every set."""
    floats = (e.want for e in made.expected.values() if e.want.dtype.kind == "f")
    return sum(int(a.size - np.count_nonzero(np.isfinite(a))) for a in floats)


@dataclass(frozen=True)
class _Variants:
    """Random variants of the caller's arguments `first`, with the same shapes."""

    recording: Recording
    first: Arguments
    flow: Influence
    roles: Mapping[str, str]
    rng: np.random.Generator

    def tries(self, fill: Callable[[Array, np.random.Generator], Array]) -> Iterator[Arguments]:
        """Yields variants, from freely drawn ones to ones that hardly differ from the caller's arguments.

        `fill` draws the contents of an array.
        """
        yield self._drawn(fill, self.flow.steering, _CHANGES[0])
        everything = frozenset((*self.first.arrays, *self.first.scalars))
        for change in _CHANGES:
            yield self._drawn(fill, everything, change)

    def _drawn(
        self,
        fill: Callable[[Array, np.random.Generator], Array],
        kept: frozenset[str],
        change: float,
    ) -> Arguments:
        arrays = {}
        for p in self.recording.arrays:
            given = self.first.arrays[p.name]
            is_placing = p.name in self.flow.placing or p.name in self.structure
            if is_placing or self.roles[p.name] == "output":
                arrays[p.name] = given  # an output begins as poison
            elif p.name not in kept:
                arrays[p.name] = (
                    fill(given, self.rng) if p.dtype.is_float else self._shuffled(given)
                )
            elif p.dtype.is_float:
                arrays[p.name] = near(given, change, self.rng)
            else:
                arrays[p.name] = given
        scalars = dict(self.first.scalars)
        for q in self.recording.scalars:
            if not q.dtype.is_float or q.name in self.flow.placing:
                continue
            if q.name in kept:
                scalars[q.name] = _scaled(
                    scalars[q.name], 1 + change * self.rng.uniform(-1, 1), q.dtype
                )
            else:
                whole = fill is integers_like
                size = int(self.rng.integers(1, 4)) if whole else float(self.rng.uniform(0.3, 1))
                scalars[q.name] = size if self.rng.random() < 0.5 else -size
        return Arguments(without_inactive(self.recording.trees, arrays), scalars)

    @cached_property
    def structure(self) -> frozenset[str]:
        """Names of arrays with activity masks and slots of sparse fields."""
        return frozenset(
            name
            for used in self.recording.trees
            for key, name in used.sections
            if not key.startswith("field")
        )

    def _shuffled(self, given: Array) -> Array:
        """Returns random integers in the range of `given`, with its shape."""
        low, high = _range(given)
        return _whole(low, high, given.shape, given.dtype, self.rng)


def _scaled(x: Number, by: float, dtype: DType) -> float:
    """Returns the product x * by; x itself if the product overflows `dtype`."""
    with np.errstate(over="ignore"):
        scaled = float(dtype.numpy.type(x * by))
    return scaled if np.isfinite(scaled) else float(x)


class _Maker:
    """Creates input sets of one sequence, with expected results from a reference in float64."""

    def __init__(
        self,
        recording: Recording,
        problem: Problem,
        roles: Mapping[str, str],
        reference: Reference,
    ) -> None:
        self._recording = recording
        self._reference = reference
        self._roles = roles
        sums = [t for t in problem.tasks if t.is_reduction]
        extents = ([x.extent for x in t.loops if x.is_reduction] for t in sums)
        self._n_stages, self._n_summands = len(sums), max(map(prod, extents), default=1)
        self.flow = flow_of(recording)
        self._last: tuple[Arguments, dict[str, Array]] | None = None

    def unverified(self, given: Arguments) -> InputSet:
        """Returns an input set for timing only, without expected results."""
        return InputSet(self._before(given), dict(given.scalars), {})

    def plain(self, given: Arguments) -> InputSet:
        """Returns an input set whose tolerances are the rounding errors of partial results."""
        arrays = self._before(given)
        return self._set(arrays, given, self._run(arrays, given))

    def later(self, given: Arguments, n: int) -> Iterator[InputSet]:
        """Yields input sets whose arguments are the states after 1 to `n` runs of a sequence on sparse fields.

        It ends earlier if a growing tree becomes full.
        """
        for _ in range(n if self._recording.trees else 0):
            try:
                found = self._found(self._before(given), given)
                arrays = {
                    p.name: found[p.name].astype(p.dtype.numpy, copy=False)
                    for p in self._recording.arrays
                }
                given = Arguments(arrays, given.scalars)
                made = self.plain(given)
            except AssertionError:
                return
            yield made

    def _run(self, arrays: Mapping[str, Array], given: Arguments) -> dict[str, Array]:
        """Runs the reference and returns its results in canonical form, in which results are compared."""
        return canonical(self._recording.trees, self._found(arrays, given))

    def _found(self, arrays: Mapping[str, Array], given: Arguments) -> dict[str, Array]:
        """Returns all arrays after a run of the reference; those of the last run for the same arguments."""
        if self._last is None or self._last[0] is not given:
            self._last = None  # two of them would take memory
            self._last = given, self._reference.run(self._recording, arrays, given.scalars)
        return self._last[1]

    def _compared(self, found: Mapping[str, Array]) -> list[str]:
        """Returns the names of compared results: written arrays and states of trees."""
        recording = self._recording
        known = {p.name for p in (*recording.arrays, *recording.temps)}
        return [n for n in found if n not in known or self._roles.get(n, "input") != "input"]

    def exact(self, given: Arguments) -> InputSet:
        """Returns the input set of `plain`, with almost no tolerance if all its results are exact integers."""
        arrays = self._before(given)
        found = self._run(arrays, given)
        if not self._is_exact(found):
            return self._set(arrays, given, found)
        wanted = {
            name: Expected(
                # Exact, so that the dtype of the output holds it.
                found[name].astype(given.arrays.get(name, found[name]).dtype),
                factor=2.0,
                magnitude=_largest(found[name]),
            )
            for name in self._compared(found)
        }
        return InputSet(arrays, dict(given.scalars), wanted)

    def _set(
        self, arrays: Mapping[str, Array], given: Arguments, found: Mapping[str, Array]
    ) -> InputSet:
        sizes = self._sizes(arrays, given, found)
        wanted = {
            name: self._expected(name, found[name], max(sizes[name], _largest(found[name])))
            for name in self._compared(found)
        }
        return InputSet(arrays, dict(given.scalars), wanted)

    def _expected(self, name: str, want: Array, size: float) -> Expected:
        """Returns the expected values `want` with a tolerance for the rounding of sums.

        `size`: magnitude of partial results.
        """
        if want.dtype.kind != "f":
            return Expected(want, 0.0)
        dtype = next(p.dtype for p in self._recording.arrays if p.name == name)
        own_eps, coarsest = _eps(dtype), _eps(self.flow.coarsest[name])
        factor = tolerance_factor(self._n_stages, self._n_summands, own_eps)
        return Expected(want, factor, size * max(1.0, coarsest / own_eps))

    def _before(self, given: Arguments) -> dict[str, Array]:
        """Returns the arrays before the call. Outputs hold the poison value, as in every verified run."""
        return {
            # One element seen everywhere: it takes no memory.
            name: np.broadcast_to(
                np.array(poison_value(given.arrays[name].dtype), given.arrays[name].dtype),
                given.arrays[name].shape,
            )
            if role == "output"
            else given.arrays[name]
            for name, role in self._roles.items()
        }

    @cached_property
    def _has_sizes(self) -> bool:
        """True if magnitudes should be computed by a run on absolute values.

        If all results feed themselves, such a run gives none, and would only cost the time of compilation.
        """
        written = {name for name, role in self._roles.items() if role != "input"}
        says_nothing = not self._recording.trees and self.flow.sensitive.issuperset(written)
        return not (says_nothing and self._reference.compiles(self._recording))

    @cached_property
    def _absolute(self) -> Recording:
        return _absolute(self._recording)

    def _sizes(
        self, arrays: Mapping[str, Array], given: Arguments, found: Mapping[str, Array]
    ) -> dict[str, float]:
        """Returns the magnitude of each array's partial results, by name.

        It is from a run on absolute values, or the largest element of the result. Magnitudes of results that feed themselves or
        come from a division may grow without limit: then the largest element counts. A sum of n numbers of mixed sign is about
        sqrt(n) times smaller than the sum of their magnitudes.
        """
        written = self._compared(found)
        own = {name: _largest(found[name]) for name in written}
        flow = self.flow
        if not self._has_sizes:
            return own
        absolute = {n: np.abs(a) if a.dtype.kind == "f" else a for n, a in arrays.items()}
        scalars = {
            p.name: abs(given.scalars[p.name]) if p.dtype.is_float else given.scalars[p.name]
            for p in self._recording.scalars
        }
        with np.errstate(all="ignore"):
            summed = canonical(
                self._recording.trees,
                self._reference.run(self._absolute, absolute, scalars),
            )
        most = 4.0 * max((a.size for a in arrays.values()), default=1) ** 0.5
        sizes = {}
        for name in written:
            size = _largest(summed[name]) if name in summed else own[name]
            is_told = name not in flow.sensitive or size <= most * own[name]
            sizes[name] = max(own[name], size) if is_told else own[name]
        return sizes

    def _is_exact(self, found: Mapping[str, Array]) -> bool:
        """True if all results are integers so small that partial sums are exact, too; the inputs are integers."""
        for p in (*self._recording.arrays, *self._recording.temps):
            if p.dtype.is_float and self._roles.get(p.name) != "input":
                limit = _WHOLE[p.dtype]
                flat = found[p.name].reshape(-1)
                for start in range(0, flat.size, _CHUNK):
                    part = flat[start : start + _CHUNK]
                    is_whole = (np.rint(part) == part) | np.isnan(part)
                    # The remainder of a division by 1 takes ten times as long.
                    if np.fmax.reduce(np.abs(part)) >= limit or not is_whole.all():
                        return False
        return True


def _eps(dtype: DType) -> float:
    return float(np.finfo(dtype.value).eps)


def _absolute(recording: Recording) -> Recording:
    """Returns the sequence without cancellation: differences become sums, constants become positive."""

    def change(x: Any) -> Any:
        match x:
            case Binary(op="sub", dtype=dtype) if dtype.is_float:
                return replace(x, op="add")
            case Unary(op="neg", dtype=dtype) if dtype.is_float:
                return x.x
            case Const(dtype=dtype) if dtype.is_float:
                return replace(x, value=abs(x.value))
            case _:
                return x

    return rewrite(recording, change)


def _largest(array: Array) -> float:
    """Returns the largest finite magnitude of an element; 0 if there is none."""
    if array.size == 0:
        return 0.0
    with np.errstate(invalid="ignore"):
        top = float(np.fmax(float(array.max()), -float(array.min())))
    if np.isfinite(top):
        return top
    finite = array[np.isfinite(array)]
    return float(np.abs(finite).max()) if finite.size else 0.0
