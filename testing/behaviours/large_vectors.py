"""Vectors and matrices of many components, and components that are chosen at run time."""

import taichi as ti

from .seeing import each, i32, leaves, returns


@each(0, 5, 63)
def components_of_64(k: ti.i32) -> ti.i32:
    v = ti.Vector([i * i for i in range(64)])
    return v[k]


@leaves("x", 40, x=i32(64))
def stores_to_components_of_64(n: ti.i32):
    for i in range(64):
        v = ti.Vector.zero(ti.i32, 64)
        for k in range(n):
            v[k] = k + i
        s = 0
        for k in range(64):
            s += v[k] * k
        x[i] = s


@returns(3)
def updates_of_components_of_64(n: ti.i32) -> ti.i32:
    v = ti.Vector([1] * 64)
    for k in range(64):
        v[k] += k * n
        v[63 - k] -= 1
    s = 0
    for k in range(64):
        s += v[k]
    return s


@leaves("x", x=i32(4))
def sorting_of_48_components():
    for i in range(4):
        v = ti.Vector.zero(ti.i32, 48)
        for k in range(48):
            v[k] = (k * 29 + i * 7) % 48
        for a in range(48):
            for b in range(47 - a):
                if v[b] > v[b + 1]:
                    t = v[b]
                    v[b] = v[b + 1]
                    v[b + 1] = t
        x[i] = v[0] * 1000 + v[23] * 10 + v[47]


@returns(2)
def copies_of_large_vectors_are_values(k: ti.i32) -> ti.types.vector(2, ti.i32):
    v = ti.Vector([0] * 40)
    v[k] = 7
    w = v
    w[k] = 9
    return ti.Vector([v[k], w[k]])


@ti.func
def _first_of(v, key):
    found = -1
    for k in range(64):
        if v[k] == key and found < 0:
            found = k
    return found


@each(9, 16, 3)
def large_vectors_are_arguments_of_functions(key: ti.i32) -> ti.i32:
    v = ti.Vector([(i * 7) % 64 for i in range(64)])
    return _first_of(v, key)


@each((0, 0), (5, 6), (7, 7))
def components_of_a_matrix_of_8_by_8(i: ti.i32, j: ti.i32) -> ti.i32:
    m = ti.Matrix([[a * 10 + b for b in range(8)] for a in range(8)])
    return m[i, j]


@leaves("x", x=i32(8))
def products_of_matrices_of_8_by_8_by_hand():
    for r in range(8):
        m = ti.Matrix([[a + b for b in range(8)] for a in range(8)])
        s = 0
        for k in range(8):
            s += m[r, k] * m[k, 7 - r]
        m[r, r] = s
        x[r] = m[r, r] + m[0, 0]


@returns(1.5)
def large_vectors_of_floats(a: ti.f32) -> ti.f32:
    v = ti.Vector([0.0] * 50)
    for k in range(50):
        v[k] = a * k
    return v.sum() + v.max()


@returns(4)
def large_vectors_with_operators(n: ti.i32) -> ti.i32:
    v = ti.Vector([i + 1 for i in range(40)])
    w = v * n + 1
    s = 0
    for k in range(40):
        s += w[k]
    return s


@leaves("x", x=i32(3))
def large_vectors_in_loops_in_loops():
    for i in range(3):
        s = 0
        for j in range(4):
            v = ti.Vector.zero(ti.i32, 33)
            for k in range(33):
                v[(k * (j + 1)) % 33] += k + i
            s = s * 2 + v[j]
        x[i] = s


@leaves("x", 3, x=i32(2))
def large_vectors_that_branches_change(n: ti.i32):
    for i in range(2):
        v = ti.Vector([0] * 36)
        if i == 0:
            v[n] = 5
        else:
            v = ti.Vector([2] * 36)
        x[i] = v[n] + v[n + 1]


@returns()
def rows_of_a_large_matrix() -> ti.types.vector(9, ti.i32):
    m = ti.Matrix([[a * b for b in range(9)] for a in range(9)])
    return m[4, :]


@returns(130)
def vectors_of_130_components(n: ti.i32) -> ti.i32:
    v = ti.Vector([i + 1 for i in range(130)])
    s = 0
    for k in range(n):
        s += v[k] * (k % 3)
    return s


@each(1, 5)
def large_matrices_are_put_into_themselves(k: ti.i32) -> ti.i32:
    m = ti.Matrix([[a * 10 + b for b in range(8)] for a in range(8)])
    m = m.transpose()
    v = ti.Vector([a for a in range(40)])  # noqa: C416
    v = ti.Vector([v[39 - a] for a in ti.static(range(40))])
    return m[k, 3] * 10000 + m[3, k] * 100 + v[k]


def vectors_of_1024_components_are_arguments():
    vector = ti.types.vector(1024, ti.i32)

    @ti.kernel
    def f(v: vector, k: ti.i32) -> ti.i32:
        s = 0
        for i in range(1024):
            s += v[i] * (i % 3)
        return s + v[k]

    return f(vector(list(range(1024))), 700)


@each(0, 20, 39)
def components_that_one_loop_stores_and_another_reads(k: ti.i32) -> ti.i32:
    v = ti.Vector([0] * 40)
    for i in range(40):
        v[i] = i + k
    s = 0
    for i in range(40):
        s += v[39 - i] * i
    return s


@leaves("x", x=i32(40))
def counts_in_components_over_a_loop():
    v = ti.Vector([0] * 40)
    for i in range(200):
        v[(i * 7) % 40] += 1
    for i in range(40):
        x[i] = v[i]
