"""`range(a, b, step)` with a step that only a run knows: forwards and backwards as Python has it, and 0 is one sentence.

The kind: what Python's range takes, and a kernel refuses or goes through in another way.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape import errors
from kernelscape.kernels.interpret.executor import interpret

nd: Any = ks.types.ndarray()
N = 12


@ks.kernel
def marked(y: nd, low: int, high: int, step: int):
    for i in range(low, high, step):
        y[i] += i + 1


@ks.kernel
def in_order(y: nd, low: int, high: int, steps: nd):
    last = 0
    for _ in range(1):
        for i in range(low, high, steps[0]):
            y[i] = 100 * i + last
            last = i
            steps[0] = 3  # too late: a range is what it was when it began


@ks.kernel
def until(y: nd, low: int, high: int, step: int):
    for _ in range(1):
        for i in range(low, high, step):
            if i == 6:
                break
            y[i] = 1


def in_python(fn: Any, y: Any, low: int, high: int, step: int) -> None:
    last = 0
    for i in range(low, high, step):
        if fn is until and i == 6:
            break
        y[i] = {"marked": i + 1, "in_order": 100 * i + last, "until": 1}[fn.name]
        last = i


BOUNDS = [
    (low, high, step) for low, high, step in product((0, 3, 11), (-1, 0, 5, 12), (1, 2, 5, -1, -3))
]


@pytest.mark.parametrize("fn", [marked, in_order, until])
def test_ranges_are_pythons(fn: Any) -> None:
    for low, high, step in BOUNDS:
        want = np.zeros(N, np.int64)
        in_python(fn, want, low, high, step)
        for ways in (False, True):
            got = np.zeros(N, np.int64)
            given = np.array([step]) if fn is in_order else step
            if ways:
                with interpret():
                    fn(got, low, high, given)
            else:
                fn(got, low, high, given)
            np.testing.assert_array_equal(got, want, str((low, high, step)))


def test_a_step_of_zero_is_a_sentence() -> None:
    y = np.zeros(N, np.int64)
    sentence = r"test_steps_of_the_run.py:\d+: the step of range is 0 in `range\(low, high, step\)`"
    for kind in (ValueError, AssertionError, errors.KernelRuntimeValueError):
        with pytest.raises(kind, match=sentence):
            marked(y, 0, 5, 0)
    with interpret(), pytest.raises(errors.KernelRuntimeValueError, match=sentence):
        marked(y, 0, 5, 0)
    assert not y.any()
    marked(y, 0, 5, 1)  # a call that failed leaves nothing behind
    assert list(y[:5]) == [1, 2, 3, 4, 5]


def test_in_a_program_and_in_debug_mode() -> None:
    for debug in (False, True):
        ks.init(debug=debug)
        y = ks.field(ks.i32, shape=N)

        @ks.kernel
        def fill(step: ks.i32):
            for i in range(N - 1, -1, step):
                y[i] = i  # noqa: B023 - of this program

        fill(-4)
        assert list(y.to_numpy()) == [0, 0, 0, 3, 0, 0, 0, 7, 0, 0, 0, 11]
        with pytest.raises(errors.KernelRuntimeValueError, match="the step of range is 0"):
            fill(0)
    ks.reset()


def test_a_known_step_of_zero_is_a_value_error() -> None:
    @ks.kernel
    def never(y: nd):
        for i in range(0, 4, 0):
            y[i] = 1

    with pytest.raises(ValueError, match="the step of range is 0") as caught:
        never(np.zeros(4))
    assert isinstance(caught.value, errors.KernelValueError)


@ks.kernel
def striped(x: nd, y: nd, first: int, step: int):
    for i in range(first, x.shape[0], step):
        y[i] = 2.0 * x[i]


@ks.kernel
def after(y: nd, z: nd):
    for i in range(y.shape[0]):
        z[i] = y[i] + 1.0


def stripes(x: nd, y: nd, z: nd, first: int, step: int) -> None:
    striped(x, y, first, step)
    after(y, z)


@pytest.mark.compiler
@pytest.mark.parametrize("step", [3, -2])
def test_a_sequence_with_such_a_range_is_explored(step: int, tmp_path: Path) -> None:
    def arguments() -> list[Any]:
        return [np.arange(60.0), np.zeros(60), np.zeros(60), 1, 3]

    run = ks.explore(stripes, *arguments(), max_evals=2, directory=tmp_path / "run")
    x, y, z, first, _ = arguments()
    run.best.compile()(x, y, z, first, step)
    want = np.zeros(60)
    want[list(range(first, 60, step))] = 2.0 * x[list(range(first, 60, step))]
    np.testing.assert_array_equal(y, want)
    np.testing.assert_array_equal(z, want + 1.0)


def test_a_step_of_zero_ends_an_exploration_with_a_sentence(tmp_path: Path) -> None:
    given = [np.arange(9.0), np.zeros(9), np.zeros(9), 1, 0]
    with pytest.raises(errors.ArgumentsError, match="the step of range is 0"):
        ks.explore(stripes, *given, max_evals=1, directory=tmp_path / "run")
