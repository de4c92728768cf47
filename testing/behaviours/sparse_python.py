"""Sparse fields in Python."""

import numpy as np
import taichi as ti

from .seeing import n_active, placed, refused, refusing


def writes_from_python_activate():
    x = placed(ti.root.pointer(ti.ij, 4).dense(ti.ij, 2), at={(3, 3): 5})
    return [n_active(x), x[3, 3], x[3, 2], x[0, 0]]


def reads_from_python_do_not_activate():
    x = placed(ti.root.pointer(ti.i, 4))
    first = x[2]
    return [first, n_active(x)]


def updates_from_python():
    (x,) = placed(ti.root.bitmasked(ti.i, 4), ti.f32)
    x[2] += 1.5
    x[2] += 1.5
    return [x[2], n_active(x)]


def arrays_of_inactive_cells_are_zero():
    (x,) = placed(ti.root.pointer(ti.ij, (2, 3)).dense(ti.ij, 2), ti.f64)
    x[1, 1] = 2.5
    return x.to_numpy()


def arrays_have_the_shape_of_the_field():
    x = ti.Vector.field(2, ti.i32)
    ti.root.pointer(ti.i, 3).dense(ti.j, 4).place(x)
    return [x.shape, x.to_numpy().shape]


def arrays_are_written_to_active_cells_or_all():
    x = placed(ti.root.pointer(ti.i, 4).dense(ti.i, 2), at={2: 1})
    x.from_numpy(np.arange(8, dtype=np.int32) + 1)
    return [x.to_numpy(), n_active(x)]


def fill_sets_active_cells():
    x = placed(ti.root.pointer(ti.i, 4).dense(ti.i, 2))
    x.fill(9)  # none is active
    x[2] = 1
    x.fill(7)
    return [x.to_numpy(), n_active(x)]


def fill_of_vectors_sets_active_cells():
    v = ti.Vector.field(2, ti.f32)
    ti.root.bitmasked(ti.i, 4).place(v)
    v[1] = [1, 2]
    v.fill(3)
    return v.to_numpy()


def copies_to_dense_fields():
    x, y = placed(ti.root.pointer(ti.i, 4).dense(ti.i, 2), at={5: 4}), ti.field(ti.i32, shape=8)
    y.fill(9)
    y.copy_from(x)
    return y.to_numpy()


def copies_from_dense_fields_activate():
    x, y = placed(ti.root.pointer(ti.i, 4).dense(ti.i, 2)), ti.field(ti.i32, shape=8)
    for i in range(8):
        y[i] = i
    x.copy_from(y)
    return [x.to_numpy(), n_active(x)]


def deactivate_all_of_a_node():
    a = ti.root.pointer(ti.i, 4)
    b = a.pointer(ti.i, 4)
    x = placed(b, at={1: 1, 5: 5, 6: 6})
    b.deactivate_all()
    first = [n_active(x), n_active(a)]
    a.deactivate_all()
    return [first, n_active(x), n_active(a), x.to_numpy()]


def deactivate_all_of_the_root():
    x, y = placed(ti.root.pointer(ti.i, 4)), placed(ti.root.bitmasked(ti.i, 4))
    x[1], y[2] = 3, 4
    ti.root.deactivate_all()
    return [n_active(x), n_active(y), x.to_numpy()]


def deactivate_all_snodes_of_a_program():
    x, y = placed(ti.root.pointer(ti.i, 4)), placed(ti.root.pointer(ti.i, 2).pointer(ti.i, 4))
    x[1], y[2] = 3, 4
    ti.deactivate_all_snodes()
    return [n_active(x), n_active(y), x.to_numpy(), y.to_numpy()]


def deactivate_all_of_a_dense_node_above_pointers():
    a = ti.root.dense(ti.i, 2)
    x = placed(a.pointer(ti.i, 4), at={1: 3, 6: 4})
    a.deactivate_all()
    return [n_active(x), x.to_numpy()]


def dense_fields_keep_values_in_deactivate_all_snodes():
    x, y = ti.field(ti.i32, shape=3), placed(ti.root.pointer(ti.i, 4))
    x.fill(5)
    y[1] = 2
    ti.deactivate_all_snodes()
    return [x.to_numpy(), y.to_numpy()]


def cells_are_written_again_after_deactivate_all():
    node = ti.root.pointer(ti.i, 8)
    x = placed(node.dense(ti.i, 2))
    found = []
    for k in range(5):
        x[2 * k] = k + 1
        x[2 * k + 2] = k + 2
        found.append(n_active(node))
        node.deactivate_all()
    return [found, x.to_numpy()]


def vectors_are_written_from_python():
    v = ti.Vector.field(3, ti.f32)
    ti.root.pointer(ti.i, 4).place(v)
    v[1] = [1, 2, 3]
    v[3][1] = 5
    return [v.to_numpy(), v[1][2], v[0][0]]


def matrices_are_written_from_python():
    m = ti.Matrix.field(2, 2, ti.i32)
    ti.root.pointer(ti.i, 2).dense(ti.i, 2).place(m)
    m[2] = ti.Matrix([[1, 2], [3, 4]])
    m[2][0, 1] += 5
    return m.to_numpy()


def members_of_structs_are_written_from_python():
    s = ti.Struct.field({"a": ti.i32, "v": ti.types.vector(2, ti.f32)})
    ti.root.pointer(ti.i, 4).place(s)
    s[1].a = 3
    s[1].v = [1, 2]
    s.a[2] = 4
    found = s.to_numpy()
    return [found["a"], found["v"]]


def offsets_of_sparse_fields():
    x = ti.field(ti.i32)
    ti.root.pointer(ti.i, 4).dense(ti.i, 4).place(x, offset=-8)

    @ti.kernel
    def write():
        for i in range(-3, 2):
            x[i] = i

    @ti.kernel
    def total() -> ti.i32:
        n = 0
        for i in x:
            n += 100 + i
        return n

    write()
    x[-8] = 5
    return [total(), x[-3], x[-8], x.to_numpy()]


def offsets_of_two_axes():
    x, seen = ti.field(ti.i32), ti.field(ti.i32, shape=(8, 8), offset=(-4, 4))
    ti.root.pointer(ti.ij, 4).bitmasked(ti.ij, 2).place(x, offset=(-4, 4))

    @ti.kernel
    def visit():
        for i, j in x:
            seen[i, j] = x[i, j] + 1

    x[-4, 4] = 1
    x[0, 7] = 2
    visit()
    return seen.to_numpy()


def numpy_integers_index_sparse_fields():
    x = placed(ti.root.pointer(ti.i, 4))
    for i in np.arange(3, dtype=np.int64):
        x[i] = i * 2
    return [x.to_numpy(), x[np.int32(2)]]


fields_without_a_place_are_refused = refusing(lambda: ti.field(ti.i32).to_numpy())
fields_are_placed_once = refusing(
    lambda: ti.root.dense(ti.i, 4).place(x), x=lambda: placed(ti.root.pointer(ti.i, 4))
)
arrays_that_are_written_have_the_shape = refusing(
    lambda: x.from_numpy(np.zeros(5, np.int32)), x=lambda: placed(ti.root.pointer(ti.i, 4))
)


def builders_have_trees_of_their_own():
    builder = ti.FieldsBuilder()
    x = placed(builder.pointer(ti.i, 4).dense(ti.i, 2))
    builder.finalize()
    x[5] = 3
    return [n_active(x), x.to_numpy()]


def builders_are_destroyed_and_others_made():
    found = []
    for k in range(3):
        builder = ti.FieldsBuilder()
        x = placed(builder.pointer(ti.i, 4))
        tree = builder.finalize()
        x[k] = k + 1
        found.append(x.to_numpy())
        tree.destroy()
    return found


def _of_a_destroyed_tree():
    builder = ti.FieldsBuilder()
    x = placed(builder.pointer(ti.i, 4))
    builder.finalize().destroy()
    return x


fields_of_a_destroyed_tree_are_refused = refusing(lambda: x.to_numpy(), x=_of_a_destroyed_tree)


def sparse_grids_of_structs():
    grid = ti.sparse.grid({"pos": ti.math.vec2, "mass": ti.f32}, shape=(8, 16))
    grid[1, 2].mass = 3.0
    grid[7, 15].pos = ti.math.vec2(1.0, 2.0)

    @ti.kernel
    def f() -> ti.f32:
        total = 0.0
        for i, j in grid:
            total += grid[i, j].mass + 10 * grid[i, j].pos.y + i + j
        return total

    return [float(ti.sparse.usage(grid)), f()]


def sparse_grids_of_three_axes():
    grid = ti.sparse.grid({"n": ti.i32}, shape=(4, 4, 4))
    for k in range(4):
        grid[k, 1, 3 - k].n = k
    return [float(ti.sparse.usage(grid)), refused(lambda: ti.sparse.grid({"n": ti.i32}, (4,)))]
