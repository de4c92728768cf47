"""What tasks mean where loops of time, ranges of data and indices that cancel meet: as the kernels say it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernelscape.kernels.analysis.effects import arrays_written
from kernelscape.kernels.analysis.speculation import may_blend
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.testing.interpreted import run_reference
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


@kernel
def row_that_is_chosen(x: nd, y: nd, k: nd, t: int):
    for i in range(STEPS):
        for j in range(STEPS):
            if i == t:
                y[j] = x[j]


def chosen(x, y, k):
    for t in range(STEPS):
        row_that_is_chosen(x, y, k, t)


@kernel
def moved_by_a_step(x: nd, y: nd, k: nd, t: int):
    for i in range(STEPS):
        if i + t < STEPS:
            y[i + 2 * t] = x[i]


def moved(x, y, k):
    for t in range(STEPS - 5):
        moved_by_a_step(x, y, k, t)
        moved_by_a_step(x, y, k, t)


@kernel
def every_other(x: nd, y: nd, k: nd, t: int):
    for i in range(STEPS):
        if (i + t) % 2 == 0:
            y[i] = x[i]


def alternating(x, y, k):
    for t in range(STEPS):
        every_other(x, y, k, t)


@pytest.mark.parametrize(
    ("sequence", "may"), [(chosen, False), (moved, False), (alternating, True)]
)
def test_iterations_store_what_was_there_where_no_other_does(
    sequence: Callable[..., None], may: bool
) -> None:
    """And inside of their array: else a thread may undo what another one stored, or store beside it."""
    arrays = (np.ones(STEPS), np.ones(N if sequence is not moved else 29), np.ones(1, np.int32))
    problem = normalise(record_sequence(sequence, arrays))
    assert {may_blend(t, problem) for t in problem.tasks if t.is_guarded} == {may}


@kernel
def sums_of_nothing(x: nd, y: nd, k: nd):
    for t in range(1):
        for i in range(2 * t, 4 - t):
            for j in range(5 - i, i + i):
                if 2 * j <= t:
                    acc = 1.0
                    for m in range(1, 4):
                        acc += x[m]
                    y[j + 2] = min(max(acc, -9.0), 9.0)


def summed_in_vain(x, y, k):
    sums_of_nothing(x, y, k)


def test_what_a_task_reads_somebody_writes() -> None:
    arrays = (np.ones(STEPS), np.ones(N), np.ones(1, np.int32))
    problem = normalise(record_sequence(summed_in_vain, arrays))
    written = set[str]().union(*map(arrays_written, problem.tasks))
    assert {a.name for a in problem.arrays if a.role == "temp"} <= written
