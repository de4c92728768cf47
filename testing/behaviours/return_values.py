"""Return values."""

import numpy as np
import taichi as ti

from .seeing import each, refused, refuses, returns


def integers_and_floats_are_returned():
    @ti.kernel
    def f(a: ti.i32) -> ti.i32:
        return a + 1

    @ti.kernel
    def g(a: ti.f32) -> ti.f32:
        return a / 2

    return [f(3), g(3)]


def what_is_returned_has_the_type_that_is_said():
    @ti.kernel
    def f(a: ti.f32) -> ti.i32:
        return a

    @ti.kernel
    def g(a: ti.i32) -> ti.f32:
        return a

    return [refused(lambda: f(2.7)), g(3)]


def python_types_say_the_type():
    @ti.kernel
    def f(a: int) -> float:
        return a * 0.5

    @ti.kernel
    def g(a: float) -> int:
        return int(a)

    return [f(3), g(2.7)]


def wide_numbers_are_returned_whole():
    @ti.kernel
    def f() -> ti.u64:
        return ti.u64(2**64 - 1)

    @ti.kernel
    def g() -> ti.i64:
        return ti.i64(-(2**63))

    @ti.kernel
    def h() -> ti.f64:
        return ti.f64(0.1) * 3

    return [f(), g(), np.float64(h())]


def vectors_of_wide_numbers_are_returned_whole():
    @ti.kernel
    def f() -> ti.types.vector(2, ti.u64):
        return ti.Vector([ti.u64(2**64 - 1), ti.u64(3)])

    return list(f())


def small_numbers_are_returned():
    @ti.kernel
    def f(a: ti.i32) -> ti.u8:
        return ti.cast(a, ti.u8)

    @ti.kernel
    def g(a: ti.i32) -> ti.i16:
        return ti.cast(a, ti.i16)

    return [f(300), g(40000)]


def vectors_are_returned():
    @ti.kernel
    def f(a: ti.f32) -> ti.types.vector(3, ti.f32):
        return ti.Vector([a, a * 2, a * 3])

    v = f(1.5)
    return [v.to_numpy(), v[1], v.x]


def matrices_are_returned():
    @ti.kernel
    def f(a: ti.i32) -> ti.types.matrix(2, 3, ti.i32):
        return ti.Matrix([[a, a + 1, a + 2], [a * 2, a * 3, a * 4]])

    m = f(5)
    return [m.to_numpy(), m[1, 2]]


def structs_are_returned():
    pair = ti.types.struct(a=ti.i32, b=ti.types.vector(2, ti.f32))

    @ti.kernel
    def f(k: ti.i32) -> pair:
        return pair(k, ti.Vector([k + 0.5, k + 1.5]))

    s = f(2)
    return [s.a, s.b.to_numpy()]


def structs_in_structs_are_returned():
    inner = ti.types.struct(u=ti.f32, v=ti.i32)
    outer = ti.types.struct(a=inner, b=ti.i32)

    @ti.kernel
    def f() -> outer:
        return outer(a=inner(u=0.5, v=2), b=7)

    s = f()
    return [s.a.u, s.a.v, s.b]


def an_element_of_a_struct_field_is_returned():
    pair = ti.types.struct(a=ti.i32, b=ti.f32)
    x = pair.field(shape=3)

    @ti.kernel
    def f() -> pair:
        for i in range(3):
            x[i] = pair(i, i * 0.5)
        return x[2]

    s = f()
    return [s.a, s.b]


def early_returns_of_kernels():
    @ti.kernel
    def f(a: ti.i32) -> ti.i32:
        if a > 10:
            return 1
        if a > 5:
            return 2
        return 3

    return refused(lambda: f(1)) if refused(lambda: f(1)) != "runs" else [f(20), f(7), f(0)]


def returns_in_static_branches():
    def make(flag):
        @ti.kernel
        def f() -> ti.i32:
            if ti.static(flag):
                return 1
            return 2

        return f()

    return [make(True), make(False)]


def a_kernel_without_a_type_returns_nothing():
    @ti.kernel
    def f():
        return

    @ti.kernel
    def g():
        return None

    return [f(), refused(g)]


@refuses()
def a_value_without_a_type_is_an_error():
    return 1


@refuses()
def a_type_without_a_value_is_an_error() -> ti.i32:
    pass


def a_vector_where_a_number_is_said_is_an_error():
    @ti.kernel
    def f() -> ti.i32:
        return ti.Vector([1, 2])

    @ti.kernel
    def g() -> ti.types.vector(3, ti.i32):
        return ti.Vector([1, 2])

    @ti.kernel
    def h() -> ti.types.vector(2, ti.i32):
        return 1

    return [refused(f), refused(g), refused(h)]


@refuses(10)
def returns_in_loops_of_kernels(n: ti.i32) -> ti.i32:
    for i in range(n):
        if i * i > 20:
            return i
    return -1


def several_values_are_returned():
    @ti.kernel
    def f(a: ti.i32) -> (ti.i32, ti.f32):
        return a + 1, a * 0.5

    return list(f(3))


@each(1, 5)
def comparisons_are_returned(a: ti.i32) -> ti.i32:
    return a > 3


def bools_are_returned():
    @ti.kernel
    def f(a: ti.i32) -> ti.u1:
        return a > 3

    @ti.kernel
    def g(a: ti.i32) -> bool:
        return a > 3

    return [bool(f(1)), bool(f(5)), bool(g(1)), bool(g(5))]


def elements_of_arrays_are_returned():
    @ti.kernel
    def f(a: ti.types.ndarray(dtype=ti.f64, ndim=1), i: ti.i32) -> ti.f64:
        return a[i]

    return np.float64(f(np.array([0.1, 0.2, 0.3]), 1))


@returns()
def long_vectors_are_returned() -> ti.types.vector(20, ti.i32):
    v = ti.Vector([0] * 20)
    for i in range(20):
        v[i] = i * i
    return v


def structs_of_another_type_are_refused():
    ball = ti.types.struct(center=ti.math.vec3, radius=ti.f32)
    disc = ti.types.struct(center=ti.math.vec2, radius=ti.f32)
    whole = ti.types.struct(center=ti.math.vec3, radius=ti.i32)

    @ti.kernel
    def f() -> ball:
        return disc(center=ti.math.vec2(1, 2), radius=2)

    @ti.kernel
    def g() -> ball:
        return whole(center=ti.math.vec3(1, 2, 3), radius=2)

    return [refused(f), refused(g)]


def structs_of_an_equal_type_are_returned():
    ball = ti.types.struct(center=ti.math.vec3, radius=float)
    same = ti.types.struct(center=ti.types.vector(3, ti.f32), radius=ti.f32)

    @ti.kernel
    def f() -> ball:
        return same(center=ti.math.vec3(1, 2, 3), radius=2)

    return [f().radius, f().center.to_numpy()]


@returns(kind=lambda: ti.types.vector(1024, ti.i32))
def vectors_of_1024_components_are_returned() -> ti.types.vector(1024, ti.i32):
    v = kind(0)
    for i in range(1024):
        v[i] = i * 3
    return v
