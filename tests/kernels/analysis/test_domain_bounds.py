"""Where iterations of tasks do nothing, against enumeration."""

from __future__ import annotations

from itertools import combinations, product
from math import prod
from typing import Any

import numpy as np
import pytest
from kernelscape.kernels.analysis.domain_bounds import branch_cuts, cuts_of, finish_cuts, points
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.body import FAR
from kernelscape.kernels.ir.task import Task
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.bound.operations import SureOperations, named_flops
from kernelscape.search.bound.traffic import read_bytes, written_bytes

nd: Any = types.ndarray()


@kernel
def lower(x: nd, y: nd):
    for i in range(x.shape[0]):
        for j in range(i + 1):
            acc = 0.0
            for k in range(x.shape[1]):
                acc += y[i, k] * y[j, k]
            x[i, j] = acc


@kernel
def behind(x: nd, y: nd):
    for j in range(y.shape[1]):
        for i in range(x.shape[0]):
            acc = 0.0
            for k in range(i + 1, x.shape[0]):
                acc += x[k, i] * x[k, j]
            y[i, j] = acc


@kernel
def wedge(x: nd, y: nd):
    for i in range(x.shape[0]):
        for j in range(2 * i, x.shape[1]):
            for k in range(j - i):
                y[i, 0] += x[k, j]


@kernel
def scaled(x: nd, y: nd):
    for i in range(x.shape[0]):
        for j in range(x.shape[1] - i):
            y[i, j] = 2.0 * x[j, i]


@kernel
def nowhere(x: nd, y: nd):
    for i in range(x.shape[0]):
        for j in range(x.shape[0]):
            for k in range(x.shape[1]):
                if i + j > 2 * x.shape[0]:
                    x[i, k] += y[j, k]


def tasks_of(fn: Any, n: int) -> tuple[Any, Task]:
    arrays = (np.ones((n, n), np.float32), np.ones((n, n), np.float32))
    problem = normalise(record_sequence(fn, arrays, name="cuts"))
    (task,) = (t for t in problem.tasks if cuts_of(t))
    return problem, task


def iterations(task: Task) -> list[dict[str, int]]:
    """All within the cuts of a task, one by one."""
    names = [loop.name for loop in task.loops]
    found = (
        dict(zip(names, p, strict=True)) for p in product(*(range(x.extent) for x in task.loops))
    )

    def is_within(at: dict[str, int]) -> bool:
        for cut in cuts_of(task):
            value = cut.affine.const + sum(k * at[name] for name, k in cut.affine.terms)
            if not cut.low <= value < cut.high:
                return False
        return True

    return [at for at in found if is_within(at)]


@pytest.mark.parametrize("fn", [lower, behind, wedge, scaled, nowhere], ids=lambda f: f.__name__)
@pytest.mark.parametrize("n", [1, 2, 7, 12])
def test_points_are_those_within_all_cuts(fn: Any, n: int) -> None:
    if n == 1 and fn in (behind, wedge):
        return  # nothing is left of them
    _, task = tasks_of(fn, n)
    every = iterations(task)
    names = [loop.name for loop in task.loops]
    assert points(task) == len(every)
    for size in (1, 2, 3):
        for some in combinations(names, min(size, len(names))):
            seen = {tuple(at[name] for name in some) for at in every}
            assert points(task, some) <= len(seen)
            if len(names) - len(some) <= 1:
                assert points(task, some) == len(seen)


def test_cuts_are_what_ranges_say() -> None:
    _, task = tasks_of(lower, 9)
    (cut,) = finish_cuts(task)
    assert (dict(cut.affine.terms), cut.low, cut.high) == ({"i": -1, "j": 1}, -FAR, 1)
    assert branch_cuts(task) == ()
    _, task = tasks_of(behind, 9)
    (cut,) = branch_cuts(task)
    assert (dict(cut.affine.terms), cut.low, cut.high) == ({"i": -1, "k": 1}, 1, FAR)


def test_operations_and_bytes_are_those_of_the_triangle() -> None:
    n = 10
    area = n * (n + 1) // 2
    problem, task = tasks_of(lower, n)
    assert SureOperations().count(task)[0] == area * n + area * (n - 1)
    assert named_flops(task) == 2 * area * n
    assert written_bytes(task, problem.array("x")) == 4 * area
    assert read_bytes(task, problem.array("y")) == 4 * n * n
    problem, task = tasks_of(behind, n)
    assert SureOperations().count(task)[0] <= n * 2 * (area - n)
    assert named_flops(task) == n * 2 * (area - n)
    assert read_bytes(task, problem.array("x")) >= 4 * (area - n)
    problem, task = tasks_of(scaled, n)
    assert SureOperations().count(task)[0] == area
    assert written_bytes(task, problem.array("y")) == 4 * area
    assert prod(loop.extent for loop in task.loops) == n * n
