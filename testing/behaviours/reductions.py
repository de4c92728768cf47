"""Reductions and atomics."""

import numpy as np
import taichi as ti

from .seeing import calls, f32, field, i32, leaves, refuses, returns, vectors

N = 1000


def _reduced(dtype):
    x, y = ti.field(dtype, shape=N), ti.field(dtype, shape=4)

    @ti.kernel
    def f():
        for i in x:
            x[i] = (i * 7919) % 1000
        y[1] = 0
        y[2] = 1000
        y[3] = 0
        for i in x:
            y[0] += x[i]
            ti.atomic_max(y[1], x[i])
            ti.atomic_min(y[2], x[i])
            ti.atomic_sub(y[3], x[i])

    f()
    return y.to_numpy()


sums_and_extremes_of_i32 = calls(_reduced, ti.i32)
sums_and_extremes_of_u32 = calls(_reduced, ti.u32)
sums_and_extremes_of_i64 = calls(_reduced, ti.i64)
sums_and_extremes_of_u64 = calls(_reduced, ti.u64)
sums_and_extremes_of_f32 = calls(_reduced, ti.f32)
sums_and_extremes_of_f64 = calls(_reduced, ti.f64)


@returns(np.arange(5000, dtype=np.int64))
def sums_of_arrays(a: ti.types.ndarray(dtype=ti.i64, ndim=1)) -> ti.i64:
    s = ti.i64(0)
    for i in a:
        s += a[i]
    return s


@leaves("x", x=i32())
def minus_is_a_reduction():
    for i in range(10):
        x[None] -= i


@leaves("x", x=i32(3))
def bits_are_reduced():
    x[1] = -1
    for i in range(5):
        x[0] |= 1 << i
        x[1] &= ~(1 << i)
        x[2] ^= i * 3


@leaves("x", x=f32())
def products_are_reduced_by_atomics():
    x[None] = 1
    for i in range(1, 6):
        ti.atomic_mul(x[None], i)


@returns(x=i32(2))
def atomic_add_gives_the_old_value() -> ti.i32:
    x[0] = 5
    old = ti.atomic_add(x[0], 3)
    return old * 100 + x[0]


@leaves("x y", x=i32(7), y=i32(7))
def most_atomics_give_the_old_value():
    for i in x:
        x[i] = 12
    y[0] = ti.atomic_sub(x[0], 5)
    y[1] = ti.atomic_add(x[1], 3)
    y[2] = ti.atomic_max(x[2], 20)
    y[3] = ti.atomic_min(x[3], 7)
    y[4] = ti.atomic_and(x[4], 10)
    y[5] = ti.atomic_or(x[5], 3)
    y[6] = ti.atomic_xor(x[6], 5)


@leaves("count seen", count=i32(), seen=i32(200))
def old_values_are_different_in_parallel():
    for _ in range(200):
        seen[ti.atomic_add(count[None], 1)] += 1


@returns()
def atomics_on_locals() -> ti.i32:
    a = 10
    old = ti.atomic_add(a, 5)
    big = ti.atomic_max(a, 100)
    b = 6
    ti.atomic_or(b, 9)
    return old * 1000000 + big * 10000 + a * 10 + b


def atomics_in_expressions():
    x = ti.field(ti.i32, shape=())

    @ti.kernel
    def f() -> ti.i32:
        return ti.atomic_add(x[None], 4) + ti.atomic_add(x[None], 6) * 10

    return [f(), x[None]]


@leaves("x", x=i32(2))
def atomics_cast_to_the_type_of_the_place():
    ti.atomic_add(x[0], 2.9)
    x[1] = 10
    ti.atomic_sub(x[1], 1.5)


@refuses()
def atomics_on_what_is_no_place_are_an_error():
    ti.atomic_add(3, 4)


@leaves(
    lambda: [v[None].to_numpy(), w[None].to_numpy()], v=vectors(2, ti.i32), w=vectors(2, ti.i32)
)
def atomics_on_vectors():
    for i in range(10):
        v[None] += ti.Vector([i, 1])
        ti.atomic_max(w[None], ti.Vector([i, -i]))


@leaves("v", v=vectors(3, ti.f32, 2))
def atomics_on_components():
    for i in range(30):
        v[i % 2][i % 3] += 0.5
        ti.atomic_add(v[0][0], 1)


@leaves("h", h=i32(10))
def histograms():
    for i in range(1000):
        h[i * i % 10] += 1


@returns(x=i32(200))
def a_local_is_reduced_in_a_parallel_loop() -> ti.i32:
    for i in x:
        x[i] = (i * 37) % 200
    most = 0
    for i in x:
        ti.atomic_max(most, x[i])
    return most


def reductions_in_functions():
    x = ti.field(ti.i32, shape=())

    @ti.func
    def add(n):
        x[None] += n

    @ti.kernel
    def f():
        for i in range(100):
            add(i)

    f()
    return x[None]


@leaves("x", x=i32(2))
def reductions_behind_branches():
    for i in range(100):
        if i % 3 == 0:
            x[0] += i
        else:
            x[1] += 1


@leaves("x", x=field(ti.f16))
def halves_are_added_atomically():
    for i in range(100):
        x[None] += 0.5


@leaves("x", x=f32(2))
def extremes_of_negative_floats():
    x[0] = -1e9
    x[1] = 1e9
    for i in range(50):
        ti.atomic_max(x[0], -i - 0.5)
        ti.atomic_min(x[1], -i - 0.5)
