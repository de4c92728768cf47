"""Why a task is not opened: the reason and the line of the user's file that it names."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.body import Closure
from kernelscape.kernels.ir.text import show_task
from kernelscape.kernels.tasks.non_affine import non_affine_tasks
from kernelscape.kernels.tasks.pipeline import normalise

nd = types.ndarray()


@kernel
def branch(x: nd, y: nd):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            t = x[i, j]
            while t > 1.0:  # here
                t = t * 0.5
                y[i, j] = t


@kernel
def branch_of_a_local(x: nd, y: nd):
    for i in range(x.shape[0]):
        t = 0.0
        if i > 0:  # here
            t = x[i - 1, 0]  # which is not there in all iterations
        y[i, 0] = t


@kernel
def half_triangle(x: nd, y: nd):
    for i in range(x.shape[0]):
        for j in range(i // 2 + 1):  # here
            y[i, j] = x[i, j]


@kernel
def data_range(x: nd, y: nd, n: int):
    for i in range(n):  # here
        y[i, 0] = x[i, 0]


@kernel
def square(x: nd, y: nd):
    for i in range(3):
        y[i * i, 0] = x[i, 0]  # here


@kernel
def recurrence(x: nd, y: nd):
    for i in range(x.shape[0]):
        for j in range(1, x.shape[1]):
            y[i, j] = y[i, j - 1] + x[i, j]  # here


@kernel
def chain(x: nd, y: nd):
    for i in range(x.shape[0]):
        t = 0.0
        for j in range(x.shape[1]):
            t = t * 0.5 + x[i, j]  # here
        y[i, 0] = t


@kernel(fast_math=False)
def ordered(x: nd, y: nd):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, 0] += x[i, j]  # here


def line_of(fn: Any) -> int:
    lines, first = inspect.getsourcelines(fn.fn)
    return first + next(k for k, line in enumerate(lines) if "# here" in line)


@pytest.mark.parametrize(
    ("fn", "kind", "text"),
    [
        (branch, Closure.BRANCH, "a while loop around a store"),
        (branch_of_a_local, Closure.BRANCH, "an if around the variable t"),
        (half_triangle, Closure.RANGE, "a range that depends on i"),
        (data_range, Closure.RANGE, "a range known only at run time"),
        (square, Closure.INDEX, "an index that is not affine in the loop indices"),
        (recurrence, Closure.CARRIED, "iterations of one statement that conflict in y"),
        (chain, Closure.CARRIED, "t, whose value goes from one iteration to the next"),
        (ordered, Closure.ORDER, "the updates of y in their order (fast_math=False)"),
    ],
)
def test_a_closed_task_says_why_and_where(fn: Any, kind: Closure, text: str) -> None:
    x = np.ones((9, 9), np.float32)
    args = (x, x.copy(), 3) if fn is data_range else (x, x.copy())
    non_affine = non_affine_tasks(normalise(record_sequence(fn, args, name="one")))
    (task,) = non_affine.tasks
    assert (task.reason.kind, task.reason.text) == (kind, text)
    assert (
        str(non_affine)
        == f"1 of 1 tasks is non-affine: {text}, line {line_of(fn)} of test_non_affine.py"
    )


def test_words_of_a_closed_task_may_change_and_the_key_of_its_problem_does_not() -> None:
    """Records of earlier versions name problems by their keys."""
    x = np.ones((9, 9), np.float32)
    problem = normalise(record_sequence(chain, (x, x.copy()), name="one"))
    assert problem.key == "9f905826b17d6e7638b5a2c73eb0ee0b"
    first, *statements = show_task(problem.tasks[0]).splitlines()
    assert first == "for i<9: non-affine reads x[i, ?] writes y[i, 0]"
    assert len(statements) == 4


def test_what_is_open_says_nothing() -> None:
    @kernel
    def copy(x: nd, y: nd):
        for i in range(x.shape[0]):
            y[i] = x[i]

    x = np.ones(9, np.float32)
    non_affine = non_affine_tasks(normalise(record_sequence(copy, (x, x.copy()), name="one")))
    assert not non_affine
    assert str(non_affine) == ""


def test_a_sentence_names_three_reasons() -> None:
    x = np.ones((9, 9), np.float32)

    def sequence(x, y):
        for one in (branch, half_triangle, recurrence, chain, half_triangle):
            one(x, y)

    non_affine = non_affine_tasks(normalise(record_sequence(sequence, (x, x.copy()), name="one")))
    assert str(non_affine).startswith(
        "5 of 5 tasks are non-affine: a while loop around a store, line "
    )
    assert str(non_affine).endswith("; and 1 more")
    assert str(non_affine).count(";") == 3


def test_a_loop_ends_where_an_element_says_that_no_iteration_writes() -> None:
    """Another element of the array may be written: so are counters of a tree, one of which ends a loop over its cells."""

    @kernel
    def beside(n: nd, y: nd):
        for i in range(n[0]):
            y[i] = 2.0
            n[1] += 1

    @kernel
    def in_place(n: nd, y: nd):
        for i in range(n[0]):
            y[i] = 2.0
            n[0] += 1

    @kernel
    def anywhere(n: nd, y: nd):
        for i in range(n[0]):
            y[i] = 2.0
            n[i % 2] += 1

    given = np.full(2, 5, np.int32), np.ones(9, np.float32)
    found = []
    for fn in (beside, in_place, anywhere):
        (task,) = normalise(record_sequence(fn, given, name="one")).tasks
        found.append([x.extent for x in task.loops])
    assert found == [[9], [], []]
