"""Element-wise operations and functions of numbers."""

import numpy as np
import taichi as ti

from .seeing import refused


def _table(dtype, f, *columns):
    """A function of numbers at each row of columns, computed by one kernel."""
    n = len(columns[0])
    x = [ti.field(dtype, shape=n) for _ in columns]
    for field, column in zip(x, columns, strict=True):
        field.from_numpy(np.array(column, dtype=np.float64 if dtype == ti.f64 else None))
    out = ti.Vector.field(len(f.names), f.dtype, shape=n)
    for part in (f,):
        part.run(out, *x)
    return {name: out.to_numpy()[:, k] for k, name in enumerate(f.names)}


class _Rows:
    """A kernel that fills rows of a vector field, with the names of its columns."""

    def __init__(self, dtype, names, run):
        self.dtype, self.names, self.run = dtype, names.split(), run


def trigonometry():
    @ti.kernel
    def run(out: ti.template(), x: ti.template()):
        for i in x:
            a = x[i]
            out[i] = [ti.sin(a), ti.cos(a), ti.tan(a), ti.asin(a / 4), ti.acos(a / 4), ti.tanh(a)]

    return _table(
        ti.f32, _Rows(ti.f32, "sin cos tan asin acos tanh", run), [-3.0, -0.5, 0.0, 1.0, 2.5]
    )


def trigonometry_in_f64():
    @ti.kernel
    def run(out: ti.template(), x: ti.template()):
        for i in x:
            a = x[i]
            out[i] = [ti.sin(a), ti.cos(a), ti.tan(a), ti.atan2(a, 0.5), ti.tanh(a)]

    return _table(ti.f64, _Rows(ti.f64, "sin cos tan atan2 tanh", run), [-3.0, -0.5, 0.0, 1.0, 2.5])


def exponentials_and_roots():
    @ti.kernel
    def run(out: ti.template(), x: ti.template()):
        for i in x:
            a = x[i]
            out[i] = [ti.exp(a), ti.log(a), ti.sqrt(a), ti.rsqrt(a), ti.pow(a, 1.5), a**0.5]

    return _table(ti.f32, _Rows(ti.f32, "exp log sqrt rsqrt pow root", run), [0.25, 1.0, 2.0, 9.5])


def rounding():
    @ti.kernel
    def run(out: ti.template(), x: ti.template()):
        for i in x:
            a = x[i]
            out[i] = [
                ti.floor(a),
                ti.ceil(a),
                ti.round(a),
                abs(a),
                ti.math.sign(a),
                ti.math.fract(a),
            ]

    columns = [-2.5, -1.2, -0.5, 0.0, 0.5, 1.5, 2.7]
    return _table(ti.f32, _Rows(ti.f32, "floor ceil round abs sign fract", run), columns)


def two_operands_of_floats():
    @ti.kernel
    def run(out: ti.template(), x: ti.template(), y: ti.template()):
        for i in x:
            a, b = x[i], y[i]
            out[i] = [
                a + b,
                a - b,
                a * b,
                a / b,
                a // b,
                a % b,
                ti.atan2(a, b),
                max(a, b),
                min(a, b),
            ]

    names = "add sub mul div floordiv mod atan2 max min"
    return _table(
        ti.f32, _Rows(ti.f32, names, run), [7.5, -7.5, 7.5, -7.5, 1.0], [2.0, 2.0, -2.0, -2.0, 3.0]
    )


def two_operands_of_integers():
    @ti.kernel
    def run(out: ti.template(), x: ti.template(), y: ti.template()):
        for i in x:
            a, b = x[i], y[i]
            out[i] = [
                a + b,
                a - b,
                a * b,
                a // b,
                a % b,
                ti.raw_div(a, b),
                ti.raw_mod(a, b),
                max(a, b),
                min(a, b),
            ]

    names = "add sub mul floordiv mod raw_div raw_mod max min"
    columns = [7, -7, 7, -7, 0, 6], [2, 2, -2, -2, 5, -3]
    return _table(ti.i32, _Rows(ti.i32, names, run), *columns)


def quotients_of_integers_are_floats():
    @ti.kernel
    def f(a: ti.i32, b: ti.i32) -> ti.f32:
        return a / b

    return [f(7, 2), f(-1, 4)]


def integer_powers():
    @ti.kernel
    def run(out: ti.template(), x: ti.template(), y: ti.template()):
        for i in x:
            out[i] = [x[i] ** y[i], x[i] ** 2, x[i] ** 3, x[i] ** 0]

    return _table(
        ti.i32, _Rows(ti.i32, "pow square cube zero", run), [2, -3, 5, 0, 7], [10, 3, 0, 4, 1]
    )


def floats_to_integer_powers():
    @ti.kernel
    def f(a: ti.f32, n: ti.i32) -> ti.f32:
        return a**n + a**3 + a ** (-2)

    return [f(1.5, 4), f(-2.0, 3), f(0.5, -1)]


def zero_to_the_power_of_zero():
    @ti.kernel
    def f(a: ti.f32, b: ti.f32) -> ti.f32:
        return a**b

    return [f(0.0, 0.0), f(0.0, 2.0), f(2.0, 0.0), f(2.0, -1.0)]


def integers_as_arguments_of_functions():
    @ti.kernel
    def f(n: ti.i32) -> ti.f32:
        return ti.sqrt(n) + ti.exp(n) * 0.1 + ti.log(n + 1)

    return [f(0), f(2)]


def logical_not_and_bit_not():
    @ti.kernel
    def f(n: ti.i32) -> ti.i32:
        r = 0
        if not n:
            r = 100
        return r + ~n

    return [f(0), f(5), f(-1)]


def shifts():
    @ti.kernel
    def f(n: ti.i32, k: ti.i32) -> ti.types.vector(3, ti.i32):
        return ti.Vector([n << k, n >> k, ti.bit_shr(n, k)])

    return [f(5, 3).to_numpy(), f(-20, 2).to_numpy(), f(-1, 31).to_numpy()]


def shifts_of_unsigned_numbers():
    @ti.kernel
    def f(n: ti.u32, k: ti.i32) -> ti.u32:
        return (n >> k) + (n << 31)

    return [f(4000000000, 4), f(3, 1)]


def bits_of_integers():
    @ti.kernel
    def f(a: ti.i32, b: ti.i32) -> ti.types.vector(3, ti.i32):
        return ti.Vector([a & b, a | b, a ^ b])

    return [f(12, 10).to_numpy(), f(-1, 255).to_numpy()]


def augmented_bits():
    @ti.kernel
    def f(a: ti.i32) -> ti.i32:
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

    return [f(3), f(9)]


def bits_of_floats_are_an_error():
    @ti.kernel
    def f(a: ti.f32) -> ti.f32:
        return a & 3

    @ti.kernel
    def g(a: ti.f32) -> ti.f32:
        return ~a

    return [refused(lambda: f(1.0)), refused(lambda: g(1.0))]


def counts_of_bits():
    @ti.kernel
    def f(n: ti.i32) -> ti.types.vector(2, ti.i32):
        return ti.Vector([ti.math.popcnt(n), ti.math.clz(n)])

    return [f(1).to_numpy(), f(255).to_numpy(), f(-1).to_numpy()]


def select_chooses_by_element():
    @ti.kernel
    def f(a: ti.i32) -> ti.types.vector(4, ti.f32):
        v = ti.select(ti.Vector([1, 0, a]), ti.Vector([1.0, 2.0, 3.0]), ti.Vector([4.0, 5.0, 6.0]))
        s = ti.select(a > 0, 10, 20.5)
        return ti.Vector([v[0], v[1], v[2], s])

    return [f(0).to_numpy(), f(1).to_numpy()]


def max_and_min_of_several():
    @ti.kernel
    def f(a: ti.i32, b: ti.f32) -> ti.types.vector(4, ti.f32):
        return ti.Vector([ti.max(a, b, 3), ti.min(a, b, 3), max(a, 2), min(b, a)])

    return [f(1, 2.5).to_numpy(), f(7, -1.0).to_numpy()]


def max_and_min_of_vectors_and_numbers():
    @ti.kernel
    def f() -> ti.types.vector(3, ti.f32):
        v = ti.Vector([1.0, -2.0, 5.0])
        return ti.max(v, 0) + ti.min(v, ti.Vector([0.0, 1.0, 2.0])) * 10

    return f().to_numpy()


def extremes_of_a_starred_vector():
    @ti.kernel
    def f() -> ti.f32:
        v = ti.Vector([1.0, -2.0, 5.0])
        return ti.max(*v) * 10 + ti.min(*v)

    return f()


def what_is_no_number():
    @ti.kernel
    def f(a: ti.f32) -> ti.i32:
        return ti.math.isnan(a) * 10 + ti.math.isinf(a)

    return [f(1.0), f(float("nan")), f(float("inf")), f(float("-inf"))]


def writing_back_into_the_operand():
    x, y = ti.field(ti.f32, shape=4), ti.field(ti.f32, shape=4)

    @ti.kernel
    def f():
        for i in x:
            x[i] = i + 1
            y[i] = 2
            x[i] = x[i] * y[i] - x[i] / y[i]
            y[i] = ti.sqrt(x[i]) + y[i]

    f()
    return [x.to_numpy(), y.to_numpy()]


def divisions_by_powers_of_two():
    @ti.kernel
    def f(a: ti.i32) -> ti.types.vector(4, ti.i32):
        return ti.Vector([a // 8, a % 8, (a + 4) // 2, -a // 4])

    return [f(19).to_numpy(), f(-19).to_numpy()]


def remainders_of_floats_and_one():
    @ti.kernel
    def f(a: ti.f32) -> ti.f32:
        return a % 1

    return [f(1.25), f(-0.25), f(3.0)]


def remainders_of_unsigned_numbers():
    @ti.kernel
    def f(a: ti.u32, b: ti.u32) -> ti.u32:
        return a % b + a // b

    return [f(4000000000, 7), f(10, 3)]


def floor_division_of_floats():
    @ti.kernel
    def f(a: ti.f32, b: ti.f32) -> ti.f32:
        return a // b

    return [f(7.0, 2.0), f(-7.0, 2.0), f(7.5, -2.5)]


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


def remainders_of_negative_constants():
    @ti.kernel
    def f() -> ti.types.vector(2, ti.i32):
        a = -7
        return ti.Vector([a % 4, a // 4])

    return f().to_numpy()


def augmented_quotients_of_negative_numbers():
    x = ti.field(ti.i32, shape=3)

    @ti.kernel
    def f(a: ti.i32, b: ti.i32):
        for i in x:
            x[i] = a + i
            x[i] //= b
            x[i] = x[i] * 10 + (a + i) % b

    f(-7, 4)
    return x.to_numpy()
