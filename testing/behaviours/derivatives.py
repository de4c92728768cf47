"""Derivatives of kernels: gradients of what statements, loops, branches and vectors compute."""

import numpy as np
import taichi as ti

from .seeing import _row, contents, field, vectors

f64 = ti.f64


def _real(*shape, **options):
    """Makes a field of f64 with a gradient."""
    return field(f64, *shape, needs_grad=True, **options)


def _points(*values):
    """Makes a field of these numbers, with a gradient."""

    def make():
        made = ti.field(f64, shape=len(values), needs_grad=True)
        made.from_numpy(np.array(values))
        return made

    return make


def _places(*values):
    """Makes a field of whole numbers."""

    def make():
        made = ti.field(ti.i32, shape=len(values))
        made.from_numpy(np.array(values, np.int32))
        return made

    return make


def _gradients(seen, /, *given, **fields):
    """A row that shows the gradients of some fields after a tape with its kernel, whose loss is the field `loss`."""

    def see(call, made):
        with ti.ad.Tape(made["loss"]):
            call(*given)
        return [made["loss"][None], *[contents(made[n].grad) for n in seen.split()]]

    return _row({"loss": _real()} | fields, see)


@_gradients("x", x=_points(1.0, 2.0, 3.0))
def sum_of_squares():
    for i in x:
        loss[None] += x[i] * x[i]


@_gradients("x y", x=_points(1.0, 2.0, 3.0), y=_points(4.0, 5.0, 6.0))
def product_of_two_fields():
    for i in x:
        loss[None] += x[i] * y[i]


@_gradients("x", 2.5, x=_points(1.0, 2.0))
def scalar_arguments_are_constants(a: ti.f64):
    for i in x:
        loss[None] += a * x[i] ** 2


@_gradients("x", x=_points(1.0, 2.0, 3.0, 4.0), k=_places(2, 2, 0, 3))
def gathers_become_scatters():
    for i in k:
        loss[None] += x[k[i]] ** 2 * (i + 1)


@_gradients("x", x=_points(1.0, 2.0, 3.0, 4.0), y=_real(4), k=_places(1, 1, 0, 1))
def scatters_become_gathers():
    for i in k:
        y[k[i]] += x[i] * x[i]
    for i in y:
        loss[None] += y[i] * y[i]


@_gradients("x", x=_points(1.0, 2.0, 3.0, 4.0), y=_real(4))
def stencils():
    for i in range(1, 3):
        y[i] = x[i - 1] * x[i + 1] - 2 * x[i]
    for i in y:
        loss[None] += y[i] ** 2


@_gradients("x", x=_points(0.5, -0.5, 2.0, -2.0))
def branches():
    for i in x:
        if x[i] > 0:
            loss[None] += x[i] ** 2
        else:
            loss[None] += 3 * x[i]


@_gradients("x", x=_points(0.5, -0.5, 2.0, -2.0))
def locals_of_branches():
    for i in x:
        a = x[i]
        if a > 0:
            a = a * a
            if a > 1:
                a = a + x[i]
        else:
            a = ti.sin(a)
        loss[None] += a * a


@_gradients("x", x=_points(1.1, 0.9))
def locals_that_loops_carry():
    for i in x:
        v = x[i]
        for _ in range(5):
            v = v * x[i] + 0.1
        loss[None] += v


@_gradients("x", x=_points(1.1, 0.9, 1.3))
def loops_in_loops():
    for i in x:
        v = x[i]
        for _ in range(3):
            w = x[i]
            for k in range(3):
                w *= v + k
            v = ti.sin(w)
        loss[None] += v


@_gradients("x y", x=_points(1.1, 0.9), y=_points(0.5, 0.25, 2.0))
def sums_over_another_field():
    for i in x:
        s = 0.0
        for j in range(3):
            s += x[i] * y[j]
        loss[None] += s * s


@_gradients("x", x=_points(1.1, 0.9, 0.7, 1.2), n=_places(3, 0, 5, 1))
def lengths_of_loops_are_data():
    for i in x:
        v = 1.0
        for _ in range(n[i]):
            v *= x[i]
        loss[None] += v


@_gradients("x", x=_points(1.1, 0.9, 0.7, 1.2))
def lengths_of_loops_are_indices():
    for i in x:
        v = x[i]
        for j in range(i):
            v = v * x[j] + v
        loss[None] += v


@_gradients("x", x=_points(1.0, 2.0))
def continues():
    for i in x:
        for j in range(4):
            if j == 2:
                continue
            loss[None] += x[i] * x[i] * j


@_gradients("x", x=_points(1.0, 2.0, 4.0))
def unrolled_loops():
    for i in range(1):
        s = 1.0
        for j in ti.static(range(3)):
            s *= x[j]
        loss[None] += s


@_gradients("x", x=_points(2.0))
def kernels_without_loops():
    loss[None] = x[0] * x[0] * x[0]


@_gradients("x", x=_points(2.0, 3.0))
def elements_are_stored_twice_in_two_loops():
    for i in x:
        loss[None] += x[i]
    for i in x:
        loss[None] += x[i] ** 2


@_gradients("x", x=_points(2.0, 3.0), y=_real(2), z=_real(2))
def chains_of_fields():
    for i in x:
        y[i] = ti.exp(x[i])
    for i in x:
        z[i] = y[i] * x[i]
    for i in x:
        loss[None] += z[i]


@ti.func
def _cube(a):
    return a * a * a


@_gradients("x", x=_points(2.0, 3.0))
def functions():
    for i in x:
        loss[None] += _cube(x[i])


@_gradients("x", x=field(f64, 3, 4, needs_grad=True))
def boxes():
    for i, j in ti.ndrange(3, 4):
        loss[None] += (x[i, j] - i * j) ** 2


@_gradients("x", x=field(f64, 3, 4, needs_grad=True))
def grouped_indices():
    for at in ti.grouped(x):
        loss[None] += (x[at] - at[0] - 2 * at[1]) ** 2


@_gradients("x", x=vectors(3, f64, 2, needs_grad=True))
def vectors_have_gradients():
    for i in x:
        loss[None] += (x[i] - ti.Vector([1.0, 2.0, 3.0])).norm_sqr() * (i + 1)


@_gradients("x", x=vectors(2, f64, 3, needs_grad=True))
def norms_of_differences():
    for i, j in ti.ndrange(3, 3):
        d = x[i] - x[j] + ti.Vector([1.0 + i, 2.0 + j])
        loss[None] += 1 / d.norm(1e-3)


@_gradients("x", x=vectors(2, f64, 2, needs_grad=True))
def dot_and_cross_products():
    a, b = x[0] + ti.Vector([1.0, 2.0]), x[1] + ti.Vector([3.0, 5.0])
    loss[None] = a.dot(b) * a.cross(b)


@_gradients("x", x=lambda: ti.Matrix.field(2, 2, ti.f64, shape=2, needs_grad=True))
def determinants_and_traces():
    for i in x:
        m = x[i] + ti.Matrix([[2.0, 1.0], [0.5, 3.0]])
        loss[None] += ti.log(m.determinant()) + (m.transpose() @ m).trace()


@_gradients("x", x=lambda: ti.Matrix.field(2, 2, ti.f64, shape=1, needs_grad=True))
def inverses():
    m = x[0] + ti.Matrix([[2.0, 1.0], [0.5, 3.0]])
    loss[None] = m.inverse().norm_sqr()


@_gradients("x", x=_points(1.0, 2.0))
def bare_updates_of_a_loss():
    for i in x:
        ti.atomic_add(loss[None], x[i] ** 2)


@_gradients("x", x=_points(1.0, 2.0))
def differences_are_updates():
    for i in x:
        loss[None] -= x[i] ** 2


@_gradients("x", x=_points(4.0, 2.0), y=_real(2))
def stores_clear_the_gradient_of_what_was_there():
    for i in x:
        y[i] = x[i]
    for i in x:
        y[i] = 3 * x[i]
    for i in x:
        loss[None] += y[i] * (i + 1)


@_gradients("x", x=_points(1.0, 2.0, 3.0))
def fields_without_a_gradient_stop_it():
    for i in x:
        a = ti.cast(x[i], ti.i32)
        loss[None] += a * x[i]
