"""Interleaved stores to neighbouring elements are made by one body, others by a task each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.body import Closure
from kernelscape.kernels.tasks.pipeline import normalise

nd: Any = types.ndarray()


@kernel
def colours(q: nd):
    for i in range(q.shape[0]):
        q[i, 0] = i * 1.0
        q[i, 1] = i * 2.0


@kernel
def ends(q: nd):
    for i in range(q.shape[0]):
        q[i, 0] = i * 1.0
        q[i, q.shape[1] - 1] = i * 2.0


@kernel
def planes(q: nd):
    for i in range(q.shape[1]):
        q[0, i] = i * 1.0
        q[1, i] = i * 2.0


@kernel
def sums(x: nd, q: nd):
    for i in range(q.shape[0]):
        first = 0.0
        for j in range(x.shape[1]):
            first += x[i, j]
        q[i, 0] = first
        q[i, 1] = i * 2.0
        q[i, 2] = i * 3.0


@pytest.mark.parametrize(
    ("fn", "n_tasks", "is_one"), [(colours, 1, True), (ends, 2, False), (planes, 2, False)]
)
def test_neighbours_without_a_loop_along_them_are_stored_by_one_body(
    fn: Callable[..., Any], n_tasks: int, is_one: bool
) -> None:
    recording = record_sequence(lambda q: fn(q), (np.zeros((6, 7), np.float32),), name="one")
    tasks = normalise(recording).tasks
    assert len(tasks) == n_tasks
    assert [t.is_structured for t in tasks] == [not is_one] * n_tasks
    if is_one:
        body = tasks[0].body
        assert body is not None and body.reason.kind is Closure.IN_TURN
        assert body.reason.text == "interleaved stores to elements of q"


def test_reductions_stay_tasks_of_their_own() -> None:
    recording = record_sequence(
        lambda x, q: sums(x, q), tuple(np.zeros((6, 7), np.float32) for _ in "xq"), name="one"
    )
    assert all(t.is_structured for t in normalise(recording).tasks)
