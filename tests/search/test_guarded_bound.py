"""Sure work of assignments under conditions: counted by residues, and as nothing where values decide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.task import Problem
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.bound.operations import SureOperations
from kernelscape.search.bound.traffic import read_bytes, written_bytes

nd: Any = types.ndarray()
N = 66


@kernel
def sweep(z: nd, r: nd, colour: int):
    for i in range(1, z.shape[0] - 1):
        for j in range(1, z.shape[1] - 1):
            if (i + j) % 2 == colour:
                z[i, j] = 0.25 * (r[i, j] + z[i, j - 1] + z[i, j + 1])


@kernel
def positive(z: nd, r: nd, colour: int):
    for i in range(z.shape[0]):
        for j in range(z.shape[1]):
            if r[i, j] > 0.0:
                z[i, j] = 2.0 * r[i, j] + z[i, j]


@kernel
def everywhere(z: nd, r: nd, colour: int):
    for i in range(1, z.shape[0] - 1):
        for j in range(1, z.shape[1] - 1):
            z[i, j] = 0.25 * (r[i, j] + z[i, j])


def problem_of(*calls: tuple[Any, int]) -> Problem:
    def sequence(z, r):
        for fn, colour in calls:
            fn(z, r, colour)

    x = np.zeros((N, N), np.float32)
    return normalise(record_sequence(sequence, (x, x.copy()), name="one"))


def operations(problem: Problem) -> list[float]:
    counter = SureOperations()
    return [counter.count(task)[0] for task in problem.tasks]


def test_a_residue_counts_its_share() -> None:
    problem = problem_of((sweep, 0))
    (task,) = problem.tasks
    assert task.is_guarded
    assigned = (N - 2) * (N - 2) // 2
    assert written_bytes(task, problem.array("z")) == 4 * assigned
    assert operations(problem) == [3.0 * assigned]  # two sums and a product
    # Of each line of 16 elements 8 are wanted, at a boundary of rows 9.
    assert read_bytes(task, problem.array("r")) == -(-assigned // 9) * 64


def test_the_other_colour_is_other_work_and_the_same_one_is_not() -> None:
    first, second, third = operations(problem_of((sweep, 0), (sweep, 1), (sweep, 0)))
    assert (first > 0, second, third) == (True, first, 0.0)


def test_where_values_decide_nothing_of_the_assignment_is_sure() -> None:
    problem = problem_of((positive, 0))
    (task,) = problem.tasks
    assert operations(problem) == [N * N]  # that it compares is
    assert [written_bytes(task, a) for a in problem.arrays] == [0, 0]
    assert [read_bytes(task, a) for a in problem.arrays] == [0, 0]


@pytest.mark.parametrize("calls", [[(sweep, 0), (everywhere, 0)], [(everywhere, 0), (sweep, 0)]])
def test_guarded_and_whole_tasks_count_each_for_itself(calls: list[tuple[Any, int]]) -> None:
    assert all(n > 0 for n in operations(problem_of(*calls)))
