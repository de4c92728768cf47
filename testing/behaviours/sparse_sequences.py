"""Sparse fields: sequences of kernels.

Their launches, lists, stores and activations could be shared or left out wrongly.
The first eight, and the six behind them, are after the probes of released engines that ran kernels later than they were called.
"""

import numpy as np
import taichi as ti

from .seeing import n_active, placed, total, visits


def one_reduction_of_three_fields():
    a, b, c = (ti.field(ti.f32, shape=32) for _ in range(3))
    a.fill(1)
    b.fill(2)
    c.fill(3)

    @ti.kernel
    def total(x: ti.template()) -> ti.f32:
        n = 0.0
        for i in x:
            n += x[i]
        return n

    return [total(a), total(b), total(c)]


def equal_kernels_with_other_arguments():
    u = ti.field(ti.f32, shape=32)

    @ti.kernel
    def add(v: ti.f32):
        for i in u:
            u[i] += v

    add(1.0)
    add(2.0)
    return float(u.to_numpy().sum())


def equal_kernels_with_other_arguments_and_cells():
    u = ti.field(ti.f32, shape=(2, 32))

    @ti.kernel
    def put(k: ti.i32, v: ti.f32):
        for i in range(32):
            u[k, i] = v

    put(0, 1.0)
    put(1, 2.0)
    return float(u.to_numpy().sum())


def _coarse_and_fine():
    x, y = ti.field(ti.i32), ti.field(ti.i32)
    ti.root.pointer(ti.i, 8).dense(ti.i, 4).place(x)
    node = ti.root.pointer(ti.i, 4)
    node.dense(ti.i, 4).place(y)
    for i in range(16):
        x[i] = 1

    @ti.kernel
    def down():
        for i in x:
            y[i // 2] += x[i]

    return y, node, down


def activation_after_deactivate_all():
    y, node, down = _coarse_and_fine()
    down()
    node.deactivate_all()
    down()
    return int(y.to_numpy().sum())


def activation_after_deactivation_of_each_cell():
    y, node, down = _coarse_and_fine()

    @ti.kernel
    def clear():
        for i in node:
            ti.deactivate(node, [i])

    down()
    clear()
    down()
    return int(y.to_numpy().sum())


def a_store_to_a_part_covers_no_whole():
    u = ti.field(ti.i32, shape=32)

    @ti.kernel
    def all_of_it():
        for i in u:
            u[i] = 1

    @ti.kernel
    def half():
        for i in range(16):
            u[i] = 2

    all_of_it()
    half()
    return int(u.to_numpy().sum())


def a_store_that_is_overwritten_has_activated():
    x = placed(ti.root.pointer(ti.i, 8).dense(ti.i, 4))

    @ti.kernel
    def grow():
        for i in range(16):
            x[i] = 1

    @ti.kernel
    def overwrite():
        for i in x:
            x[i] = 7

    grow()
    overwrite()
    return int(x.to_numpy().sum())


def growth_between_loops_over_cells():
    x = placed(ti.root.pointer(ti.i, 8).dense(ti.i, 4))

    @ti.kernel
    def grow(first: ti.i32):
        for i in range(first, first + 8):
            x[i] = 1

    @ti.kernel
    def overwrite():
        for i in x:
            x[i] = 7

    grow(0)
    overwrite()
    grow(8)
    overwrite()
    return int(x.to_numpy().sum())


def activation_that_data_decide():
    x, flag = placed(ti.root.pointer(ti.i, 16)), ti.field(ti.i32, shape=16)

    @ti.kernel
    def grow():
        for i in flag:
            if flag[i]:
                x[i] = 3

    grow()
    found = [total(x)]
    flag[4] = 1
    grow()
    found.append(total(x))
    flag[4], flag[5] = 0, 1
    grow()
    return [*found, total(x)]


def activation_that_one_number_decides():
    x, flag = ti.field(ti.i32), ti.field(ti.i32, shape=())
    node = ti.root.pointer(ti.i, 4)
    node.dense(ti.i, 4).place(x)

    @ti.kernel
    def grow():
        for i in range(8):
            if flag[None] > 0:
                x[i] += 1

    grow()
    found = [n_active(x)]
    flag[None] = 1
    grow()
    found.append(n_active(x))
    node.deactivate_all()
    flag[None] = 0
    grow()
    return [*found, n_active(x)]


def lists_grow_between_loops_over_them():
    node = ti.root.dynamic(ti.i, 64, chunk_size=4)
    x = placed(node)

    @ti.kernel
    def add(k: ti.i32):
        for i in range(k):
            ti.append(node, [], i + 1)

    found = []
    for k in (3, 5, 2):
        add(k)
        found.append(total(x))
    return found


def stores_behind_conditions_cover_nothing():
    u = ti.field(ti.i32, shape=16)

    @ti.kernel
    def all_of_it():
        for i in u:
            u[i] = i

    @ti.kernel
    def some():
        for i in u:
            if i % 2:
                u[i] = 100

    all_of_it()
    some()
    return u.to_numpy()


def one_range_with_two_shapes():
    u, v = ti.field(ti.i32, shape=(4, 8)), ti.field(ti.i32, shape=(8, 4))

    @ti.kernel
    def first():
        for i, j in u:
            u[i, j] = i * 8 + j

    @ti.kernel
    def second():
        for i, j in v:
            v[i, j] = u[j, i] + 1

    first()
    second()
    return v.to_numpy()


def many_mixed_kernels_one_after_the_other():
    x, y, u = ti.field(ti.i32), ti.field(ti.i32), ti.field(ti.i32, shape=32)
    node = ti.root.pointer(ti.i, 8)
    node.dense(ti.i, 4).place(x)
    ti.root.pointer(ti.i, 4).bitmasked(ti.i, 8).place(y)

    @ti.kernel
    def grow(k: ti.i32):
        for i in range(4):
            x[(k * 5 + i) % 32] += k

    @ti.kernel
    def carry():
        for i in x:
            y[i] += x[i]

    @ti.kernel
    def dense(k: ti.i32):
        for i in u:
            u[i] = u[i] + y[i] * k

    @ti.kernel
    def shrink(k: ti.i32):
        ti.deactivate(node, [k % 8])

    @ti.kernel
    def halve():
        for i in y:
            y[i] //= 2

    found = []
    for k in range(12):
        grow(k)
        carry()
        dense(k)
        shrink(k * 3)
        halve()
        found.append(total(y))
    return [found, x.to_numpy(), y.to_numpy(), u.to_numpy()]


def axpy_on_sparse_fields():
    x, y = placed(ti.root.pointer(ti.i, 16).pointer(ti.i, 4).dense(ti.i, 4), ti.f32, ti.f32)

    @ti.kernel
    def begin():
        for i in range(128):
            if (i // 16) % 2 == 0:
                x[i] = i
                y[i] = 2 * i

    @ti.kernel
    def axpy(a: ti.f32):
        for i in x:
            y[i] += a * x[i]

    begin()
    for k in range(4):
        axpy(0.5 * k)
    return y.to_numpy()


def stencils_and_sums_in_turn():
    a, b, s = ti.field(ti.f64), ti.field(ti.f64), ti.field(ti.f64, shape=())
    ti.root.pointer(ti.ij, 4).dense(ti.ij, 4).place(a, b)

    @ti.kernel
    def begin():
        for i, j in ti.ndrange((4, 12), (4, 12)):
            a[i, j] = i * 0.25 + j

    @ti.kernel
    def smooth():
        for i, j in a:
            if 0 < i < 15 and 0 < j < 15:
                b[i, j] = 0.2 * (a[i, j] + a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])

    @ti.kernel
    def back():
        for I in ti.grouped(b):
            a[I] = b[I]
            s[None] += b[I]

    begin()
    for _ in range(3):
        smooth()
        back()
    return [s[None], a.to_numpy()]


def a_grid_that_is_cleared_each_step():
    p, g = ti.field(ti.f32, shape=6), ti.field(ti.f32)
    node = ti.root.pointer(ti.i, 8)
    node.dense(ti.i, 4).place(g)

    @ti.kernel
    def scatter():
        for k in p:
            i = ti.cast(p[k], ti.i32)
            g[i] += 1.0
            g[i + 1] += 0.5

    @ti.kernel
    def move() -> ti.f32:
        n = 0.0
        for i in g:
            n += g[i] * i
        for k in p:
            p[k] += 3.0
        return n

    p.from_numpy(np.array([0, 1, 1, 4, 9, 10], np.float32))
    found = []
    for _ in range(4):
        node.deactivate_all()
        scatter()
        found.append(move())
    return found


def life_on_a_sparse_grid():
    alive, near = ti.field(ti.i32), ti.field(ti.i32)
    node = ti.root.pointer(ti.ij, 8)
    node.bitmasked(ti.ij, 4).place(alive)
    other = ti.root.pointer(ti.ij, 8)
    other.dense(ti.ij, 4).place(near)

    @ti.kernel
    def count():
        for i, j in alive:
            for a, b in ti.static(ti.ndrange((-1, 2), (-1, 2))):
                near[i + a, j + b] += 1

    @ti.kernel
    def step():
        for i, j in near:
            n = near[i, j]
            is_alive = ti.is_active(alive.parent(), [i, j])
            if is_alive and (n < 3 or n > 4):
                ti.deactivate(alive.parent(), [i, j])
            elif not is_alive and n == 3:
                alive[i, j] = 1

    for i, j in [(10, 11), (11, 12), (12, 10), (12, 11), (12, 12)]:
        alive[i, j] = 1
    for _ in range(5):
        other.deactivate_all()
        count()
        step()
    return visits(alive)


def memory_of_deactivated_cells_is_used_again():
    node = ti.root.pointer(ti.i, 32)
    x = placed(node.dense(ti.i, 16))

    @ti.kernel
    def write(k: ti.i32):
        for i in range(16):
            x[k * 16 + i] = i

    @ti.kernel
    def clear():
        for k in node:
            ti.deactivate(node, [k])

    for k in range(100):
        write(k % 32)
        clear()
    write(3)
    return [int(x.to_numpy().sum()), int(np.count_nonzero(x.to_numpy()))]


def circles_grow_until_they_touch():
    n, side = 60, 8
    p, r = ti.Vector.field(2, ti.f32, shape=n), ti.field(ti.f32, shape=n)
    x = ti.field(ti.i32)
    cells = ti.root.pointer(ti.ij, side)
    lists = cells.dynamic(ti.k, n, chunk_size=4)
    lists.place(x)

    @ti.kernel
    def sort():
        for k in p:
            ti.append(lists, ti.cast(p[k] * side, ti.i32), k)

    @ti.kernel
    def grow():
        for k in p:
            cell = ti.cast(p[k] * side, ti.i32)
            least = 1.0 / side
            for a, b in ti.static(ti.ndrange((-1, 2), (-1, 2))):
                near = cell + ti.Vector([a, b])
                if 0 <= near[0] < side and 0 <= near[1] < side:
                    for m in range(ti.length(lists, near)):
                        other = x[near[0], near[1], m]
                        if other != k:
                            least = ti.min(least, (p[k] - p[other]).norm() / 2)
            r[k] = least

    p.from_numpy(np.random.default_rng(4).random((n, 2), np.float32))
    sort()
    grow()
    return [n_active(cells), r.to_numpy()]
