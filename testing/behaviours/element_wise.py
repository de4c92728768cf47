"""Element-wise operations and functions of numbers."""

from functools import wraps

import numpy as np
import taichi as ti

from .seeing import each, f32, i32, leaves, refused, returns


def _table(names, dtype, *columns):
    """A row that shows several functions of numbers, by name, for all rows of columns: one kernel computes them."""

    def behaviour_of(body):
        @wraps(body)
        def behaviour():
            x = [ti.field(dtype, shape=len(c)) for c in columns]
            for field, column in zip(x, columns, strict=True):
                field.from_numpy(np.array(column, dtype=np.float64 if dtype == ti.f64 else None))
            out = ti.Vector.field(len(names.split()), dtype, shape=len(columns[0]))
            ti.kernel(body)(out, *x)
            return {name: out.to_numpy()[:, k] for k, name in enumerate(names.split())}

        return behaviour

    return behaviour_of


@_table("sin cos tan asin acos tanh", ti.f32, [-3.0, -0.5, 0.0, 1.0, 2.5])
def trigonometry(out: ti.template(), x: ti.template()):
    for i in x:
        a = x[i]
        out[i] = [ti.sin(a), ti.cos(a), ti.tan(a), ti.asin(a / 4), ti.acos(a / 4), ti.tanh(a)]


@_table("sin cos tan atan2 tanh", ti.f64, [-3.0, -0.5, 0.0, 1.0, 2.5])
def trigonometry_in_f64(out: ti.template(), x: ti.template()):
    for i in x:
        a = x[i]
        out[i] = [ti.sin(a), ti.cos(a), ti.tan(a), ti.atan2(a, 0.5), ti.tanh(a)]


@_table("exp log sqrt rsqrt pow root", ti.f32, [0.25, 1.0, 2.0, 9.5])
def exponentials_and_roots(out: ti.template(), x: ti.template()):
    for i in x:
        a = x[i]
        out[i] = [ti.exp(a), ti.log(a), ti.sqrt(a), ti.rsqrt(a), ti.pow(a, 1.5), a**0.5]


@_table("floor ceil round abs sign fract", ti.f32, [-2.5, -1.2, -0.5, 0.0, 0.5, 1.5, 2.7])
def rounding(out: ti.template(), x: ti.template()):
    for i in x:
        a, sign, fract = x[i], ti.math.sign(x[i]), ti.math.fract(x[i])
        out[i] = [ti.floor(a), ti.ceil(a), ti.round(a), abs(a), sign, fract]


@_table(
    "add sub mul div floordiv mod atan2 max min",
    ti.f32,
    [7.5, -7.5, 7.5, -7.5, 1.0],
    [2.0, 2.0, -2.0, -2.0, 3.0],
)
def two_operands_of_floats(out: ti.template(), x: ti.template(), y: ti.template()):
    for i in x:
        a, b, t = x[i], y[i], ti.atan2(x[i], y[i])
        out[i] = [a + b, a - b, a * b, a / b, a // b, a % b, t, max(a, b), min(a, b)]


@_table(
    "add sub mul floordiv mod raw_div raw_mod max min",
    ti.i32,
    [7, -7, 7, -7, 0, 6],
    [2, 2, -2, -2, 5, -3],
)
def two_operands_of_integers(out: ti.template(), x: ti.template(), y: ti.template()):
    for i in x:
        a, b, q, r = x[i], y[i], ti.raw_div(x[i], y[i]), ti.raw_mod(x[i], y[i])
        out[i] = [a + b, a - b, a * b, a // b, a % b, q, r, max(a, b), min(a, b)]


@each((7, 2), (-1, 4))
def quotients_of_integers_are_floats(a: ti.i32, b: ti.i32) -> ti.f32:
    return a / b


@_table("pow square cube zero", ti.i32, [2, -3, 5, 0, 7], [10, 3, 0, 4, 1])
def integer_powers(out: ti.template(), x: ti.template(), y: ti.template()):
    for i in x:
        out[i] = [x[i] ** y[i], x[i] ** 2, x[i] ** 3, x[i] ** 0]


@each((1.5, 4), (-2.0, 3), (0.5, -1))
def floats_to_integer_powers(a: ti.f32, n: ti.i32) -> ti.f32:
    return a**n + a**3 + a ** (-2)


@each((0.0, 0.0), (0.0, 2.0), (2.0, 0.0), (2.0, -1.0))
def zero_to_the_power_of_zero(a: ti.f32, b: ti.f32) -> ti.f32:
    return a**b


@each(0, 2)
def integers_as_arguments_of_functions(n: ti.i32) -> ti.f32:
    return ti.sqrt(n) + ti.exp(n) * 0.1 + ti.log(n + 1)


@each(0, 5, -1)
def logical_not_and_bit_not(n: ti.i32) -> ti.i32:
    r = 0
    if not n:
        r = 100
    return r + ~n


@each((5, 3), (-20, 2), (-1, 31))
def shifts(n: ti.i32, k: ti.i32) -> ti.types.vector(3, ti.i32):
    return ti.Vector([n << k, n >> k, ti.bit_shr(n, k)])


@each((4000000000, 4), (3, 1))
def shifts_of_unsigned_numbers(n: ti.u32, k: ti.i32) -> ti.u32:
    return (n >> k) + (n << 31)


@each((12, 10), (-1, 255))
def bits_of_integers(a: ti.i32, b: ti.i32) -> ti.types.vector(3, ti.i32):
    return ti.Vector([a & b, a | b, a ^ b])


@each(3, 9)
def augmented_bits(a: ti.i32) -> ti.i32:
    a2 = a
    a2 <<= 4
    a2 |= 3
    a2 ^= 5
    a2 &= 0xFF
    a2 >>= 1
    a2 %= 50
    a2 //= 3
    a2 **= 2
    return a2


def bits_of_floats_are_an_error():
    @ti.kernel
    def f(a: ti.f32) -> ti.f32:
        return a & 3

    @ti.kernel
    def g(a: ti.f32) -> ti.f32:
        return ~a

    return [refused(lambda: f(1.0)), refused(lambda: g(1.0))]


@each(1, 255, -1)
def counts_of_bits(n: ti.i32) -> ti.types.vector(2, ti.i32):
    return ti.Vector([ti.math.popcnt(n), ti.math.clz(n)])


@each(0, 1)
def select_chooses_by_element(a: ti.i32) -> ti.types.vector(4, ti.f32):
    v = ti.select(ti.Vector([1, 0, a]), ti.Vector([1.0, 2.0, 3.0]), ti.Vector([4.0, 5.0, 6.0]))
    s = ti.select(a > 0, 10, 20.5)
    return ti.Vector([v[0], v[1], v[2], s])


@each((1, 2.5), (7, -1.0))
def max_and_min_of_several(a: ti.i32, b: ti.f32) -> ti.types.vector(4, ti.f32):
    return ti.Vector([ti.max(a, b, 3), ti.min(a, b, 3), max(a, 2), min(b, a)])


@returns()
def max_and_min_of_vectors_and_numbers() -> ti.types.vector(3, ti.f32):
    v = ti.Vector([1.0, -2.0, 5.0])
    return ti.max(v, 0) + ti.min(v, ti.Vector([0.0, 1.0, 2.0])) * 10


@returns()
def extremes_of_a_starred_vector() -> ti.f32:
    v = ti.Vector([1.0, -2.0, 5.0])
    return ti.max(*v) * 10 + ti.min(*v)


@each(1.0, float("nan"), float("inf"), float("-inf"))
def what_is_no_number(a: ti.f32) -> ti.i32:
    return ti.math.isnan(a) * 10 + ti.math.isinf(a)


@leaves("x y", x=f32(4), y=f32(4))
def writing_back_into_the_operand():
    for i in x:
        x[i] = i + 1
        y[i] = 2
        x[i] = x[i] * y[i] - x[i] / y[i]
        y[i] = ti.sqrt(x[i]) + y[i]


@each(19, -19)
def divisions_by_powers_of_two(a: ti.i32) -> ti.types.vector(4, ti.i32):
    return ti.Vector([a // 8, a % 8, (a + 4) // 2, -a // 4])


@each(1.25, -0.25, 3.0)
def remainders_of_floats_and_one(a: ti.f32) -> ti.f32:
    return a % 1


@each((4000000000, 7), (10, 3))
def remainders_of_unsigned_numbers(a: ti.u32, b: ti.u32) -> ti.u32:
    return a % b + a // b


@each((7.0, 2.0), (-7.0, 2.0), (7.5, -2.5))
def floor_division_of_floats(a: ti.f32, b: ti.f32) -> ti.f32:
    return a // b


def functions_of_python_values():
    return [
        ti.sqrt(4.0),
        ti.sin(0.5),
        ti.floor(2.7),
        ti.max(1, 2, 3),
        ti.min(4, 2),
        abs(ti.atan2(1.0, 1.0) - 0.785398) < 1e-5,
    ]


def functions_of_math_module_in_kernels():
    import math

    @ti.kernel
    def f() -> ti.f32:
        return math.pi + math.sqrt(2.0)

    return f()


@returns()
def remainders_of_negative_constants() -> ti.types.vector(2, ti.i32):
    a = -7
    return ti.Vector([a % 4, a // 4])


@leaves("x", -7, 4, x=i32(3))
def augmented_quotients_of_negative_numbers(a: ti.i32, b: ti.i32):
    for i in x:
        x[i] = a + i
        x[i] //= b
        x[i] = x[i] * 10 + (a + i) % b
