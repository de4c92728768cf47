"""Tapes: sequences of calls, where gradients are, gradients by hand, and forward mode."""

import numpy as np
import taichi as ti

from .seeing import refused

f64 = ti.f64


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


def gradients_of_single_numbers_are_checked():
    x, y = ti.field(f64, shape=(), needs_grad=True), ti.field(f64, shape=(), needs_grad=True)

    @ti.kernel
    def work():
        y[None] = x[None] * x[None] * ti.sin(x[None])

    x[None] = 0.7
    with ti.ad.Tape(y, grad_check=[x]):
        work()
    return x.grad[None]


def kernels_use_gradients_of_their_arrays():
    x, y = (ti.ndarray(ti.f32, shape=n, needs_grad=True) for n in (4, ()))

    @ti.kernel
    def work(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[None] += x[i] * x[i]

    @ti.kernel
    def descend(x: ti.types.ndarray(), rate: ti.f32):
        for i in x:
            x[i] -= rate * x.grad[i]
            x.grad[i] = 0.0

    x.from_numpy(np.arange(4, dtype=np.float32))
    with ti.ad.Tape(y):
        work(x, y)
    descend(x, 0.25)
    return [x.to_numpy(), x.grad.to_numpy(), refused(lambda: descend.grad(x, 0.25))]


def validation_refuses_calls_that_overwrite_what_they_read():
    ti.init(arch=ti.cpu, debug=True, default_fp=f64)
    x, y = (ti.field(f64, shape=(), needs_grad=True) for _ in range(2))

    @ti.kernel
    def work():
        y[None] += x[None] * x[None]
        x[None] += 1.0

    @ti.kernel
    def only_reads():
        y[None] += x[None] * x[None]

    def run(kernel):
        with ti.ad.Tape(y, validation=True):
            kernel()

    return [refused(lambda: run(work)), refused(lambda: run(only_reads))]
