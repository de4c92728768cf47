"""Fields."""

import numpy as np
import taichi as ti

from .seeing import field, i32, leaves, matrices, refused, refuses, refusing, returns, vectors


def a_scalar_field_begins_with_zeros():
    x = ti.field(ti.f32, shape=(2, 3))
    return x.to_numpy()


def shapes_may_be_numbers_and_tuples():
    return [ti.field(ti.i32, shape=4).shape, ti.field(ti.i32, shape=(2, 3, 4)).shape]


def a_field_without_axes_is_read_by_none():
    x = ti.field(ti.f64, shape=())

    @ti.kernel
    def put():
        x[None] = x[None] + 2.5

    put()
    put()
    return [x[None], x.shape]


def elements_are_read_and_written_from_python():
    x = ti.field(ti.i32, shape=(2, 2))
    x[0, 1] = 5
    x[1, 0] += 3
    return x.to_numpy()


def python_numbers_are_stored_as_the_type_of_the_field():
    y = ti.field(ti.f32, shape=2)
    y[0] = 7
    y[1] = 0.1
    return [y.to_numpy(), y[0]]


def floats_are_no_elements_of_integers():
    x = ti.field(ti.i32, shape=2)

    def put():
        x[0] = 3.9

    return refused(put)


def numpy_integers_index_fields():
    x = ti.field(ti.i32, shape=5)
    for i in np.arange(5, dtype=np.int64):
        x[i] = i * 2
    return x.to_numpy()


def fill_sets_all_elements():
    x = ti.field(ti.f32, shape=(3, 2))
    x.fill(2.5)
    return x.to_numpy()


def fill_of_a_vector_field_takes_numbers_and_vectors():
    v = ti.Vector.field(3, ti.i32, shape=2)
    v.fill(4)
    first = v.to_numpy()
    v.fill(ti.Vector([1, 2, 3]))
    return [first, v.to_numpy()]


def fill_of_a_matrix_field_takes_numbers_and_matrices():
    m = ti.Matrix.field(2, 2, ti.f32, shape=2)
    m.fill(1.5)
    first = m.to_numpy()
    m.fill(ti.Matrix([[1, 2], [3, 4]]))
    return [first, m.to_numpy()]


def copy_from_copies_another_field():
    x, y = ti.field(ti.i32, shape=4), ti.field(ti.i32, shape=4)
    x.from_numpy(np.arange(4, dtype=np.int32))
    y.copy_from(x)
    x[0] = 9
    return y.to_numpy()


copy_from_needs_the_same_shape = refusing(lambda: y.copy_from(x), x=i32(4), y=i32(5))
copy_from_takes_fields_only = refusing(lambda: ti.field(ti.i32, shape=4).copy_from(3))


def vector_fields_have_n_and_matrix_fields_n_and_m():
    v = ti.Vector.field(3, ti.f32, shape=2)
    m = ti.Matrix.field(3, 2, ti.f32, shape=2)
    return [v.n, v.m, m.n, m.m, v.shape, m.shape]


def to_numpy_puts_the_axes_of_vectors_last():
    v = ti.Vector.field(3, ti.f32, shape=(4, 2))
    m = ti.Matrix.field(3, 2, ti.f32, shape=4)
    return [v.to_numpy().shape, m.to_numpy().shape]


def to_numpy_of_a_column_keeps_its_axis_where_asked():
    m = ti.Matrix.field(3, 1, ti.f32, shape=4)
    return [m.to_numpy().shape, m.to_numpy(keep_dims=True).shape]


def to_numpy_converts_where_asked():
    x = ti.field(ti.i32, shape=3)
    x.fill(3)
    return x.to_numpy(dtype=np.float64)


def from_numpy_takes_other_types_of_numbers():
    x = ti.field(ti.i32, shape=3)
    x.from_numpy(np.array([1.5, -2.5, 3.0]))
    y = ti.field(ti.f32, shape=3)
    y.from_numpy(np.arange(3))
    return [x.to_numpy(), y.to_numpy()]


from_numpy_needs_the_shape = refusing(lambda: x.from_numpy(np.zeros(4, np.int32)), x=i32(3))


def from_numpy_takes_arrays_that_are_not_contiguous():
    x = ti.field(ti.i32, shape=(3, 2))
    x.from_numpy(np.arange(6, dtype=np.int32).reshape(2, 3).T)
    y = ti.field(ti.i32, shape=3)
    y.from_numpy(np.arange(6, dtype=np.int32)[::2])
    return [x.to_numpy(), y.to_numpy()]


def from_numpy_of_matrices():
    m = ti.Matrix.field(2, 3, ti.f32, shape=2)
    m.from_numpy(np.arange(12, dtype=np.float32).reshape(2, 2, 3))
    return [m.to_numpy(), m[1][1, 2]]


def components_of_a_vector_field_are_read_from_python():
    v = ti.Vector.field(3, ti.i32, shape=2)
    v[1] = ti.Vector([1, 2, 3])
    v[0][2] = 7
    v[1].y = 20
    return [v.to_numpy(), v[1][1], v[0].z]


def a_list_is_stored_in_an_element():
    v = ti.Vector.field(2, ti.f32, shape=2)
    m = ti.Matrix.field(2, 2, ti.f32, shape=())
    v[1] = [1, 2]
    m[None] = [[1, 2], [3, 4]]
    return [v.to_numpy(), m.to_numpy()]


def components_are_fields():
    v = ti.Vector.field(2, ti.f32, shape=3)
    y = v.get_scalar_field(1)
    y.fill(4)
    return [v.to_numpy(), y.shape]


def dense_nodes_decide_the_shape():
    x, y = ti.field(ti.f32), ti.field(ti.i32)
    ti.root.dense(ti.i, 4).dense(ti.ij, (2, 3)).place(x)
    ti.root.dense(ti.ij, (3, 2)).place(y)
    return [x.shape, y.shape]


def nested_dense_nodes_split_an_axis():
    x = ti.field(ti.i32)
    ti.root.dense(ti.i, 4).dense(ti.i, 8).place(x)

    @ti.kernel
    def put():
        for i in x:
            x[i] = i * 3

    put()
    return [x.shape, x.to_numpy()]


def fields_of_one_node_have_one_shape():
    x, y, v = ti.field(ti.f32), ti.field(ti.i32), ti.Vector.field(2, ti.f32)
    ti.root.dense(ti.i, 5).place(x, y, v)

    @ti.kernel
    def put():
        for i in x:
            x[i] = i
            y[i] = i * i
            v[i] = [i, -i]

    put()
    return [x.to_numpy(), y.to_numpy(), v.to_numpy()]


def axes_may_come_in_another_order():
    x = ti.field(ti.i32)
    ti.root.dense(ti.j, 3).dense(ti.i, 2).place(x)

    @ti.kernel
    def put():
        for i, j in x:
            x[i, j] = i * 10 + j

    put()
    return [x.shape, x.to_numpy()]


def parents_are_nodes():
    x = ti.field(ti.f32)
    node = ti.root.dense(ti.ij, (4, 8))
    node.place(x)
    return [list(x.parent().shape), list(node.shape), x.snode.parent() == node]


def a_field_is_placed_once():
    x = ti.field(ti.f32)
    ti.root.dense(ti.i, 4).place(x)
    return refused(lambda: ti.root.dense(ti.i, 5).place(x))


@refuses(x=lambda: ti.field(ti.f32))
def an_unplaced_field_is_an_error_where_it_is_used():
    x[0] = 1.0


@leaves(lambda: [x.to_numpy(), x[-1, 4], x[1, 5]], x=i32(3, 2, offset=(-1, 4)))
def offsets_shift_indices():
    for i, j in x:
        x[i, j] = i * 10 + j


@leaves(lambda: [v.to_numpy(), v[-4][1], v.shape], v=vectors(2, ti.i32, 3, offset=-4))
def offsets_of_vector_fields():
    for i in v:
        v[i] = [i, i * i]


offsets_have_as_many_numbers_as_axes = refusing(lambda: ti.field(ti.i32, shape=3, offset=(-1, 2)))
offsets_need_a_shape = refusing(lambda: ti.field(ti.i32, offset=-1))


def wrong_numbers_of_indices_are_an_error():
    x = ti.field(ti.i32, shape=(3, 2))

    @ti.kernel
    def put():
        x[1] = 2

    return [refused(put), refused(lambda: x[1])]


def wide_integers_are_kept_whole():
    x = ti.field(ti.u64, shape=2)
    y = ti.field(ti.i64, shape=2)
    x[0] = 2**64 - 1
    y[0] = -(2**63)
    return [x[0], y[0], x.to_numpy(), y.to_numpy()]


@leaves("a b", 300, a=field(ti.u8), b=field(ti.i8))
def small_integers_wrap_where_stored(n: ti.i32):
    a[None] = n
    b[None] = n


@leaves(lambda: [x.to_numpy(), x[1]], x=field(ti.f16, 3))
def halves_are_stored():
    for i in x:
        x[i] = i * 0.1


def fields_builder_makes_and_destroys_fields():
    builder = ti.FieldsBuilder()
    x = ti.field(ti.i32)
    builder.dense(ti.i, 4).place(x)
    tree = builder.finalize()

    @ti.kernel
    def put():
        for i in x:
            x[i] = i

    put()
    seen = x.to_numpy()
    tree.destroy()
    return seen


def fields_made_after_a_kernel_ran_are_used():
    x = ti.field(ti.i32, shape=3)

    @ti.kernel
    def put(f: ti.template()):
        for i in f:
            f[i] += i

    put(x)
    y = ti.field(ti.i32, shape=2)
    put(y)
    put(x)
    return [x.to_numpy(), y.to_numpy()]


@returns(x=i32(3, 5))
def shapes_are_constants_in_kernels() -> ti.i32:
    return x.shape[0] * 10 + x.shape[1]


def a_field_has_default_types():
    x, y = ti.field(float, shape=2), ti.field(int, shape=2)
    return [x.to_numpy().dtype.name, y.to_numpy().dtype.name]


def defaults_are_chosen_at_the_beginning():
    ti.init(arch=ti.cpu, default_fp=ti.f64, default_ip=ti.i64)
    x, y = ti.field(float, shape=2), ti.field(int, shape=2)
    return [x.to_numpy().dtype.name, y.to_numpy().dtype.name]


@leaves(
    lambda: [f.to_numpy() for f in fields],
    fields=lambda: [ti.field(ti.i32, shape=3) for _ in range(3)],
)
def lists_of_fields_are_indexed_statically():
    for k in ti.static(range(3)):
        for i in fields[k]:
            fields[k][i] = i * 10 + k


@leaves("v", v=vectors(4, ti.i32, 3))
def a_vector_field_is_indexed_by_loop_variables_of_components():
    for i in range(3):
        for k in range(4):
            v[i][k] = i * 10 + k


@leaves("m", m=matrices(2, 3, ti.i32, 2))
def matrix_fields_are_indexed_dynamically():
    for i in m:
        for a in range(2):
            for b in range(3):
                m[i][a, b] = 100 * i + 10 * a + b


def python_loops_over_a_field_of_indices():
    x = ti.field(ti.i32, shape=(2, 2))
    x[1, 0] = 3
    return [x[i, j] for i in range(x.shape[0]) for j in range(x.shape[1])]


def fields_are_printed_from_python():
    x = ti.field(ti.i32, shape=3)
    x[1] = 2
    v = ti.Vector.field(2, ti.f32, shape=2)
    return [str(x), str(v)]


def lists_of_values_become_fields():
    x = ti.field(ti.f32, shape=3)
    for k, value in enumerate([1, 2, 3]):
        x[k] = value
    return x.to_numpy().sum().item()


@leaves("x", x=i32(2, 1, 3, 2, 2))
def tensors_of_dimensions_up_to_five():
    for a, b, c, d, e in x:
        x[a, b, c, d, e] = a * 10000 + b * 1000 + c * 100 + d * 10 + e


def parents_are_counted_upwards():
    x = ti.field(ti.i32)
    outer = ti.root.dense(ti.i, 3)
    inner = outer.dense(ti.j, 2)
    inner.place(x)
    node = x.snode
    return [node.parent(k) == n for k, n in enumerate((node, inner, outer, ti.root, None))]


def one_number_in_a_tuple_is_for_all_axes():
    x = ti.field(ti.i32)
    ti.root.dense(ti.ij, (3,)).place(x)
    return x.shape


def truth_values_of_numpy_are_stored():
    x = ti.field(ti.i32, shape=2)
    x[1] = np.float64(2.5) > 1
    return x.to_numpy()


def fields_have_the_names_that_they_are_given():
    x = ti.field(ti.f32, shape=2, name="first")
    v = ti.Vector.field(3, ti.f32, shape=2, name="second")
    return [x._name, v._name, v.snode._name]


def nodes_are_found_from_the_root():
    x = ti.field(ti.i32)
    outer = ti.root.dense(ti.j, 3)
    inner = outer.dense(ti.i, 2)
    inner.place(x)
    path = [ti.root, outer, inner, x.snode]
    below = [outer._get_children() == [inner], inner._get_children() == [x.snode]]
    return [x.snode._path_from_root() == path, below]
