"""Local arrays of constant size inside kernels."""

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend.errors import LanguageError
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.interpret.executor import interpret
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.testing.interpreted import run_reference

nd = ks.types.ndarray()


@ks.func
def raised(counts, k):
    counts[k] += 1
    return counts[k]


@ks.kernel
def statistics(x: nd, y: nd):
    for i in range(x.shape[0]):
        counts = np.zeros(64, dtype=np.int64)
        table = np.full((4, 4, 3), 2.0)
        most = 0
        for j in range(x.shape[1]):
            k = x[i, j] % 64
            if raised(counts, k) > counts[most]:
                most = k
            table[k % 4, j % 4, 1] += 0.5
        counts[0], counts[1] = counts[1], counts[0]
        y[i, 0] = most
        y[i, 1] = table[1, 2, 1] * table[0, 0, 2]
        y[i, 2] = counts[0] - counts[1] + len(counts) + table.shape[2] + counts.size


def in_numpy(x, y):
    for i, row in enumerate(x % 64):
        counts = np.bincount(row, minlength=64)
        table = np.full((4, 4), 2.0)
        np.add.at(table, (row % 4, np.arange(len(row)) % 4), 0.5)
        first = [np.bincount(row[: j + 1], minlength=64).max() for j in range(len(row))]
        y[i, 0] = row[first.index(counts.max())]
        y[i, 1] = table[1, 2] * 2
        y[i, 2] = counts[1] - counts[0] + 64 + 3 + 64


def test_all_ways_to_run_them_agree():
    x = np.random.default_rng(1).integers(0, 999, (20, 90))
    want, compiled, one = np.zeros((20, 3)), np.zeros((20, 3)), np.zeros((20, 3))
    in_numpy(x, want)
    statistics(x, compiled)
    np.testing.assert_array_equal(compiled, want)
    with interpret():
        statistics(x, one)
    np.testing.assert_array_equal(one, want)
    recording = record_sequence(lambda x, y: statistics(x, y), (x, one))
    done = run_reference(recording, {"x": x, "y": np.zeros((20, 3))}, {})
    np.testing.assert_array_equal(done["y"], want)
    (task,) = normalise(recording).tasks
    assert task.body is not None and task.body.reason.text == "the local array array"


def test_small_ones_are_vectors_as_before():
    @ks.kernel
    def lengths(y: nd):
        for i in y:
            v = np.full(3, 2.0) + np.ones(3)
            w = np.zeros_like(v)
            w[i % 3] = v.norm()
            y[i] = w[0] + w[1] + w[2]

    y = np.zeros(4)
    lengths(y)
    np.testing.assert_allclose(y, np.sqrt(27))


def test_what_is_like_another_array():
    @ks.kernel
    def copied(x: nd, y: nd):
        for i in y:
            row = np.empty_like(x)
            for j in range(40):
                row[j] = x[39 - j] + 1
            y[i] = row[i]

    x, y = np.arange(40, dtype=np.int16), np.zeros(40, np.int16)
    copied(x, y)
    assert y.tolist() == list(range(40, 0, -1))


def test_a_name_may_be_that_of_an_array_in_each_loop():
    @ks.kernel
    def twice(x: nd, y: nd):
        for i in x:
            a = np.zeros(40)
            a[i] = 2.0
            x[i] = a[i]
        for i in y:
            a = np.ones((5, 5, 5), np.float32)
            y[i] = a[i % 5, 0, 0]

    x, y = np.zeros(4), np.zeros(7)
    twice(x, y)
    assert set(x) == {2.0} and set(y) == {1.0}


def refused(message):
    def mark(fn):
        REFUSED.append((ks.kernel(fn), message))
        return fn

    return mark


REFUSED = []


@refused("made before the loop, whose iterations would share it: make it in the loop")
def shared(y: nd):
    a = np.zeros(64)
    for i in y:
        y[i] = a[i]


@refused(r"index 0 of array in `a\[64\]` reaches 64, outside 0..63")
def outside(y: nd):
    for i in y:
        a = np.zeros(64)
        y[i] = a[64]


@refused("has 2 dimensions but is indexed with 1")
def of_two_axes(y: nd):
    for i in y:
        a = np.zeros((8, 8))
        y[i] = a[i]


@refused("the array `a` is assigned as a whole")
def whole(y: nd):
    for i in y:
        a = np.zeros(64)
        a = 1.0
        y[i] = a[0]


@refused("has 1000000 elements: a local array takes up to 65536 bytes")
def large(y: nd):
    for i in y:
        a = np.zeros((1000, 1000))
        y[i] = a[0, 0]


@refused("local arrays and vectors have real elements, make one for each part")
def of_complex_numbers(y: nd):
    for i in y:
        a = np.zeros(64, complex)
        y[i] = a[i].real


@refused("how many components there are must be a constant")
def of_any_size(y: nd):
    for i in y:
        a = np.zeros(i)
        y[i] = a[0]


@pytest.mark.parametrize(("kernel", "message"), REFUSED)
def test_what_is_refused(kernel, message):
    with pytest.raises(LanguageError, match=message):
        kernel.instantiate(np.zeros(8))


def test_an_index_outside_is_told_by_the_interpreter():
    @ks.kernel
    def wrong(x: nd, y: nd):
        for i in y:
            a = np.zeros(64)
            a[x[i]] = 1.0
            y[i] = a[0]

    with (
        interpret(),
        pytest.raises(IndexError, match=r"index 0 of array\w* is 64, outside 0..63"),
    ):
        wrong(np.full(3, 64), np.zeros(3))
