"""Indices that leave arrays: clamped ones, and reads whose values do not matter."""

import numpy as np
import taichi as ti

from .seeing import each, i32, leaves, returns, vectors

CLAMPED = ti.types.ndarray(boundary="clamp")


@each(*((np.arange(3, dtype=np.int32), k) for k in (-2, -1, 0, 2, 3, 9)))
def clamped_indices_at_run_time(x: CLAMPED, k: ti.i32) -> ti.i32:
    return x[k]


@returns(np.arange(12, dtype=np.float32).reshape(3, 4))
def clamped_indices_of_two_axes(x: CLAMPED) -> ti.f32:
    s = 0.0
    for i, j in ti.ndrange(3, 4):
        s += x[i + 1, j - 1] * (i + 2 * j)
    return s


def clamped_stores():
    @ti.kernel
    def f(x: CLAMPED, k: ti.i32):
        x[k] = 7

    found = []
    for k in (-4, 1, 4):
        x = np.zeros(3, np.int32)
        f(x, k)
        found.append(x)
    return found


def clamped_arrays_of_vectors():
    @ti.kernel
    def f(x: ti.types.ndarray(dtype=ti.math.vec2, ndim=1, boundary="clamp"), k: ti.i32) -> ti.f32:
        return x[k].y

    x = ti.ndarray(ti.math.vec2, shape=3)
    for i in range(3):
        x[i] = [i, 10 + i]
    return [f(x, k) for k in (-1, 0, 2, 5)]


def clamped_components_of_vectors():
    @ti.kernel
    def f(x: ti.types.ndarray(dtype=ti.math.vec2, ndim=1, boundary="clamp"), k: ti.i32) -> ti.f32:
        return x[1][k]

    x = ti.ndarray(ti.math.vec2, shape=3)
    x[1] = [3, 4]
    return [f(x, k) for k in (-1, 0, 1, 5)]


def clamped_and_unsafe_arrays_together():
    @ti.kernel
    def f(x: CLAMPED, y: ti.types.ndarray(boundary="unsafe")):
        for i in y:
            y[i] = x[i + 2]

    y = np.zeros(5, np.int32)
    f(np.arange(5, dtype=np.int32), y)
    return y


@leaves("y", x=i32(6), y=i32(6))
def reads_behind_the_end_that_are_not_used():
    for i in x:
        x[i] = i * i
    for i in y:
        behind = x[i + 1]
        y[i] = behind if i < 5 else -1


@leaves("y", x=i32(6), y=i32(6))
def reads_before_the_begin_that_are_not_used():
    for i in x:
        x[i] = i * i
    for i in y:
        y[i] = ti.select(i > 0, x[i - 1], -1)


@leaves("y", x=i32(4, 4), y=i32(4, 4))
def reads_around_a_box_that_are_not_used():
    for i, j in x:
        x[i, j] = 4 * i + j
    for i, j in y:
        left, right = x[i, j - 1], x[i, j + 1]
        if 0 < j < 3:
            y[i, j] = left + right


def reads_behind_an_array_that_are_not_used():
    @ti.kernel
    def f(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in range(5):
            behind = x[i + 1]
            if i < 4:
                y[i] = behind

    y = np.zeros(5, np.int32)
    f(np.arange(5, dtype=np.int32), y)
    return y


@leaves("y", x=vectors(3, ti.i32, 4), y=i32(4))
def components_behind_the_end_that_are_not_used():
    for i in x:
        x[i] = [i, 10 + i, 20 + i]
    for i in y:
        s = 0
        for k in range(3):
            s += x[i + 1][k]
        y[i] = s if i < 3 else -1
