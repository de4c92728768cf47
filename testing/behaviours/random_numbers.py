"""Random numbers."""

import numpy as np
import taichi as ti

from .seeing import f32, leaves


def _drawn(dtype):
    x = ti.field(dtype, shape=20000)

    @ti.kernel
    def f():
        for i in x:
            x[i] = ti.random(dtype)

    f()
    return x.to_numpy()


def floats_lie_between_zero_and_one():
    x = ti.field(ti.f32, shape=20000)

    @ti.kernel
    def f():
        for i in x:
            x[i] = ti.random()

    f()
    a = x.to_numpy()
    return [
        bool((a >= 0).all() and (a < 1).all()),
        round(float(a.mean()), 1),
        round(float(a.var() * 12), 1),
    ]


def integers_use_all_bits():
    a = _drawn(ti.i32).astype(np.int64)
    return [
        bool(a.min() < -(2**30)),
        bool(a.max() > 2**30),
        len(np.unique(a)) > 19900,
        abs(a.mean()) < 2**26,
    ]


def wide_integers_use_all_bits():
    a = _drawn(ti.i64).astype(np.float64)
    return [bool(a.min() < -(2.0**62)), bool(a.max() > 2.0**62), abs(a.mean()) < 2.0**58]


def unsigned_integers_use_all_bits():
    a = _drawn(ti.u32).astype(np.float64)
    return [round(float(a.mean() / 2**32), 1), bool(a.max() > 2**31)]


def doubles_have_their_digits():
    x = ti.field(ti.f64, shape=2000)

    @ti.kernel
    def f():
        for i in x:
            x[i] = ti.random(dtype=ti.f64)

    f()
    a = x.to_numpy()
    return [bool((a != a.astype(np.float32)).mean() > 0.9), round(float(a.mean()), 1)]


@leaves(lambda: round(float(x.to_numpy().mean()), 2), x=f32(20000))
def two_draws_are_independent():
    for i in x:
        x[i] = ti.random() * ti.random()


def points_in_a_circle():
    @ti.kernel
    def f(n: ti.i32) -> ti.i32:
        s = 0
        for _ in range(n):
            a, b = ti.random(), ti.random()
            if a * a + b * b < 1:
                s += 1
        return s

    return round(f(100000) * 4 / 100000, 1)


def a_seed_gives_the_same_numbers_again():
    def draw(seed):
        ti.init(arch=ti.cpu, random_seed=seed, cpu_max_num_threads=1)
        x = ti.field(ti.f32, shape=100)

        @ti.kernel
        def f():
            for i in x:
                x[i] = ti.random()

        f()
        return x.to_numpy()

    return [bool((draw(3) == draw(3)).all()), bool((draw(3) == draw(4)).all())]


def another_call_draws_other_numbers():
    x = ti.field(ti.f32, shape=100)

    @ti.kernel
    def f():
        for i in x:
            x[i] = ti.random()

    f()
    a = x.to_numpy()
    f()
    return bool((a != x.to_numpy()).mean() > 0.9)


def normal_numbers():
    x = ti.field(ti.f32, shape=50000)

    @ti.kernel
    def f():
        for i in x:
            x[i] = ti.randn()

    f()
    a = x.to_numpy()
    return [
        abs(float(a.mean())) < 0.05,
        round(float(a.var()), 1),
        bool(a.max() > 3),
        bool(a.min() < -3),
    ]


def random_vectors():
    v = ti.Vector.field(2, ti.f32, shape=10000)

    @ti.kernel
    def f():
        for i in v:
            v[i] = ti.Vector([ti.random() for _ in range(2)])

    f()
    a = v.to_numpy()
    return [round(float(a.mean()), 1), abs(float(np.corrcoef(a[:, 0], a[:, 1])[0, 1])) < 0.05]


def random_numbers_in_functions_and_branches():
    x = ti.field(ti.f32, shape=10000)

    @ti.func
    def one():
        return ti.random() + 1

    @ti.kernel
    def f():
        for i in x:
            if ti.random() < 0.5:
                x[i] = one()
            else:
                x[i] = -one()

    f()
    a = x.to_numpy()
    return [0.45 < float((a > 0).mean()) < 0.55, bool((abs(a) >= 1).all())]
