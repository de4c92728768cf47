"""Grouped indices."""

import numpy as np
import taichi as ti

from .seeing import f32, i32, leaves, refuses


@leaves("x", x=i32(2, 3))
def a_vector_indexes_a_field():
    for i, j in ti.ndrange(2, 3):
        x[ti.Vector([i, j])] = i + 10 * j


@leaves("x", x=i32(2, 3, 2))
def grouped_loops_over_fields():
    for I in ti.grouped(x):
        x[I] = I[0] + I[1] * 10 + I[2] * 100


@leaves("x", x=i32(4))
def grouped_loops_over_one_axis():
    for I in ti.grouped(x):
        x[I] = I[0] * 3


@leaves("x", x=i32())
def grouped_loops_over_no_axis():
    for I in ti.grouped(x):
        x[I] = 42


@leaves("x", x=i32(4, 4))
def grouped_ndrange():
    for I in ti.grouped(ti.ndrange((1, 3), 4)):
        x[I] += I.sum()


@leaves("x", x=i32(3, 2))
def grouped_ndrange_of_a_shape():
    for I in ti.grouped(ti.ndrange(*x.shape)):
        x[I] = I.x - I.y


@leaves("x", x=i32())
def grouped_ndrange_of_nothing():
    for I in ti.grouped(ti.ndrange()):
        x[I] += 42


@leaves("y", x=i32(4, 4), y=i32(4, 4))
def static_grouped_ndrange():
    for I in ti.grouped(x):
        x[I] = I[0] * 4 + I[1]
    for I in ti.grouped(ti.ndrange((1, 3), (1, 3))):
        for D in ti.static(ti.grouped(ti.ndrange((-1, 2), (-1, 2)))):
            y[I] += x[I + D]


@leaves("x", x=i32(8, 8))
def arithmetic_of_indices():
    for I in ti.grouped(ti.ndrange(4, 4)):
        x[I * 2] = 1
        x[I * 2 + ti.Vector([1, 0])] = 2
        x[I // 2 + 4] += 10


@leaves("y", x=f32(4, 5), y=f32(4, 5))
def units_are_offsets():
    for I in ti.grouped(x):
        x[I] = I[0] * I[1]
    for I in ti.grouped(x):
        if I[0] > 0 and I[1] > 0:
            for k in ti.static(range(2)):
                y[I] += x[I] - x[I - ti.Vector.unit(2, k)]


@leaves("a", lambda: a, a=lambda: np.zeros((2, 3), np.int32))
def grouped_loops_over_arrays(a: ti.types.ndarray()):
    for I in ti.grouped(a):
        a[I] = I[0] * 10 + I[1]


def templates_of_any_dimension():
    @ti.kernel
    def f(a: ti.template(), b: ti.template()):
        for I in ti.grouped(a):
            b[I] = a[I] + 1

    one, two = (
        [ti.field(ti.i32, shape=3) for _ in "ab"],
        [ti.field(ti.i32, shape=(2, 2)) for _ in "ab"],
    )
    f(*one)
    f(*two)
    return [one[1].to_numpy(), two[1].to_numpy()]


@leaves("x", x=f32(3, 3))
def positions_from_indices():
    for I in ti.grouped(x):
        p = (I + 0.5) / 3
        x[I] = p.norm()


def a_function_takes_a_grouped_index():
    x = ti.field(ti.i32, shape=(3, 3))

    @ti.func
    def value(I):
        return I[0] * 5 + I[1]

    @ti.kernel
    def f():
        for I in ti.grouped(x):
            x[I] = value(I)

    f()
    return x.to_numpy()


@leaves("x", x=i32(4, 4))
def grouped_indices_may_be_cast():
    for I in ti.grouped(ti.ndrange(2, 2)):
        p = I * 1.9
        x[int(p)] += 1
        x[ti.cast(p + 1, ti.i32)] += 10


@refuses(x=i32(4, 4))
def vectors_that_are_too_long_are_an_error():
    x[ti.Vector([1, 2, 3])] = 1


@leaves("x", x=i32(2, 3, 4))
def indices_with_parts_that_are_vectors():
    for I in ti.grouped(ti.ndrange(2, 3)):
        for k in range(4):
            x[I, k] = I[0] * 100 + I[1] * 10 + k
