"""What tasks mean where loops of time, ranges of data and indices that cancel meet: as the kernels say it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernelscape.kernels.interpret.reference import run_reference
from kernelscape.kernels.language.kernel import kernel, types
from kernelscape.kernels.language.record import record_sequence
from kernelscape.kernels.offload.pipeline import normalise
from kernelscape.testing.run_tasks import run_tasks

nd: Any = types.ndarray()
N, STEPS = 23, 17


@kernel
def adds_one_of_a_step(x: nd, y: nd, k: nd, t: int):
    for i in range(k[0]):
        y[i] += x[t]


def length_of_data_and_index_of_a_step(x, y, k):
    """The loop may be longer than the array that each iteration reads an element of."""
    for t in range(STEPS):
        adds_one_of_a_step(x, y, k, t)


@kernel
def loops_of_loops(x: nd, y: nd, k: nd, t: int):
    for i in range(k[0]):
        for j in range(t - i):
            y[i] += x[j]


def length_of_data_around_one_of_a_step(x, y, k):
    for t in range(STEPS):
        loops_of_loops(x, y, k, t)


@kernel
def sum_at_an_index_that_cancels(x: nd, y: nd, k: nd):
    for i in range(5):
        y[i - i + 1] += x[i]


def cancelled(x, y, k):
    sum_at_an_index_that_cancels(x, y, k)


@kernel
def sums_of_a_triangle(x: nd, y: nd, k: nd):
    for t in range(2):
        for i in range(3):
            for j in range(i - i, 2 * i + 1):
                y[j] += x[t]
        for i in range(t % 3, 17 - t):
            if x[16 - t] != 1.0:
                y[t + 2] = x[i]


def summed_over_what_bounds_a_range(x, y, k):
    sums_of_a_triangle(x, y, k)


@pytest.mark.parametrize(
    "sequence",
    [
        length_of_data_and_index_of_a_step,
        length_of_data_around_one_of_a_step,
        cancelled,
        summed_over_what_bounds_a_range,
    ],
)
def test_tasks_mean_what_their_kernels_do(sequence: Callable[..., None]) -> None:
    arrays = {"x": np.arange(STEPS) + 1.0, "y": np.ones(N), "k": np.array([21], np.int32)}
    recording = record_sequence(sequence, tuple(arrays.values()))
    problem = normalise(recording)
    want, found = run_reference(recording, arrays, {}), run_tasks(problem, arrays, {})
    assert not np.array_equal(want["y"], arrays["y"])
    np.testing.assert_array_equal(found["y"], want["y"])
