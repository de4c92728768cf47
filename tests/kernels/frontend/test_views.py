"""Slices, transposes and other views as arguments of kernels and in sequences."""

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend.errors import LanguageError
from kernelscape.kernels.frontend.recorder import record, record_sequence
from kernelscape.kernels.interpret.executor import interpret
from kernelscape.testing.interpreted import run_reference
from numpy.lib.stride_tricks import as_strided, sliding_window_view

nd = ks.types.ndarray()


@ks.kernel
def product(a: nd, b: nd, c: nd):
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            total = 0.0
            for k in range(a.shape[1]):
                total += a[i, k] * b[k, j]
            c[i, j] = total


@ks.kernel
def copy(x: nd, y: nd):
    for i in range(y.shape[0]):
        y[i] = x[i]


@ks.kernel
def gather(x: nd, at: nd, y: nd):
    for i in range(y.shape[0]):
        y[i] = x[at[i]]


def matrices():
    rng = np.random.default_rng(0)
    return rng.random((12, 14)), rng.random((20, 16)), np.zeros((30, 30))


VIEWS = {
    "slices": lambda a, b, c: (a[2:8, 1:9], b[:8, 3:10], c[5:11, :7]),
    "strides": lambda a, b, c: (a[::2, ::2], b[:14:2, ::3], c[::5, 1:7]),
    "backwards": lambda a, b, c: (a[::-1, :8], b[8:0:-1, ::-2], c[:12, 7::-1]),
    "transposed": lambda a, b, c: (a.T, b[:12].T[:12], c.T[:14, :12]),
    "fortran": lambda a, b, c: (np.asfortranarray(a), np.asfortranarray(b[:14]), c.T[:12, :16]),
    "broadcast": lambda a, b, c: (np.broadcast_to(a[0], (12, 14)), b[:14, :1], c[:12, :1]),
    "parts of one": lambda a, b, c: (c[:4, :4] + 1, c[4:8, :4], c[4:8, 4:8]),
    "windows": lambda a, b, c: (sliding_window_view(a[0], 4), b[:4], c[:11, :16]),
}


@pytest.mark.parametrize("case", VIEWS)
def test_views_are_taken_in_place(case):
    for runs in ("engine", "interpreter"):
        a, b, c = matrices()
        x, y, z = VIEWS[case](a, b, c)
        expected = c.copy()
        VIEWS[case](a, b, expected)[2][...] = x @ y
        if runs == "engine":
            product(x, y, z)
        else:
            with interpret():
                product(x, y, z)
        np.testing.assert_allclose(c, expected)


def test_views_of_one_array_are_known_to_meet():
    x = np.arange(10.0)
    copy(x[::2], x[1::2])
    assert x.tolist() == [0, 0, 2, 2, 4, 4, 6, 6, 8, 8]
    ir = copy.instantiate(x[1:], x[:-1])
    assert [a.shape for a in ir.arrays] == [(10,)]
    x = np.arange(40.0).reshape(4, 10)
    expected = x.copy()
    expected[1:, :5] = x[:-1, 5:]
    rows(x[:-1, 5:], x[1:, :5])
    np.testing.assert_array_equal(x, expected)


@ks.kernel
def rows(x: nd, y: nd):
    for i in range(y.shape[0]):
        for j in range(y.shape[1]):
            y[i, j] = x[i, j]


def test_halves_that_do_not_meet_are_arrays_of_their_own():
    x = np.arange(10.0)
    ir = copy.instantiate(x[:5], x[5:])
    assert [a.name for a in ir.arrays] == ["x", "y"]
    assert copy.instantiate(x.reshape(2, 5)[0], x[5:]) == ir


def test_quick_calls_are_of_contiguous_arrays_alone():
    x, y = np.arange(4.0), np.zeros(4)
    for _ in range(3):
        copy(x, y)
    copy(x[::-1], y)
    assert y.tolist() == [3, 2, 1, 0]
    copy(x, x)
    z = np.arange(5.0)
    copy(z[1:], z[:-1])
    assert z.tolist() == [1, 2, 3, 4, 4]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.broadcast_to(1.0, 4), "`y.i.` writes the argument y, which is read-only: pass a copy"),
        (as_strided(np.zeros(1), (4,), (0,)), "argument y, whose elements are one and the same"),
    ],
)
def test_what_cannot_be_written(y, message):
    with pytest.raises(LanguageError, match=message) as caught:
        copy(np.ones(8)[::2], y)
    assert "test_views.py:" in str(caught.value)


def test_indices_of_a_view_are_those_of_the_program():
    x = np.arange(10.0)[::-2]
    y = np.zeros(3)
    gather(x, np.array([4, 0, 1]), y)
    assert y.tolist() == [1, 9, 7]
    with pytest.raises(IndexError, match="nothing was written"):
        gather(x, np.array([4, 5, 1]), y)
    assert y.tolist() == [1, 9, 7]
    with pytest.raises(LanguageError, match=r"index 0 of x in `x\[i\]` reaches 4, outside 0..3"):
        copy(x[1:], np.zeros(5))


def test_vectors_in_views():
    @ks.kernel
    def turned(x: ks.types.ndarray(dtype=ks.types.vector(2, ks.f64)), y: nd):
        for i in range(y.shape[0]):
            x[i] = x[i].yx * y[i]

    x = np.arange(12.0).reshape(6, 2)
    expected = x.copy()
    expected[::2] = expected[::2, ::-1] * 2
    turned(x[::2], np.full(3, 2.0))
    np.testing.assert_array_equal(x, expected)


def test_sequences_slice_and_transpose():
    def seq(x, y, z):
        t = ks.ndarray(ks.f64, (6, 6))
        product(x[:6, 2:8], x.T[3:9, :6], t)
        product(t[::-1], y[..., :6][:6], z[1:7, None, 4:10][:, 0])
        copy(z[1], z[0])

    def in_numpy(x, y, z):
        t = x[:6, 2:8] @ x.T[3:9, :6]
        z[1:7, 4:10] = t[::-1] @ y[:6, :6]
        z[0] = z[1]

    given = matrices()
    expected = [a.copy() for a in given]
    in_numpy(*expected)
    recording = record_sequence(seq, given)
    assert [a.shape for a in recording.arrays] == [(12, 14), (20, 16), (30, 30)]
    arrays = dict(zip("xyz", given, strict=True))
    done = run_reference(recording, arrays, {})
    for name, e in zip("xyz", expected, strict=True):
        np.testing.assert_allclose(done[name], e)


@pytest.mark.parametrize(
    ("seq", "message"),
    [
        (lambda x, y, z: copy(x[0, 1], y), "used the elements of the array x"),
        (lambda x, y, z: copy(x[[0, 1]], y), "used the elements of the array x"),
        (lambda x, y, z: copy(x[0:1, 1, 2], y), "slices the array x along 3 axes, and it has 2"),
        (lambda x, y, z: copy(x[12, :], y), "takes index 12 of axis 0 of the array x"),
        (lambda x, y, z: copy(x.transpose(0, 0), y), "no order of its 2 axes"),
    ],
)
def test_what_a_sequence_cannot_slice(seq, message):
    with pytest.raises(LanguageError, match=message):
        record_sequence(seq, matrices())


def test_an_open_recording_takes_views():
    x, y = np.arange(10.0), np.zeros(5)
    with record() as found:
        copy(x[::2], y)
        with pytest.raises(LanguageError, match="share memory: pass a copy"):
            copy(x, y[:0])
    assert [c.arrays for c in found.calls] == [("a0", "a1")]


@pytest.mark.parametrize(
    "array",
    [
        np.ma.masked_array(np.ones(8), mask=True),
        np.ma.masked_array(np.ones(8), mask=True)[::2],
        np.ma.masked_array(np.ones(8, complex), mask=True)[::2],
        np.rec.array([1.0, 2.0]),
    ],
)
def test_arrays_that_are_more_than_their_numbers_are_refused(array):
    @ks.kernel
    def ones(x: nd):
        for i in range(x.shape[0]):
            x[i] = 1

    with pytest.raises(
        LanguageError, match=r"the argument x of the kernel ones is a .*pass np\.asarray"
    ):
        ones(array)
