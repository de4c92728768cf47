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


@_gradients("x y", x=_points(1.0, 2.0, 3.0), y=_points(1.0, 2.5, 2.0))
def minima_of_two_fields():
    for i in x:
        loss[None] += ti.min(x[i], y[i]) * (i + 1)


@_gradients("x y", x=_points(1.0, 2.0, 3.0), y=_points(1.0, 2.5, 2.0))
def maxima_of_two_fields():
    for i in x:
        loss[None] += ti.max(x[i], y[i]) * (i + 1)


@_gradients("x y", x=_points(1.0, 4.0, 3.0), y=_points(5.0, 2.5, 1.0))
def maxima_of_three_numbers():
    for i in x:
        loss[None] += ti.max(x[i], y[i], 2.0) ** 2


@_gradients("x", x=_points(-0.5, 0.25, 0.75, 1.5))
def numbers_between_two_bounds():
    for i in x:
        loss[None] += ti.math.clamp(x[i], 0.0, 1.0) ** 2


@_gradients("x", x=_points(0.0, 1.0))
def roots_of_zero():
    for i in x:
        loss[None] += ti.sqrt(x[i])


@_gradients("x", x=_points(0.0, 2.0, -3.0))
def squares_and_cubes_of_zero():
    for i in x:
        loss[None] += x[i] ** 2 + x[i] ** 3


@_gradients("x", x=_points(2.0, -0.5))
def powers_by_negative_numbers():
    for i in x:
        loss[None] += x[i] ** (-2)


@_gradients("x y", x=_points(0.5, 2.0), y=_points(3.0, -1.5))
def powers_of_two_fields():
    for i in x:
        loss[None] += ti.pow(x[i], y[i])


@_gradients("x y", x=_points(1.0, -1.0, -2.0, 3.0), y=_points(2.0, 1.0, -1.0, -0.5))
def angles_of_all_quadrants():
    for i in x:
        loss[None] += ti.atan2(y[i], x[i]) * (i + 1)


@_gradients("x", x=_points(0.0, 20.0, -20.0, 1e-8))
def hyperbolic_tangents_far_from_zero():
    for i in x:
        loss[None] += ti.tanh(x[i])


@_gradients("x", x=_points(0.0, -0.0, 3.0, -3.0))
def absolute_values_at_zero():
    for i in x:
        loss[None] += ti.abs(x[i]) * x[i] + ti.abs(x[i])


@_gradients("x y", x=_points(0.0, 1.0, 2.0), y=_points(3.0, 4.0, 5.0))
def selections_of_two_fields():
    for i in x:
        loss[None] += ti.select(i % 2 == 0, x[i] * y[i], y[i] ** 2)


@_gradients("x y", x=_points(0.2, 1.0, 2.0), y=_points(3.0, 4.0, 5.0))
def mixtures_of_two_fields():
    for i in x:
        loss[None] += ti.math.mix(x[i], y[i], x[i] * 0.25)


@_gradients("x", x=_points(-1.0, 0.25, 0.5, 2.0))
def smooth_steps():
    for i in x:
        loss[None] += ti.math.smoothstep(0.0, 1.0, x[i])


@_gradients("x", x=_points(0.5, 2.0, 4.0))
def quotients_in_place():
    for i in x:
        v = 3.0
        v /= x[i]
        v -= x[i] * v
        loss[None] += v


@_gradients("x y", x=_points(0.5, 2.0), y=_points(1.0, 2.0))
def ternaries():
    for i in x:
        a = x[i] * y[i] if x[i] > 1 else y[i] - x[i]
        loss[None] += a * a


@_gradients("x", x=_points(-1.5, -0.5, 0.5, 1.5))
def conditions_of_several_parts():
    for i in x:
        if x[i] > -1 and x[i] < 1:
            loss[None] += x[i] ** 2
        elif x[i] <= -1 or x[i] > 5:
            loss[None] += x[i] * 3
        else:
            loss[None] -= x[i]


@_gradients("x", x=_points(1.1, 0.9, 1.3))
def branches_in_loops_that_carry_locals():
    for i in x:
        v = x[i]
        for j in range(4):
            if j % 2 == 0:
                v = v * x[i]
            else:
                v += ti.sin(v)
        loss[None] += v


@_gradients("x", x=_points(0.5, 1.5, 2.5))
def sums_that_a_branch_selects_in_loops():
    for i in x:
        s = 0.0
        for j in range(3):
            if x[j] < x[i]:
                s += x[i] * x[j]
        loss[None] += s


@_gradients("x", x=_points(1.0, 2.0, 3.0, 4.0, 5.0, 6.0))
def indices_with_a_stride():
    for i in range(3):
        loss[None] += x[2 * i] * x[2 * i + 1]


@_gradients("x", x=_points(1.0, 2.0, 3.0))
def indices_that_wrap_around():
    for i in x:
        loss[None] += x[i] ** 2 * x[(i + 1) % 3]


@_gradients("x", x=_points(1.0, 2.0, 3.0))
def indices_that_become_numbers():
    for i in x:
        loss[None] += ti.cast(i, f64) * x[i] ** i


@_gradients("x", x=_points(1.0, 2.0, 3.0), k=_places(2, 0, 1))
def indices_of_indices():
    for i in k:
        loss[None] += x[k[k[i]]] ** 2 * (i + 1)


@_gradients("x", x=_points(1.0, 2.0), k=_places(7, 8, 9))
def loops_over_fields_of_another_shape():
    for i in k:
        loss[None] += x[i % 2] * x[i % 2] * k[i]


@_gradients("x", x=field(f64, 4, offset=-2, needs_grad=True))
def offsets_below_zero():
    for i in x:
        loss[None] += (x[i] - i) ** 2


@_gradients("x", x=field(f64, 2, 3, offset=(-1, 4), needs_grad=True))
def offsets_of_two_axes():
    for i, j in x:
        loss[None] += (x[i, j] - i * j) ** 2


@_gradients("x", x=field(f64, 2, 3, order="ji", needs_grad=True))
def axes_in_another_order():
    for i, j in x:
        loss[None] += (x[i, j] - i * 3 - j) ** 2


@_gradients("x", x=field(f64, 2, 3, 2, needs_grad=True))
def fields_of_three_axes():
    for i, j, k in x:
        loss[None] += (x[i, j, k] - i + j * k) ** 2


@_gradients("x", x=vectors(2, f64, 3, needs_grad=True, layout=ti.Layout.AOS))
def vectors_whose_components_are_neighbours():
    for i in x:
        loss[None] += (x[i][0] - i) ** 2 + x[i][1] * (i + 1)


@_gradients("x", x=vectors(2, f64, 3, needs_grad=True, layout=ti.Layout.SOA))
def vectors_whose_components_are_apart():
    for i in x:
        loss[None] += (x[i][0] - i) ** 2 + x[i][1] * (i + 1)


@_gradients("x", x=field(ti.f32, 3, needs_grad=True), loss=field(ti.f32, needs_grad=True))
def gradients_of_f32():
    for i in x:
        loss[None] += ti.sin(x[i] + i) * (x[i] + 2)


@_gradients("x", x=field(ti.f32, 3, needs_grad=True))
def gradients_of_f32_in_a_loss_of_f64():
    for i in x:
        loss[None] += ti.cast(x[i] + i, f64) ** 2


@_gradients("x y", x=_points(1.0, 2.0), y=_points(3.0, 4.0))
def gradients_of_what_the_loss_does_not_need():
    for i in x:
        y[i] = 2 * x[i]
    for i in x:
        loss[None] += x[i] ** 2


@_gradients("x y", x=_points(0.5, 2.0), y=_real(2))
def gradients_are_not_taken_through_a_stopped_value():
    for i in x:
        y[i] = x[i] ** 2
    for i in x:
        ti.stop_grad(y)
        loss[None] += y[i] * x[i]


@_gradients("x", x=_points(0.5, 2.0))
def subtractions_are_atomic():
    for i in x:
        ti.atomic_sub(loss[None], x[i] ** 3)


@_gradients("x", x=_points(0.5, 2.0, 1.5), y=vectors(2, f64, 2, needs_grad=True))
def vectors_are_scattered():
    for i in x:
        y[i % 2] += ti.Vector([x[i] ** 2, i * x[i]])
    for i in y:
        loss[None] += y[i].norm_sqr()


@_gradients("x", x=_points(0.5, 2.0, 1.5))
def local_vectors_that_are_filled_in_a_loop():
    for i in x:
        v = ti.Vector([0.0, 0.0, 0.0], f64)
        for j in ti.static(range(3)):
            v[j] = x[i] ** (j + 1)
        loss[None] += v.dot(ti.Vector([1.0, 2.0, 3.0]))


@_gradients("x", x=_points(0.5, 2.0, 1.5))
def local_matrices_that_loops_multiply():
    for i in x:
        m = ti.Matrix([[1.0, 0.0], [0.0, 1.0]], f64)
        for _ in range(3):
            m = m @ ti.Matrix([[x[i], 0.5], [0.25, 1.0]])
        loss[None] += m.trace()


@_gradients("x", x=field(f64, 4, 4, needs_grad=True))
def neighbours_of_unrolled_loops():
    for i, j in ti.ndrange((1, 3), (1, 3)):
        s = 0.0
        for a, b in ti.static(ti.ndrange((-1, 2), (-1, 2))):
            s += (x[i + a, j + b] + i - j) * (a + 2 * b + 4)
        loss[None] += s * s


@_gradients("x", x=_points(0.5, 2.0))
def branches_at_compile_time():
    for i in x:
        for power in ti.static(range(1, 4)):
            if ti.static(power % 2 == 0):
                loss[None] += x[i] ** power
            else:
                loss[None] -= 3 * x[i] ** power


@ti.func
def _larger(a, b):
    found = a * b
    if a > b:
        found = a * a
    return found


@ti.func
def _turned(v, angle):
    return ti.Vector([ti.cos(angle) * v[0], ti.sin(angle) * v[1]])


@_gradients("x y", x=_points(0.5, 2.0), y=_points(1.0, 1.5))
def functions_with_branches():
    for i in x:
        loss[None] += _larger(x[i], y[i]) * _larger(y[i], 1.25)


@_gradients("x", x=_points(0.5, 2.0))
def functions_of_functions():
    for i in x:
        loss[None] += _cube(_cube(x[i]) + 1.0)


@_gradients("x", x=_points(0.5, 2.0))
def functions_of_vectors():
    for i in x:
        loss[None] += _turned(ti.Vector([x[i], 1.0]), x[i]).sum()


@_gradients("x", x=lambda: ti.Matrix.field(3, 3, ti.f64, shape=1, needs_grad=True))
def inverses_of_three_rows():
    m = x[0] + ti.Matrix([[2.0, 1.0, 0.0], [0.5, 3.0, 1.0], [0.25, 0.0, 4.0]])
    loss[None] = m.inverse().norm_sqr()


@_gradients("x", x=lambda: ti.Matrix.field(3, 3, ti.f64, shape=1, needs_grad=True))
def determinants_of_three_rows():
    m = x[0] + ti.Matrix([[2.0, 1.0, 0.0], [0.5, 3.0, 1.0], [0.25, 0.0, 4.0]])
    loss[None] = m.determinant() ** 2


@_gradients("x y", x=vectors(2, f64, 2, needs_grad=True), y=vectors(2, f64, 2, needs_grad=True))
def outer_products():
    for i in x:
        a, b = x[i] + ti.Vector([1.0, 2.0]), y[i] + ti.Vector([3.0, i + 1.0])
        loss[None] += a.outer_product(b).determinant() + (a.outer_product(b) @ a).norm_sqr()


@_gradients("x", x=vectors(3, f64, 2, needs_grad=True))
def normalised_vectors():
    for i in x:
        v = (x[i] + ti.Vector([1.0, 2.0, i + 2.0])).normalized()
        loss[None] += v[0] + v[1] * v[2]


@_gradients("x", x=vectors(3, f64, 2, needs_grad=True))
def functions_of_components():
    for i in x:
        v = ti.exp(ti.sin(x[i] + ti.Vector([1.0, 2.0, i + 2.0])))
        loss[None] += v.sum() * v.max()


@_gradients("x", x=vectors(3, f64, 2, needs_grad=True))
def components_by_letters():
    for i in x:
        v = x[i] + ti.Vector([1.0, 2.0, i + 2.0])
        loss[None] += v.xy.norm_sqr() * v.z


@_gradients("x", x=lambda: ti.Matrix.field(2, 2, ti.f64, shape=1, needs_grad=True))
def singular_values_of_two_rows():
    for i in x:
        _, s, _ = ti.svd(x[i] + ti.Matrix([[2.0, 1.0], [0.5, 3.0]]), f64)
        loss[None] += s[0, 0] ** 2 + 3 * s[1, 1]


@_gradients("x", x=lambda: ti.Matrix.field(2, 2, ti.f64, shape=1, needs_grad=True))
def rotations_of_two_rows():
    for i in x:
        r, s = ti.polar_decompose(x[i] + ti.Matrix([[2.0, 1.0], [0.5, 3.0]]), f64)
        loss[None] += r[0, 1] + s[0, 0] ** 2


@_gradients("x", x=lambda: ti.Matrix.field(2, 2, ti.f64, shape=1, needs_grad=True))
def eigenvalues_of_two_rows():
    for i in x:
        m = x[i] + ti.Matrix([[2.0, 0.5], [0.5, 3.0]])
        values, _ = ti.sym_eig((m + m.transpose()) / 2, f64)
        loss[None] += values[0] ** 2 + values[1] * 3


@_gradients(
    "x y",
    x=lambda: ti.Matrix.field(2, 2, ti.f64, shape=1, needs_grad=True),
    y=vectors(2, f64, 1, needs_grad=True),
)
def solutions_of_two_equations():
    for i in x:
        m = x[i] + ti.Matrix([[2.0, 1.0], [0.5, 3.0]])
        loss[None] += ti.solve(m, y[i] + ti.Vector([1.0, 2.0]), f64).norm_sqr()


def _tree(*nodes):
    """A field of f64 with a gradient beside it, below nodes of the given kinds and lengths."""
    x, node = ti.field(f64), ti.root
    for kind, length in nodes:
        node = getattr(node, kind)(ti.i, length)
    node.place(x, x.grad)
    return x


@_gradients("x", x=lambda: _tree(("dense", 3), ("dense", 2)))
def dense_nodes_in_dense_nodes():
    for i in x:
        loss[None] += (x[i] - i) ** 2 * (i + 1)


def gradients_below_bits_of_activity():
    x, loss = _tree(("bitmasked", 8)), ti.field(f64, shape=(), needs_grad=True)
    for i in (1, 2, 6):
        x[i] = i + 0.5

    @ti.kernel
    def f():
        for i in x:
            loss[None] += x[i] ** 2 * (i + 1)

    with ti.ad.Tape(loss):
        f()
    return [loss[None], [x.grad[i] for i in range(8)]]


def gradients_below_pointers_to_pointers():
    x = _tree(("pointer", 4), ("pointer", 2), ("dense", 2))
    y = _tree(("pointer", 4), ("dense", 4))
    loss = ti.field(f64, shape=(), needs_grad=True)
    for i in (1, 6, 7, 13):
        x[i] = i + 0.5

    @ti.kernel
    def f():
        for i in x:
            y[15 - i] += x[i] * x[i]

    @ti.kernel
    def g():
        for i in y:
            loss[None] += y[i] * i

    with ti.ad.Tape(loss):
        f()
        g()
    return [loss[None], [x.grad[i] for i in range(16)], [y.grad[i] for i in range(16)]]


def lazy_gradients_of_several_layers():
    x, y, z = ti.field(f64), ti.Vector.field(2, f64), ti.field(f64)
    block = ti.root.dense(ti.i, 2)
    block.place(y)
    block.dense(ti.i, 3).place(x)
    ti.root.place(z)
    ti.root.lazy_grad()

    @ti.kernel
    def f():
        for i in x:
            z[None] += (x[i] - i) ** 2 * (y[i // 3][1] + 1)

    with ti.ad.Tape(z):
        f()
    return [x.grad.to_numpy(), y.grad.to_numpy(), x.grad.shape, y.grad.shape]


def lazy_duals():
    x, y = ti.field(f64), ti.field(f64)
    ti.root.dense(ti.i, 3).place(x, y)
    ti.root.lazy_dual()
    x.from_numpy(np.array([1.0, 2.0, 3.0]))

    @ti.kernel
    def f():
        for i in x:
            y[i] = x[i] ** 2 * x[0]

    with ti.ad.FwdMode(loss=y, param=x, seed=[1.0, 2.0, 3.0]):
        f()
    return [y.dual.to_numpy(), y.to_numpy()]


def _line(n, **options):
    """A field of the numbers 1, 1.5, 2, ... of f64."""
    x = ti.field(f64, shape=n, **options)
    x.from_numpy(1.0 + 0.5 * np.arange(n))
    return x


def duals_through_several_kernels():
    x, y, z = (_line(3, needs_dual=True) for _ in range(3))

    @ti.kernel
    def f():
        for i in x:
            y[i] = ti.exp(x[i])

    @ti.kernel
    def g():
        for i in x:
            z[i] = y[i] * x[(i + 1) % 3]

    with ti.ad.FwdMode(loss=z, param=x, seed=[1.0, -1.0, 2.0]):
        f()
        g()
    return [y.dual.to_numpy(), z.dual.to_numpy()]


def duals_of_loops_and_branches():
    x, y = (_line(4, needs_dual=True) for _ in range(2))

    @ti.kernel
    def f():
        for i in x:
            v = x[i]
            for j in range(3):
                if v > 2.0:
                    v = v * 0.5
                else:
                    v = v * v + j
            y[i] = v

    with ti.ad.FwdMode(loss=y, param=x, seed=[1.0, 2.0, 3.0, 4.0]):
        f()
    return [y.to_numpy(), y.dual.to_numpy()]


def duals_of_scatters():
    x, y = _line(5, needs_dual=True), _line(2, needs_dual=True)

    @ti.kernel
    def f():
        for i in x:
            y[i % 2] += x[i] ** 2

    with ti.ad.FwdMode(loss=y, param=x, seed=[1.0, 0.0, 2.0, 0.0, -1.0]):
        f()
    return [y.to_numpy(), y.dual.to_numpy()]


def duals_begin_at_zero_each_time():
    x, y = (_line(3, needs_dual=True) for _ in range(2))

    @ti.kernel
    def f():
        for i in x:
            y[i] += x[i] ** 2

    found = []
    for seed in ([1.0, 1.0, 1.0], [0.0, 2.0, 0.0]):
        with ti.ad.FwdMode(loss=y, param=x, seed=seed):
            f()
        found += [y.dual.to_numpy(), x.dual.to_numpy()]
    return found


def seeds_of_outputs_by_hand():
    x, y = (_line(3, needs_grad=True) for _ in range(2))

    @ti.kernel
    def f():
        for i in x:
            y[i] += x[i] * x[(i + 1) % 3]

    found = []
    for seed in ([1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [3.0, 2.0, 1.0]):
        ti.ad.clear_all_gradients()
        y.grad.from_numpy(np.array(seed))
        f.grad()
        found.append(x.grad.to_numpy())
    return found


def seeds_of_outputs_that_are_overwritten():
    x, y = (_line(3, needs_grad=True) for _ in range(2))

    @ti.kernel
    def f():
        for i in range(2):
            y[i] = x[i] ** 2

    y.grad.fill(2.0)
    f()
    f.grad()
    return [x.grad.to_numpy(), y.grad.to_numpy()]


def adjoints_by_hand_in_reverse_order():
    x, y, z = (_line(3, needs_grad=True) for _ in range(3))

    @ti.kernel
    def f(a: ti.f64):
        for i in x:
            y[i] = a * x[i] ** 2

    @ti.kernel
    def g():
        for i in x:
            z[i] = y[i] * x[i]

    f(2.0)
    g()
    z.grad.fill(1.0)
    g.grad()
    f.grad(2.0)
    return x.grad.to_numpy()


def tapes_of_two_losses():
    x = _line(3, needs_grad=True)
    first, second = (ti.field(f64, shape=(), needs_grad=True) for _ in range(2))

    @ti.kernel
    def f():
        for i in x:
            first[None] += x[i] ** 2

    @ti.kernel
    def g():
        for i in x:
            second[None] += ti.exp(x[i])

    found = []
    for loss, kernel in ((first, f), (second, g), (first, f)):
        with ti.ad.Tape(loss):
            kernel()
        found += [loss[None], x.grad.to_numpy()]
    return found


def tapes_of_kernels_of_any_field():
    x, y = _line(3, needs_grad=True), _line(3, needs_grad=True)
    loss = ti.field(f64, shape=(), needs_grad=True)

    @ti.kernel
    def f(a: ti.template(), b: ti.template(), power: ti.template()):
        for i in a:
            b[None] += a[i] ** power

    with ti.ad.Tape(loss):
        f(x, loss, 2)
        f(y, loss, 3)
        f(x, loss, 3)
    return [loss[None], x.grad.to_numpy(), y.grad.to_numpy()]
