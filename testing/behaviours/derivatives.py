"""Derivatives: tapes, adjoints of kernels, and forward mode."""

from functools import wraps

import numpy as np
import taichi as ti

from .seeing import _row, contents, field, refused, vectors

f64 = ti.f64
POINTS = (0.3, 0.7, 1.4, -0.6)
ABOVE = (0.2, 0.5, 1.0, 2.5)
UNIT = (-0.9, -0.2, 0.1, 0.8)


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


def _two(**options):
    x = ti.field(f64, shape=3, **options)
    y = ti.field(f64, shape=3, **options)
    x.from_numpy(np.array([1.0, 2.0, 3.0]))
    return x, y


def adjoints_add_to_gradients():
    x, y = _two(needs_grad=True)

    @ti.kernel
    def f():
        for i in x:
            y[i] += x[i] ** 2

    y.grad.fill(1.0)
    f()
    f.grad()
    f.grad()
    return [x.grad.to_numpy(), y.grad.to_numpy()]


def gradients_are_read_in_kernels():
    x, y = _two(needs_grad=True)

    @ti.kernel
    def f():
        for i in x:
            y[i] = x.grad[i] + 1

    x.grad.from_numpy(np.array([5.0, 6.0, 7.0]))
    f()
    return y.to_numpy()


def tapes_reverse_several_calls():
    x, y = _two(needs_grad=True)
    loss = ti.field(f64, shape=(), needs_grad=True)

    @ti.kernel
    def f(a: ti.f64):
        for i in x:
            y[i] += a * x[i] ** 2

    @ti.kernel
    def g():
        for i in y:
            loss[None] += y[i] ** 2

    with ti.ad.Tape(loss):
        f(1.0)
        f(0.5)
        g()
    return [loss[None], x.grad.to_numpy(), y.grad.to_numpy()]


def tapes_of_time_steps():
    x = ti.field(f64, shape=8, needs_grad=True)
    loss = ti.field(f64, shape=(), needs_grad=True)
    x[0] = 0.5

    @ti.kernel
    def step(t: ti.i32):
        for _ in range(1):
            x[t + 1] = ti.sin(x[t]) + x[t] * 0.25

    @ti.kernel
    def end():
        loss[None] = x[7] ** 2

    with ti.ad.Tape(loss):
        for t in range(7):
            step(t)
        end()
    return [loss[None], x.grad[0]]


def tapes_clear_gradients_unless_told():
    x = ti.field(f64, shape=(), needs_grad=True)
    loss = ti.field(f64, shape=(), needs_grad=True)
    x[None] = 3.0

    @ti.kernel
    def f():
        loss[None] = x[None] ** 2

    found = []
    for clears in (True, True, False):
        with ti.ad.Tape(loss, clear_gradients=clears):
            f()
        found.append(x.grad[None])
    return found


def losses_begin_at_zero():
    loss = ti.field(f64, shape=(), needs_grad=True)
    loss[None] = 5.0

    @ti.kernel
    def f():
        loss[None] += 1.0

    with ti.ad.Tape(loss):
        f()
    return [loss[None], loss.grad[None]]


def all_gradients_are_cleared():
    x, y = _two(needs_grad=True)
    x.grad.fill(2.0)
    y.grad.fill(3.0)
    ti.ad.clear_all_gradients()
    return [x.grad.to_numpy(), y.grad.to_numpy()]


def gradient_descent():
    x = ti.field(f64, shape=4, needs_grad=True)
    loss = ti.field(f64, shape=(), needs_grad=True)

    @ti.kernel
    def f():
        for i in x:
            loss[None] += (x[i] - i) ** 2

    @ti.kernel
    def advance():
        for i in x:
            x[i] -= 0.1 * x.grad[i]

    for _ in range(20):
        with ti.ad.Tape(loss):
            f()
        advance()
    return [loss[None], x.to_numpy()]


def gradients_are_placed_with_their_fields():
    x, y = ti.field(f64), ti.field(f64)
    ti.root.dense(ti.i, 3).place(x, x.grad)
    ti.root.place(y, y.grad)

    @ti.kernel
    def f():
        for i in range(3):
            y[None] += (x[i] + i) ** 2

    with ti.ad.Tape(y):
        f()
    return x.grad.to_numpy()


def gradients_are_placed_lazily():
    x, n, y = ti.field(f64), ti.field(ti.i32), ti.field(f64)
    ti.root.dense(ti.i, 3).place(x, n)
    ti.root.place(y)
    ti.root.lazy_grad()

    @ti.kernel
    def f():
        for i in range(3):
            y[None] += (x[i] + i) ** 2

    with ti.ad.Tape(y):
        f()
    return [x.grad.to_numpy(), x.grad.shape]


def gradients_of_components():
    x = ti.Vector.field(2, f64, shape=2, needs_grad=True)
    x.grad[1] = [3.0, 4.0]
    return [x.grad[1][0], x.grad.get_scalar_field(1)[1]]


def gradients_of_structs():
    kind = ti.types.struct(a=f64, b=ti.types.vector(2, f64))
    x = kind.field(shape=2, needs_grad=True)
    loss = ti.field(f64, shape=(), needs_grad=True)

    @ti.kernel
    def f():
        for i in x:
            loss[None] += (x[i].a + 1) * (x[i].b[1] + 2)

    with ti.ad.Tape(loss):
        f()
    return [x.grad.a.to_numpy(), x.grad.b.to_numpy()]


def sparse_fields_have_gradients():
    x, loss = ti.field(f64), ti.field(f64, shape=(), needs_grad=True)
    block = ti.root.pointer(ti.i, 4).dense(ti.i, 4)
    block.place(x, x.grad)
    for i in (5, 6, 9):
        x[i] = i + 1.0

    @ti.kernel
    def f():
        for i in x:
            loss[None] += x[i] * x[i] * (1 + x[i - 1])

    with ti.ad.Tape(loss):
        f()
    return [x.grad[i] for i in range(16)]


def gradients_written_by_hand():
    x, y = _two(needs_grad=True)
    loss = ti.field(f64, shape=(), needs_grad=True)

    @ti.kernel
    def f():
        for i in x:
            y[i] = x[i] ** 2

    @ti.kernel
    def f_grad():
        for i in x:
            x.grad[i] = 100 * y.grad[i]

    @ti.ad.grad_replaced
    def forward():
        f()

    @ti.ad.grad_for(forward)
    def backward():
        f_grad()

    @ti.kernel
    def g():
        for i in y:
            loss[None] += y[i]

    with ti.ad.Tape(loss):
        forward()
        g()
    return x.grad.to_numpy()


def functions_without_a_gradient():
    x, y = _two(needs_grad=True)
    loss = ti.field(f64, shape=(), needs_grad=True)

    @ti.kernel
    def f():
        for i in x:
            y[i] = x[i] ** 2

    @ti.ad.no_grad
    def forward():
        f()

    @ti.kernel
    def g():
        for i in y:
            loss[None] += y[i]

    with ti.ad.Tape(loss):
        forward()
        g()
    return [x.grad.to_numpy(), y.grad.to_numpy()]


def forward_mode_gives_jacobians_along_a_direction():
    x, y = _two(needs_dual=True)

    @ti.kernel
    def f():
        for i in x:
            y[i] = x[i] * x[(i + 1) % 3]

    found = []
    for seed in ([1, 0, 0], [0, 1, 0], [1, 2, 3]):
        with ti.ad.FwdMode(loss=y, param=x, seed=seed):
            f()
        found.append(y.dual.to_numpy())
    return found


def forward_mode_of_one_number_needs_no_seed():
    x = ti.field(f64, shape=(), needs_dual=True)
    y = ti.field(f64, shape=(), needs_dual=True)
    x[None] = 0.5

    @ti.kernel
    def f():
        y[None] += ti.sin(x[None])

    with ti.ad.FwdMode(loss=y, param=x):
        f()
    return [y[None], y.dual[None], x.dual[None]]


def ndarrays_have_gradients():
    x = ti.ndarray(f64, shape=3, needs_grad=True)
    loss = ti.ndarray(f64, shape=1, needs_grad=True)
    x.from_numpy(np.array([1.0, 2.0, 3.0]))

    @ti.kernel
    def f(x: ti.types.ndarray(), loss: ti.types.ndarray()):
        for i in x:
            loss[0] += x[i] ** 2

    with ti.ad.Tape(loss):
        f(x, loss)
    return [loss[0], x.grad.to_numpy()]


def adjoints_of_ndarrays():
    x = ti.ndarray(f64, shape=3, needs_grad=True)
    y = ti.ndarray(f64, shape=3, needs_grad=True)
    x.fill(2.0)
    y.grad.fill(1.0)

    @ti.kernel
    def f(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = x[i] ** 3

    f(x, y)
    f.grad(x, y)
    return x.grad.to_numpy()


def kernels_of_classes_have_adjoints():
    @ti.data_oriented
    class Springs:
        def __init__(self):
            self.x = ti.field(f64, shape=4, needs_grad=True)
            self.energy = ti.field(f64, shape=(), needs_grad=True)

        @ti.kernel
        def work(self, k: ti.f64):
            for i in range(3):
                self.energy[None] += k * (self.x[i + 1] - self.x[i] - 0.5) ** 2

    springs = Springs()
    with ti.ad.Tape(springs.energy):
        springs.work(2.0)
    return springs.x.grad.to_numpy()


def losses_of_several_elements_are_refused():
    x = ti.field(f64, shape=2, needs_grad=True)
    return refused(lambda: ti.ad.Tape(x).__enter__())


def losses_without_a_gradient_are_refused():
    x = ti.field(f64, shape=())
    return refused(lambda: ti.ad.Tape(x).__enter__())


def gradients_of_whole_numbers_are_refused():
    return refused(lambda: ti.field(ti.i32, shape=2, needs_grad=True))


def directions_of_several_elements_are_needed():
    x, y = _two(needs_dual=True)
    return refused(lambda: ti.ad.FwdMode(loss=y, param=x).__enter__())


def gradients_for_functions_that_are_not_replaced_are_refused():
    def f():
        pass

    return refused(lambda: ti.ad.grad_for(f)(f))
