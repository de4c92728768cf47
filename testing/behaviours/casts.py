"""Casts and types of numbers."""

import numpy as np
import taichi as ti

from .seeing import answers, each, field, i32, leaves, refused, refuses, returns, vectors


@each(2.9, -2.9, 0.5)
def casts_of_floats_cut_towards_zero(x: ti.f32) -> ti.i32:
    return ti.cast(x, ti.i32)


@each(1.59, -1.59)
def names_of_types_cast(x: ti.f32) -> ti.i32:
    return ti.i32(x) * 100 + int(x * 10)


@returns(5)
def float_and_int_are_the_default_types(n: ti.i32) -> ti.f32:
    return float(n) / 4 + int(2.7)


@each(5, 200, 300, -1)
def casts_to_small_integers_wrap(n: ti.i32) -> ti.i32:
    return ti.cast(n, ti.u8) * 1000 + ti.cast(n, ti.i8)


def negative_numbers_as_unsigned_ones():
    @ti.kernel
    def f(n: ti.i32) -> ti.u32:
        return ti.cast(n, ti.u32)

    @ti.kernel
    def g(n: ti.i32) -> ti.u64:
        return ti.cast(n, ti.u64)

    return [f(-1), f(7), g(-1)]


@returns()
def unsigned_numbers_as_floats() -> ti.f64:
    a = ti.u32(4000000000)
    return ti.cast(a, ti.f64)


@each(3.7, 3e9)
def floats_as_unsigned_numbers(x: ti.f32) -> ti.u32:
    return ti.cast(x, ti.u32)


@returns(2000000000)
def wide_casts_keep_digits(x: ti.i32) -> ti.i64:
    return ti.cast(x, ti.i64) * 1000000007


def f64_to_f32_rounds():
    @ti.kernel
    def f(x: ti.f64) -> ti.f64:
        return ti.cast(ti.cast(x, ti.f32), ti.f64) - x

    return abs(f(0.1)) < 1e-8 and f(0.1) != 0


def bits_are_read_as_another_type():
    @ti.kernel
    def f(x: ti.f32) -> ti.i32:
        return ti.bit_cast(x, ti.i32)

    @ti.kernel
    def g(n: ti.i32) -> ti.f32:
        return ti.bit_cast(n, ti.f32)

    return [f(1.0), f(-2.5), g(1078530011)]


@returns()
def a_local_keeps_the_type_of_its_first_value() -> ti.f32:
    a = 1
    a = 2.7
    b = 1.0
    b = 7 // 2
    return a * 10 + b / 2


@returns()
def augmented_assignment_keeps_the_type() -> ti.i32:
    a = 10
    a += 2.9
    a *= 1.5
    return a


@returns()
def annotated_assignment_gives_the_type() -> ti.f64:
    a: ti.i32 = 3.9
    b: ti.f64 = 1
    return a + b / 3


@returns(3, 0.25)
def integers_and_floats_meet_as_floats(n: ti.i32, x: ti.f32) -> ti.f32:
    return n * x + n


@returns(2000000000, 4)
def i32_and_i64_meet_as_i64(a: ti.i32, b: ti.i64) -> ti.i64:
    return a * b


def f32_and_f64_meet_as_f64():
    @ti.kernel
    def f(a: ti.f32, b: ti.f64) -> ti.f64:
        return a * b

    return np.float64(f(0.5, 0.1))


def i64_and_f32_meet_as_f32():
    @ti.kernel
    def f(a: ti.i64, b: ti.f32) -> ti.f64:
        return a * b

    return np.float64(f(16777217, 1.0))


def signed_and_unsigned_meet():
    @ti.kernel
    def f(a: ti.i32, b: ti.u32) -> ti.i64:
        return ti.cast(a + b, ti.i64)

    @ti.kernel
    def g(a: ti.i32, b: ti.u32) -> ti.i32:
        r = 0
        if a < b:
            r = 1
        return r

    return [f(-5, 3), g(-5, 3)]


def small_integers_meet():
    @ti.kernel
    def f(a: ti.u8, b: ti.u8) -> ti.i32:
        return a + b

    @ti.kernel
    def g(a: ti.i8, b: ti.i16) -> ti.i32:
        return a * b

    @ti.kernel
    def h(a: ti.u8, b: ti.i32) -> ti.i32:
        return a + b

    return [f(200, 100), f(1, 2), g(100, 400), h(200, 100)]


def halves_meet_floats():
    @ti.kernel
    def f(a: ti.f16, b: ti.f32) -> ti.f32:
        return a * b

    @ti.kernel
    def g(a: ti.f16, b: ti.f16) -> ti.f32:
        return a + b

    return [f(0.5, 0.3), g(2048.0, 1.0)]


@each(65536, 65537)
def i32_wraps_around(a: ti.i32) -> ti.i32:
    return a * a + 2147483647


def u32_and_u8_wrap_around():
    @ti.kernel
    def f(a: ti.u32) -> ti.u32:
        return a - 1

    @ti.kernel
    def g(a: ti.u8) -> ti.u8:
        return a + ti.u8(10)

    return [f(0), g(250)]


@returns(2**62)
def i64_wraps_around(a: ti.i64) -> ti.i64:
    return a * 4 + 1


@each(1, 5)
def i16_locals_wrap_around(n: ti.i32) -> ti.i32:
    a = ti.i16(30000)
    for _ in range(n):
        a += ti.i16(1000)
    return a


def literals_are_of_the_default_type():
    ti.init(arch=ti.cpu, default_fp=ti.f64)

    @ti.kernel
    def f() -> ti.f64:
        a = 0.1
        return a * 3

    return np.float64(f())


@refuses()
def literals_beyond_i32_are_an_error_or_wide() -> ti.i64:
    return 5000000000


def wide_literals_are_cast_where_written():
    @ti.kernel
    def f() -> ti.i64:
        return ti.i64(5000000000)

    @ti.kernel
    def g() -> ti.u32:
        return ti.u32(4000000000)

    return [f(), g()]


def literals_too_great_for_their_type_are_an_error():
    @ti.kernel
    def f() -> ti.i32:
        return ti.u8(300)

    @ti.kernel
    def g() -> ti.i64:
        return ti.i32(5000000000)

    return [refused(f), refused(g)]


def a_default_of_i64_for_integers():
    ti.init(arch=ti.cpu, default_ip=ti.i64)

    @ti.kernel
    def f() -> ti.i64:
        a = 1000000000
        return a * 10

    return f()


@answers()
def true_and_false_are_numbers() -> ti.i32:
    a = True
    b = False
    return a + b + (3 > 2)


@leaves("x", x=field(ti.u1, 4))
def bools_of_u1_are_kept_in_fields():
    for i in x:
        x[i] = i % 2 == 0


@each(0.5, 2.0)
def sizes_of_results_of_comparisons(a: ti.f32) -> ti.i32:
    return (a > 1) * 10 + (a == 2.0)


@each(0, 1, 256)
def casts_to_bool(a: ti.i32) -> ti.i32:
    return ti.cast(ti.cast(a, ti.u1), ti.i32)


@returns()
def casts_in_while_loops() -> ti.i32:
    t = 10
    while t > 5:
        t = 1.0
    return t


@refuses(1.0, x=i32(4))
def floats_as_indices_are_an_error(a: ti.f32) -> ti.i32:
    return x[a]


@refuses()
def unknown_types_are_an_error():
    a = ti.cast(1, "float")
    print(a)


def f16_arithmetic_rounds():
    @ti.kernel
    def f() -> ti.f32:
        a = ti.f16(0.1)
        b = ti.f16(0.2)
        return ti.cast(a + b, ti.f32)

    return abs(f() - 0.3) < 1e-3


def zero_ends_of_types():
    @ti.kernel
    def f(x: ti.f32) -> ti.f32:
        return -x

    return [str(f(0.0)), str(f(float("inf")))]


@each(1.5, -2.5, 2.5)
def rounding_functions_give_types(x: ti.f32) -> ti.types.vector(4, ti.i32):
    return ti.Vector(
        [ti.floor(x, ti.i32), ti.ceil(x, ti.i32), ti.round(x, ti.i32), ti.floor(x * 2, int)]
    )


@each(0.5, 1.5, 2.5, -0.5, -1.5, 2.4, 2.6)
def round_is_to_the_even_neighbour(x: ti.f32) -> ti.f32:
    return ti.round(x)


@returns(7, x=i32())
def quotients_stored_in_integers(a: ti.i32) -> ti.i32:
    x[None] = a
    x[None] /= 2
    b = a
    b += 0.9
    b -= 0.9
    return b * 100 + x[None]


def sums_of_small_and_wide_integers():
    @ti.kernel
    def f(a: ti.u8, b: ti.i32) -> ti.i32:
        c = a
        c += b
        d = a
        d = d + b
        return ti.cast(c, ti.i32) * 1000 + ti.cast(d, ti.i32)

    @ti.kernel
    def g(a: ti.i16, b: ti.u16) -> ti.i32:
        return a + b

    return [f(250, 10), g(-5, 3), g(5, 3)]


@each(3, 1)
def extremes_of_integers_and_floats(a: ti.i32) -> ti.i32:
    return max(a, 2.7) + min(a, 1.2)


@each(1, 3)
def chosen_numbers_meet(a: ti.i32) -> ti.i32:
    return ti.select(a > 2, 1.7, 3) + ti.cast(ti.select(a > 2, 1, 0.5) * 10, ti.i32)


@returns(5, 200)
def shifts_and_signs_of_small_integers(a: ti.i32, b: ti.u8) -> ti.i32:
    return (b << 4) + (a << 2) + (b >> 1) + (~b)


@leaves(lambda: v.to_numpy(), v=vectors(2, ti.i32))
def vectors_of_integers_are_divided_and_scaled():
    v[None] = [7, -7]
    v[None] /= 2
    v[None] *= 1.5
    v[None] += ti.Vector([0.6, 0.6])


def doubles_and_literals():
    x = ti.field(ti.f64, shape=())

    @ti.kernel
    def f(a: ti.f32):
        x[None] = a * 0.1 + 0.1
        x[None] *= 3

    @ti.kernel
    def g() -> ti.types.vector(3, ti.f64):
        return ti.Vector([0.1, 1, 2], dt=ti.f64) / 3

    f(0.3)
    return [x.to_numpy(), g().to_numpy()]


@returns(4)
def powers_and_signs(a: ti.i32) -> ti.i32:
    return -a // 3 + -a % 3 + (-a) ** 3 - a**2


def python_converts_what_it_knows():
    import math

    @ti.kernel
    def f(v: ti.i64) -> ti.f32:
        return (float(v) + float(2**63)) / float(2**64) + int(2.9) + math.sqrt(2.0) * abs(-3)

    return f(2**62)
