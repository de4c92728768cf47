"""The user's NumPy function for a sequence: it is compared with the kernels' results, then timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..kernels.frontend.complex_numbers import complex_of, is_complex_array, pairs_of
from ..kernels.frontend.truth_arrays import with_bytes
from ..runtime.api.outcome import FINAL
from ..runtime.forked import DiedError, Stopped, run_apart, shared_empty
from ..runtime.measure.timing import Sampler, measure
from ..runtime.records.stored import StoredParameter
from ..runtime.worker.input_sets import InputSet, InputSets
from ..runtime.worker.verify import Expected, find_mismatch, poison_value

_SLOW_S = 0.1  # a run that is timed fewer times
# How many times as far as a candidate it may be from ours: it may use another algorithm, but not compute something else.
_TOLERANCE = 100.0


class WrongReferenceError(Exception):
    """The user's function computes something other than the kernels; the message is one sentence."""


class FailedReferenceError(Exception):
    """The user's function cannot be called with the arguments of the sequence; the message is one sentence."""


@dataclass(frozen=True)
class ReferenceRun:
    """Results of running the user's function within its time limit.

    `time_ns` is the ns of one call, None if it was not timed. `is_compared` is True if its results were compared.
    """

    time_ns: float | None
    is_compared: bool


@dataclass(frozen=True)
class UserReference:
    """The user's function: it takes the arguments of a sequence and changes them in place.

    `args` are not changed.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]

    def look_at(
        self,
        parameters: Sequence[StoredParameter],
        input_sets: InputSets,
        is_over: Callable[[], bool] = lambda: False,
    ) -> ReferenceRun:
        """Compares the user's function with the kernels and times it, in a child process, until `is_over`.

        Raises WrongReferenceError and FailedReferenceError.
        """
        compared_s = shared_empty((1,), np.float64)

        def work() -> float:
            compared_s[0] = self.compare(parameters, input_sets)
            return self.time_ns(float(compared_s[0]))

        time_ns: float | None = None
        try:
            time_ns = run_apart(work, is_over)
        except DiedError as e:
            raise FailedReferenceError(
                f"the reference cannot be called as the sequence is: {e}"
            ) from e
        except Stopped:
            if not is_over():
                raise
        return ReferenceRun(time_ns, bool(compared_s[0]))

    def compare(self, parameters: Sequence[StoredParameter], input_sets: InputSets) -> float:
        """Compares the user's function on the first input set that has expected results; returns its seconds.

        Raises WrongReferenceError and FailedReferenceError.
        """
        made = next(s for s in input_sets.sets if s.expected)
        values = {
            p.name: self._value(p, given, made, input_sets)
            for p, given in zip(parameters, self.args, strict=False)
        }
        before = {name: values[name].copy() for name in made.expected}
        started_s = time.perf_counter()
        self._call(tuple(values.values()))
        took_s = time.perf_counter() - started_s
        for name, expected in made.expected.items():
            got = values[name]
            real = pairs_of(got) if is_complex_array(got) else with_bytes(got)
            found = find_mismatch(*_comparable(real, expected))
            if found is not None:
                found = find_mismatch(*_comparable(real, made.measured().expected[name]))
            if found is not None:
                is_untouched = np.array_equal(got, before[name], equal_nan=True)
                hint = ": it must write its results into its arguments" if is_untouched else ""
                raise WrongReferenceError(
                    f"the reference disagrees with the kernels: {name}{found}, where the first is of the"
                    f" reference{hint}"
                )
        return took_s

    def time_ns(self, run_s: float) -> float:
        """Returns the ns of one call, in this process, on copies of the arguments; `run_s`: estimated seconds of one."""
        kept = [a for a in self.args if isinstance(a, np.ndarray)]
        copies = tuple(a.copy() if isinstance(a, np.ndarray) else a for a in self.args)
        arrays = [c for c in copies if isinstance(c, np.ndarray)]

        def run(n: int) -> float:
            started_ns = time.perf_counter_ns()
            for _ in range(n):
                self.function(*copies)
            return float(time.perf_counter_ns() - started_ns)

        def restore() -> None:
            for array, values in zip(arrays, kept, strict=True):
                array[...] = values
            run(1)

        protocol = FINAL if run_s < _SLOW_S else replace(FINAL, min_samples=3, max_samples=3)
        return measure(Sampler(run, restore), protocol).time_ns

    def _value(self, p: StoredParameter, given: Any, made: InputSet, input_sets: InputSets) -> Any:
        if p.kind == "unseen":
            return np.array(given)
        if p.kind == "array":
            if input_sets.roles[p.name] == "output":
                return np.array(given)
            drawn = made.arrays[p.name]
            if p.is_truth:
                return drawn != 0
            return np.array(complex_of(drawn) if p.is_complex else drawn)
        return made.scalars[p.name] if p.kind == "scalar" else given

    def _call(self, values: tuple[Any, ...]) -> None:
        try:
            self.function(*values)
        except Exception as e:
            raise FailedReferenceError(
                f"the reference cannot be called as the sequence is: {type(e).__name__}: {e}"
            ) from e


def _comparable(got: Any, expected: Expected) -> tuple[Any, Expected]:
    """Returns the user's result, and the expected one with a scaled tolerance.

    Elements that the sequence does not write are replaced by the expected ones.
    """
    want = expected.want
    empty = np.isnan(want) if want.dtype.kind == "f" else want == poison_value(want.dtype)
    filled = np.where(empty, want, got).astype(got.dtype)
    return filled, replace(expected, factor=expected.factor * _TOLERANCE)
