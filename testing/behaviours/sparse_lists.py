"""Sparse fields: lists of dynamic nodes."""

import numpy as np
import taichi as ti

from .seeing import calls, clear, i32, leaves, placed, refusing


def _lengths(node, n):
    """The lengths of the lists of `n` rows."""
    found = ti.field(ti.i32, shape=n)
    _look(node, found)
    return found.to_numpy()


@ti.kernel
def _look(node: ti.template(), n: ti.template()):
    for i in n:
        n[i] = ti.length(node, i)


def _in_order(x):
    return sorted(x.to_numpy().tolist())


def appends_count_the_length():
    n = ti.field(ti.i32, shape=2)
    node = ti.root.dynamic(ti.i, 64, chunk_size=8)
    x = placed(node)

    @ti.kernel
    def work():
        n[0] = ti.length(node, [])
        for i in range(20):
            ti.append(node, [], i)

    @ti.kernel
    def look():
        n[1] = ti.length(node, [])

    work()
    look()
    return [n.to_numpy(), _in_order(x)]


@leaves(
    "n x",
    n=i32(6),
    node=lambda: ti.root.dense(ti.i, 6).dynamic(ti.j, 16, chunk_size=4),
    x=lambda: placed(node),
)
def appends_to_one_list_a_row():
    for i in range(6):
        for j in range(i * 2):
            ti.append(node, i, j * 10 + i)
    for i in range(6):
        n[i] = ti.length(node, i)


@leaves("at x", at=i32(3), node=lambda: ti.root.dynamic(ti.i, 16), x=lambda: placed(node))
def append_gives_the_index():
    for _ in range(1):
        for k in range(3):
            at[k] = ti.append(node, [], 5 * k)


@leaves("n x", n=i32(3), x=lambda: placed(ti.root.dense(ti.i, 3).dynamic(ti.j, 8)))
def methods_append_and_count():
    for i in range(3):
        for j in range(i):
            x[i].append(i + j)
        n[i] = x[i].length()


@leaves("n", n=i32(2), x=lambda: placed(ti.root.dynamic(ti.i, 8)))
def methods_of_a_list_without_other_axes():
    for _ in range(1):
        x.append(4)
        x.append(6)
        n[0] = x.length()
        x.deactivate()
        n[1] = x.length()


@leaves(
    "seen", seen=i32(3, 8), x=lambda: placed(ti.root.dense(ti.i, 3).dynamic(ti.j, 8, chunk_size=2))
)
def loops_visit_what_was_appended():
    for i in range(3):
        for j in range(2 * i + 1):
            x[i].append(j)
    for i, j in x:
        seen[i, j] += 1 + x[i, j]


@leaves(
    "n",
    n=i32(),
    node=lambda: ti.root.dynamic(ti.i, 32, chunk_size=4),
    x=lambda: placed(node, at={i: i for i in range(9)}),
)
def loops_over_a_dynamic_node():
    for i in node:
        n[None] += i


@leaves(
    "n x", n=i32(), node=lambda: ti.root.dynamic(ti.i, 32, chunk_size=4), x=lambda: placed(node)
)
def stores_behind_the_end_make_the_list_longer():
    x[9] = 3
    n[None] = ti.length(node, [])


@leaves(
    "n",
    n=i32(8),
    node=lambda: ti.root.dynamic(ti.i, 8, chunk_size=4),
    x=lambda: placed(node, at={4: 3}),
)
def is_active_of_cells_of_a_list():
    for i in n:
        n[i] = ti.is_active(node, [i])


def deactivation_empties_a_list():
    node = ti.root.dense(ti.i, 4).dynamic(ti.j, 8, chunk_size=2)
    x = placed(node)

    @ti.kernel
    def fill():
        for i in range(4):
            for j in range(5):
                ti.append(node, i, j + 1)

    @ti.kernel
    def empty():
        for i in range(4):
            if i % 2:
                ti.deactivate(node, i)

    fill()
    empty()
    return [_lengths(node, 4), x.to_numpy()]


def lists_grow_again_after_they_were_emptied():
    node = ti.root.dynamic(ti.i, 64, chunk_size=4)
    x = placed(node)

    @ti.kernel
    def fill(n: ti.i32):
        for i in range(n):
            ti.append(node, [], i + 1)

    @ti.kernel
    def empty():
        ti.deactivate(node, [])

    found = []
    for n in (30, 3, 17):
        empty()
        fill(n)
        found.append(_in_order(x))
    return found


def _in_chunks(extent: int, chunk_size: int, n_appended: int):
    n = ti.field(ti.i32, shape=())
    node = ti.root.dynamic(ti.i, extent, chunk_size=chunk_size)
    x = placed(node)

    @ti.kernel
    def fill():
        for i in range(n_appended):
            ti.append(node, [], i)
        n[None] = ti.length(node, [])

    fill()
    return [n[None], _in_order(x)]


chunks_that_do_not_divide_the_extent = calls(_in_chunks, 50, chunk_size=16, n_appended=50)
chunks_of_one_cell = calls(_in_chunks, 16, chunk_size=1, n_appended=10)


def structs_are_appended():
    pair = ti.types.struct(a=ti.i32, b=ti.f32)
    x = pair.field()
    ti.root.dynamic(ti.i, 32, chunk_size=8).place(x)

    @ti.kernel
    def fill() -> ti.i32:
        for i in range(12):
            if i % 3 == 0:
                x.append(pair(i, i * 0.5))
        return x.length()

    n = fill()
    found = x.to_numpy()
    return [n, sorted(found["a"].tolist()), float(found["b"].sum())]


def structs_with_vectors_are_appended():
    body = ti.types.struct(p=ti.types.vector(2, ti.f32), m=ti.i32)
    x = body.field()
    ti.root.dense(ti.i, 2).dynamic(ti.j, 8).place(x)

    @ti.kernel
    def fill():
        for i in range(2):
            for k in range(i + 2):
                x[i].append(body([k, i], k + 10 * i))

    fill()
    return [x.p.to_numpy(), x.m.to_numpy()]


def several_fields_in_one_list():
    n = ti.field(ti.i32, shape=())
    node = ti.root.dynamic(ti.i, 16, chunk_size=4)
    x, y = placed(node, ti.i32, ti.f32)

    @ti.kernel
    def fill():
        for i in range(6):
            x[i] = i
            y[i] = i * 0.5

    @ti.kernel
    def look():
        n[None] = ti.length(node, [])
        for i in y:
            y[i] += x[i]

    fill()
    look()
    return [n[None], x.to_numpy(), y.to_numpy()]


def lists_below_pointers():
    n = ti.field(ti.i32, shape=4)
    block = ti.root.pointer(ti.i, 4)
    node = block.dynamic(ti.j, 8, chunk_size=2)
    x = placed(node)

    @ti.kernel
    def fill():
        for k in range(3):
            ti.append(node, 1, k + 1)
            ti.append(node, 3, k + 7)

    @ti.kernel
    def look():
        for i in range(4):
            n[i] = ti.length(node, i) + 10 * ti.is_active(block, [i])

    fill()
    look()
    return [n.to_numpy(), np.sort(x.to_numpy(), axis=1)]


def pointers_with_lists_are_deactivated():
    block = ti.root.pointer(ti.i, 4)
    node = block.dynamic(ti.j, 8, chunk_size=2)
    placed(node)

    @ti.kernel
    def fill():
        for i in range(4):
            for j in range(i + 1):
                ti.append(node, i, j + 1)

    fill()
    clear(block, 2)
    fill()
    return _lengths(node, 4)


def lists_of_particles_of_cells():
    p = ti.Vector.field(2, ti.f32, shape=12)
    node = ti.root.dense(ti.ij, (3, 3)).dynamic(ti.k, 16, chunk_size=4)
    x, n = placed(node), ti.field(ti.i32, shape=(3, 3))

    @ti.kernel
    def sort():
        for k in p:
            cell = ti.cast(p[k] * 3, ti.i32)
            ti.append(node, cell, k)
        for i, j in n:
            n[i, j] = ti.length(node, [i, j])

    generator = np.random.default_rng(3)
    p.from_numpy(generator.random((12, 2), np.float32))
    sort()
    return [n.to_numpy(), np.sort(x.to_numpy(), axis=2)]


@leaves(
    "sums",
    sums=i32(4),
    node=lambda: ti.root.dense(ti.i, 4).dynamic(ti.j, 8),
    x=lambda: placed(node),
)
def lengths_are_bounds_of_loops():
    for i in range(4):
        for j in range(i):
            ti.append(node, i, j + 1)
    for i in range(4):
        for j in range(ti.length(node, i)):
            sums[i] += x[i, j]


@leaves(
    "y",
    y=i32(16),
    x=lambda: placed(ti.root.dynamic(ti.i, 16, chunk_size=4), at={i: i + 1 for i in range(5)}),
)
def what_is_read_behind_the_end_of_a_list_is_zero():
    for i in y:
        y[i] = x[i]


def deactivate_all_of_lists():
    node = ti.root.dense(ti.i, 2).dynamic(ti.j, 8)
    x = placed(node)

    @ti.kernel
    def fill():
        for i in range(2):
            ti.append(node, i, 7)

    fill()
    fill()
    node.deactivate_all()
    fill()
    return [_lengths(node, 2), x.to_numpy()]


dynamic_nodes_have_one_axis = refusing(lambda: ti.root.dynamic(ti.ij, (4, 4)))


def lists_of_lists():
    n = ti.field(ti.i32, shape=4)
    a = ti.root.dynamic(ti.i, 4, chunk_size=2)
    b = a.dynamic(ti.j, 8, chunk_size=4)
    x = placed(b)

    @ti.kernel
    def fill():
        for i in range(3):
            for j in range(i + 1):
                ti.append(b, i, i + j + 1)

    @ti.kernel
    def look():
        for i in range(3):
            n[i] = ti.length(b, i)

    fill()
    look()
    return [n.to_numpy(), x.to_numpy()]


def rows_in_lists_of_dense_cells():
    n = ti.field(ti.i32, shape=2)
    node = ti.root.dynamic(ti.i, 8, chunk_size=2)
    x = placed(node.dense(ti.j, 3))

    @ti.kernel
    def fill():
        for i in range(4):
            for j in range(3):
                x[i, j] = i * 10 + j

    @ti.kernel
    def look():
        n[0] = ti.length(node, [])
        for _i, _j in x:
            n[1] += 1

    fill()
    look()
    return [n.to_numpy(), x.to_numpy()]
