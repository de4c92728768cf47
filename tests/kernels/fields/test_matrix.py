"""Vectors and matrices outside kernels."""

from __future__ import annotations

import copy

import kernelscape as ks
import numpy as np
import pytest

V, M = ks.Vector, ks.Matrix
names = {"ks": ks, "np": np, "V": V, "M": M}
names |= {"a": V([1.0, 2, 3]), "b": V([4.0, 5, 6]), "i": V([1, 2, 3]), "c": M([[1, 2], [3, 4]])}


def value_of(text):
    return eval(text, dict(names))


def listed(x):
    return x.to_list() if isinstance(x, M) else x


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a + b", [5, 7, 9]),
        ("a + 1", [2, 3, 4]),
        ("1 - a", [0, -1, -2]),
        ("2 * a", [2, 4, 6]),
        ("b / a", [4, 2.5, 2]),
        ("6 / a", [6, 3, 2]),
        ("i / 2", [0.5, 1, 1.5]),
        ("i // 2", [0, 1, 1]),
        ("5 // i", [5, 2, 1]),
        ("i % 2", [1, 0, 1]),
        ("5 % i", [0, 1, 2]),
        ("-i", [-1, -2, -3]),
        ("+i", [1, 2, 3]),
        ("abs(-i)", [1, 2, 3]),
        ("a ** 2", [1, 4, 9]),
        ("2 ** i", [2, 4, 8]),
        ("i << 1", [2, 4, 6]),
        ("i >> 1", [0, 1, 1]),
        ("i & 1", [1, 0, 1]),
        ("i | 4", [5, 6, 7]),
        ("i ^ 1", [0, 3, 2]),
        ("~i", [-2, -3, -4]),
        ("a < b", [True, True, True]),
        ("a >= 2", [False, True, True]),
        ("a == [1, 0, 3]", [True, False, True]),
        ("a != a", [False, False, False]),
        ("a + [1, 2, 3]", [2, 4, 6]),
        ("(1, 2, 3) + a", [2, 4, 6]),
        ("np.array([1, 2, 3]) + a", [2, 4, 6]),
        ("c @ V([1, 2])", [5, 11]),
        ("V([1, 2]) @ c", [7, 10]),
        ("c @ c", [[7, 10], [15, 22]]),
        ("a @ b", 32),
        ("a.dot(b)", 32),
        ("a.dot(np.array([4, 5, 6]))", 32),
        ("a.cross(b)", [-3, 6, -3]),
        ("a.outer_product(V([1, 2]))", [[1, 2], [2, 4], [3, 6]]),
        ("V([3, 4]).norm()", 5),
        ("V([3, 4]).norm(eps=11)", 6),
        ("V([3, 4]).norm_sqr()", 25),
        ("V([3, 4]).norm_inv()", 0.2),
        ("V([3, 4]).normalized(5)", [3 * 0.1, 4 * 0.1]),
        ("c.sum()", 10),
        ("c.max()", 4),
        ("c.min()", 1),
        ("V([0, 1]).any()", True),
        ("V([0, 1]).all()", False),
        ("c.trace()", 5),
        ("c.determinant()", -2),
        ("M([[2.0, 0], [0, 4]]).inverse()", [[0.5, 0], [0, 0.25]]),
        ("c.transpose()", [[1, 3], [2, 4]]),
        ("V([1.7, -1.7]).cast(ks.i32)", [1, -1]),
        ("V([1.7]).cast(int)", [1]),
        ("V.zero(ks.f32, 2)", [0, 0]),
        ("M.zero(float, 1, 2)", [[0, 0]]),
        ("V.one(int, 2)", [1, 1]),
        ("V.unit(3, 1)", [0, 1, 0]),
        ("M.identity(ks.f32, 2)", [[1, 0], [0, 1]]),
        ("M.diag(2, 3.0)", [[3, 0], [0, 3]]),
        ("M.rows([i, [4, 5, 6]])", [[1, 2, 3], [4, 5, 6]]),
        ("M.cols([i, i])", [[1, 1], [2, 2], [3, 3]]),
        ("M.rotation2d(0)", [[1, 0], [0, 1]]),
        ("a.x", 1),
        ("a.zyx", [3, 2, 1]),
        ("a.bg", [3, 2]),
        ("a.xxy", [1, 1, 2]),
        ("a[1]", 2),
        ("a[-1]", 3),
        ("a[::2]", [1, 3]),
        ("c[0, 1]", 2),
        ("c[1, :]", [3, 4]),
        ("c[:, :1]", [[1], [3]]),
        ("len(a), len(c)", (3, 2)),
        ("list(a)", [1, 2, 3]),
        ("list(c)", [[1, 2], [3, 4]]),
        ("sum(a), max(a)", (6, 3)),
        ("a.get_shape(), c.get_shape()", ((3,), (2, 2))),
        ("(a.n, a.m, a.ndim, c.n, c.m, c.ndim)", (3, 1, 1, 2, 2, 2)),
        ("np.sqrt(V([4, 9]))", [2, 3]),
        ("ks.sqrt(V([4.0, 9.0]))", [2, 3]),
        ("np.array(c).tolist()", [[1, 2], [3, 4]]),
        ("M([a, b])", [[1, 2, 3], [4, 5, 6]]),
        ("V(np.array([1, 2]))", [1, 2]),
        ("1 / V([0.0, 2])", [float("inf"), 0.5]),
    ],
)
def test_values(text, value):
    assert listed(value_of(text)) == value


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("i", np.int64),
        ("a", np.float64),
        ("i + 0.5", np.float64),
        ("V([True, False])", np.bool_),
        ("V([1, 2], dt=ks.f32)", np.float32),
        ("V([1.5, 2], ks.i32)", np.int32),
        ("V(np.array([1, 2], np.float32)) * 2.0", np.float32),
        ("V.zero(float, 2)", np.float32),
        ("V.one(int, 2)", np.int32),
        ("ks.types.vector(2, float)(1)", np.float32),
    ],
)
def test_types(text, dtype):
    assert value_of(text).to_numpy().dtype == dtype


@pytest.mark.parametrize(
    ("statement", "value"),
    [
        ("v[0] = 5", [5, 2, 3]),
        ("v[-1] += 5", [1, 2, 8]),
        ("v.x = 6", [6, 2, 3]),
        ("v.zy = [7, 8]", [1, 8, 7]),
        ("v.xy = V([7, 8])", [7, 8, 3]),
        ("v[0:2] = V([9, 9])", [9, 9, 3]),
        ("v.fill(2)", [2, 2, 2]),
        ("v += 1", [2, 3, 4]),
        ("v *= v", [1, 4, 9]),
        ("v[0] = 2.5", [2, 2, 3]),
        ("v.rg = 4", [4, 4, 3]),
    ],
)
def test_assignments(statement, value):
    scope = {**names, "v": V([1, 2, 3])}
    exec(statement, scope)
    assert scope["v"].to_list() == value


def test_an_operator_in_place_makes_a_new_value():
    a = b = V([1, 2])
    a += 0.5
    assert a.to_list() == [1.5, 2.5] and b.to_list() == [1, 2]


def test_values_are_their_own():
    given = np.array([1.0, 2])
    v = V(given)
    w = copy.deepcopy(v)
    given[0] = v[1] = 9
    assert v.to_list() == [1, 9] and w.to_list() == [1, 2]
    v.to_numpy()[0] = 7
    v.copy()[0] = 7
    part = v[0:1]
    part[0] = 7
    assert v.to_list() == [1, 9]


def test_vectors_are_matrices_of_one_dimension():
    assert isinstance(V([1, 2]), M) and isinstance(V([1, 2]), V)
    assert isinstance(V([1, 2]) + 1, V) and not isinstance(M([[1, 2]]), V)
    assert len({V([1]), V([1])}) == 2  # they are objects, and can be arguments of templates
    assert str(V([1.0, 2])) == repr(V([1.0, 2])) == "[1. 2.]"
    with pytest.raises(ks.LanguageError, match="neither true nor false"):
        bool(V([1]) < V([2]))
    assert V([0]) and V([1, 2]) == V([1, 2]) and V([1, 2]) != V([1, 3])
    assert not V([1, 2]) == V([1, 3]) and not V([1, 2]) != V([1, 2])  # noqa: SIM201, SIM202


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("V(3)", "is made of a list of numbers or of rows, not of 3"),
        ("M([[1, 2], [3]])", "takes numbers in lists of one length"),
        ("V(['a'])", "takes numbers in lists of one length"),
        ("M([[[1]]])", "has one or two dimensions, this list has 3"),
        ("a + c", "matrix of 2 x 2 and vector of 3 do not fit together"),
        ("a + 'b'", "takes numbers"),
        ("c @ a", "matmul of matrix of 2 x 2 and vector of 3"),
        ("a[3]", "there is no component 3: there are 3"),
        ("c[0]", "a value of 2 dimensions is given 1 indices"),
        ("a[0.5]", "0.5 is no index of a vector or matrix"),
        ("a.__setattr__('xy', [1, 2, 3])", "takes 2 components"),
        ("a.__setitem__(0, 'b')", "takes numbers"),
        ("a.dot(c)", "dot takes two vectors of one length"),
        ("a.norm(1, 2)", "norm takes"),
        ("M.identity(float)", "identity takes"),
    ],
)
def test_what_goes_wrong_is_one_sentence_with_its_line(text, sentence):
    with pytest.raises(ks.LanguageError, match=sentence) as caught:
        value_of(text)
    assert caught.value.where.file == "<string>"


@pytest.mark.parametrize("text", ["a.w", "a.nonsense", "c.x", "a.xr", "a._private"])
def test_attributes_that_are_not_there(text):
    with pytest.raises(AttributeError):
        value_of(text)
    with pytest.raises(AttributeError):
        exec(f"{text} = 1", dict(names))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("ks.types.vector(3, float)(1, 2, 3)", [1, 2, 3]),
        ("ks.types.vector(3, int)(1.7, 2, 3)", [1, 2, 3]),
        ("ks.types.vector(3, float)(4)", [4, 4, 4]),
        ("ks.types.vector(3, float)(V([1, 2]), 3)", [1, 2, 3]),
        ("ks.types.vector(3, float)([1, 2, 3])", [1, 2, 3]),
        ("ks.types.matrix(2, 2, float)([[1, 2], [3, 4]])", [[1, 2], [3, 4]]),
        ("ks.types.matrix(2, 2, float)(1, 2, 3, 4)", [[1, 2], [3, 4]]),
        ("ks.types.matrix(2, 2, ks.i32)(V([1, 2]), V([3, 4]))", [[1, 2], [3, 4]]),
    ],
)
def test_types_make_values(text, value):
    assert value_of(text).to_list() == value


def test_types_of_vectors_and_matrices():
    vec, mat = ks.types.vector(3, float), ks.types.matrix(2, 3, ks.i32)
    assert vec == ks.types.vector(3, float) and hash(mat) == hash(ks.types.matrix(2, 3, ks.i32))
    assert (vec.n, vec.m, vec.ndim, mat.n, mat.m, mat.ndim) == (3, 1, 1, 2, 3, 2)
    assert (vec.get_shape(), str(vec), str(mat)) == ((3,), "vector(3, float)", "matrix(2, 3, i32)")
    assert vec.dtype is ks.f32
    ks.init(default_fp=ks.f64)
    assert vec.dtype is ks.f64
    assert vec.field(shape=2).array.shape == (3, 2) and ks.field(mat, 4).array.shape == (2, 3, 4)
    for wrong, sentence in (
        (lambda: vec(1, 2), r"vector\(3, float\) takes 3 numbers, not 2"),
        (lambda: ks.types.vector(0, float), "a positive number of components, not 0"),
        (lambda: ks.types.vector(2, "abc"), "'abc' is no type of elements"),
    ):
        with pytest.raises(ks.LanguageError, match=sentence):
            wrong()
