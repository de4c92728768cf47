"""Loops of Python around kernels, in a sequence: one repeat, whatever the number of steps."""

from __future__ import annotations

import numpy as np
import pytest
from kernelscape.kernels.frontend.kernel import kernel, ndrange, types
from kernelscape.kernels.frontend.recorder import ndarray, record, record_sequence
from kernelscape.kernels.tasks.archive import ArchiveError, from_values, to_values
from kernelscape.kernels.tasks.dependence import carried_flows
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.kernels.tasks.state_flow import build_graph, show_graph
from kernelscape.testing.interpreted import run_reference
from kernelscape.testing.run_tasks import run_tasks

nd = types.ndarray()


@kernel
def step(a: nd, b: nd):
    for i in range(1, a.shape[0] - 1):
        b[i] = 0.5 * (a[i - 1] + a[i + 1])


@kernel
def scale(a: nd, s: float):
    for i in range(a.shape[0]):
        a[i] = s * a[i]


@kernel
def copy(a: nd, b: nd):
    for i in range(a.shape[0]):
        b[i] = a[i]


def swapped(a, b):
    for _ in range(101):
        step(a, b)
        a, b = b, a


def nested(a, b):
    scale(a, 0.5)
    for _ in range(20):
        for _ in range(30):
            step(a, b)
            step(b, a)
        scale(a, 0.99)
    copy(a, b)


def numbered(a, b):
    for t in range(20):
        scale(a, 1.0 + t)
    copy(a, b)


@kernel
def shift(a: nd, b: nd, t: int):
    for i in range(t % 4, a.shape[0]):
        b[i] = a[i] + 0.5 * a[t % 4] - t


def indexed(a, b):
    """Numbers that grow by the same in each step."""
    for t in range(21):
        shift(a, b, t)
        shift(b, a, 60 - 2 * t)
    copy(a, b)


@kernel
def half(a: nd, k: int):
    for i in range(a.shape[0] // 2):
        a[2 * i + k] = a[2 * i + 1 - k] + 1.0


def in_turn(a, b):
    """The step itself is in one of two places."""
    for t in range(101):
        half(a, t % 2)


def signs(a, b):
    for _ in range(20):
        scale(a, 0.0)
        scale(b, -0.0)


def memory(a, b):
    """What a step leaves in a temporary is read by the next."""
    kept = ndarray(a.dtype, a.shape, name="kept")
    for _ in range(20):
        step(kept, b)
        copy(a, kept)


@kernel
def sweeps(a: nd, b: nd):
    for _ in range(7):
        for i in range(1, a.shape[0] - 1):
            b[i] = 0.5 * (a[i - 1] + a[i + 1])
        for i in range(1, a.shape[0] - 1):
            a[i] = 0.5 * (b[i - 1] + b[i + 1])


@kernel
def normalised(a: nd, b: nd):
    for _ in range(7):
        s = 0.0
        for i in range(a.shape[0]):
            s += a[i] * a[i]
        for i in range(a.shape[0]):
            a[i] = a[i] / s + b[i]


@kernel
def in_place(a: nd, b: nd):
    for _ in range(7):
        for i in range(1, a.shape[0] - 1):
            a[i] = 0.5 * (a[i - 1] + b[i + 1])


@kernel
def by_step(a: nd, b: nd):
    for t in range(7):
        for i in range(1, a.shape[0] - 1):
            b[i] = a[i - 1] + t
        for i in range(1, a.shape[0] - 1):
            a[i] = b[i - 1] + b[i + 1]


def of(sequence):
    rng = np.random.default_rng(1)
    arrays = [rng.random(8) for _ in range(2)]
    return record_sequence(sequence, arrays), dict(zip("ab", arrays, strict=True))


def spans(recording):
    return [(r.first, r.stop, r.count) for r in recording.repeats]


@pytest.mark.parametrize(
    ("sequence", "n_calls", "repeats"),
    [
        (swapped, 3, [(0, 2, 50)]),
        (nested, 5, [(1, 4, 20), (1, 3, 30)]),
        (numbered, 21, []),
        (indexed, 3, [(0, 2, 21)]),
        (in_turn, 3, [(0, 2, 50)]),
        (signs, 2, [(0, 2, 20)]),
        (memory, 2, [(0, 2, 20)]),
    ],
)
def test_calls_are_written_down_once(sequence, n_calls, repeats):
    recording, arrays = of(sequence)
    assert len(recording.calls) == n_calls
    assert spans(recording) == repeats
    want = run_reference(recording.unrolled(), arrays, {})
    found = run_reference(recording, arrays, {})
    by_tasks = run_tasks(normalise(recording), arrays, {})
    for name in arrays:
        np.testing.assert_array_equal(found[name], want[name])
        np.testing.assert_allclose(by_tasks[name], want[name], rtol=1e-12)


def test_a_recording_with_repeats_is_data():
    recording, _ = of(nested)
    values = to_values(recording)
    assert from_values(values) == recording
    flat = of(numbered)[0]
    assert "repeats" not in to_values(flat)  # as files of before
    for wrong in ([(0, 9, 2)], [(0, 2, 3), (1, 3, 2)], [(0, 1, 1 << 40)]):
        one = values["repeats"][0]
        edited = [{**one, "first": a, "stop": b, "count": n} for a, b, n in wrong]
        with pytest.raises(ArchiveError):
            from_values({**values, "repeats": edited})


def test_what_a_step_leaves_for_the_next():
    problem = normalise(of(memory)[0])
    names = [t.name for t in problem.tasks]
    assert names == ["zero_kept", "step0", "copy0"]
    assert [t.n_runs for t in problem.tasks] == [1, 20, 20]
    carried = {(names[d.source], names[d.sink], d.array) for d in carried_flows(problem)}
    assert carried == {("copy0", "step0", "kept")}
    shown = show_graph(build_graph(problem))
    assert "repeat t<20: step0 to copy0\n" in shown
    assert "copy0 => step0  next step value(kept)" in shown


def test_a_store_that_the_next_step_overwrites_is_dead_but_for_the_last():
    def overwritten(a, b):
        for _ in range(20):
            copy(a, b)
            scale(a, 0.5)

    problem = normalise(of(overwritten)[0])
    assert [t.name for t in problem.tasks] == ["copy0", "scale0"]
    assert not [d for d in carried_flows(problem) if d.array == "b"]


@pytest.mark.parametrize(
    ("fn", "n_tasks", "n_runs"),
    [
        (sweeps, 2, 7),
        (normalised, 2, 7),
        (in_place, 1, 1),  # no loop of a step has independent iterations
        (by_step, 2, 7),  # the number of the step is used
    ],
)
def test_time_loops_of_a_kernel(fn, n_tasks, n_runs):
    def sequence(a, b):
        fn(a, b)
        fn(b, a)

    recording, arrays = of(sequence)
    problem = normalise(recording)
    assert [t.n_runs for t in problem.tasks] == [n_runs] * (2 * n_tasks)
    assert [len(r.members) for r in problem.repeats] == ([n_tasks] * 2 if n_runs > 1 else [])
    want = run_reference(recording, arrays, {})
    found = run_tasks(problem, arrays, {})
    for name in arrays:
        np.testing.assert_allclose(found[name], want[name], rtol=1e-12)


@kernel
def multiply(a: nd, x: nd, y: nd):
    for i, j in ndrange(a.shape[0], a.shape[1]):
        y[i] += a[i, j] * x[j]


@kernel
def dot(x: nd, y: nd, r: nd):
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i] * y[i]
    r[0] = total


@kernel
def ratio(r: nd, num: nd, den: nd):
    r[0] = num[0] / den[0]


@kernel
def move(y: nd, x: nd, a: nd, sign: float):
    for i in range(x.shape[0]):
        y[i] += sign * a[0] * x[i]


@kernel
def turn(p: nd, r: nd, b: nd):
    for i in range(p.shape[0]):
        p[i] = r[i] + b[0] * p[i]


@kernel
def clear(y: nd):
    for i in range(y.shape[0]):
        y[i] = 0.0


def conjugate_gradients(a, x, r, p, q, rr, new, pq, f):
    dot(r, r, rr)
    for _ in range(100):
        clear(q)
        multiply(a, p, q)
        dot(p, q, pq)
        ratio(f, rr, pq)
        move(x, p, f, 1.0)
        move(r, q, f, -1.0)
        dot(r, r, new)
        ratio(f, new, rr)
        turn(p, r, f)
        copy(new, rr)


def test_steps_with_one_array_given_twice_are_one_repeat():
    """Kind: calls that are equal and were recorded as different, since each had an IR of its own."""
    rng = np.random.default_rng(0)
    n = 8
    a = rng.random((n, n))
    a = a @ a.T + n * np.eye(n)
    b = rng.random(n)
    ones = [np.zeros(1) for _ in range(4)]
    recording = record_sequence(
        conjugate_gradients, (a, np.zeros(n), b.copy(), b.copy(), np.zeros(n), *ones)
    )
    assert [(r.first, r.stop, r.count) for r in recording.repeats] == [(1, 11, 100)]
    problem = normalise(recording)
    assert len(problem.tasks) <= 11
    (repeat,) = problem.repeats
    assert repeat.count == 100


@kernel
def both(x: nd, y: nd, r: nd):
    for i in range(x.shape[0]):
        r[i] += x[i] * y[i]


def test_each_pattern_of_arrays_given_twice_is_one_kernel():
    x, y, r = (np.arange(4.0) + k for k in range(3))
    patterns = [(x, y, r), (x, x, r), (x, y, x), (x, y, y), (x, x, x)]
    with record() as recorder:
        for _ in range(3):
            for given in patterns:
                both(*given)
    found = {tuple(map(id, given)): set() for given in patterns}
    for call, given in zip(recorder.calls, patterns * 3, strict=True):
        found[tuple(map(id, given))].add(id(call.ir))
    assert all(len(irs) == 1 for irs in found.values())
    assert len(set.union(*found.values())) == len(patterns)
