"""Sparse fields: loops over active cells."""

import numpy as np
import taichi as ti

from .seeing import clear, i32, leaves, n_active, placed, returns, total, visits

CORNERS = {(0, 0): 1, (7, 7): 1, (3, 4): 1, (4, 3): 1}


def _tree_of_four_levels():
    node = ti.root
    for _ in range(4):
        node = node.pointer(ti.i, 4)
    return placed(node, at={i: i + 1 for i in (0, 17, 128, 255)})


@leaves(
    "seen",
    seen=i32(8, 8),
    x=lambda: placed(ti.root.pointer(ti.ij, 2).pointer(ti.ij, 4), at=CORNERS),
)
def a_loop_over_a_field_visits_active_cells_once():
    for i, j in x:
        seen[i, j] += 1


@leaves(
    "n",
    n=i32(5),
    a=lambda: ti.root.pointer(ti.ij, (3, 2)),
    b=lambda: a.dense(ti.ij, 2),
    c=lambda: b.pointer(ti.ij, (1, 3)),
    d=lambda: c.bitmasked(ti.ij, 2),
    x=lambda: placed(d, at={(0, 0): 1, (11, 23): 1, (10, 22): 1}),
)
def loops_over_nodes_of_each_level():
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


@leaves(
    "seen",
    seen=i32(4, 3),
    a=lambda: ti.root.pointer(ti.ij, (4, 3)),
    x=lambda: placed(a.dense(ti.ij, (2, 5)), at={(5, 7): 1, (0, 14): 1}),
)
def indices_of_loops_over_nodes_are_those_of_the_node():
    for i, j in a:
        seen[i, j] = 1 + i * 10 + j


def loops_over_dense_nodes_below_pointers():
    node = ti.root.pointer(ti.i, 4).dense(ti.i, 3)
    placed(node.dense(ti.i, 2), at={7: 1})
    return visits(node)


def loops_over_a_dense_top_above_pointers():
    node = ti.root.dense(ti.i, 4)
    placed(node.pointer(ti.i, 4), at={7: 1})
    return visits(node)


@leaves(
    lambda: [x.to_numpy(), visits(x)],
    x=lambda: placed(ti.root.pointer(ti.ij, (5, 7)).dense(ti.ij, (3, 3))),
)
def extents_that_are_no_powers_of_two():
    for i, j in ti.ndrange(15, 21):
        if (i * 21 + j) % 17 == 0:
            x[i, j] = i * 100 + j


@leaves(
    "seen",
    seen=i32(3 * 5 * 7),
    x=lambda: placed(
        ti.root.pointer(ti.i, 3).bitmasked(ti.i, 5).dense(ti.i, 7),
        at=dict.fromkeys((0, 34, 35, 104), 1),
    ),
)
def extents_of_one_axis_that_are_no_powers_of_two():
    for i in x:
        seen[i] += i


def masks_of_more_than_one_word():
    cells = (0, 31, 32, 63, 64, 127, 128, 199)
    return visits(placed(ti.root.bitmasked(ti.i, 200), at=dict.fromkeys(cells, 1)))


@leaves(
    "seen",
    seen=i32(6, 8),
    x=lambda: placed(
        ti.root.pointer(ti.i, 3).pointer(ti.j, 4).dense(ti.ij, 2), at={(3, 5): 1, (0, 0): 1}
    ),
)
def axes_that_only_some_levels_split():
    for i, j in x:
        seen[i, j] += 1


@leaves(
    "seen",
    seen=i32(4, 6),
    x=lambda: placed(
        ti.root.pointer(ti.j, 3).dense(ti.i, 4).bitmasked(ti.j, 2), at={(3, 5): 1, (0, 4): 2}
    ),
)
def axes_in_the_other_order():
    for i, j in x:
        seen[i, j] += 1 + x[i, j]


@leaves("x", x=lambda: placed(ti.root.pointer(ti.ijk, 2).dense(ti.ijk, 2), at={(0, 1, 3): 1}))
def grouped_loops_have_vectors_of_indices():
    for I in ti.grouped(x):
        x[I] = I[0] * 100 + I.y * 10 + I[2] + I.n


@leaves(
    "seen",
    seen=i32(4, 4),
    node=lambda: ti.root.pointer(ti.ij, 4),
    x=lambda: placed(node.dense(ti.ij, 2), at={(7, 1): 3, (2, 2): 3}),
)
def grouped_loops_over_nodes():
    for I in ti.grouped(node):
        seen[I] = I.sum() + 1


def cells_that_a_loop_activates_are_not_visited_by_it():
    n, x = ti.field(ti.i32, shape=()), placed(ti.root.pointer(ti.i, 8).dense(ti.i, 4))

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


@leaves("n", n=i32(2), x=lambda: placed(ti.root.pointer(ti.i, 8).dense(ti.i, 2)))
def a_loop_behind_another_sees_what_that_activated():
    for i in range(5):
        x[i] = i
    for _i in x:
        n[0] += 1
    for i in range(12, 16):
        x[i] = i
    for _i in x:
        n[1] += 1


@leaves(
    "n x",
    n=i32(3),
    node=lambda: ti.root.pointer(ti.i, 8),
    x=lambda: placed(node.dense(ti.i, 2), at={i: i for i in range(16)}),
)
def a_loop_behind_deactivation_in_one_kernel():
    for _i in x:
        n[0] += 1
    for k in range(3):
        ti.deactivate(node, [k])
    for _i in x:
        n[1] += 1
    for _k in node:
        n[2] += 1


@leaves(
    lambda: [n_active(x), x.to_numpy()],
    node=lambda: ti.root.pointer(ti.i, 16),
    x=lambda: placed(node, at={i: i + 1 for i in range(16)}),
)
def loops_may_deactivate_their_own_cell():
    for i in x:
        if i % 3 == 0:
            ti.deactivate(node, [i])


@leaves(
    lambda: [n_active(node), x.to_numpy()],
    node=lambda: ti.root.pointer(ti.i, 8),
    x=lambda: placed(node.dense(ti.i, 2), at={i: i % 4 for i in range(16)}),
)
def loops_over_nodes_may_deactivate_their_cells():
    for i in node:
        if x[i * 2] == 0:
            ti.deactivate(node, [i])


@returns(node=lambda: ti.root.pointer(ti.i, 8), x=lambda: placed(node.dense(ti.i, 2)))
def loops_over_empty_fields_do_nothing() -> ti.i32:
    n = 0
    for _ in x:
        n += 1
    for _ in node:
        n += 100
    return n


def sums_over_active_cells():
    (x,) = placed(ti.root.pointer(ti.ij, 4).bitmasked(ti.ij, 4), ti.f64)

    @ti.kernel
    def some():
        for i, j in ti.ndrange(16, 16):
            if (i + j) % 3 == 0:
                x[i, j] = i * 0.5 + j

    @ti.kernel
    def total() -> ti.f64:
        found = ti.cast(0, ti.f64)
        for I in ti.grouped(x):
            found += x[I]
        return found

    some()
    return total()


def stencils_read_zero_beside_active_blocks():
    x, y = placed(ti.root.pointer(ti.ij, 4).dense(ti.ij, 4), ti.f32, ti.f32)

    @ti.kernel
    def smooth():
        for i, j in x:
            if 0 < i < 15 and 0 < j < 15:
                y[i, j] = x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1] - 4 * x[i, j]

    for i, j in [(5, 5), (4, 7), (8, 8)]:
        x[i, j] = i + j
    smooth()
    return y.to_numpy()


@leaves(
    lambda: [n_active(y), y.to_numpy()],
    x=lambda: placed(ti.root.pointer(ti.i, 8), at={i: i for i in (1, 3, 7)}),
    y=lambda: placed(ti.root.pointer(ti.i, 4).bitmasked(ti.i, 4)),
)
def loops_over_one_field_write_another_tree():
    for i in x:
        y[2 * i] = x[i] + 1


def inner_loops_and_branches_in_loops_over_cells():
    x, y = placed(ti.root.pointer(ti.i, 8).dense(ti.i, 2), ti.i32, ti.i32)

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


@leaves("x", x=lambda: placed(ti.root.bitmasked(ti.i, 12), at={i: i for i in range(0, 12, 3)}))
def continue_in_loops_over_cells():
    for i in x:
        if i % 2:
            continue
        x[i] += 10


@leaves(
    "y",
    y=lambda: placed(ti.root.pointer(ti.i, 4).dense(ti.i, 4)),
    x=lambda: placed(ti.root.pointer(ti.i, 8), at={0: 1, 1: 2, 7: 8}),
)
def scatters_activate_from_loops_over_cells():
    for i in x:
        for k in ti.static(range(3)):
            y[i + k] += x[i]


@leaves(
    "n",
    n=i32(4, 2),
    a=lambda: ti.root.pointer(ti.ij, (4, 4)),
    b=lambda: a.dense(ti.ij, (2, 4)),
    x=lambda: placed(b),
)
def indices_are_rescaled_between_levels():
    up = ti.rescale_index(b, a, ti.Vector([5, 9]))
    down = ti.rescale_index(a, b, ti.Vector([3, 2]))
    same = ti.rescale_index(a, a, ti.Vector([3, 2]))
    of_field = ti.rescale_index(x, a, [7, 15])
    for k in ti.static(range(2)):
        n[0, k] = up[k]
        n[1, k] = down[k]
        n[2, k] = same[k]
        n[3, k] = of_field[k]


@leaves(
    "y",
    y=lambda: placed(ti.root.pointer(ti.i, 4).dense(ti.i, 8)),
    x=lambda: placed(ti.root.pointer(ti.i, 4).dense(ti.i, 4), at={1: 1, 5: 5, 15: 15}),
)
def unique_loops_are_a_hint():
    for i in x:
        k = ti.loop_unique(i * 2)
        y[k] += x[i]


def blocks_that_are_staged_are_a_hint():
    x, y = placed(ti.root.pointer(ti.i, 4).dense(ti.i, 8), ti.f32, ti.f32)

    @ti.kernel
    def squares():
        for i in range(8, 24):
            x[i] = i * i

    @ti.kernel
    def smooth():
        ti.block_local(x)
        ti.loop_config(block_dim=8)
        for i in x:
            if 8 < i < 23:
                y[i] = x[i - 1] - 2 * x[i] + x[i + 1]

    squares()
    smooth()
    return y.to_numpy()


def lists_are_made_again_where_cells_came_and_went():
    node = ti.root.pointer(ti.i, 64)
    x = placed(node.dense(ti.i, 2))
    found = [n_active(node)]
    for k in (3, 9, 60):
        x[2 * k] = 1
        found.append(n_active(node))
    clear(node, 9)
    found.append(n_active(node))
    x[18] = 1
    found.append(n_active(node))
    return found


def many_active_cells_are_listed():
    x = placed(ti.root.pointer(ti.i, 64).pointer(ti.i, 64))

    @ti.kernel
    def some(step: ti.i32):
        for i in range(4096):
            if i % step == 0:
                x[i] = 1

    some(7)
    first = total(x)
    some(3)
    return [first, total(x), int(np.count_nonzero(x.to_numpy()))]


@leaves("seen", seen=i32(256), x=_tree_of_four_levels)
def trees_of_four_levels():
    for i in x:
        seen[i] += x[i]


@leaves(
    "n",
    n=i32(2),
    a=lambda: ti.root.bitmasked(ti.i, 6),
    b=lambda: a.bitmasked(ti.i, 5),
    x=lambda: placed(b, at=dict.fromkeys((0, 4, 5, 29), 1)),
)
def bitmasked_nodes_below_bitmasked_ones():
    for _ in a:
        n[0] += 1
    for _ in b:
        n[1] += 1


@leaves(
    "sums",
    sums=i32(4),
    x=lambda: placed(ti.root.pointer(ti.ij, (4, 4)), at={(1, 1): 6, (1, 3): 8, (2, 0): 5}),
)
def one_axis_of_a_loop_is_used_only():
    for i, j in x:
        sums[i] += x[i, j]
