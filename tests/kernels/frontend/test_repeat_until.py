"""Repeats that an array ends: as they run, are recorded, kept in files, and refused."""

from __future__ import annotations

from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.errors import LanguageError
from kernelscape.kernels.ir.text import show_tasks
from kernelscape.kernels.tasks.archive import ArchiveError, from_values, to_values
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.kernels.tasks.state_flow import build_graph, show_graph
from kernelscape.testing.interpreted import run_reference
from kernelscape.testing.run_tasks import run_tasks

nd = ks.types.ndarray()
NAMES = ("a", "x", "y", "n", "done")
LIMIT = 60


@ks.kernel
def start(x: nd, n: nd):
    n[0] = 0
    for i in range(x.shape[0]):
        x[i] = 1.0 / x.shape[0]


@ks.kernel
def multiply(a: nd, x: nd, y: nd):
    for i in range(x.shape[0]):
        total = 0.0
        for j in range(x.shape[0]):
            total += a[i, j] * x[j]
        y[i] = total


@ks.kernel
def compare(x: nd, y: nd, n: nd, done: nd, tolerance: float):
    n[0] += 1
    change = 0.0
    for i in range(x.shape[0]):
        change += abs(y[i] - x[i])
    done[0] = change < tolerance


@ks.kernel
def move(y: nd, x: nd):
    for i in range(x.shape[0]):
        x[i] = y[i]


@ks.kernel
def relax_in_place(a: nd, x: nd, y: nd):
    for i in range(1, x.shape[0]):
        y[i] = x[i]
        x[i] = 0.5 * (x[i - 1] + a[i, i])


@ks.kernel
def halve(x: nd, y: nd):
    for i in range(x.shape[0]):
        y[i] = 0.5 * x[i]


@ks.kernel
def add_rows(first: nd, column: nd, x: nd, y: nd):
    for i in range(x.shape[0]):
        y[i] = 0.1
        for k in range(first[i], first[i + 1]):
            y[i] += 0.2 * x[column[k]]


@ks.kernel
def clear(done: nd):
    done[0] = 0


def powers(a, x, y, n, done, tolerance):
    start(x, n)
    for _ in ks.repeat(LIMIT, until=done):
        multiply(a, x, y)
        compare(x, y, n, done, tolerance)
        move(y, x)
    clear(done)


def arrays(n: int = 12) -> list[np.ndarray]:
    a = np.random.default_rng(4).random((n, n)) + np.eye(n)
    return [a / a.sum(0), np.zeros(n), np.zeros(n), np.zeros(1, np.int32), np.ones(1, np.int32)]


def iterated(a: np.ndarray, tolerance: float) -> tuple[np.ndarray, int]:
    x = np.full(len(a), 1 / len(a))
    change, n_steps = np.inf, 0
    while change >= tolerance and n_steps < LIMIT:
        y = a @ x
        change, x = np.abs(y - x).sum(), y
        n_steps += 1
    return x, n_steps


@pytest.mark.parametrize(
    ("tolerance", "ends_early"), [(1e-3, True), (1e-9, True), (9.0, True), (0.0, False)]
)
def test_they_end_as_a_loop_with_a_test_does(tolerance: float, ends_early: bool) -> None:
    given = arrays()
    want, n_steps = iterated(given[0], tolerance)
    assert (n_steps < LIMIT) is ends_early
    by_name = dict(zip(NAMES, given, strict=True))
    recording = record_sequence(powers, [*given, tolerance])
    found = [run_reference(recording, by_name, {"tolerance": tolerance})]
    found.append(run_tasks(normalise(recording), by_name, {"tolerance": tolerance}))
    with ks.interpret():
        powers(*given, tolerance)
    for result in (*found, by_name):
        np.testing.assert_allclose(result["x"], want, rtol=1e-12)
        assert result["n"][0] == n_steps
        assert result["done"][0] == 0


def test_steps_are_written_down_once_however_few() -> None:
    def few(a, x, y, n, done):
        start(x, n)
        for _ in ks.repeat(3, until=done):
            multiply(a, x, y)
            compare(x, y, n, done, 0.1)

    recording = record_sequence(few, arrays())
    assert [(r.first, r.stop, r.count, r.until) for r in recording.repeats] == [(1, 3, 3, "done")]
    problem = normalise(recording)
    assert "  repeat t<3 until done\n" in show_tasks(problem)
    assert "repeat t<3 until done: multiply0 to " in show_graph(build_graph(problem))
    assert {t.n_runs for t in problem.tasks} == {1}  # surely


def test_a_recorder_keeps_the_calls_of_one_step() -> None:
    """Kind: memory grows with the greatest number of steps."""
    a, x, y, n, done = arrays()
    with ks.record() as recorder:
        for _ in ks.repeat(2_000, until=done):
            multiply(a, x, y)
            compare(x, y, n, done, 0.1)
    assert len(recorder.calls) == 2
    assert [r.count for r in recorder.recording("many").repeats] == [2_000]


def test_repeats_inside_are_found() -> None:
    def inside(a, x, y, n, done):
        start(x, n)
        for _ in ks.repeat(5, until=done):
            for _ in range(20):
                multiply(a, x, y)
                move(y, x)
            compare(x, y, n, done, 0.1)

    given = arrays()
    recording = record_sequence(inside, given)
    assert [(r.first, r.stop, r.count) for r in recording.repeats] == [(1, 4, 5), (1, 3, 20)]
    by_name = dict(zip(NAMES, given, strict=True))
    want, found = (
        run_reference(recording, by_name, {}),
        run_tasks(normalise(recording), by_name, {}),
    )
    assert found["n"] == want["n"] == 1
    np.testing.assert_allclose(found["x"], want["x"], rtol=1e-12)


def test_the_array_is_part_of_the_meaning() -> None:
    def fixed(a, x, y, n, done, tolerance):
        start(x, n)
        for _ in range(LIMIT):
            multiply(a, x, y)
            compare(x, y, n, done, tolerance)
            move(y, x)
        clear(done)

    ended, others = (normalise(record_sequence(fn, [*arrays(), 0.1])) for fn in (powers, fixed))
    assert ended.key != others.key
    names = [t.name for t in ended.tasks]
    assert any(t.target.array == "done" for t in ended.tasks if t.repeats), (
        names
    )  # `clear` hides it


def test_files_keep_the_array_and_believe_nothing() -> None:
    recording = record_sequence(powers, [*arrays(), 0.1])
    values = to_values(recording)
    assert from_values(values) == recording
    (one,) = values["repeats"]
    for wrong in ("x", "a", "nothing", "done[0]"):
        with pytest.raises(ArchiveError):
            from_values({**values, "repeats": [{**one, "until": wrong}]})


def exchanged(a, x, y, n, done):
    start(x, n)
    for _ in ks.repeat(9, until=done):
        multiply(a, x, y)
        compare(x, y, n, done, 0.1)
        x, y = y, x


def left(a, x, y, n, done):
    start(x, n)
    for step in ks.repeat(9, until=done):
        compare(x, y, n, done, 0.1)
        if step == 2:
            break


def nested(a, x, y, n, done):
    for _ in ks.repeat(9, until=done):
        for _ in ks.repeat(9, until=n):
            compare(x, y, n, done, 0.1)


def by_floats(a, x, y, n, done):
    for _ in ks.repeat(9, until=x[:1]):
        compare(x, y, n, done, 0.1)


def by_a_temporary(a, x, y, n, done):
    flag = ks.ndarray(ks.i32, 1)
    start(x, n)
    for _ in ks.repeat(9, until=flag):
        compare(x, x, n, flag, 0.1)


def never_written(a, x, y, n, done):
    start(x, n)
    for _ in ks.repeat(9, until=done):
        multiply(a, x, y)


def begun_by_the_caller(a, x, y, n, done):
    for _ in ks.repeat(9, until=done):
        multiply(a, x, y)
        compare(x, y, n, done, 0.1)
        move(y, x)


def begun_in_place(a, x, y, n, done):
    for _ in ks.repeat(9, until=done):
        relax_in_place(a, x, y)
        compare(x, y, n, done, 0.1)


def of_no_number(a, x, y, n, done):
    for _ in ks.repeat("9", until=done):
        compare(x, y, n, done, 0.1)


@pytest.mark.parametrize(
    ("sequence", "sentence"),
    [
        (exchanged, "the steps of a ks.repeat make different calls"),
        (left, "a sequence leaves a ks.repeat before its last step"),
        (nested, "ks.repeat is inside of another ks.repeat"),
        (by_floats, "until= is a part of another one"),
        (by_a_temporary, "tmp0 cannot end a repeat: it is no array of the caller"),
        (never_written, "done cannot end a repeat: no kernel of the repeat writes it"),
        (begun_by_the_caller, "x decides when done ends a repeat"),
        (begun_in_place, "x decides when done ends a repeat"),
        (of_no_number, "ks.repeat takes a number of steps, not '9'"),
    ],
)
def test_what_no_sequence_can_have_is_one_sentence(sequence: Any, sentence: str) -> None:
    with pytest.raises(LanguageError) as error:
        normalise(record_sequence(sequence, arrays()))
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("n_steps", [3, 4])
def test_copies_stay_where_the_number_of_steps_may_be_odd(n_steps: int) -> None:
    """Of arrays large enough to exchange their memory instead."""

    def halved(x, y, n, done, tolerance):
        start(x, n)
        for _ in ks.repeat(LIMIT, until=done):
            halve(x, y)
            compare(x, y, n, done, tolerance)
            move(y, x)

    given = [np.zeros(1000), np.zeros(1000), np.zeros(1, np.int32), np.zeros(1, np.int32)]
    tolerance = 0.75 * 0.5 ** (n_steps - 1)
    problem = normalise(record_sequence(halved, [*given, tolerance]))
    by_name = dict(zip(NAMES[1:], given, strict=True))
    found = run_tasks(problem, by_name, {"tolerance": tolerance})
    assert found["n"] == n_steps
    for name in ("x", "y"):
        np.testing.assert_allclose(found[name], 0.001 * 0.5**n_steps)


def test_rows_of_data_may_end_repeats() -> None:
    """A body that fills an array is no reason to refuse."""

    def sequence(first, column, x, y, n, done):
        start(x, n)
        for _ in ks.repeat(LIMIT, until=done):
            add_rows(first, column, x, y)
            compare(x, y, n, done, 1e-6)
            move(y, x)

    rng = np.random.default_rng(5)
    first = np.arange(0, 26, 2, dtype=np.int32)
    given = [first, rng.integers(0, 12, 24, np.int32), np.zeros(12), np.zeros(12)]
    given += [np.zeros(1, np.int32), np.zeros(1, np.int32)]
    recording = record_sequence(sequence, given)
    by_name = dict(zip(("first", "column", *NAMES[1:]), given, strict=True))
    want, found = (
        run_reference(recording, by_name, {}),
        run_tasks(normalise(recording), by_name, {}),
    )
    assert 5 < found["n"] == want["n"] < LIMIT
    np.testing.assert_allclose(found["x"], want["x"], rtol=1e-12)


def test_wrong_arrays_of_plain_loops_are_one_sentence() -> None:
    for wrong, found in (
        (np.zeros(1), "float64 of shape (1,)"),
        (np.zeros(2, np.int32), "int32 of shape (2,)"),
        (3, "3"),
    ):
        with pytest.raises(LanguageError, match="ends by an array of one integer") as error:
            ks.repeat(2, until=wrong)
        assert str(error.value).endswith(f"until= is {found}")


def test_an_array_that_ends_a_repeat_is_seen() -> None:
    recording = record_sequence(powers, [*arrays(), 0.1])
    with pytest.raises(LanguageError, match="done cannot be unseen: it ends a repeat"):
        recording.with_unseen(("done",))


@pytest.mark.usefixtures("program")
def test_fields_end_repeats_too() -> None:
    flag, x = ks.field(ks.i32, ()), ks.field(ks.f64, 8)

    @ks.kernel
    def fill():
        for i in x:
            x[i] = i

    @ks.kernel
    def halve():
        for i in x:
            x[i] = 0.5 * x[i]

    @ks.kernel
    def test():
        flag[None] = x[7] < 1.0

    def sequence():
        fill()
        for _ in ks.repeat(20, until=flag):
            halve()
            test()

    sequence()
    assert x[7] == 7 / 8
    recording = record_sequence(sequence, [])
    assert [(r.first, r.stop, r.count) for r in recording.repeats] == [(1, 3, 20)]
    held = {p.name: p for p in recording.arrays}[recording.repeats[0].until]
    assert (held.dtype.name, held.shape) == ("i32", (1,))
