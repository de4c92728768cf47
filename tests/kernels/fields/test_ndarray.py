"""Arrays of the program that kernels take as arguments."""

from __future__ import annotations

import copy

import kernelscape as ks
import numpy as np
import pytest


def test_an_ndarray_has_the_operations_of_a_field():
    a, b = ks.ndarray(ks.f32, (2, 3)), ks.ndarray(ks.i32, shape=(2, 3))
    assert isinstance(a, ks.Ndarray) and (a.shape, a.dtype, a.element_shape) == ((2, 3), ks.f32, ())
    assert not a.to_numpy().any()
    a.fill(3.7)
    a[0, 1] = 1
    b.copy_from(a)
    assert b.to_numpy().tolist() == [[3, 1, 3], [3, 3, 3]] and isinstance(b[0, 1], int)
    b.from_numpy(np.ones((2, 3)))
    assert b[1, 2] == 1 and np.array(b).sum() == 6 and copy.deepcopy(b)[0, 0] == 1
    assert repr(a) == "<ks.ndarray f32, shape (2, 3)>"


def test_types_and_shapes():
    assert ks.ndarray(int, 3).dtype is ks.i32 and ks.ndarray(float, ()).shape == ()
    n = ks.ndarray(float, ())
    n[None] = 4
    assert n[None] == 4 and n.to_numpy().shape == ()


def test_vectors_lie_together():
    v = ks.Vector.ndarray(3, ks.f32, shape=4)
    v[1] = [1, 2, 3]
    v[1][2] = 9
    v[1].x = 4
    assert v[1].to_list() == [4, 2, 9] and v.array.shape == v.to_numpy().shape == (4, 3)
    v.fill([1, 2, 3])
    assert v[3].to_list() == [1, 2, 3] and (v.n, v.m, v.element_shape) == (3, 1, (3,))
    m = ks.Matrix.ndarray(2, 2, ks.f32, shape=(2,))
    m.fill(ks.Matrix([[1, 2], [3, 4]]))
    m[0][0, 1] = 7
    assert m.to_numpy().tolist() == [[[1, 7], [3, 4]], [[1, 2], [3, 4]]] and (m.n, m.m) == (2, 2)
    vec3 = ks.types.vector(3, float)
    assert ks.ndarray(vec3, 4).array.shape == vec3.ndarray(4).array.shape == (4, 3)
    assert repr(v) == "<ks.ndarray f32 of 3, shape (4,)>"


def test_dlpack():
    a = ks.ndarray(ks.f64, (2, 3))
    shared = np.from_dlpack(a)
    a[1, 1] = 5
    assert shared[1, 1] == 5
    given = np.arange(6.0)
    taken = ks.from_dlpack(given)
    taken[2] = 9
    assert given[2] == 9 and (taken.shape, taken.dtype) == ((6,), ks.f64)
    with pytest.raises(ks.LanguageError, match="takes memory in C order"):
        ks.from_dlpack(np.ones((4, 4))[:, ::2])
    with pytest.raises(ks.LanguageError, match="int hands out no memory"):
        ks.from_dlpack(3)


@ks.kernel
def doubled(a: ks.types.ndarray(), b: ks.types.ndarray()):
    for i in range(a.shape[0]):
        b[i] = a[i] + a[i]


def test_kernels_take_them():
    a, b = ks.ndarray(ks.f32, 4), np.zeros(4, np.float32)
    a.fill(3)
    doubled(a, b)
    doubled(b, a)
    assert b.tolist() == [6] * 4 and a[3] == 12


def test_recorded_sequences_take_them():
    from kernelscape.kernels.frontend.recorder import record_sequence

    recording = record_sequence(doubled, [ks.ndarray(ks.f32, 4), np.zeros(4, np.float32)])
    assert [(p.name, p.shape) for p in recording.arrays] == [("a", (4,)), ("b", (4,))]


a = "ks.ndarray(ks.f32, (2, 3))"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"{a}[0]", "takes 2 indices, not 1"),
        (f"{a}[2, 0]", "has indices 0 to 1 along axis 0, not 2"),
        (f"{a}[0, 1.5]", "takes whole numbers as indices, not 1.5"),
        (f"{a}.__setitem__((0, 0), 'a')", "takes a number of type f32"),
        (f"{a}.from_numpy(np.zeros(4))", r"takes numbers of shape \(2, 3\), not float64 of \(4,\)"),
        (f"{a}.from_numpy([1])", "takes a NumPy array, not list"),
        (f"{a}.copy_from(3)", "copy_from takes an ndarray, not int"),
        (f"list({a})", "only kernels loop over an ndarray"),
        (
            "ks.ndarray(ks.i32, 3, needs_grad=True)",
            "i32 is not supported for ndarrays that have a gradient",
        ),
        ("ks.Vector.ndarray(2, ks.f32, 3).__setitem__(0, 5)", "takes 2 components, not 5"),
        ("ks.Vector.ndarray(2, ks.f32, 3).fill([1, 2, 3])", "takes 2 components"),
        ("ks.ndarray('abc', 3)", "'abc' is no type of elements"),
        ("ks.ndarray(ks.f32, -1)", "has an extent that is not positive"),
        ("ks.ndarray(ks.f64, (1 << 30, 1 << 30))", "there is no memory for an ndarray"),
    ],
)
def test_what_goes_wrong_is_one_sentence_with_its_line(text, sentence):
    with pytest.raises(ks.LanguageError, match=sentence) as caught:
        eval(text, {"ks": ks, "np": np})
    assert caught.value.where.file == "<string>"
