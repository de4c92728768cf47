"""Sparse fields: what is active."""

import numpy as np
import taichi as ti

from . import seeing
from .seeing import fill


def stores_activate_and_loads_do_not():
    x, n = ti.field(ti.i32), ti.field(ti.i32, shape=3)
    node = ti.root.pointer(ti.i, 8)
    node.place(x)

    @ti.kernel
    def look(k: ti.i32):
        n[k] = ti.is_active(node, [3])

    @ti.kernel
    def read() -> ti.i32:
        return x[3] + x[4]

    @ti.kernel
    def write():
        x[3] = 0

    look(0)
    first = read()
    look(1)
    write()
    look(2)
    return [first, n.to_numpy()]


@seeing.leaves(
    lambda: seeing.active(node),
    node=lambda: ti.root.bitmasked(ti.ij, (4, 4)),
    x=lambda: seeing.placed(node),
)
def a_store_of_zero_activates():
    x[1, 2] = 0


@seeing.leaves(
    lambda: [x.to_numpy(), seeing.active(node)],
    node=lambda: ti.root.pointer(ti.i, 4).pointer(ti.i, 4),
    x=lambda: seeing.placed(node),
)
def atomic_updates_activate():
    for k in range(100):
        x[k % 3 * 5] += 1


def activation_of_a_leaf_activates_all_above_it():
    n = ti.field(ti.i32, shape=3)
    a = ti.root.pointer(ti.ij, 2)
    b = a.pointer(ti.ij, 2)
    c = b.pointer(ti.ij, 2)
    seeing.placed(c)

    @ti.kernel
    def work():
        ti.activate(c, [5, 2])

    @ti.kernel
    def look():
        n[0] = ti.is_active(a, [1, 0])
        n[1] = ti.is_active(b, [2, 1])
        n[2] = ti.is_active(c, [5, 2])

    work()
    look()
    return n.to_numpy()


def activation_of_a_node_leaves_those_below_inactive():
    n = ti.field(ti.i32, shape=2)
    a = ti.root.pointer(ti.i, 4)
    b = a.bitmasked(ti.i, 4)
    seeing.placed(b)

    @ti.kernel
    def work():
        ti.activate(a, [2])

    @ti.kernel
    def look():
        n[0] = ti.is_active(a, [2])
        for k in range(16):
            n[1] += ti.is_active(b, [k])

    work()
    look()
    return n.to_numpy()


def dense_nodes_below_an_active_cell_are_active():
    x = seeing.placed(ti.root.pointer(ti.i, 4).dense(ti.i, 4))
    seeing.put(x, 9, 1)
    return seeing.visits(x)


def activation_of_what_is_active_keeps_values():
    node = ti.root.pointer(ti.i, 8)
    x = seeing.placed(node.dense(ti.i, 2))

    @ti.kernel
    def again():
        for i in range(2):
            ti.activate(node, [i])

    fill(x, 4, 5)
    again()
    return x.to_numpy()


def deactivated_cells_of_pointers_read_zero_and_begin_anew():
    node = ti.root.pointer(ti.i, 8)
    x = seeing.placed(node.dense(ti.i, 4))
    fill(x, 16, 10)
    seeing.clear(node, 1, 7)
    first = x.to_numpy()
    x[5] = 3
    return [first, x.to_numpy()]


def deactivated_cells_of_bitmasked_nodes_keep_what_they_had():
    node = ti.root.bitmasked(ti.i, 8)
    x = seeing.placed(node)

    @ti.kernel
    def again():
        ti.activate(node, [3])

    seeing.put(x, 3, 7)
    seeing.clear(node, 3)
    again()
    return x[3]


def loads_of_inactive_cells_of_bitmasked_nodes():
    x = seeing.placed(ti.root.pointer(ti.i, 2).bitmasked(ti.i, 4))

    @ti.kernel
    def read() -> ti.i32:
        return 100 * x[1] + 10 * x[2] + x[6]

    seeing.put(x, 1, 4)
    return read()


def a_deactivated_bitmasked_cell_is_inactive():
    n = ti.field(ti.i32, shape=3)
    node = ti.root.bitmasked(ti.ij, (2, 40))
    x = seeing.placed(node)

    @ti.kernel
    def work():
        for i, j in ti.ndrange(2, 40):
            x[i, j] = 1

    @ti.kernel
    def thin():
        for j in range(40):
            if j % 3 == 0:
                ti.deactivate(node, [1, j])

    @ti.kernel
    def count(k: ti.i32):
        for _i, _j in x:
            n[k] += 1

    count(0)
    work()
    count(1)
    thin()
    count(2)
    return n.to_numpy()


def deactivation_of_a_node_takes_all_below_along():
    n = ti.field(ti.i32, shape=4)
    a = ti.root.pointer(ti.i, 4)
    b = a.pointer(ti.i, 4)
    x = seeing.placed(b)

    @ti.kernel
    def look():
        n[0] = ti.is_active(a, [1])
        n[1] = ti.is_active(b, [5])
        n[2] = ti.is_active(b, [9])
        for _i in x:
            n[3] += 1

    fill(x, 12, 1)
    seeing.clear(a, 1)
    look()
    return [x.to_numpy(), n.to_numpy()]


def deactivation_of_inactive_cells_does_nothing():
    node = ti.root.pointer(ti.i, 4).bitmasked(ti.i, 4)
    x = seeing.placed(node)

    @ti.kernel
    def empty():
        for k in range(16):
            ti.deactivate(node, [k])

    empty()
    seeing.put(x, 2, 9)
    return x.to_numpy()


def deactivation_and_activation_in_one_kernel():
    node = ti.root.pointer(ti.i, 4)
    x = seeing.placed(node.dense(ti.i, 2))

    @ti.kernel
    def write():
        for i in range(8):
            x[i] = 5

    @ti.kernel
    def renew():
        for k in range(1):
            ti.deactivate(node, [2 + k])
            x[5] = 7

    write()
    renew()
    return x.to_numpy()


@seeing.leaves(
    "x", 500, node=lambda: ti.root.pointer(ti.i, 4), x=lambda: seeing.placed(node.dense(ti.i, 2))
)
def cells_are_deactivated_and_activated_often_in_one_kernel(n: ti.i32):
    for _ in range(1):
        for k in range(n):
            ti.deactivate(node, [1])
            x[2] = k


@seeing.leaves(
    "n",
    n=seeing.i32(2),
    a=lambda: ti.root.pointer(ti.i, 4),
    b=lambda: a.bitmasked(ti.i, 4),
    x=lambda: seeing.placed(b),
)
def is_active_of_cells_below_inactive_ones():
    n[0] = ti.is_active(a, [3])
    n[1] = ti.is_active(b, [13])


@seeing.leaves(
    "n",
    n=seeing.i32(3),
    node=lambda: ti.root.pointer(ti.ij, 4),
    x=lambda: seeing.placed(node, at={(1, 2): 4}),
)
def is_active_takes_vectors_and_lists():
    I = ti.Vector([1, 2])
    n[0] = ti.is_active(node, I)
    n[1] = ti.is_active(node, [I[0], I[1]])
    n[2] = ti.is_active(node, I + 1)


@seeing.returns(
    node=lambda: ti.root.bitmasked(ti.i, 6), x=lambda: seeing.placed(node, at={0: 1, 3: 1})
)
def is_active_is_a_condition() -> ti.i32:
    n = 0
    for i in range(6):
        if ti.is_active(node, [i]) and i > 1:
            n += 10
        elif not ti.is_active(node, [i]):
            n += 1
    return n


def parallel_activation_of_one_block():
    x = seeing.placed(ti.root.pointer(ti.i, 2).dense(ti.i, 1024))

    @ti.kernel
    def fill():
        for i in range(1024):
            x[i + 1024] = i

    fill()
    low, high = np.split(x.to_numpy(), 2)
    return [int(low.sum()), int(high.sum()), bool((high == np.arange(1024)).all())]


@seeing.leaves(
    lambda: [seeing.n_active(node), x.to_numpy()],
    node=lambda: ti.root.pointer(ti.i, 128),
    x=lambda: seeing.placed(node.pointer(ti.i, 4)),
)
def parallel_activation_of_many_blocks():
    for i in range(1024):
        x[(i * 7) % 512] += 1


def activation_behind_a_condition_on_data():
    x, flag = seeing.placed(ti.root.pointer(ti.i, 16)), ti.field(ti.i32, shape=16)

    @ti.kernel
    def grow():
        for i in flag:
            if flag[i] > 0:
                x[i] = flag[i]

    flag[3], flag[9] = 4, -2
    grow()
    return x.to_numpy()


def _written_without_activation(of_node: bool):
    node = ti.root.pointer(ti.i, 8)
    x = seeing.placed(node.dense(ti.i, 2))
    named = node if of_node else x

    @ti.kernel
    def write():
        ti.no_activate(named)
        for i in range(16):
            x[i] = i

    x[4] = 1
    write()
    return x.to_numpy()


writes_without_activation_of_a_node_are_lost = seeing.calls(
    _written_without_activation, of_node=True
)
writes_without_activation_of_a_field_are_lost = seeing.calls(
    _written_without_activation, of_node=False
)


def loads_outside_of_the_extents_are_zero():
    x, y = seeing.placed(ti.root.pointer(ti.i, 4).dense(ti.i, 4), ti.i32, ti.i32)

    @ti.kernel
    def inside():
        for i in x:
            if 0 < i < 15:
                y[i] = x[i - 1] + x[i + 1]

    fill(x, 16, 1)
    inside()
    return y.to_numpy()


def vector_components_activate_their_cell():
    v = ti.Vector.field(3, ti.f32)
    ti.root.pointer(ti.i, 4).place(v)

    @ti.kernel
    def write():
        v[2][1] = 5.0
        v[1].z += 2.0

    write()
    return [seeing.n_active(v), v.to_numpy()]


def one_store_activates_all_fields_of_the_cell():
    x, y = seeing.placed(ti.root.pointer(ti.i, 4), ti.i32, ti.f32)

    @ti.kernel
    def write():
        x[2] = 5

    @ti.kernel
    def visit():
        for i in y:
            y[i] = i + 0.5

    write()
    visit()
    return [x.to_numpy(), y.to_numpy()]


@seeing.refuses(node=lambda: ti.root.dense(ti.i, 4), x=lambda: seeing.placed(node))
def activation_needs_a_node_with_cells_that_may_be_inactive():
    ti.activate(node, [1])


@seeing.leaves(
    lambda: n[0],
    n=seeing.i32(2),
    node=lambda: ti.root.pointer(ti.i, 4),
    x=lambda: seeing.placed(node),
)
def a_value_is_computed_before_its_cell_becomes_active():
    for _ in range(1):
        x[1] = 10 + ti.is_active(node, [1])
        x[1] += ti.is_active(node, [1])
        n[0] = x[1]


@seeing.leaves("n", x=lambda: seeing.placed(ti.root.dense(ti.i, 4)), n=seeing.field(ti.i64, 4))
def addresses_of_cells_that_lie_side_by_side():
    for i in x:
        n[i] = ti.i64(ti.get_addr(x, [i]) - ti.get_addr(x, [0]))


@seeing.leaves(
    "n",
    x=lambda: seeing.placed(ti.root.pointer(ti.i, 4).dense(ti.i, 4), at={9: 1}),
    n=seeing.i32(3),
)
def addresses_of_inactive_cells_are_those_of_zeros():
    n[0] = ti.get_addr(x, [1]) == ti.get_addr(x, [5])
    n[1] = ti.get_addr(x, [1]) == ti.get_addr(x, [9])
    n[2] = ti.get_addr(x, [9]) - ti.get_addr(x, [8]) == 4
