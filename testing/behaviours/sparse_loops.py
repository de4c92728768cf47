"""Sparse fields: loops over active cells."""

import numpy as np
import taichi as ti

from .seeing import n_active


def a_loop_over_a_field_visits_active_cells_once():
    x, seen = ti.field(ti.i32), ti.field(ti.i32, shape=(8, 8))
    ti.root.pointer(ti.ij, 2).pointer(ti.ij, 4).place(x)

    @ti.kernel
    def visit():
        for i, j in x:
            seen[i, j] += 1

    for i, j in [(0, 0), (7, 7), (3, 4), (4, 3)]:
        x[i, j] = 1
    visit()
    return seen.to_numpy()


def loops_over_nodes_of_each_level():
    x = ti.field(ti.i32)
    a = ti.root.pointer(ti.ij, (3, 2))
    b = a.dense(ti.ij, 2)
    c = b.pointer(ti.ij, (1, 3))
    d = c.bitmasked(ti.ij, 2)
    d.place(x)
    n = ti.field(ti.i32, shape=5)

    @ti.kernel
    def count():
        for _i, _j in a:
            n[0] += 1
        for _i, _j in b:
            n[1] += 1
        for _i, _j in c:
            n[2] += 1
        for _i, _j in d:
            n[3] += 1
        for _i, _j in x:
            n[4] += 1

    x[0, 0] = 1
    x[11, 23] = 1
    x[10, 22] = 1
    count()
    return n.to_numpy()


def indices_of_loops_over_nodes_are_those_of_the_node():
    x = ti.field(ti.i32)
    a = ti.root.pointer(ti.ij, (4, 3))
    a.dense(ti.ij, (2, 5)).place(x)
    seen = ti.field(ti.i32, shape=(4, 3))

    @ti.kernel
    def visit():
        for i, j in a:
            seen[i, j] = 1 + i * 10 + j

    x[5, 7] = 1
    x[0, 14] = 1
    visit()
    return seen.to_numpy()


def loops_over_dense_nodes_below_pointers():
    x = ti.field(ti.i32)
    a = ti.root.pointer(ti.i, 4)
    b = a.dense(ti.i, 3)
    b.dense(ti.i, 2).place(x)
    seen = ti.field(ti.i32, shape=12)

    @ti.kernel
    def visit():
        for i in b:
            seen[i] += 1

    x[7] = 1
    visit()
    return seen.to_numpy()


def loops_over_a_dense_top_above_pointers():
    x = ti.field(ti.i32)
    a = ti.root.dense(ti.i, 4)
    a.pointer(ti.i, 4).place(x)
    seen = ti.field(ti.i32, shape=4)

    @ti.kernel
    def visit():
        for i in a:
            seen[i] += 1

    x[7] = 1
    visit()
    return seen.to_numpy()


def extents_that_are_no_powers_of_two():
    x, seen = ti.field(ti.i32), ti.field(ti.i32, shape=(15, 21))
    ti.root.pointer(ti.ij, (5, 7)).dense(ti.ij, (3, 3)).place(x)

    @ti.kernel
    def fill():
        for i, j in ti.ndrange(15, 21):
            if (i * 21 + j) % 17 == 0:
                x[i, j] = i * 100 + j

    @ti.kernel
    def visit():
        for i, j in x:
            seen[i, j] += 1

    fill()
    visit()
    return [x.to_numpy(), seen.to_numpy()]


def extents_of_one_axis_that_are_no_powers_of_two():
    x, seen = ti.field(ti.i32), ti.field(ti.i32, shape=3 * 5 * 7)
    ti.root.pointer(ti.i, 3).bitmasked(ti.i, 5).dense(ti.i, 7).place(x)

    @ti.kernel
    def visit():
        for i in x:
            seen[i] += i

    for i in (0, 34, 35, 104):
        x[i] = 1
    visit()
    return seen.to_numpy()


def masks_of_more_than_one_word():
    x, seen = ti.field(ti.i32), ti.field(ti.i32, shape=200)
    ti.root.bitmasked(ti.i, 200).place(x)

    @ti.kernel
    def visit():
        for i in x:
            seen[i] += 1

    for i in (0, 31, 32, 63, 64, 127, 128, 199):
        x[i] = 1
    visit()
    return seen.to_numpy()


def axes_that_only_some_levels_split():
    x, seen = ti.field(ti.i32), ti.field(ti.i32, shape=(6, 8))
    ti.root.pointer(ti.i, 3).pointer(ti.j, 4).dense(ti.ij, 2).place(x)

    @ti.kernel
    def visit():
        for i, j in x:
            seen[i, j] += 1

    x[3, 5] = 1
    x[0, 0] = 1
    visit()
    return seen.to_numpy()


def axes_in_the_other_order():
    x, seen = ti.field(ti.i32), ti.field(ti.i32, shape=(4, 6))
    ti.root.pointer(ti.j, 3).dense(ti.i, 4).bitmasked(ti.j, 2).place(x)

    @ti.kernel
    def visit():
        for i, j in x:
            seen[i, j] += 1 + x[i, j]

    x[3, 5] = 1
    x[0, 4] = 2
    visit()
    return seen.to_numpy()


def grouped_loops_have_vectors_of_indices():
    x = ti.field(ti.i32)
    ti.root.pointer(ti.ijk, 2).dense(ti.ijk, 2).place(x)

    @ti.kernel
    def write():
        for I in ti.grouped(x):
            x[I] = I[0] * 100 + I.y * 10 + I[2] + I.n

    x[0, 1, 3] = 1
    write()
    return x.to_numpy()


def grouped_loops_over_nodes():
    x, seen = ti.field(ti.i32), ti.field(ti.i32, shape=(4, 4))
    node = ti.root.pointer(ti.ij, 4)
    node.dense(ti.ij, 2).place(x)

    @ti.kernel
    def visit():
        for I in ti.grouped(node):
            seen[I] = I.sum() + 1

    x[7, 1] = 3
    x[2, 2] = 3
    visit()
    return seen.to_numpy()


def cells_that_a_loop_activates_are_not_visited_by_it():
    x = ti.field(ti.i32)
    ti.root.pointer(ti.i, 8).dense(ti.i, 4).place(x)
    n = ti.field(ti.i32, shape=())

    @ti.kernel
    def spread():
        for i in x:
            n[None] += 1
            if i < 28:
                x[i + 4] = 1

    found = []
    x[0] = 1
    for _ in range(4):
        n[None] = 0
        spread()
        found.append(n[None])
    return [found, x.to_numpy()]


def a_loop_behind_another_sees_what_that_activated():
    x, n = ti.field(ti.i32), ti.field(ti.i32, shape=2)
    ti.root.pointer(ti.i, 8).dense(ti.i, 2).place(x)

    @ti.kernel
    def work():
        for i in range(5):
            x[i] = i
        for _i in x:
            n[0] += 1
        for i in range(12, 16):
            x[i] = i
        for _i in x:
            n[1] += 1

    work()
    return n.to_numpy()


def a_loop_behind_deactivation_in_one_kernel():
    x, n = ti.field(ti.i32), ti.field(ti.i32, shape=3)
    node = ti.root.pointer(ti.i, 8)
    node.dense(ti.i, 2).place(x)

    @ti.kernel
    def work():
        for _i in x:
            n[0] += 1
        for k in range(3):
            ti.deactivate(node, [k])
        for _i in x:
            n[1] += 1
        for _k in node:
            n[2] += 1

    x.fill(1)
    for i in range(16):
        x[i] = i
    work()
    return [n.to_numpy(), x.to_numpy()]


def loops_may_deactivate_their_own_cell():
    x = ti.field(ti.i32)
    node = ti.root.pointer(ti.i, 16)
    node.place(x)
    n = ti.field(ti.i32, shape=())

    @ti.kernel
    def thin():
        for i in x:
            if i % 3 == 0:
                ti.deactivate(node, [i])

    @ti.kernel
    def count():
        for _i in x:
            n[None] += 1

    for i in range(16):
        x[i] = i + 1
    thin()
    count()
    return [n[None], x.to_numpy()]


def loops_over_nodes_may_deactivate_their_cells():
    x = ti.field(ti.i32)
    node = ti.root.pointer(ti.i, 8)
    node.dense(ti.i, 2).place(x)

    @ti.kernel
    def clear():
        for i in node:
            if x[i * 2] == 0:
                ti.deactivate(node, [i])

    for i in range(16):
        x[i] = i % 4
    clear()
    return [n_active(node), x.to_numpy()]


def loops_over_empty_fields_do_nothing():
    x = ti.field(ti.i32)
    node = ti.root.pointer(ti.i, 8)
    node.dense(ti.i, 2).place(x)

    @ti.kernel
    def count() -> ti.i32:
        n = 0
        for _ in x:
            n += 1
        for _ in node:
            n += 100
        return n

    return count()


def sums_over_active_cells():
    x = ti.field(ti.f64)
    ti.root.pointer(ti.ij, 4).bitmasked(ti.ij, 4).place(x)

    @ti.kernel
    def fill():
        for i, j in ti.ndrange(16, 16):
            if (i + j) % 3 == 0:
                x[i, j] = i * 0.5 + j

    @ti.kernel
    def total() -> ti.f64:
        found = ti.cast(0, ti.f64)
        for I in ti.grouped(x):
            found += x[I]
        return found

    fill()
    return total()


def stencils_read_zero_beside_active_blocks():
    x, y = ti.field(ti.f32), ti.field(ti.f32)
    ti.root.pointer(ti.ij, 4).dense(ti.ij, 4).place(x, y)

    @ti.kernel
    def smooth():
        for i, j in x:
            if 0 < i < 15 and 0 < j < 15:
                y[i, j] = x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1] - 4 * x[i, j]

    for i, j in [(5, 5), (4, 7), (8, 8)]:
        x[i, j] = i + j
    smooth()
    return y.to_numpy()


def loops_over_one_field_write_another_tree():
    x, y = ti.field(ti.i32), ti.field(ti.i32)
    ti.root.pointer(ti.i, 8).place(x)
    ti.root.pointer(ti.i, 4).bitmasked(ti.i, 4).place(y)

    @ti.kernel
    def copy():
        for i in x:
            y[2 * i] = x[i] + 1

    for i in (1, 3, 7):
        x[i] = i
    copy()
    return [n_active(y), y.to_numpy()]


def inner_loops_and_branches_in_loops_over_cells():
    x, y = ti.field(ti.i32), ti.field(ti.i32)
    ti.root.pointer(ti.i, 8).dense(ti.i, 2).place(x, y)

    @ti.kernel
    def work():
        for i in x:
            if x[i] % 2:
                for k in range(x[i]):
                    y[i] += k
            else:
                k = 0
                while k < 3:
                    y[i] -= i
                    k += 1

    for i in range(6):
        x[i] = i + 3
    work()
    return y.to_numpy()


def continue_in_loops_over_cells():
    x = ti.field(ti.i32)
    ti.root.bitmasked(ti.i, 12).place(x)

    @ti.kernel
    def work():
        for i in x:
            if i % 2:
                continue
            x[i] += 10

    for i in range(0, 12, 3):
        x[i] = i
    work()
    return x.to_numpy()


def scatters_activate_from_loops_over_cells():
    x, y = ti.field(ti.i32), ti.field(ti.i32)
    ti.root.pointer(ti.i, 8).place(x)
    node = ti.root.pointer(ti.i, 4).dense(ti.i, 4)
    node.place(y)

    @ti.kernel
    def scatter():
        for i in x:
            for k in ti.static(range(3)):
                y[i + k] += x[i]

    for i in (0, 1, 7):
        x[i] = i + 1
    scatter()
    return y.to_numpy()


def indices_are_rescaled_between_levels():
    x, n = ti.field(ti.i32), ti.field(ti.i32, shape=(4, 2))
    a = ti.root.pointer(ti.ij, (4, 4))
    b = a.dense(ti.ij, (2, 4))
    b.place(x)

    @ti.kernel
    def look():
        up = ti.rescale_index(b, a, ti.Vector([5, 9]))
        down = ti.rescale_index(a, b, ti.Vector([3, 2]))
        same = ti.rescale_index(a, a, ti.Vector([3, 2]))
        of_field = ti.rescale_index(x, a, [7, 15])
        for k in ti.static(range(2)):
            n[0, k] = up[k]
            n[1, k] = down[k]
            n[2, k] = same[k]
            n[3, k] = of_field[k]

    look()
    return n.to_numpy()


def unique_loops_are_a_hint():
    x, y = ti.field(ti.i32), ti.field(ti.i32)
    ti.root.pointer(ti.i, 4).dense(ti.i, 4).place(x)
    ti.root.pointer(ti.i, 4).dense(ti.i, 8).place(y)

    @ti.kernel
    def work():
        for i in x:
            k = ti.loop_unique(i * 2)
            y[k] += x[i]

    for i in (1, 5, 15):
        x[i] = i
    work()
    return y.to_numpy()


def blocks_that_are_staged_are_a_hint():
    x, y = ti.field(ti.f32), ti.field(ti.f32)
    ti.root.pointer(ti.i, 4).dense(ti.i, 8).place(x, y)

    @ti.kernel
    def fill():
        for i in range(8, 24):
            x[i] = i * i

    @ti.kernel
    def smooth():
        ti.block_local(x)
        ti.loop_config(block_dim=8)
        for i in x:
            if 8 < i < 23:
                y[i] = x[i - 1] - 2 * x[i] + x[i + 1]

    fill()
    smooth()
    return y.to_numpy()


def lists_are_made_again_where_cells_came_and_went():
    x = ti.field(ti.i32)
    node = ti.root.pointer(ti.i, 64)
    node.dense(ti.i, 2).place(x)

    @ti.kernel
    def clear(k: ti.i32):
        ti.deactivate(node, [k])

    found = [n_active(node)]
    for k in (3, 9, 60):
        x[2 * k] = 1
        found.append(n_active(node))
    clear(9)
    found.append(n_active(node))
    x[18] = 1
    found.append(n_active(node))
    return found


def many_active_cells_are_listed():
    x = ti.field(ti.i32)
    ti.root.pointer(ti.i, 64).pointer(ti.i, 64).place(x)

    @ti.kernel
    def fill(step: ti.i32):
        for i in range(4096):
            if i % step == 0:
                x[i] = 1

    @ti.kernel
    def total() -> ti.i32:
        n = 0
        for i in x:
            n += x[i]
        return n

    fill(7)
    first = total()
    fill(3)
    return [first, total(), int(np.count_nonzero(x.to_numpy()))]


def trees_of_four_levels():
    x, seen = ti.field(ti.i32), ti.field(ti.i32, shape=256)
    node = ti.root
    for _ in range(4):
        node = node.pointer(ti.i, 4)
    node.place(x)

    @ti.kernel
    def visit():
        for i in x:
            seen[i] += x[i]

    for i in (0, 17, 128, 255):
        x[i] = i + 1
    visit()
    return seen.to_numpy()


def bitmasked_nodes_below_bitmasked_ones():
    x, n = ti.field(ti.i32), ti.field(ti.i32, shape=2)
    a = ti.root.bitmasked(ti.i, 6)
    b = a.bitmasked(ti.i, 5)
    b.place(x)

    @ti.kernel
    def count():
        for _ in a:
            n[0] += 1
        for _ in b:
            n[1] += 1

    for i in (0, 4, 5, 29):
        x[i] = 1
    count()
    return n.to_numpy()


def one_axis_of_a_loop_is_used_only():
    x, sums = ti.field(ti.i32), ti.field(ti.i32, shape=4)
    ti.root.pointer(ti.ij, (4, 4)).place(x)

    @ti.kernel
    def add():
        for i, j in x:
            sums[i] += x[i, j]

    for i, j in [(1, 1), (1, 3), (2, 0)]:
        x[i, j] = 5 + j
    add()
    return sums.to_numpy()
