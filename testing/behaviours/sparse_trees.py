"""Sparse fields: trees and leaves."""

import taichi as ti

from .seeing import refused


def shapes_of_fields_are_products_of_extents():
    x, y = ti.field(ti.i32), ti.field(ti.i32)
    ti.root.pointer(ti.ij, (2, 3)).dense(ti.ij, 4).place(x)
    ti.root.pointer(ti.i, 3).dense(ti.jk, (2, 5)).place(y)
    return [x.shape, y.shape]


def nodes_have_shapes():
    a = ti.root.pointer(ti.ij, (2, 3))
    b = a.dense(ti.i, 4)
    x = ti.field(ti.i32)
    b.place(x)
    return [a.shape, b.shape, x.snode.shape, ti.root.shape]


def parents_of_fields_and_nodes():
    x = ti.field(ti.i32)
    a = ti.root.pointer(ti.ij, 2)
    b = a.dense(ti.ij, 4)
    b.place(x)
    return [
        x.parent() == b,
        x.parent(2) == a,
        x.snode.parent() == b,
        b.parent() == a,
        a.parent() == ti.root,
        x.parent() == a,
    ]


def the_parent_of_the_root_is_none():
    x = ti.field(ti.i32)
    ti.root.pointer(ti.i, 2).place(x)
    x[0] = 1
    return [ti.root.parent() is None, x.parent(2) == ti.root]


def nodes_of_components_are_those_of_their_field():
    v = ti.Vector.field(2, ti.f32)
    node = ti.root.pointer(ti.i, 4)
    node.place(v)
    return [v.parent() == node, v.snode.parent() == node]


def a_field_and_its_parent_have_the_same_cells():
    x, n = ti.field(ti.i32), ti.field(ti.i32, shape=2)
    ti.root.pointer(ti.i, 4).bitmasked(ti.i, 4).place(x)

    @ti.kernel
    def count():
        for _i in x:
            n[0] += 1
        for _i in x.parent():
            n[1] += 1

    for i in (0, 5, 6):
        x[i] = 1
    count()
    return n.to_numpy()


def nodes_are_arguments_of_kernels():
    x, y = ti.field(ti.i32), ti.field(ti.i32)
    a, b = ti.root.pointer(ti.i, 4), ti.root.bitmasked(ti.i, 8)
    a.place(x)
    b.place(y)

    @ti.kernel
    def count(node: ti.template()) -> ti.i32:
        n = 0
        for _ in node:
            n += 1
        return n

    @ti.kernel
    def activate(node: ti.template(), k: ti.i32):
        ti.activate(node, [k])

    activate(a, 1)
    activate(b, 2)
    activate(b, 7)
    return [count(a), count(b)]


def nodes_are_arguments_of_functions():
    x = ti.field(ti.i32)
    node = ti.root.pointer(ti.i, 4)
    node.place(x)

    @ti.func
    def renew(where: ti.template(), k):
        if not ti.is_active(where, [k]):
            ti.activate(where, [k])

    @ti.kernel
    def work():
        for k in range(3):
            renew(node, k)

    @ti.kernel
    def count() -> ti.i32:
        n = 0
        for _ in x:
            n += 1
        return n

    work()
    return count()


def sparse_fields_are_arguments_of_kernels():
    x, y = ti.field(ti.i32), ti.field(ti.i32)
    ti.root.pointer(ti.i, 4).dense(ti.i, 2).place(x)
    ti.root.bitmasked(ti.i, 8).place(y)

    @ti.kernel
    def add(a: ti.template(), v: ti.i32):
        for i in a:
            a[i] += v + i

    x[3], y[3] = 1, 1
    add(x, 10)
    add(y, 20)
    return [x.to_numpy(), y.to_numpy()]


def nodes_are_members_of_classes():
    @ti.data_oriented
    class Grid:
        def __init__(self, n):
            self.x = ti.field(ti.i32)
            self.block = ti.root.pointer(ti.i, n)
            self.block.dense(ti.i, 2).place(self.x)

        @ti.kernel
        def put(self, k: ti.i32):
            self.x[k] = k

        @ti.kernel
        def clear(self):
            for i in self.block:
                if i % 2:
                    ti.deactivate(self.block, [i])

    g, h = Grid(4), Grid(3)
    for k in range(8):
        g.put(k)
    h.put(5)
    g.clear()
    return [g.x.to_numpy(), h.x.to_numpy()]


def lists_of_trees_of_several_levels():
    levels = [ti.field(ti.i32) for _ in range(3)]
    for k, x in enumerate(levels):
        ti.root.pointer(ti.i, 4 >> k).dense(ti.i, 4).place(x)

    @ti.kernel
    def coarser(k: ti.template()):
        for i in levels[k]:
            levels[k + 1][i // 2] += levels[k][i]

    levels[0][5], levels[0][14] = 3, 4
    for k in range(2):
        coarser(k)
    return [x.to_numpy() for x in levels]


def several_fields_of_different_types_in_a_leaf():
    a, b, c = ti.field(ti.i8), ti.field(ti.f64), ti.Vector.field(2, ti.i16)
    ti.root.pointer(ti.i, 4).dense(ti.i, 2).place(a, b, c)

    @ti.kernel
    def write():
        for i in range(2, 5):
            a[i] = ti.cast(i * 60, ti.i8)
            b[i] = i / 4
            c[i] = [i, -i]

    write()
    return [a.to_numpy(), b.to_numpy(), c.to_numpy()]


def fields_at_different_levels_of_a_tree():
    x, m = ti.field(ti.i32), ti.field(ti.i32)
    a = ti.root.pointer(ti.i, 4)
    a.place(m)
    a.dense(ti.i, 4).place(x)

    @ti.kernel
    def work():
        for i in range(8):
            x[i] = i
        for i in a:
            for k in range(4):
                m[i] += x[i * 4 + k]

    work()
    return [m.to_numpy(), x.to_numpy()]


def a_value_above_is_there_with_its_cell():
    x, m = ti.field(ti.i32), ti.field(ti.i32)
    a = ti.root.pointer(ti.i, 4)
    a.place(m)
    b = a.pointer(ti.i, 4)
    b.place(x)
    n = ti.field(ti.i32, shape=2)

    @ti.kernel
    def count():
        for _ in m:
            n[0] += 1
        for _ in x:
            n[1] += 1

    m[2] = 1
    x[0] = 1
    count()
    return n.to_numpy()


def two_branches_below_one_node():
    x, y = ti.field(ti.i32), ti.field(ti.i32)
    a = ti.root.pointer(ti.i, 4)
    a.dense(ti.i, 4).place(x)
    a.bitmasked(ti.i, 2).place(y)
    n = ti.field(ti.i32, shape=3)

    @ti.kernel
    def count():
        for _ in a:
            n[0] += 1
        for _ in x:
            n[1] += 1
        for _ in y:
            n[2] += 1

    x[5] = 1
    y[7] = 1
    count()
    return [n.to_numpy(), x.to_numpy(), y.to_numpy()]


def deactivation_takes_both_branches_along():
    x, y = ti.field(ti.i32), ti.field(ti.i32)
    a = ti.root.pointer(ti.i, 4)
    a.dense(ti.i, 4).place(x)
    a.pointer(ti.i, 2).place(y)

    @ti.kernel
    def clear():
        ti.deactivate(a, [1])

    for i in range(16):
        x[i] = i
    for i in range(8):
        y[i] = i
    clear()
    return [x.to_numpy(), y.to_numpy()]


def trees_are_made_before_their_fields_are_used():
    x = ti.field(ti.i32)
    node = ti.root.pointer(ti.i, 4)
    node.place(x)
    x[1] = 2
    y = ti.field(ti.i32)
    ti.root.pointer(ti.i, 4).place(y)
    y[2] = 3
    return [x.to_numpy(), y.to_numpy()]


def words_of_nodes():
    x = ti.field(ti.i32)
    a = ti.root.pointer(ti.ij, (2, 3))
    a.dense(ti.i, 4).place(x)
    return [str(a)[2:], str(x.parent())[2:]]


def hash_nodes():
    return refused(lambda: ti.root.hash(ti.i, 4))


def axes_and_extents_have_the_same_length():
    return refused(lambda: ti.root.pointer(ti.ij, (1, 2, 3)))


def four_axes():
    x = ti.field(ti.i32)
    ti.root.pointer(ti.ijkl, 2).dense(ti.ijkl, (1, 2, 1, 2)).place(x)

    @ti.kernel
    def write():
        for I in ti.grouped(x):
            x[I] = I[0] * 1000 + I[1] * 100 + I[2] * 10 + I[3] + 1

    x[1, 3, 0, 2] = 5
    write()
    return x.to_numpy()


def axes_by_number():
    x = ti.field(ti.i32)
    ti.root.pointer(ti.axes(1, 2), (2, 3)).dense(ti.axes(0), 2).place(x)
    x[1, 0, 2] = 3
    return x.to_numpy()


def a_bitmasked_node_of_one_cell():
    x = ti.field(ti.i32)
    ti.root.bitmasked(ti.i, 1).dense(ti.i, 3).place(x)

    @ti.kernel
    def count() -> ti.i32:
        n = 0
        for _ in x:
            n += 1
        return n

    first = count()
    x[1] = 1
    return [first, count()]


def a_pointer_node_of_one_cell():
    x = ti.field(ti.i32)
    node = ti.root.pointer(ti.i, 1)
    node.dense(ti.ij, 3).place(x)

    @ti.kernel
    def flip(k: ti.i32):
        if ti.is_active(node, [0]):
            ti.deactivate(node, [0])
        else:
            x[1, 2] = k

    found = []
    for k in range(4):
        flip(k + 1)
        found.append(x[1, 2])
    return found


def large_sparse_fields_have_room():
    x = ti.field(ti.f32)
    n = 1 << 14
    ti.root.pointer(ti.ij, n // 64).pointer(ti.ij, 8).dense(ti.ij, 8).place(x)

    @ti.kernel
    def total() -> ti.f32:
        found = 0.0
        for i, j in x:
            found += x[i, j]
        return found

    for i, j in [(0, 0), (n - 1, n - 1), (n // 2, 77)]:
        x[i, j] = 1.5
    return [x.shape, total(), x[n - 1, n - 1]]


def truth_values_are_kept_in_sparse_fields():
    x = ti.field(ti.u1)
    ti.root.pointer(ti.i, 4).dense(ti.i, 2).place(x)

    @ti.kernel
    def work():
        for i in range(6):
            x[i] = i % 2 == 0

    @ti.kernel
    def count() -> ti.i32:
        n = 0
        for i in x:
            if x[i]:
                n += 1
        return n

    work()
    return count()


def f16_is_kept_in_sparse_fields():
    x = ti.field(ti.f16)
    ti.root.pointer(ti.i, 4).place(x)

    @ti.kernel
    def work():
        for i in range(3):
            x[i] = i + 0.1
        for i in x:
            x[i] *= 2

    work()
    return x.to_numpy()
