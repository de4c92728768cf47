"""Input sets for a recorded sequence, and what must come out of it.

Set 0 holds the caller's own arguments and is the one that is timed. The next holds small integers:
where the sequence is linear its results are exact in any order of summation, so that one lost
element shows. All others hold values of mixed sign. Of huge arguments only the integers are
verified: they show more than any tolerance on 2^26 summands does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.ir import Binary, Const, DType, Unary
from ..kernels.rewrite import rewrite
from ..kernels.sequence import Recording
from ..kernels.tasks import Problem
from .reference import Reference
from .verify import Expected, integers_like, poison_value, signed_like, tolerance_factor
from .worker import InputSet, Workload

Array = NDArray[Any]
Number = float | int | bool
Range = tuple[float, float]

_MANY_BYTES = 64 << 20  # from here on checking costs more than running: two sets are enough
_HUGE_BYTES = 192 << 20  # from here on one: memory fresh from the system costs up to 2 s a GB
_CHUNK = 1 << 20  # elements looked at together, so that no temporary is large


@dataclass(frozen=True)
class Arguments:
    """One set of arguments of a sequence, by name."""

    arrays: Mapping[str, Array]
    scalars: Mapping[str, Number]


def ranges_of(arguments: Arguments) -> dict[str, Range]:
    """Least and largest finite value of every array."""
    found = {}
    for name, array in arguments.arrays.items():
        found[name] = _range(array)
    return found


def _range(array: Array) -> Range:
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
    """Arguments with the shapes of the recording and values spread evenly over `ranges`."""
    arrays = {}
    for p in recording.arrays:
        low, high = ranges[p.name]
        if p.dtype.is_float:
            drawn = rng.random(p.shape, p.dtype.numpy)  # type: ignore[arg-type]
            arrays[p.name] = (drawn * (high - low) + low).astype(p.dtype.numpy, copy=False)
        else:
            arrays[p.name] = rng.integers(int(low), int(high) + 1, p.shape, p.dtype.numpy)
    return Arguments(arrays, dict(scalars))


def make_workload(
    recording: Recording,
    problem: Problem,
    first: Arguments,
    rng: np.random.Generator,
    n_sets: int = 3,
    reference: Reference | None = None,
    is_enough: Callable[[], bool] = lambda: False,
) -> Workload:
    """Everything that candidates of the problem are verified and timed on; `first` is not
    changed.

    Raises Stopped when the reference is ended. Once `is_enough` there are no more sets than there are.
    """
    reference = reference or Reference()
    roles = {p.name: problem.array(p.name).role for p in recording.arrays}
    n_bytes = sum(a.nbytes for a in first.arrays.values())
    is_huge = n_bytes > _HUGE_BYTES and n_sets > 1
    if n_bytes > _MANY_BYTES:
        n_sets = min(n_sets, 2)
    ranges = ranges_of(first)
    maker = _Maker(recording, problem, roles, reference)
    sets = [maker.unverified(first) if is_huge else maker.plain(first)]
    for k in range(1, n_sets):
        fill = integers_like if k == 1 else signed_like
        if is_enough() and not is_huge:
            break
        drawn = _vary(recording, ranges, first, rng, fill)
        sets.append(maker.exact(drawn) if k == 1 else maker.plain(drawn))
    return Workload(roles, tuple(sets))


def _vary(
    recording: Recording,
    ranges: Mapping[str, Range],
    first: Arguments,
    rng: np.random.Generator,
    fill: Callable[[Array, np.random.Generator], Array],
) -> Arguments:
    """Other values for all floats; integers, which may be indices, stay within their ranges."""
    arrays = {}
    for p in recording.arrays:
        if p.dtype.is_float:
            arrays[p.name] = fill(first.arrays[p.name], rng)
        else:
            low, high = ranges[p.name]
            arrays[p.name] = rng.integers(int(low), int(high) + 1, p.shape, p.dtype.numpy)
    scalars = dict(first.scalars)
    for q in recording.scalars:
        if q.dtype.is_float:
            size = int(rng.integers(1, 4)) if fill is integers_like else float(rng.uniform(0.3, 1))
            scalars[q.name] = size if rng.random() < 0.5 else -size
    return Arguments(arrays, scalars)


class _Maker:
    """Input sets of one sequence with what must come out, by a reference in float64."""

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
        self._stages = max(1, sum(t.is_reduction for t in problem.tasks))

    def unverified(self, given: Arguments) -> InputSet:
        """Arguments to time on, and nothing to compare with."""
        return InputSet(self._before(given), dict(given.scalars), {})

    def plain(self, given: Arguments) -> InputSet:
        """Right is what lies within the rounding of the partial results."""
        arrays = self._before(given)
        found = self._reference.run(self._recording, arrays, given.scalars)
        return self._set(arrays, given, found, self._sizes(arrays, given))

    def exact(self, given: Arguments) -> InputSet:
        """The same, but for integer results that are exact: hardly any error is allowed there."""
        arrays = self._before(given)
        found = self._reference.run(self._recording, arrays, given.scalars)
        if not self._is_exact(found):
            return self._set(arrays, given, found, self._sizes(arrays, given))
        wanted = {
            name: Expected(
                # Exact, so that the dtype of the output holds it.
                found[name].astype(given.arrays[name].dtype),
                factor=2.0,
                magnitude=_largest(found[name]),
            )
            for name, role in self._roles.items()
            if role != "input"
        }
        return InputSet(arrays, dict(given.scalars), wanted)

    def _set(
        self,
        arrays: Mapping[str, Array],
        given: Arguments,
        found: Mapping[str, Array],
        sizes: Mapping[str, float],
    ) -> InputSet:
        factor = tolerance_factor(0, signed=True, stages=self._stages)
        wanted = {
            name: Expected(found[name], factor, max(sizes[name], _largest(found[name])))
            for name, role in self._roles.items()
            if role != "input"
        }
        return InputSet(arrays, dict(given.scalars), wanted)

    def _before(self, given: Arguments) -> dict[str, Array]:
        """Outputs start as poison, in the reference as in every verified run."""
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

    def _sizes(self, arrays: Mapping[str, Array], given: Arguments) -> dict[str, float]:
        """The size of the partial results behind each array: a run on absolute values."""
        absolute = {n: np.abs(a) if a.dtype.kind == "f" else a for n, a in arrays.items()}
        scalars = {
            p.name: abs(given.scalars[p.name]) if p.dtype.is_float else given.scalars[p.name]
            for p in self._recording.scalars
        }
        with np.errstate(all="ignore"):
            found = self._reference.run(_absolute(self._recording), absolute, scalars)
        return {name: _largest(array) for name, array in found.items()}

    def _is_exact(self, found: Mapping[str, Array]) -> bool:
        """Whether all results are integers so small that partial sums of them are exact as well;
        the inputs are.
        """
        for p in (*self._recording.arrays, *self._recording.temps):
            if p.dtype.is_float and self._roles.get(p.name) != "input":
                limit = 2.0**20 if p.dtype is DType.f32 else 2.0**48
                flat = found[p.name].reshape(-1)
                for start in range(0, flat.size, _CHUNK):
                    part = flat[start : start + _CHUNK]
                    part = part[~np.isnan(part)]
                    if part.size and not (np.abs(part).max() < limit and (part % 1 == 0).all()):
                        return False
        return True


def _absolute(recording: Recording) -> Recording:
    """The sequence without cancellation: differences made sums, constants made positive."""

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
    """The largest finite size of an element; 0 where there is none."""
    if array.size == 0:
        return 0.0
    with np.errstate(invalid="ignore"):
        top = float(np.fmax(array.max(), -array.min()))
    if np.isfinite(top):
        return top
    finite = array[np.isfinite(array)]
    return float(np.abs(finite).max()) if finite.size else 0.0
