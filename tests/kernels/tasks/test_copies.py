"""Copies of whole arrays: which are left out, and that programs with copies compute what their calls compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import Recording, ndarray, record_sequence
from kernelscape.kernels.ir.task import Problem
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.testing.interpreted import run_reference
from kernelscape.testing.run_tasks import run_tasks

nd = types.ndarray()
N = 512


@kernel
def turn(x: nd, y: nd):
    for i in range(N):
        y[i] = x[N - 1 - i] + x[i] + 1.0


@kernel
def look_up(x: nd, at: types.ndarray(), y: nd):
    for i in range(N):
        y[i] = x[at[i]] - 1.0


@kernel
def shift(x: nd, y: nd):
    for i in range(N - 1):
        y[i] = x[i + 1]


@kernel
def step_back(x: nd):
    for i in range(1, N):
        x[i] = 2.0 - x[i - 1]


@kernel
def copy(x: nd, y: nd):
    for i in range(N):
        y[i] = x[i]


@kernel
def copy_most(x: nd, y: nd):
    for i in range(1, N):
        y[i] = x[i]


@kernel
def turn_and_copy(x: nd, y: nd):
    for i in range(N):
        y[i] = x[N - 1 - i] + x[i] + 1.0
    for i in range(N):
        x[i] = y[i]


def checked(fn: Callable[..., None], n_arrays: int) -> Problem:
    """The problem of a sequence on arrays of numbers and the indices `at`; its results are those of the calls."""
    at = np.random.default_rng(0).integers(0, N, N).astype(np.int32)
    given = [np.arange(N) * (k + 2.0) + k for k in range(n_arrays)]
    recording: Recording = record_sequence(fn, (*given, at), name="copies")
    problem = normalise(recording)
    arrays = dict(zip((p.name for p in recording.arrays), (*given, at), strict=True))
    wanted = run_reference(recording, arrays, {}, dtype=np.float64)
    got = run_tasks(problem, arrays, {}, float64=True)
    written = {a.name for a in problem.arrays if a.role in ("output", "inout")}
    for name in (p.name for p in recording.arrays):
        is_changed = not np.array_equal(wanted[name], arrays[name])
        assert name in written or not is_changed, name
        if name in written:
            np.testing.assert_array_equal(got[name], wanted[name], err_msg=name)
    return problem


def ping(a: Any, b: Any) -> None:
    turn(a, b)
    copy(b, a)


def inside(a: Any, b: Any) -> None:
    turn_and_copy(a, b)


def snapshot(a: Any, b: Any) -> None:
    copy(a, b)
    turn(b, a)


@pytest.mark.parametrize(
    ("step", "n", "tasks", "runs"),
    [
        (ping, 1, 2, 2),
        (ping, 2, 3, 3),  # calls in a row
        (ping, 7, 8, 8),
        (ping, 10, 3, 11),  # a repeat
        (ping, 11, 4, 12),
        (inside, 17, 4, 18),
        (inside, 18, 3, 19),
        (snapshot, 1, 2, 2),
        (snapshot, 2, 2, 2),
        (snapshot, 3, 4, 4),
        (snapshot, 10, 2, 10),
        (snapshot, 11, 4, 12),
    ],
)
def test_steps_with_a_copy_make_it_once_at_most(
    step: Callable[..., None], n: int, tasks: int, runs: int
) -> None:
    def sequence(a: Any, b: Any, at: Any) -> None:
        for _ in range(n):
            step(a, b)

    problem = checked(sequence, 2)
    assert (len(problem.tasks), sum(t.n_runs for t in problem.tasks)) == (tasks, runs)


def test_a_temporary_needs_no_copy_at_the_end() -> None:
    def n_tasks(n: int) -> int:
        def sequence(a: Any, at: Any) -> None:
            t = ndarray(np.float64, N)
            for _ in range(n):
                look_up(a, at, t)
                copy(t, a)

        return len(checked(sequence, 1).tasks)

    assert [n_tasks(n) for n in (1, 2, 3, 4)] == [2, 2, 4, 4]


def read_and_overwritten(a: Any, b: Any) -> None:
    step_back(b)


def overwritten_in_part(a: Any, b: Any) -> None:
    shift(a, b)


def read_again(a: Any, b: Any) -> None:
    pass


@pytest.mark.parametrize("between", [read_and_overwritten, overwritten_in_part, read_again])
def test_a_copy_stays_whose_source_is_used_again(between: Callable[..., None]) -> None:
    def sequence(a: Any, b: Any, c: Any, at: Any) -> None:
        copy(b, a)
        between(a, b)
        look_up(b, at, c)
        turn(a, b)

    problem = checked(sequence, 3)
    assert [t.kernel for t in problem.tasks].count("copy") == 1


def test_a_copy_of_a_part_stays() -> None:
    def sequence(a: Any, b: Any, at: Any) -> None:
        for _ in range(2):
            turn(a, b)
            copy_most(b, a)

    assert len(checked(sequence, 2).tasks) == 4


@pytest.mark.parametrize("number", range(80))
def test_random_programs_with_copies_compute_what_their_calls_compute(number: int) -> None:
    rng = np.random.default_rng(number)

    def drawn(n: int) -> list[tuple[int, int, int]]:
        return [
            (int(rng.integers(8)), *map(int, rng.choice(4, 2, replace=False))) for _ in range(n)
        ]

    parts = [(int(rng.choice([1, 1, 2, 5, 10, 11])), drawn(int(rng.integers(1, 6)))) for _ in "123"]

    def sequence(a: Any, b: Any, c: Any, at: Any) -> None:
        arrays = a, b, c, ndarray(np.float64, N)
        for count, calls in parts:
            for _ in range(count):
                for kind, x, y in calls:
                    match kind:
                        case 0:
                            turn(arrays[x], arrays[y])
                        case 1:
                            look_up(arrays[x], at, arrays[y])
                        case 2:
                            shift(arrays[x], arrays[y])
                        case 3:
                            step_back(arrays[x])
                        case _:
                            copy(arrays[x], arrays[y])

    checked(sequence, 3)
