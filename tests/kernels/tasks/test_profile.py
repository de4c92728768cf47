"""Profiles: what a run counts, beside the same counted by hand in Python, and what of a body is needed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from kernelscape.kernels.analysis.must_execute import needed
from kernelscape.kernels.frontend.kernel import kernel, ndrange, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.task import Problem
from kernelscape.kernels.tasks import execution_counts, work
from kernelscape.kernels.tasks.execution_counts import counting
from kernelscape.kernels.tasks.guarded_bodies import followed
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.kernels.tasks.profile import Profile, TaskProfile, Touched
from kernelscape.search.bound.bodies import body_bytes, body_operations
from kernelscape.search.bound.operations import SureOperations
from kernelscape.testing.interpreted import run_reference

nd: Any = types.ndarray()


@kernel
def product(first: nd, column: nd, value: nd, x: nd, y: nd):
    for i in range(y.shape[0]):
        total = 0.0
        for k in range(first[i], first[i + 1]):
            total += value[k] * x[column[k]]
        y[i] = total


@kernel
def halvings(x: nd, y: nd):
    for i in range(x.shape[0]):
        t = x[i]
        while t > 0.5:
            t = t * 0.25
        y[i] = t


@kernel
def picked(x: nd, at: nd, y: nd):
    for i in range(x.shape[0]):
        unused = y[i]
        late = x[i]
        if at[i] > 2:
            y[at[i]] += late * unused


@kernel
def tried(x: nd, a: nd, y: nd, z: nd):
    for i in range(x.shape[0]):
        t = x[i]
        y[i] = a[i] + 1.0
        while t > 0.5:
            t = t * 0.5
            z[i] = a[i] + t
        y[i] = t


@kernel
def step(x: nd, at: nd, y: nd):
    for i in range(x.shape[0]):
        y[at[i]] = 2.0 * x[at[i]]


def problem_of(fn: Any, *args: Any) -> Problem:
    return normalise(record_sequence(fn, args))


def profile_of(problem: Problem, scalars: dict[str, Any] | None = None, **arrays: Any) -> Profile:
    made = counting(problem)
    assert made is not None
    plain = {a.name for a in problem.arrays}
    found = run_reference(made.recording, {**arrays, **made.arrays()}, scalars or {})
    assert plain < found.keys()
    return made.read(arrays, found)


def test_rows_of_a_sparse_matrix() -> None:
    rng = np.random.default_rng(1)
    lengths = rng.integers(0, 5, 20)
    first = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    column = rng.integers(0, 40, first[-1]).astype(np.int32)
    value, x, y = (rng.random(n).astype(np.float32) for n in (first[-1], 40, 20))
    problem = problem_of(product, first, column, value, x, y)
    profile = profile_of(problem, first=first, column=column, value=value, x=x, y=y)
    (task,) = profile.tasks
    assert task.entered == (20, first[-1])
    touched = {t.array: t for t in task.touched}
    assert touched["x"].read_elements == len(set(column.tolist()))
    assert touched["x"].read_lines == len({int(c) // 16 for c in column})
    assert touched["value"].read_elements == first[-1]
    (body,) = problem.tasks
    operations = body_operations(body, profile).count(set())
    # The first term of a row is added to a zero that compilers know.
    assert 0.9 * (2 * first[-1] - 20) < sum(operations) <= 2 * first[-1] - 20
    assert body_operations(body, None).count(set()) == (0.0, 0.0)
    named = {a.name: a for a in problem.arrays}
    assert body_bytes(body, named["y"], None) == (0, 80)
    assert body_bytes(body, named["value"], None) == (0, 0)
    read, _ = body_bytes(body, named["value"], profile)
    assert 0.9 * value.nbytes < read <= value.nbytes


def test_a_while_loop_counts_what_its_next_iteration_uses() -> None:
    x = np.random.default_rng(2).uniform(0, 100, 50).astype(np.float32)
    problem = problem_of(halvings, x, x.copy())
    profile = profile_of(problem, x=x, y=x)
    n = sum(max(0, int(np.ceil(np.log(v / 0.5) / np.log(4)))) if v > 0.5 else 0 for v in x)
    assert profile.tasks[0].entered == (50, n)
    (f32, f64) = body_operations(problem.tasks[0], profile).count(set())
    assert f64 == 0
    assert 0 < f32 <= 2 * n  # a product, whose last value is stored, and a comparison


def test_what_only_a_branch_uses_is_not_needed_outside() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.random(30).astype(np.float32), rng.random(30).astype(np.float32)
    at = rng.integers(0, 6, 30).astype(np.int32)
    problem = problem_of(picked, x, at, y)
    (task,) = problem.tasks
    assert task.body is not None
    changed = {getattr(n.statement, "name", "") for n in needed(task.body.statements)}
    assert not changed & {"unused", "late"}
    profile = profile_of(problem, x=x, at=at, y=y)
    touched = {t.array: t for t in profile.tasks[0].touched}
    assert "x" not in touched
    assert touched["y"] == Touched("y", 3, 1, 3, 1)


def test_what_is_stored_over_is_not_needed() -> None:
    """Compilers leave a store away that another one follows, and of those of a loop to one place all but the last."""
    x = np.random.default_rng(4).uniform(0, 10, 40).astype(np.float32)
    problem = problem_of(tried, x, x.copy(), x.copy(), x.copy())
    profile = profile_of(problem, x=x, a=x, y=x, z=x)
    (task,) = problem.tasks
    named = {a.name: a for a in problem.arrays}
    assert body_bytes(task, named["a"], profile) == (0, 0)
    assert body_bytes(task, named["x"], profile)[0] > 0
    assert body_bytes(task, named["y"], profile)[1] == x.nbytes
    assert 0 < body_bytes(task, named["z"], profile)[1] <= 4 * np.count_nonzero(x > 0.5)
    _, n = profile.tasks[0].entered
    assert 0 < sum(body_operations(task, profile).count(set())) <= 2 * n


def test_counts_of_repeats_are_those_of_one_run() -> None:
    rng = np.random.default_rng(4)
    x, y = rng.random(30).astype(np.float32), rng.random(30).astype(np.float32)
    at = rng.integers(0, 30, 30).astype(np.int32)

    def twenty(x: Any, at: Any, y: Any) -> None:
        for _ in range(20):
            step(x, at, y)

    problem = problem_of(twenty, x, at, y)
    assert problem.tasks[0].n_runs == 20
    (task,) = profile_of(problem, x=x, at=at, y=y).tasks
    n = len(set(at.tolist()))
    assert task.entered == (30,)
    assert {t.array: t.read_elements for t in task.touched}["x"] == n
    assert {t.array: t.written_elements for t in task.touched}["y"] == n


def test_counting_changes_no_result() -> None:
    rng = np.random.default_rng(5)
    x, y = rng.random(30).astype(np.float32), rng.random(30).astype(np.float32)
    at = rng.integers(0, 6, 30).astype(np.int32)
    recording = record_sequence(picked, (x, at, y))
    made = counting(normalise(recording))
    assert made is not None
    counted = run_reference(made.recording, {"x": x, "at": at, "y": y, **made.arrays()}, {})
    plain = run_reference(recording, {"x": x, "at": at, "y": y}, {})
    np.testing.assert_array_equal(counted["y"], plain["y"])


def test_a_profile_is_part_of_a_key_and_fits_its_problem_alone() -> None:
    x = np.ones(8, np.float32)
    problem = problem_of(halvings, x, x.copy())
    made = profile_of(problem, x=x, y=x)
    assert made.why_wrong(problem) == ""
    assert len(made.keyed("0123456789")) == 10
    other = Profile((replace(made.tasks[0], entered=(8.0, 9.0)),))
    assert other.keyed("0123456789") != made.keyed("0123456789")


@pytest.mark.parametrize(
    ("tasks", "words"),
    [
        ((TaskProfile("other", ()),), "no task other"),
        ((TaskProfile("halvings0", (8.0,)),), "another number of blocks"),
        ((TaskProfile("halvings0", (8.0, -1.0)),), "a count of halvings0"),
        ((TaskProfile("halvings0", (8.0, float("nan"))),), "a count of halvings0"),
        ((TaskProfile("halvings0", (8.0, 1.0), (Touched("q"),)),), "none of the sequence"),
    ],
)
def test_what_no_profile_holds(tasks: tuple[TaskProfile, ...], words: str) -> None:
    x = np.ones(8, np.float32)
    assert words in Profile(tasks).why_wrong(problem_of(halvings, x, x.copy()))


@kernel
def around_walls(x: nd, wall: nd, y: nd):
    for i, j in ndrange(x.shape[0], x.shape[1]):
        if wall[i, j] == 0:
            y[i, j] += 2.0 * x[i, j]


def test_an_assignment_that_values_decide_is_counted() -> None:
    """It is one assignment over a band in the space; how often it happens only a run says."""
    rng = np.random.default_rng(1)
    wall = (rng.random((30, 50)) < 0.25).astype(np.int32)
    x, y = (rng.random((30, 50)).astype(np.float32) for _ in range(2))
    problem = problem_of(around_walls, x, wall, y)
    (task,) = problem.tasks
    assert task.is_structured and task.is_guarded
    profile = profile_of(problem, x=x, wall=wall, y=y)
    n = int((wall == 0).sum())
    assert profile.tasks[0].entered[:2] == (1500, n)
    assert profile.why_wrong(problem) == ""
    for known, share, written in ((None, 0, 0), (profile, 0.98, 0.98)):
        of = {a.name: body_bytes(followed(task), a, known) for a in problem.arrays}
        assert of["wall"] == (94 * 64, 0)  # it is read in any case: 6000 bytes in whole lines
        assert of["x"][0] >= share * 4 * n and (share > 0) == (of["x"][0] > 0)
        assert of["y"][1] == written * 4 * n
        flops = sum(SureOperations(known).count(task))
        assert flops == pytest.approx(share * 2 * n)


@kernel
def halved(x: nd):
    for i in range(x.shape[0]):
        while x[i] > 0.5:
            x[i] = x[i] * 0.25


@kernel
def moved(x: nd, at: nd, by: int):
    for i in range(x.shape[0]):
        if at[i] == 0:
            x[i] = x[i] + 1.0
        at[i] = at[i] + by


def test_counts_hold_where_a_call_leaves_what_decides_as_it_was() -> None:
    """Calls that are timed come after others: of `halved` the second does nothing, and of what is counted once nothing holds."""
    x = np.ones(8, np.float32)
    problem = problem_of(halved, x)
    profile = profile_of(problem, x=x)
    assert profile.tasks[0].entered == (8, 8) and not profile.is_sure
    assert SureOperations(profile).count(problem.tasks[0]) == SureOperations().count(
        problem.tasks[0]
    )
    assert work.task_ns(problem.tasks[0], profile) > 0
    at = np.arange(8, dtype=np.int32) % 3
    for by, stays in ((0, True), (1, False)):
        problem = problem_of(moved, x, at, by)
        profile = profile_of(problem, {"by": by}, x=x, at=at)
        assert profile.is_sure == stays
        assert profile.tasks[0].entered[:2] == (8, 3)
        assert (profile.of(problem.tasks[0]) is not None) == stays


def test_equal_tasks_are_counted_by_one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind: work that is done again for each call of a long sequence, though few of its calls differ."""

    def many(x: Any, at: Any, *outputs: Any) -> None:
        for y in outputs:
            picked(x, at, y)

    asked = []
    deciding = execution_counts.deciding
    monkeypatch.setattr(execution_counts, "deciding", lambda *of: asked.append(of) or deciding(*of))
    outputs = {f"outputs{k}": np.zeros(8, np.float32) for k in range(6)}
    x, at = np.ones(8, np.float32), np.arange(8, dtype=np.int32)
    problem = problem_of(many, x, at, *outputs.values())
    made = counting(problem)
    assert made is not None
    assert len({id(call.ir) for call in made.recording.calls}) == 1
    profile = profile_of(problem, x=x, at=at, **outputs)
    assert [t.entered for t in profile.tasks] == [(8, 5, 3)] * 6
    assert len(asked) == 2 * len(problem.tasks)  # its own decisions, and those of its array
