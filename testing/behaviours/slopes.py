"""Slopes: derivatives of operations and functions at points, in both modes."""

from functools import wraps

import numpy as np
import taichi as ti

f64 = ti.f64
POINTS = (0.3, 0.7, 1.4, -0.6)
ABOVE = (0.2, 0.5, 1.0, 2.5)
UNIT = (-0.9, -0.2, 0.1, 0.8)


def _slopes(at):
    """A behaviour that shows the derivative of its function at some points, in both modes."""

    def behaviour_of(function):
        @wraps(function)
        def behaviour():
            return _both_modes(ti.func(function), at)

        return behaviour

    return behaviour_of


def _both_modes(function, at):
    n = len(at)
    x = ti.field(f64, shape=n, needs_grad=True, needs_dual=True)
    y = ti.field(f64, shape=n, needs_grad=True, needs_dual=True)
    x.from_numpy(np.array(at))

    @ti.kernel
    def f():
        for i in x:
            y[i] = function(x[i])

    with ti.ad.FwdMode(loss=y, param=x, seed=[1.0] * n):
        f()
    forward = y.dual.to_numpy()
    y.grad.fill(1.0)
    f.grad()
    return [forward, x.grad.to_numpy()]


@_slopes(POINTS)
def slope_of_a_sine(x):
    return ti.sin(x)


@_slopes(POINTS)
def slope_of_a_cosine(x):
    return ti.cos(x)


@_slopes(POINTS)
def slope_of_a_tangent(x):
    return ti.tan(x)


@_slopes(UNIT)
def slope_of_an_arc_sine(x):
    return ti.asin(x)


@_slopes(UNIT)
def slope_of_an_arc_cosine(x):
    return ti.acos(x)


@_slopes(POINTS)
def slope_of_a_hyperbolic_tangent(x):
    return ti.tanh(x)


@_slopes(POINTS)
def slope_of_an_exponential(x):
    return ti.exp(x)


@_slopes(ABOVE)
def slope_of_a_logarithm(x):
    return ti.log(x)


@_slopes(ABOVE)
def slope_of_a_root(x):
    return ti.sqrt(x)


@_slopes(ABOVE)
def slope_of_a_reciprocal_root(x):
    return ti.rsqrt(x)


@_slopes((*POINTS, 0.0))
def slope_of_an_absolute_value(x):
    return ti.abs(x)


@_slopes(POINTS)
def slope_of_a_floor(x):
    return ti.floor(x) * x


@_slopes(POINTS)
def slope_of_a_ceiling(x):
    return ti.ceil(x) * x


@_slopes(POINTS)
def slope_of_a_negation(x):
    return -x


@_slopes(POINTS)
def slope_of_a_square(x):
    return x**2


@_slopes(POINTS)
def slope_of_a_cube(x):
    return x**3


@_slopes(ABOVE)
def slope_of_a_power_of_a_float(x):
    return x**1.5


@_slopes(POINTS)
def slope_of_a_power_by_its_exponent(x):
    return 1.5**x


@_slopes(ABOVE)
def slope_of_a_power_by_both(x):
    return x**x


@_slopes(POINTS)
def slope_of_a_quotient(x):
    return (x + 1) / (x * x + 2)


@_slopes(POINTS)
def slope_of_a_reciprocal(x):
    return 1 / x


@_slopes(POINTS)
def slope_of_an_angle(x):
    return ti.atan2(x, 0.5)


@_slopes(POINTS)
def slope_of_an_angle_by_its_second_operand(x):
    return ti.atan2(0.5, x)


@_slopes(POINTS)
def slope_of_a_minimum(x):
    return ti.min(x, 0.5)


@_slopes(POINTS)
def slope_of_a_maximum(x):
    return ti.max(x, 0.5)


@_slopes(POINTS)
def slope_of_a_minimum_of_equal_numbers(x):
    return ti.min(x * 2, x + x)


@_slopes(POINTS)
def slope_of_a_selection(x):
    return ti.select(x > 0.5, x * x, 2 * x)


@_slopes(POINTS)
def slope_of_a_guarded_root(x):
    return ti.select(x > 0, x * x, -x)


@_slopes(ABOVE)
def slope_of_a_cast_to_f32(x):
    return ti.cast(ti.cast(x * 2, ti.f32), ti.f64)


@_slopes(POINTS)
def slope_of_a_cast_to_a_whole_number(x):
    return ti.cast(x, ti.i32) * x


@_slopes(POINTS)
def slope_of_a_chain(x):
    return ti.exp(ti.sin(x) * ti.cos(x * x))


@_slopes(POINTS)
def slope_of_a_sigmoid(x):
    return 1 / (1 + ti.exp(-x))


@_slopes(POINTS)
def slope_of_a_constant(x):
    return 0 * x + 3.0
