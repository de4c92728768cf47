"""Arguments of kernels."""

import numpy as np
import taichi as ti

from .seeing import each, leaves, refused, refuses, returns


def numbers_are_cast_to_the_type_that_is_said():
    @ti.kernel
    def f(a: ti.f32, b: ti.i32, c: ti.f64) -> ti.f64:
        return a + b + c

    return np.float64(f(1, 2, 3))


@refuses(1.5)
def floats_for_integers_are_an_error(a: ti.i32) -> ti.i32:
    return a


@returns(np.int64(3), np.float64(0.5))
def numbers_of_numpy_are_taken(a: ti.i32, b: ti.f32) -> ti.f32:
    return a + b


@returns(True)
def bools_are_taken_as_numbers(a: ti.i32) -> ti.i32:
    return a + 1


@each((True, True), (False, False))
def arguments_of_type_bool(a: bool, b: ti.u1) -> ti.i32:
    r = 0
    if a:
        r += 1
    if not b:
        r += 10
    return r


def arguments_by_name():
    @ti.kernel
    def f(a: ti.i32, b: ti.i32, c: ti.i32) -> ti.i32:
        return a * 100 + b * 10 + c

    return [f(1, c=2, b=3), f(c=1, b=2, a=3)]


def missing_arguments_are_an_error():
    @ti.kernel
    def f(a: ti.i32, b: ti.i32) -> ti.i32:
        return a + b

    return [refused(lambda: f(1)), refused(lambda: f(1, 2, 3)), refused(lambda: f(1, d=2))]


def arguments_without_types_are_an_error():
    def make():
        @ti.kernel
        def f(a) -> ti.i32:
            return a

        return f(1)

    return refused(make) != "runs"


@returns(2**63 + 5, 7)
def wide_arguments_are_whole(a: ti.u64, b: ti.i64) -> ti.u64:
    return a + ti.cast(b, ti.u64)


@returns(200, -5)
def small_arguments_are_taken(a: ti.u8, b: ti.i16) -> ti.i32:
    return ti.cast(a, ti.i32) * 1000 + b


@each((lambda: ti.Vector([1.0, 2.0, 3.0]), 1), ([1, 2, 3], 2), (lambda: ti.math.vec3(1, 1, 1), 0))
def vectors_are_arguments(v: ti.types.vector(3, ti.f32), k: ti.i32) -> ti.f32:
    return v[k] + v.sum()


@each(lambda: ti.Matrix([[1, 2, 3], [4, 5, 6]]), lambda: ti.Matrix([[7, 8, 9], [1, 2, 3]]))
def matrices_are_arguments(m: ti.types.matrix(2, 3, ti.i32)) -> ti.i32:
    return m[0, 1] * 100 + m[1, 2]


@refuses(lambda: ti.Vector([1.0, 2.0]))
def vectors_of_another_length_are_an_error(v: ti.types.vector(3, ti.f32)) -> ti.f32:
    return v[0]


@refuses(1)
def arguments_cannot_be_changed(a: ti.i32) -> ti.i32:
    a += 1
    return a


def arrays_are_changed_in_place():
    @ti.kernel
    def f(a: ti.types.ndarray()):
        for i in range(a.shape[0]):
            a[i] = a[i] * 2 + i

    out = []
    for dtype in (np.float32, np.float64, np.int32, np.int64):
        a = np.arange(4, dtype=dtype)
        f(a)
        out.append(a)
    return out


def arrays_of_small_integers():
    @ti.kernel
    def f(a: ti.types.ndarray()):
        for i in range(a.shape[0]):
            a[i] = a[i] * 2 + 100

    out = []
    for dtype in (np.uint8, np.int8, np.int16, np.uint16, np.uint32, np.uint64):
        a = np.arange(90, 94, dtype=dtype)
        f(a)
        out.append(a)
    return out


@leaves(
    "b",
    lambda: a,
    lambda: b,
    a=lambda: np.arange(6, dtype=np.float32).reshape(2, 3),
    b=lambda: np.ones((2, 3, 2), np.float32),
)
def arrays_of_two_and_three_dimensions(a: ti.types.ndarray(), b: ti.types.ndarray()):
    for i, j, k in b:
        b[i, j, k] += a[i, j] * 10 + k


@leaves(
    "b",
    lambda: a,
    0.5,
    lambda: b,
    4,
    a=lambda: np.arange(5, dtype=np.float32),
    b=lambda: np.zeros(5, np.float32),
)
def several_arrays_and_numbers(a: ti.types.ndarray(), k: ti.f32, b: ti.types.ndarray(), n: ti.i32):
    for i in range(n):
        b[i] = a[i] * k


@refuses(np.zeros(3, np.float32))
def arrays_have_the_dimension_that_is_said(a: ti.types.ndarray(ndim=2)):
    a[0, 0] = 1


@refuses(np.zeros(3, np.int32))
def arrays_have_the_type_that_is_said(a: ti.types.ndarray(dtype=ti.f32)):
    a[0] = 1


@leaves("a", lambda: a, a=lambda: np.ones((2, 3), np.float32))
def arrays_with_vectors_as_elements(a: ti.types.ndarray(dtype=ti.math.vec3, ndim=1)):
    for i in a:
        a[i] = a[i] * 2 + ti.math.vec3(i, 0, 1)
        a[i].y += 100


@leaves("a", lambda: a, a=lambda: np.arange(8, dtype=np.float32).reshape(2, 2, 2))
def arrays_with_matrices_as_elements(
    a: ti.types.ndarray(dtype=ti.types.matrix(2, 2, ti.f32), ndim=1),
):
    for i in a:
        a[i] = a[i] @ a[i] + ti.Matrix.identity(ti.f32, 2) * i


def something_else_than_an_array_is_an_error():
    @ti.kernel
    def f(a: ti.types.ndarray()):
        a[0] = 1

    return refused(lambda: f([1, 2, 3])) != "runs"


@leaves("a", lambda: a[1:3], a=lambda: np.zeros((4, 4), np.float32))
def views_of_arrays(a: ti.types.ndarray()):
    for i, j in a:
        a[i, j] = i * 10 + j


def the_shape_of_an_array_is_its_own_each_call():
    @ti.kernel
    def f(a: ti.types.ndarray()) -> ti.f32:
        s = 0.0
        for i in range(a.shape[0]):
            s += a[i]
        return s

    return [f(np.ones(n, np.float32)) for n in (1, 5, 3)]


def many_arguments():
    @ti.kernel
    def f(
        a: ti.i32,
        b: ti.f32,
        c: ti.i64,
        d: ti.f64,
        e: ti.u8,
        g: ti.i16,
        h: ti.u32,
        k: ti.i32,
        m: ti.f32,
        n: ti.i32,
    ) -> ti.f64:
        return a + b * 2 + c * 3 + d * 4 + e * 5 + g * 6 + h * 7 + k * 8 + m * 9 + n * 10

    return np.float64(f(*range(1, 11)))


@leaves(
    lambda: [a.to_numpy(), a.shape, a[1, 2]], lambda: a, a=lambda: ti.ndarray(ti.f32, shape=(2, 3))
)
def ndarrays_are_arguments(a: ti.types.ndarray(dtype=ti.f32, ndim=2)):
    for i, j in a:
        a[i, j] += i + j * 10


def ndarrays_begin_with_zeros_and_are_filled():
    a = ti.ndarray(ti.i32, shape=4)
    first = a.to_numpy()
    a.fill(7)
    a[2] = 1
    return [first, a.to_numpy()]


def ndarrays_of_vectors():
    v = ti.Vector.ndarray(2, ti.f32, shape=3)

    @ti.kernel
    def f(v: ti.types.ndarray(dtype=ti.math.vec2, ndim=1)):
        for i in v:
            v[i] = [i, i * i]

    f(v)
    v[0] = [7, 8]
    return [v.to_numpy(), v[2][1]]


@leaves("m", lambda: m, m=lambda: ti.Matrix.ndarray(2, 2, ti.f32, shape=2))
def ndarrays_of_matrices(m: ti.types.ndarray()):
    for i in m:
        m[i] = ti.Matrix([[i, 1], [2, 3]])
        m[i][0, 1] += 0.5


def ndarrays_are_copied_and_converted():
    a, b = ti.ndarray(ti.i32, shape=3), ti.ndarray(ti.i32, shape=3)
    a.from_numpy(np.array([1, 2, 3], np.int32))
    b.copy_from(a)
    a[0] = 9
    return [a.to_numpy(), b.to_numpy()]


def ndarrays_of_no_dimension():
    a = ti.ndarray(ti.f32, shape=())

    @ti.kernel
    def f(a: ti.types.ndarray()):
        a[None] = a[None] + 2

    f(a)
    a[None] += 1
    return a[None]


@leaves("a", lambda: a, a=lambda: ti.ndarray(ti.i32, shape=(3, 2)))
def ndarrays_in_grouped_loops(a: ti.types.ndarray()):
    for I in ti.grouped(a):
        a[I] = I[0] - I[1]


def ndarrays_in_functions():
    @ti.func
    def put(a: ti.template(), i, v):
        a[i] = v

    @ti.kernel
    def f(a: ti.types.ndarray()):
        for i in a:
            put(a, i, i * 3)

    a = ti.ndarray(ti.i32, shape=3)
    f(a)
    return a.to_numpy()


def one_array_is_given_twice():
    vectors = ti.types.ndarray(dtype=ti.math.vec2, ndim=1)
    numbers = ti.types.ndarray(dtype=ti.i32, ndim=1)

    @ti.kernel
    def swap(x: vectors, y: vectors):
        for i in x:
            x[i] = ti.Vector([y[i][1], y[i][0]])

    @ti.kernel
    def count(x: numbers, y: numbers) -> ti.i32:
        n = 0
        for _ in range(1):
            for k in range(y[0], y[1]):
                x[0] += 1
                n += k
        return n

    a, b = ti.ndarray(ti.math.vec2, 3), ti.ndarray(ti.i32, 2)
    for i in range(3):
        a[i] = [i, 10 + i]
    b[1] = 5
    swap(a, a)
    return [a.to_numpy(), count(b, b), b.to_numpy()]


def elements_are_the_last_axes():
    @ti.kernel
    def f(x: ti.types.ndarray(element_dim=1), m: ti.types.ndarray(element_dim=2)):
        for i in range(3):
            v = x[i]
            x[i] = m[i] @ v

    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    m = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    f(x, m)
    return x


def elements_of_a_shape_are_the_last_axes():
    @ti.kernel
    def f(x: ti.types.ndarray(element_shape=(3,)), y: ti.types.ndarray(element_dim=0)):
        for i in range(2):
            y[i] = x[i].norm_sqr()

    y = np.zeros(2, np.float32)
    f(np.arange(6, dtype=np.float32).reshape(2, 3), y)
    return y


def more_axes_than_elements_have():
    return refused(lambda: ti.types.ndarray(element_dim=3))


def ndarrays_have_types_of_elements():
    a, v = ti.ndarray(ti.i32, shape=4), ti.Vector.ndarray(3, ti.f32, shape=(2, 2))
    m = ti.Matrix.ndarray(3, 4, ti.f64, shape=2)
    types = [x.element_type for x in (v, m)]
    found = [t.element_type() == d for t, d in zip(types, (ti.f32, ti.f64), strict=True)]
    return [a.element_type == ti.i32, found, [list(t.shape()) for t in types]]


def ndarrays_have_sizes():
    a, v = ti.ndarray(ti.i32, shape=8), ti.Vector.ndarray(10, ti.f64, shape=5)
    return [(x._get_element_size(), x._get_nelement()) for x in (a, v)]
