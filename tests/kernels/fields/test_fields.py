"""Fields of numbers, vectors and matrices from Python."""

from __future__ import annotations

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.fields import field_memory
from kernelscape.kernels.ir.kernel import DType


def test_a_field_begins_as_zeros_and_takes_elements():
    x = ks.field(ks.f32, shape=(3, 4))
    assert (x.shape, x.dtype, x.name, x.offset) == ((3, 4), DType.f32, "x", ())
    assert not x.to_numpy().any()
    x[1, 2] = 2.5
    x[np.int32(2), np.int64(0)] = True
    assert x[1, 2] == 2.5 and isinstance(x[1, 2], float)
    assert x.to_numpy()[2, 0] == 1
    assert str(x) == str(x.to_numpy()) and repr(x) == "<the field x>"


def test_a_field_without_dimensions():
    n = ks.field(int, shape=())
    n[None] = 7
    n[None] += 1
    assert n[None] == n[()] == 8 and isinstance(n[None], int)
    assert n.shape == () and n.to_numpy().shape == () and n.array.shape == (1,)
    n.from_numpy(np.array(3))
    assert str(n) == "3"
    v = ks.Vector.field(2, float, shape=())
    v[None] = [1, 2]
    assert v.array.shape == (2, 1) and v.to_numpy().tolist() == [1, 2] and v[None][1] == 2


def test_components_lead():
    v = ks.Vector.field(3, ks.f32, shape=(4, 5))
    m = ks.Matrix.field(2, 3, ks.i32, shape=4)
    assert v.array.shape == (3, 4, 5) and m.array.shape == (2, 3, 4)
    assert v.array.flags.c_contiguous and m.array.flags.c_contiguous
    assert (v.n, v.m, v.ndim, m.n, m.m, m.ndim) == (3, 1, 1, 2, 3, 2)
    given = np.arange(60, dtype=np.float64).reshape(4, 5, 3)
    v.from_numpy(given)
    assert (v.array[1] == given[..., 1]).all()
    assert (v.to_numpy() == given).all() and v.to_numpy().dtype == np.float32
    assert v.to_numpy().flags.c_contiguous
    assert v.to_numpy(dtype=np.float64).dtype == np.float64
    assert v.to_numpy(keep_dims=True).shape == (4, 5, 3, 1)
    v.from_numpy(given[..., None])
    assert (v.to_numpy() == given).all()
    squares = np.arange(24).reshape(4, 2, 3)
    m.from_numpy(squares)
    assert (m.to_numpy() == squares).all() and m[1].to_list() == squares[1].tolist()


@pytest.mark.parametrize("shape", [3, [3], (3,), np.int64(3), (np.int32(3),)])
def test_shapes_are_numbers_or_tuples(shape):
    assert ks.field(ks.f32, shape).shape == (3,)


def test_elements_of_vectors_are_places():
    v = ks.Vector.field(3, ks.f32, shape=3)
    v[0] = [1, 2, 3]
    v[1] = ks.Vector([1, 2, 3])
    v[1] += 1
    v[0][1] = 9
    v[0].x += 4
    v[2].zy = (5, 6)
    assert v.to_numpy().tolist() == [[5, 9, 3], [2, 3, 4], [0, 6, 5]]
    kept = v[0]
    v[0][0] = 77
    assert kept.x == 77 and isinstance(kept.x, float)
    v[2].fill(1)
    assert list(v[2]) == [1, 1, 1]
    m = ks.Matrix.field(2, 2, ks.i32, shape=2)
    m[0] = [[1, 2], [3, 4]]
    m[0][0, 1] = 7
    assert m[0].to_list() == [[1, 7], [3, 4]] and isinstance(m[0][0, 1], int)


def test_elements_are_read_as_numbers_of_python():
    v = ks.Vector.field(2, ks.f32, shape=1)
    v[0] = [0.1, 3]
    assert (v[0] + 0).to_numpy().dtype == np.float64
    assert v[0].norm() == np.sqrt(float(np.float32(0.1)) ** 2 + 9)


def test_fill():
    x, v, m = ks.field(int, 3), ks.Vector.field(2, float, (2, 2)), ks.Matrix.field(2, 1, float, 2)
    x.fill(2.7)
    v.fill([1, 2])
    assert x.to_numpy().tolist() == [2, 2, 2] and v.to_numpy()[1, 1].tolist() == [1, 2]
    v.fill(ks.Vector([3, 4]))
    assert v[0, 1].to_list() == [3, 4]
    v.fill(5)
    m.fill([[1], [2]])
    assert v[1, 0].to_list() == [5, 5] and m[1].to_list() == [[1], [2]]


def test_copy_from():
    x, y = ks.field(ks.f32, 3), ks.field(ks.i32, 3)
    x.from_numpy(np.array([1.5, 2, 3]))
    y.copy_from(x)
    assert y.to_numpy().tolist() == [1, 2, 3]
    v, w = ks.Vector.field(2, float, 3), ks.Vector.field(2, int, 3)
    w.fill(2)
    v.copy_from(w)
    assert v[2].to_list() == [2, 2]


def test_integers_wrap_around():
    x = ks.field(ks.i32, 2)
    x[0] = 2**31 + 1
    x[1] = 2**40
    assert x.to_numpy().tolist() == [-(2**31) + 1, 0]


def test_floats_that_are_too_large_are_infinite():
    x = ks.field(ks.f32, 2)
    x[0], x[1] = 1e40, -1e40
    assert x.to_numpy().tolist() == [np.inf, -np.inf]


def test_truth_values_are_read_as_zero_and_one():
    x = ks.field(bool, 2)
    x[1] = True
    assert repr([x[0], x[1]]) == "[0, 1]" and x.to_numpy().dtype == np.bool_


def test_offset():
    x = ks.field(ks.f32, shape=(4, 4), offset=(-2, 1))
    x[-2, 1] = 3
    x[1, 4] = 5
    assert x.shape == (4, 4) and x.offset == (-2, 1)
    assert x.to_numpy()[0, 0] == 3 and x.to_numpy()[3, 3] == 5
    with pytest.raises(ks.LanguageError, match="indices -2 to 1 along axis 0, not 2"):
        _ = x[2, 1]
    assert ks.field(float, 3, offset=2).offset == (2,)


def test_the_field_of_a_component_shares_its_memory():
    v = ks.Vector.field(2, ks.f32, 3)
    second = v.get_scalar_field(1)
    second[2] = 4
    assert v[2].y == 4 and second.whole is v and second.component == (1,)
    assert second.shape == (3,) and np.shares_memory(second.array, v.array)


@pytest.mark.parametrize("shape", [(3,), (5, 7), (1 << 20,), (3 << 19,)])
def test_memory_is_aligned_and_zero(shape):
    a, b = field_memory.zeros(shape, DType.f32), field_memory.zeros(shape, DType.f32)
    assert a.shape == shape and a.flags.c_contiguous and a.flags.writeable
    assert a.ctypes.data % field_memory.LINE == b.ctypes.data % field_memory.LINE == 0
    assert not a.any() and not np.shares_memory(a, b)


def test_large_fields_begin_at_different_places_of_a_page():
    starts = {field_memory.zeros((1 << 20,), DType.f32).ctypes.data % 4096 for _ in range(4)}
    assert len(starts) == 4


def test_dlpack_shares_memory():
    x = ks.field(ks.f32, (2, 3))
    shared = np.from_dlpack(x)
    x[1, 2] = 4
    assert shared[1, 2] == 4 and shared.shape == (2, 3)
    x.from_dlpack(np.ones((2, 3)))
    assert shared.sum() == 6
    assert np.from_dlpack(ks.field(ks.i64, ())).shape == ()
    v = ks.Vector.field(2, ks.f32, 3)
    components_last = np.from_dlpack(v)
    v[2] = [5, 6]
    assert components_last[2].tolist() == [5, 6]


class Tensor:
    """What is used of a tensor of torch."""

    def __init__(self, array):
        self.array = array

    def detach(self):
        return self

    cpu = detach

    def numpy(self):
        return self.array


def test_from_torch_takes_what_has_its_methods():
    v = ks.Vector.field(2, ks.f32, 2)
    v.from_torch(Tensor(np.array([[1, 2], [3, 4]])))
    assert v[1].to_list() == [3, 4]


def test_to_torch():
    v = ks.Vector.field(2, ks.f32, 2)
    try:
        import torch
    except ImportError:
        with pytest.raises(ks.LanguageError, match="to_torch needs torch: pip install torch"):
            v.to_torch()
    else:
        assert v.to_torch().dtype is torch.float32


x1 = "ks.field(ks.f32, 3)"
x2 = "ks.field(ks.f32, (3, 4))"
v2 = "ks.Vector.field(2, ks.f32, 3)"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"{x2}[1]", "takes 2 indices, not 1"),
        (f"{x2}[3, 0]", "has indices 0 to 2 along axis 0, not 3"),
        (f"{x2}[-1, 0]", "has indices 0 to 2 along axis 0, not -1"),
        (f"{x1}[1.5]", "takes whole numbers as indices, not 1.5"),
        (f"{x1}[0:2]", "takes whole numbers as indices, not slice"),
        (f"{x1}[None]", "takes 1 indices, not 0"),
        (f"list({x1})", "only kernels loop over the field"),
        (f"{x1}.__setitem__(0, 'a')", "takes a number of type f32, not 'a'"),
        (f"{x1}.__setitem__(0, [1])", "takes a number of type f32"),
        ("ks.field(int, 2).__setitem__(0, 2.5)", r"convert it with int\(...\)"),
        (f"{v2}.__setitem__(0, 5)", "takes 2 components, not 5"),
        (f"{v2}.__setitem__(0, [1, 2, 3])", "takes 2 components"),
        (f"{v2}.__setitem__(0, [[1], [2, 3]])", "takes numbers in lists of one length"),
        ("ks.Vector.field(2, int, 3).__setitem__(0, [1.5, 2])", "takes whole numbers, not"),
        ("ks.Vector.field(2, int, 3)[0].__setitem__(0, 1.5)", "takes whole numbers, not 1.5"),
        (f"{v2}.fill([1, 2, 3])", "takes 2 components"),
        (f"{v2}.get_scalar_field(2)", r"has no component \(2,\)"),
        (f"{x1}.fill([1, 2])", "takes a number of type f32"),
        (f"{x1}.copy_from({x2})", r"another shape, \(3, 4\) and not \(3,\)"),
        (f"{x1}.copy_from({v2})", "another shape"),
        (f"{x1}.copy_from(3)", "copy_from takes a field, not int"),
        (f"{x1}.from_numpy(np.zeros(4))", r"takes an array of shape \(3,\), not one of \(4,\)"),
        (f"{x1}.from_numpy([1, 2, 3])", "takes a NumPy array, not list"),
        (f"{x1}.from_numpy(np.array(['a', 'b', 'c']))", "takes an array of numbers"),
        (
            f"{x1}.grad[0]",
            r"has no place: make the field .* with needs_grad=True and a shape=, place both in one node",
        ),
        ("ks.field(ks.i32, 3, needs_grad=True)", "has no grad: its elements are i32, not floats"),
        ("ks.field(ks.f32, 3, nonsense=1)", "a field has no option nonsense"),
        ("ks.field(ks.f32, 3, layout=3)", "ks.Layout.AOS or ks.Layout.SOA"),
        ("ks.field('abc', 3)", "'abc' is no type of elements"),
        ("ks.field(ks.f32, 0)", "has an extent that is not positive"),
        ("ks.field(ks.f32, (2, -1))", "has an extent that is not positive"),
        ("ks.field(ks.f32, 2.5)", "is not made of whole numbers"),
        ("ks.field(ks.f32, offset=1)", "a field with offset= needs a shape="),
        ("ks.field(ks.f32, 4, offset=(1, 2))", "the offset .* has 2 numbers, the shape .* has 1"),
        ("ks.field(ks.f32, 4, offset=1.5)", "is not made of whole numbers"),
        ("ks.field(ks.f32, (4, 3), order='jk')", "the order 'jk' does not name each of the 2 axes"),
        ("ks.field(ks.f32, (4, 3), order='i')", "the order 'i' does not name each of the 2 axes"),
        ("ks.Vector.field(0, ks.f32, 3)", "has an extent that is not positive"),
        ("ks.Matrix.field(1, 2, [[ks.f32, ks.i32]], 3)", "have one type"),
        ("ks.field(ks.f64, (1 << 30, 1 << 30)).array", "there is no memory"),
    ],
)
def test_what_goes_wrong_is_one_sentence_with_its_line(text, sentence):
    with pytest.raises(ks.LanguageError, match=sentence) as caught:
        eval(text, {"ks": ks, "np": np})
    assert caught.value.where.file == "<string>"


def test_names_in_messages_are_those_of_variables():
    height: object = ks.field(ks.f32, 2)
    a, b = ks.field(ks.f32, 2), ks.field(ks.f32, 2, name="given")
    assert height.label == "the field height"
    assert a.label.startswith(f"the field made in {__file__}:") and b.label == "the field given"


def test_types_of_components_may_be_listed():
    assert ks.Matrix.field(1, 2, [[ks.f64, ks.f64]], 2, layout=ks.Layout.SOA).dtype is DType.f64


@pytest.mark.parametrize("dtype", DType, ids=lambda d: d.name)
def test_every_type_of_elements(dtype):
    x, v = ks.field(dtype, 3), ks.Vector.field(2, dtype, 3)
    x[1] = 1
    v[2] = [0, 1]
    v[0].x = 1
    assert x.to_numpy().dtype == v.to_numpy().dtype == dtype.numpy
    assert x.to_numpy().tolist() == [0, 1, 0] and v.to_numpy().tolist() == [[1, 0], [0, 0], [0, 1]]
    assert type(x[1]) is (float if dtype.is_float else int) and v[2].y == 1
    if dtype.is_integer:
        least, greatest = np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max
        x[0], x[2] = least - 1, greatest
        assert x[0] == x[2] == greatest and (v[0] + 0).to_numpy().dtype.itemsize == 8
        x.fill(-1)
        assert x[0] == (-1 if least else greatest)
