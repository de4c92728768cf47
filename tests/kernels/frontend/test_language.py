"""Every construct of the language: a kernel and what it must do to its arguments."""

import math
from inspect import Parameter

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend.errors import LanguageError
from kernelscape.kernels.frontend.kernel import template
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.frontend.signature import scalar_dtype
from kernelscape.kernels.ir.kernel import (
    DType,
    For,
    Location,
    SetLocal,
    Store,
    Update,
    UpdateLocal,
)
from kernelscape.kernels.ir.verify import check
from kernelscape.kernels.ir.walk import nested_statements
from kernelscape.testing.interpreted import run_reference

N = 6
WEIGHTS = (0.5, 0.25, 0.125)
SCALE = 3


@ks.func
def square(v):
    return v * v


@ks.func
def both(p, q):
    """Locals of a function get names of their own."""
    acc = p + q
    acc *= 2
    return acc, p - q


@ks.func
def put(a, i, v):
    a[i] = v


@ks.kernel
def assign(x: ks.types.ndarray(), y: ks.types.ndarray()):
    """Docstrings are skipped."""
    for i in range(x.shape[0]):
        y[i] = x[i] * SCALE + 1


@ks.kernel
def ranges(x: ks.types.ndarray(), y: ks.types.ndarray()):
    n = x.shape[0]
    for i in range(1, n - 1):
        y[i] = x[i - 1] + x[i + 1]
    for i in range(n - 1, 0, -2):
        y[i] += 10.0
    for i in range(0, n, 4):
        y[i] -= 5


@ks.kernel
def box(x: ks.types.ndarray(), y: ks.types.ndarray()):
    for i, j in ks.ndrange(2, (1, 3)):
        y[i * 2 + j] = x[i] * j


@ks.kernel
def reductions(x: ks.types.ndarray(), y: ks.types.ndarray()):
    total = 0.0
    most = -1e30
    least = x[0]
    product = 1.0
    for i in range(x.shape[0]):
        total += x[i]
        most = max(most, x[i])
        ks.atomic_min(least, x[i])
        product *= x[i]
    y[0] = total
    y[1] = most
    y[2] = least
    y[3] = product


@ks.kernel
def element_updates(x: ks.types.ndarray(), y: ks.types.ndarray()):
    for i in range(x.shape[0]):
        ks.atomic_add(y[0], x[i])
        ks.atomic_max(y[1], x[i])
        y[2] = min(y[2], x[i], 0.3)
        y[3] = y[3] - x[i]
        y[4] /= 2
        y[5] = x[i] + y[5]


@ks.kernel
def conditions(x: ks.types.ndarray(), y: ks.types.ndarray()):
    for i in range(x.shape[0]):
        if x[i] > 0.7:
            y[i] = 1.0
        elif 0.2 < x[i] <= 0.7 and not i < 2:
            y[i] = x[i] if i % 2 == 0 else -x[i]
        else:
            v = 2 * x[i]
            v += 1
            y[i] = v


@ks.kernel
def edges(x: ks.types.ndarray(), y: ks.types.ndarray()):
    n = x.shape[0]
    for i in range(n):
        left = x[i - 1] if i > 0 else 0.0
        right = x[i + 1] if i < n - 1 else 0.0
        y[i] = left + right


@ks.kernel
def functions(x: ks.types.ndarray(), y: ks.types.ndarray()):
    for i in range(x.shape[0]):
        y[i] = (
            ks.sqrt(x[i]) + ks.exp(x[i]) * math.sin(x[i]) - abs(ks.cos(x[i])) + math.log(x[i] + 1)
        )
        y[i] += ks.floor(x[i] * 10) + max(x[i], 0.5, x[0]) + x[i] ** 3 + x[i] ** 0.5 + x[i] ** -1


@ks.kernel
def integers(x: ks.types.ndarray(), y: ks.types.ndarray()):
    for i in range(x.shape[0]):
        k = i - 3
        y[i] = k // 2 * 100 + k % 2 * 10 + int(x[i] * 4) + (k / 2)


@ks.kernel
def conversions(x: ks.types.ndarray(), y: ks.types.ndarray()):
    for i in range(x.shape[0]):
        y[i] = ks.cast(x[i] * 8, ks.i32) + ks.f64(i) + float(i) + int(2.9) + (x[i] > 0.5)


@ks.kernel
def static_parts(x: ks.types.ndarray(), y: ks.types.ndarray()):
    for i in range(1, x.shape[0] - 1):
        acc = 0.0
        for k in ks.static(range(3)):
            acc += WEIGHTS[k] * x[i + k - 1]
        for k, w in ks.static(enumerate(WEIGHTS)):
            if ks.static(k > 0 and x.ndim == 1):
                acc += w
        y[i] = acc


@ks.kernel
def inlined(x: ks.types.ndarray(), y: ks.types.ndarray()):
    for i in range(x.shape[0]):
        acc = square(x[i])
        s, d = both(acc, x[i])
        put(y, i, s + d)


@ks.kernel
def swaps(x: ks.types.ndarray(), y: ks.types.ndarray()):
    for i in range(x.shape[0]):
        p = x[i]
        q = 1.0
        for _ in range(3):
            p, q = q, p + q
        y[i] = p


@ks.kernel
def exchange(x: ks.types.ndarray(), y: ks.types.ndarray()):
    for i in range(x.shape[0]):
        t = x[i]
        x[i] = y[i]
        y[i] = t


@ks.kernel
def recurrence(x: ks.types.ndarray(), y: ks.types.ndarray()):
    y[0] = x[0]
    for i in range(1, x.shape[0]):
        y[i] = 0.5 * y[i - 1] + x[i]


@ks.kernel
def triangle(x: ks.types.ndarray(), y: ks.types.ndarray()):
    for i in range(x.shape[0]):
        for j in range(i + 1):
            y[i] += x[j]


ALL = (
    assign, ranges, reductions, element_updates, conditions, functions, integers, conversions,
    static_parts, inlined, swaps, exchange, recurrence, triangle, box, edges,
)  # fmt: skip
IN_PLAIN_PYTHON = tuple(k for k in ALL if k not in (reductions, element_updates))


def arguments(dtype):
    x = np.random.default_rng(1).random(N).astype(dtype)
    return x, np.arange(N).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", IN_PLAIN_PYTHON, ids=lambda k: k.name)
def test_kernel_does_what_its_python_body_does(kernel, dtype):
    x, y = arguments(dtype)
    expected = y.copy()
    kernel.fn(x.copy(), expected)
    check(kernel.instantiate(x, y))
    with ks.interpret():
        kernel(x, y)
    np.testing.assert_allclose(y, expected, rtol=1e-5 if dtype is np.float32 else 1e-13)


@pytest.mark.parametrize("kernel", ALL, ids=lambda k: k.name)
def test_all_constructs_stay_in_f32_and_are_well_formed(kernel):
    ir = kernel.instantiate(*arguments(np.float32))
    check(ir)
    kinds = {
        s.value.dtype for s in nested_statements(ir.body) if isinstance(s, (SetLocal, UpdateLocal))
    }
    assert DType.f64 not in kinds


def test_reductions():
    x, y = arguments(np.float64)
    reductions(x, y)
    np.testing.assert_allclose(y[:4], [x.sum(), x.max(), x.min(), x.prod()], rtol=1e-13)


def test_updates_of_elements():
    x, y = arguments(np.float64)
    element_updates(x, y)
    expected = [x.sum(), max(1, x.max()), min(0.3, x.min()), 3 - x.sum(), 4 / 2**N, 5 + x.sum()]
    np.testing.assert_allclose(y, expected, rtol=1e-13)
    ops = [
        s.op
        for s in nested_statements(element_updates.instantiate(x, y).body)
        if isinstance(s, Update)
    ]
    assert ops == ["add", "max", "min", "add", "add"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_literal_takes_the_type_of_what_updates_it(dtype):
    ir = reductions.instantiate(*arguments(dtype))
    assert {s.value.dtype.numpy for s in nested_statements(ir.body) if isinstance(s, SetLocal)} == {
        np.dtype(dtype)
    }


def test_locals_typed_through_each_other():
    @ks.kernel
    def chain(x: ks.types.ndarray(), y: ks.types.ndarray(), z: ks.types.ndarray()):
        for i in range(x.shape[0]):
            p = 0.0
            q = 0.0
            k = 0
            p += x[i]
            q += p * 2
            k += 1
            y[i] = q
            z[i] = k

    x, y = arguments(np.float32)
    ir = chain.instantiate(x, y, y.astype(np.float64))
    dtypes = [s.value.dtype for s in nested_statements(ir.body) if isinstance(s, SetLocal)]
    assert dtypes == [DType.f32, DType.f32, DType.i64]


def test_later_assignments_keep_the_first_type():
    @ks.kernel
    def keeps(y: ks.types.ndarray()):
        for i in range(y.shape[0]):
            k: ks.i32 = 1
            k = 2.75
            k += 1
            y[i] = k

    y = np.zeros(2)
    keeps(y)
    assert y.tolist() == [3.0, 3.0]


def test_scalar_arguments_and_templates():
    @ks.kernel
    def fill(y: ks.types.ndarray(dtype=ks.f32, ndim=1), a, b: ks.i32, c: ks.f64, p: template()):
        for i in range(y.shape[0]):
            if ks.static(p == "sum"):
                y[i] = a + b + c
            else:
                y[i] = a * b * c

    y = np.zeros(3, np.float32)
    fill(y, 2.0, 3, 4, "sum")
    assert y.tolist() == [9.0] * 3
    fill(y, 2, b=3, c=4.0, p="product")
    assert y.tolist() == [24.0] * 3
    ir = fill.instantiate(y, 2.0, 3, 4.0, "sum")
    assert [p.dtype for p in ir.scalars] == [DType.f32, DType.i32, DType.f64]
    assert ir is fill.instantiate(y.copy(), 5.0, 1, 7.0, "sum")
    assert ir is not fill.instantiate(y, 2, 3, 4.0, "sum")
    assert ir is not fill.instantiate(np.zeros(4, np.float32), 2.0, 3, 4.0, "sum")


@pytest.mark.parametrize(
    ("annotation", "value", "dtype"),
    [
        (float, 3, None),
        (float, np.int32(3), None),
        (float, 2**70, None),  # a float holds it, about
        (ks.f32, np.int64(3), DType.f32),
        (ks.f64, 2**70, DType.f64),
        (ks.i32, 3, DType.i32),
        (ks.i32, np.int64(3), DType.i32),
        (ks.i32, 2**31 - 1, DType.i32),
        (ks.i32, -(2**31), DType.i32),
        (int, np.int32(3), DType.i64),
        (Parameter.empty, 3, DType.i64),
        (Parameter.empty, np.int32(3), DType.i32),
    ],
)
def test_whole_numbers_for_scalars(annotation, value, dtype):
    assert scalar_dtype(annotation, value, "it", Location("here.py", 1)) is dtype


@pytest.mark.parametrize(
    ("annotation", "value", "sentence"),
    [
        (ks.i32, 2**31, "it is 2147483648, which i32 cannot hold"),
        (ks.i32, np.int64(-(2**31) - 1), "it is -2147483649, which i32 cannot hold"),
        (ks.i32, 3.0, "it is annotated i32 but this call gives a float"),
        (ks.i32, np.float64(3), "it is annotated i32 but this call gives a float"),
        (float, np.longdouble(1), "it is a longdouble, which is no type of the language"),
    ],
)
def test_numbers_that_a_scalar_cannot_be(annotation, value, sentence):
    with pytest.raises(LanguageError, match=sentence):
        scalar_dtype(annotation, value, "it", Location("here.py", 1))


@pytest.mark.parametrize("a", [3, np.int32(3), np.int64(3), 3.0])
def test_a_float_parameter_is_a_float_whatever_is_given(a):
    """Divided like one, too, at once and in a sequence."""

    @ks.kernel
    def divide(y: ks.types.ndarray(), a: float, k: ks.i32):
        for i in range(y.shape[0]):
            y[i] = a / 2 + k // 2

    y = np.zeros(3, np.float32)
    divide(y, a, 3)
    assert y.tolist() == [2.5] * 3
    assert [p.dtype for p in divide.instantiate(y, a, 3).scalars] == [DType.f32, DType.i32]
    recording = record_sequence(lambda y, a: divide(y, a, 3), (y, a))
    assert run_reference(recording, {"y": y}, {"a": a})["y"].tolist() == [2.5] * 3


def test_template_key_tells_true_from_one():
    @ks.kernel
    def write(y: ks.types.ndarray(), p: template()):
        y[0] = p / 2

    y = np.zeros(1)
    for value in (True, 1, 1.0):
        write(y, value)
        assert y[0] == 0.5
    assert len(write._instances) == 3


def test_fast_math_is_kept():
    @ks.kernel(fast_math=False)
    def strict(y: ks.types.ndarray()):
        y[0] = 1.0

    assert not strict.instantiate(np.zeros(1)).fast_math


def test_loops_start_at_zero_and_have_names_of_their_own():
    ir = ranges.instantiate(*arguments(np.float64))
    loops = [s for s in nested_statements(ir.body) if isinstance(s, For)]
    assert [(s.loop, s.extent.value) for s in loops] == [("i", 4), ("i_1", 3), ("i_2", 2)]


def test_an_array_passed_twice_is_one_array():
    @ks.kernel
    def shift(x: ks.types.ndarray(), y: ks.types.ndarray()):
        for i in range(x.shape[0] - 1):
            y[i + 1] = x[i] + 1

    x = np.zeros(4)
    shift(x, x)
    assert x.tolist() == [0, 1, 2, 3]


def test_a_func_is_itself_outside_kernels():
    assert square(3) == 9


def test_arguments_of_a_func_are_evaluated_before_its_body():
    @ks.func
    def move(a, i, j, v):
        a[i] = 0
        a[j] = v

    @ks.kernel
    def moves(x: ks.types.ndarray()):
        move(x, 0, 1, x[0])

    x = np.array([5.0, 0.0])
    moves(x)
    assert x.tolist() == [0, 5]


def test_words_of_the_language_in_plain_python():
    assert list(ks.ndrange(2, (1, 3))) == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert ks.cast(2.9, ks.i32) == 2
    assert ks.f32(0.1) == np.float32(0.1)
    assert [ks.sqrt(4), ks.exp(0), ks.log(1), ks.sin(0), ks.cos(0), ks.floor(1.5)] == [
        2,
        1,
        0,
        0,
        1,
        1,
    ]
    assert ks.static(3) == 3
    with pytest.raises(Exception, match="outside a kernel"):
        ks.atomic_add(1, 2)


def test_types_meet_as_in_numpy():
    @ks.kernel
    def mixed(
        a: ks.types.ndarray(), b: ks.types.ndarray(), k: ks.types.ndarray(), y: ks.types.ndarray()
    ):
        y[0] = a[0] + b[0]
        y[1] = k[0] * a[0]
        y[2] = k[0] / 2

    f32, f64, i32 = np.ones(1, np.float32), np.ones(1), np.ones(1, np.int32)
    ir = mixed.instantiate(f32, f64, i32, np.ones(3))
    stores = [s for s in ir.body if isinstance(s, Store)]
    assert stores[0].value.dtype is DType.f64
    assert stores[1].value.x.dtype is DType.f32
    assert stores[2].value.dtype is DType.f64


@pytest.mark.parametrize(
    ("function", "value"), [(lambda a: 2 * a, 3.0), (lambda a, b=4: a + b, 5.5), (lambda a:
        ks.sqrt(a) + 1, 1 + math.sqrt(1.5))]
)  # fmt: skip
def test_a_func_may_be_a_lambda_wherever_it_stands(function, value):
    """The place of a lambda tells it from others in its line."""
    called = ks.func(function)

    @ks.kernel
    def apply(y: ks.types.ndarray()):
        y[0] = called(1.5)

    y = np.zeros(1)
    with ks.interpret():
        apply(y)
    assert y[0] == value


def test_methods_of_vectors_are_called_by_their_class():
    """`ti.Vector.normalized(v, eps)` is `v.normalized(eps)`, as programs of difftaichi write it."""

    @ks.kernel
    def unit(y: ks.types.ndarray()):
        v = ks.Vector([3.0, 4.0])
        u = ks.Vector.normalized(v, 0.0)
        y[0] = u[0] + ks.Matrix.dot(v, u)

    y = np.zeros(1)
    with ks.interpret():
        unit(y)
    assert y[0] == pytest.approx(5.6)
