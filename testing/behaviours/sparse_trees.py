"""Sparse fields: trees and leaves."""

import taichi as ti

from .seeing import clear, i32, leaves, n_active, placed, refusing


def shapes_of_fields_are_products_of_extents():
    x = placed(ti.root.pointer(ti.ij, (2, 3)).dense(ti.ij, 4))
    y = placed(ti.root.pointer(ti.i, 3).dense(ti.jk, (2, 5)))
    return [x.shape, y.shape]


def nodes_have_shapes():
    a = ti.root.pointer(ti.ij, (2, 3))
    b = a.dense(ti.i, 4)
    x = placed(b)
    return [a.shape, b.shape, x.snode.shape, ti.root.shape]


def parents_of_fields_and_nodes():
    a = ti.root.pointer(ti.ij, 2)
    b = a.dense(ti.ij, 4)
    x = placed(b)
    return [
        x.parent() == b,
        x.parent(2) == a,
        x.snode.parent() == b,
        b.parent() == a,
        a.parent() == ti.root,
        x.parent() == a,
    ]


def the_parent_of_the_root_is_none():
    x = placed(ti.root.pointer(ti.i, 2))
    x[0] = 1
    return [ti.root.parent() is None, x.parent(2) == ti.root]


def nodes_of_components_are_those_of_their_field():
    v = ti.Vector.field(2, ti.f32)
    node = ti.root.pointer(ti.i, 4)
    node.place(v)
    return [v.parent() == node, v.snode.parent() == node]


@leaves(
    "n",
    n=i32(2),
    x=lambda: placed(ti.root.pointer(ti.i, 4).bitmasked(ti.i, 4), at={0: 1, 5: 1, 6: 1}),
)
def a_field_and_its_parent_have_the_same_cells():
    for _i in x:
        n[0] += 1
    for _i in x.parent():
        n[1] += 1


def nodes_are_arguments_of_kernels():
    a, b = ti.root.pointer(ti.i, 4), ti.root.bitmasked(ti.i, 8)
    placed(a)
    placed(b)

    @ti.kernel
    def activate(node: ti.template(), k: ti.i32):
        ti.activate(node, [k])

    activate(a, 1)
    activate(b, 2)
    activate(b, 7)
    return [n_active(a), n_active(b)]


def nodes_are_arguments_of_functions():
    node = ti.root.pointer(ti.i, 4)
    x = placed(node)

    @ti.func
    def renew(where: ti.template(), k):
        if not ti.is_active(where, [k]):
            ti.activate(where, [k])

    @ti.kernel
    def work():
        for k in range(3):
            renew(node, k)

    work()
    return n_active(x)


def sparse_fields_are_arguments_of_kernels():
    x = placed(ti.root.pointer(ti.i, 4).dense(ti.i, 2))
    y = placed(ti.root.bitmasked(ti.i, 8))

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
            self.block = ti.root.pointer(ti.i, n)
            self.x = placed(self.block.dense(ti.i, 2))

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
    levels = [placed(ti.root.pointer(ti.i, 4 >> k).dense(ti.i, 4)) for k in range(3)]

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


@leaves(
    "m x",
    a=lambda: ti.root.pointer(ti.i, 4),
    m=lambda: placed(a),
    x=lambda: placed(a.dense(ti.i, 4)),
)
def fields_at_different_levels_of_a_tree():
    for i in range(8):
        x[i] = i
    for i in a:
        for k in range(4):
            m[i] += x[i * 4 + k]


def a_value_above_is_there_with_its_cell():
    n = ti.field(ti.i32, shape=2)
    a = ti.root.pointer(ti.i, 4)
    m = placed(a)
    x = placed(a.pointer(ti.i, 4))

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
    n = ti.field(ti.i32, shape=3)
    a = ti.root.pointer(ti.i, 4)
    x = placed(a.dense(ti.i, 4))
    y = placed(a.bitmasked(ti.i, 2))

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
    a = ti.root.pointer(ti.i, 4)
    x = placed(a.dense(ti.i, 4))
    y = placed(a.pointer(ti.i, 2))
    for i in range(16):
        x[i] = i
    for i in range(8):
        y[i] = i
    clear(a, 1)
    return [x.to_numpy(), y.to_numpy()]


def trees_are_made_before_their_fields_are_used():
    x = placed(ti.root.pointer(ti.i, 4), at={1: 2})
    y = placed(ti.root.pointer(ti.i, 4), at={2: 3})
    return [x.to_numpy(), y.to_numpy()]


def words_of_nodes():
    a = ti.root.pointer(ti.ij, (2, 3))
    x = placed(a.dense(ti.i, 4))
    return [str(a)[2:], str(x.parent())[2:]]


hash_nodes = refusing(lambda: ti.root.hash(ti.i, 4))
axes_and_extents_have_the_same_length = refusing(lambda: ti.root.pointer(ti.ij, (1, 2, 3)))


@leaves(
    "x",
    x=lambda: placed(
        ti.root.pointer(ti.ijkl, 2).dense(ti.ijkl, (1, 2, 1, 2)), at={(1, 3, 0, 2): 5}
    ),
)
def four_axes():
    for I in ti.grouped(x):
        x[I] = I[0] * 1000 + I[1] * 100 + I[2] * 10 + I[3] + 1


def axes_by_number():
    node = ti.root.pointer(ti.axes(1, 2), (2, 3)).dense(ti.axes(0), 2)
    return placed(node, at={(1, 0, 2): 3}).to_numpy()


def a_bitmasked_node_of_one_cell():
    x = placed(ti.root.bitmasked(ti.i, 1).dense(ti.i, 3))
    first = n_active(x)
    x[1] = 1
    return [first, n_active(x)]


def a_pointer_node_of_one_cell():
    node = ti.root.pointer(ti.i, 1)
    x = placed(node.dense(ti.ij, 3))

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
    n = 1 << 14
    (x,) = placed(ti.root.pointer(ti.ij, n // 64).pointer(ti.ij, 8).dense(ti.ij, 8), ti.f32)

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
    (x,) = placed(ti.root.pointer(ti.i, 4).dense(ti.i, 2), ti.u1)

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


@leaves("x", x=lambda: placed(ti.root.pointer(ti.i, 4), ti.f16)[0])
def f16_is_kept_in_sparse_fields():
    for i in range(3):
        x[i] = i + 0.1
    for i in x:
        x[i] *= 2
