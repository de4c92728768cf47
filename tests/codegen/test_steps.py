"""Sequences whose kernels use the number of their step: they are open, candidates are right, and their number says no more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from kernelscape.codegen.passes.pipeline import verifying
from kernelscape.kernels.analysis.domain_bounds import points
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.archive import ArchiveError, from_values, to_values
from kernelscape.kernels.tasks.non_affine import non_affine_tasks
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.bound.bounder import Bounder
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, DeadEnd
from kernelscape.testing import checking
from kernelscape.testing.checking import Way
from kernelscape.testing.interpreted import run_reference
from kernelscape.testing.legality import illegal
from kernelscape.testing.run_tasks import run_tasks

nd: Any = types.ndarray()
N, STEPS = 19, 17
CANDIDATES = 2


@kernel
def column(a: nd, k: int):
    for i in range(k + 1, a.shape[0]):
        a[i, k] /= a[k, k]


@kernel
def update(a: nd, k: int):
    for i in range(k + 1, a.shape[0]):
        for j in range(k + 1, a.shape[0]):
            a[i, j] -= a[i, k] * a[k, j]


def lu(a, b):
    for k in range(STEPS):
        column(a, k)
        update(a, k)


@kernel
def shorter(a: nd, k: int):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            a[i, j] = min(a[i, j], a[i, k] + a[k, j])


def paths(a, b):
    for k in range(STEPS):
        shorter(a, k)


@kernel
def add_source(a: nd, b: nd, t: int):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            a[i, j] += b[t, i]


@kernel
def keep_picture(a: nd, b: nd, t: int):
    for i in range(a.shape[0]):
        b[t + 1, i] = 0.5 * a[i, 0]


def sources(a, b):
    for t in range(STEPS):
        add_source(a, b, t)
        keep_picture(a, b, t)


@kernel
def in_turn(a: nd, t: int):
    for i in range(1, a.shape[1] - 1):
        a[(t + 1) % 2, i] = 0.5 * (a[t % 2, i - 1] + a[t % 2, i + 1])


def ping_pong(a, b):
    for t in range(STEPS):
        in_turn(a, t)


@kernel
def product(a: nd, b: nd, t: int):
    for i in range(a.shape[0]):
        acc = 0.0
        for j in range(a.shape[1]):
            acc += a[t, j] * b[i, j]
        b[i, t] = 0.01 * acc


@kernel
def part(a: nd, b: nd, t: int):
    for i in range(t, a.shape[0]):
        for j in range(2 * t + 1):
            if j < a.shape[1]:
                a[i, j] = 0.1 * (b[j, i] + b[t, j] + b[i, a.shape[1] - 1 - t])


def sums(a, b):
    for t in range(STEPS):
        product(a, b, t)
        part(a, b, t)


@kernel
def steps_inside(a: nd, b: nd):
    for t in range(1, 16):
        for i in range(a.shape[0]):
            for j in range(1, a.shape[1] - 1):
                b[i, j] = a[i, j - 1] + a[t - 1, j + 1] + t
        for i in range(t, a.shape[0]):
            for j in range(a.shape[1]):
                a[i, j] = 0.5 * b[i, j]


def inside(a, b):
    steps_inside(a, b)


@kernel
def now_and_then(a: nd, b: nd, t: int):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            if (i + j + t) % 2 == 0:
                a[i, j] = 0.5 * b[i, j]
    if t % 3 == 0:
        for i in range(a.shape[0]):
            b[i, 0] = a[i, 1]


def guards(a, b):
    for t in range(STEPS):
        now_and_then(a, b, t)


@kernel
def in_fours(a: nd, t: int):
    for i in range(a.shape[1]):
        a[t % 4, i] += 0.25 * t + t // 4
        if t % 4 == 1:
            a[0, i] *= 0.5


def closed(a, b):
    """Of three steps no four are one: tasks have bodies, in one loop or not."""
    for t in range(3):
        for k in range(7):
            in_fours(a, t + k)


SEQUENCES = (lu, paths, sources, ping_pong, sums, inside, guards)


def recorded(fn, n=N):
    rng = np.random.default_rng(3)
    arrays = {"a": rng.random((n, n)) + n * np.eye(n), "b": rng.random((n, n))}
    return record_sequence(fn, list(arrays.values())), arrays


@pytest.mark.parametrize("fn", SEQUENCES)
def test_they_are_written_down_once_and_open(fn):
    recording, arrays = recorded(fn)
    problem = normalise(recording)
    assert len(recording.calls) <= 2
    assert any(t.steps for t in problem.tasks) or fn is ping_pong
    assert str(non_affine_tasks(problem)) == ""
    want = run_reference(recording.unrolled(), arrays, {})
    found, by_tasks = run_reference(recording, arrays, {}), run_tasks(problem, arrays, {})
    for name in arrays:
        np.testing.assert_array_equal(found[name], want[name])
        np.testing.assert_allclose(by_tasks[name], want[name], rtol=1e-10)


@pytest.mark.parametrize("fn", [lu, paths, sources, sums, guards])
def test_every_read_sees_the_value_that_it_should(fn):
    recording, _ = recorded(fn, 5)
    few = replace(recording, repeats=tuple(replace(r, count=3) for r in recording.repeats))
    root = build_space(normalise(few), checking.target(2, 16)).root()
    assert isinstance(root, Candidate)
    rng = np.random.default_rng(1)
    made = [checking.random_candidate(root, rng) for _ in range(2)]
    assert [illegal(c) for c in made if isinstance(c, Candidate)] == [""] * len(made)


@pytest.mark.compiler
def test_candidates_compute_what_the_interpreter_does(tmp_path):
    works = []
    for k, fn in enumerate((*SEQUENCES, closed)):
        recording, arrays = recorded(fn)
        problem = normalise(recording)
        root = build_space(problem, checking.target(2, 32)).root()
        assert isinstance(root, Candidate)
        bound, rng = Bounder(root.space), np.random.default_rng(k)
        given = checking.make_inputs(recording, problem, arrays, {})
        given = given[:1] if fn is lu else given  # other pivots may be small
        made = [checking.random_candidate(root, rng) for _ in range(2 * CANDIDATES)]
        complete = [c for c in made if isinstance(c, Candidate)][:CANDIDATES]
        assert complete
        for candidate in complete:
            assert bound.ns(candidate) >= bound.ns(root) > 0
            with verifying():
                works.append((checking.source_of(candidate), given))
    assert not checking.fault_of_any(works, tmp_path, Way(repeats=3))


@kernel
def row(a: nd, b: nd, t: int):
    for j in range(t, 4):
        a[0, j] = 0.5 * a[0, j] + b[t, j]


def row_of_less_and_less(a, b):
    for t in range(STEPS):
        row(a, b, t)


@kernel
def rows_below(a: nd, b: nd, t: int):
    for i in range(t + 1, a.shape[0]):
        for j in range(b.shape[1]):
            a[i, j] = 0.5 * a[i, j] + a[t, j] * b[i, j]


def elimination(a, b):
    for t in range(STEPS):
        rows_below(a, b, t)


def decided(root: Candidate, wanted: dict[str, str]) -> Candidate:
    """A completion of a candidate with these values of choices, by name."""
    made: Candidate | DeadEnd = root
    for var, choice in enumerate(root.space.choices):
        if choice.name in wanted:
            assert isinstance(made, Candidate)
            made = made.decide(var, 1 << choice.values.index(wanted[choice.name]))
    assert isinstance(made, Candidate)
    complete = made.random_completion(np.random.default_rng(0))
    assert isinstance(complete, Candidate)
    return complete


@pytest.mark.compiler
def test_threads_share_out_what_a_step_leaves(tmp_path):
    """Nothing where a range is empty, and each iteration once where threads take them in turn."""
    in_threes = {
        "dim_kind(row0.j.outer)": "PARALLEL",
        "dim_kind(row0.j.mid)": "ABSENT",
        "dim_kind(row0.j.inner)": "UNROLL",
        "size(row0.j.inner)": "3",
    }
    one_by_one = {
        "schedule(rows_below0.i.outer)": "CYCLIC",
        "dim_kind(rows_below0.i.mid)": "ABSENT",
        "size(rows_below0.i.inner)": "2",
    }
    works = []
    for fn, shapes, wanted in (
        (row_of_less_and_less, ((3, 4), (STEPS, 4)), in_threes),
        (elimination, ((41, 9), (41, 9)), one_by_one),
    ):
        rng = np.random.default_rng(5)
        arrays = {name: rng.random(n) for name, n in zip("ab", shapes, strict=True)}
        recording = record_sequence(fn, list(arrays.values()))
        problem = normalise(recording)
        root = build_space(problem, checking.target(2, 32)).root()
        assert isinstance(root, Candidate)
        given = checking.make_inputs(recording, problem, arrays, {})[:1]
        works.append((checking.source_of(decided(root, wanted)), given))
    assert not checking.fault_of_any(works, tmp_path, Way(repeats=1))


def test_a_hundred_steps_have_the_choices_of_twenty():
    def steps(n):
        def sequence(a, b):
            for k in range(n):
                column(a, k)
                update(a, k)

        return build_space(normalise(recorded(sequence, 120)[0]), checking.target(2, 32))

    few, many = steps(20), steps(100)
    assert few.n_choices == many.n_choices
    assert len(few.model.declarations) == len(many.model.declarations)


def test_iterations_outside_of_a_step_do_not_count():
    """Of the bound: a third of the elements in a step on average."""
    triangle, _ = recorded(lu, 60)
    space = build_space(normalise(triangle), checking.target(2, 32))
    wanted = sum((59 - k) ** 2 for k in range(STEPS))

    assert points(space.problem.tasks[1]) == wanted // STEPS


def test_a_recording_with_steps_is_data():
    recording, _ = recorded(sources)
    values = to_values(recording)
    assert from_values(values) == recording
    (one,) = values["repeats"]
    for wrong in ({"index": "a"}, {"index": "b c"}, {"index": ""}, {"count": 1 << 20}):
        with pytest.raises(ArchiveError):
            from_values({**values, "repeats": [{**one, **wrong}]})
