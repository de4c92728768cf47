"""Sums of the loops inside a body: in a local where nothing looks at the element meanwhile, and the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.kernel import For, If, Update
from kernelscape.kernels.ir.walk import nested_statements
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.testing.interpreted import run_reference
from kernelscape.testing.run_tasks import run_tasks

nd: Any = types.ndarray()
N = 6


@kernel
def of_rows(n: nd, x: nd, y: nd):
    for i in range(x.shape[0]):
        for j in range(n[i]):
            y[0] += x[i, j]


@kernel
def of_all(n: nd, x: nd, y: nd):
    for i in range(x.shape[0]):
        k = n[i]
        for j in range(x.shape[1]):
            y[k] += x[i, j]


@kernel
def of_some(n: nd, x: nd, y: nd):
    for i in range(x.shape[0]):
        k = n[i] * 1000  # beyond the array, but for those that are not updated
        for j in range(x.shape[1]):
            if k == 0:
                y[k] += x[i, j]


@kernel
def of_two(n: nd, x: nd, y: nd):
    for i in range(x.shape[0]):
        k = i // 2
        for j in range(x.shape[1]):
            y[0] = max(y[0], x[i, j])
            n[k] += 1
            n[k] += j


@kernel
def looked_at(n: nd, x: nd, y: nd):
    for i in range(x.shape[0]):
        k = n[i]
        for j in range(x.shape[1]):
            y[k] += x[i, j] * y[0]


@kernel
def moving(n: nd, x: nd, y: nd):
    for i in range(x.shape[0]):
        k = n[i]
        for j in range(x.shape[1]):
            y[k] += x[i, j]
            k = j


@kernel
def of_what_is_stored(n: nd, x: nd, y: nd):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            n[i] = j
            y[n[i]] += x[i, j]


@kernel
def least(n: nd, x: nd, y: nd):
    for i in range(x.shape[0]):
        k = n[i]
        for j in range(x.shape[1]):
            if x[i, j] > 0.5:
                y[k] = min(y[k], x[i, j])


@kernel
def in_two_ways(n: nd, x: nd, y: nd):
    for i in range(x.shape[0]):
        k = n[i]
        for j in range(x.shape[1]):
            y[k] += x[i, j]
            y[0] *= 1.5


@kernel(fast_math=False)
def in_order(n: nd, x: nd, y: nd):
    for i in range(x.shape[0]):
        k = n[i]
        for j in range(x.shape[1]):
            y[k] += x[i, j]


def updated_in_loops(body: tuple[Any, ...]) -> set[str]:
    """Arrays that are updated in loops of a body."""
    loops = [s for s in nested_statements(body) if isinstance(s, For)]
    return {x.array for s in loops for x in nested_statements(s.body) if isinstance(x, Update)}


@pytest.mark.parametrize(
    ("fn", "left", "is_tested"),
    [
        (of_rows, set(), True),
        (of_all, set(), False),
        (of_some, set(), True),
        (of_two, set(), False),
        (looked_at, {"y"}, False),
        (moving, {"y"}, False),
        (of_what_is_stored, {"y"}, False),
        (least, set(), True),
        (in_two_ways, {"y"}, False),
        (in_order, {"y"}, False),
    ],
    ids=lambda x: x.name if hasattr(x, "name") else "",
)
def test_sums_are_in_locals(fn: Any, left: set[str], is_tested: bool) -> None:
    rng = np.random.default_rng(1)
    arrays = {
        "n": rng.integers(0, N, N),
        "x": rng.random((N, N)),
        "y": rng.random(N),
    }

    def sequence(n: Any, x: Any, y: Any) -> None:
        fn(n, x, y)

    recording = record_sequence(sequence, tuple(arrays.values()))
    problem = normalise(recording)
    (task,) = problem.tasks
    assert task.body is not None
    body = task.body.statements
    assert updated_in_loops(body) == left
    behind = [s for s in nested_statements(body) if isinstance(s, If)]
    assert any(isinstance(x, Update) for s in behind for x in s.then) == is_tested
    want = run_reference(recording, arrays, {})
    found = run_tasks(problem, arrays, {})
    for name in arrays:
        np.testing.assert_allclose(found[name], want[name], rtol=1e-12)
