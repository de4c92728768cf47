"""Matrices and vectors."""

import numpy as np
import taichi as ti

from .seeing import each, leaves, matrices, refused, refuses, returns, vectors


def python_vectors_have_arithmetic():
    a, b = ti.Vector([1.0, 2.0, 3.0]), ti.Vector([4.0, 5.0, 6.0])
    return [
        (a + b).to_numpy(),
        (a * b).to_numpy(),
        (a / 2).to_numpy(),
        (2 - a).to_numpy(),
        a.dot(b),
    ]


def python_matrices_have_arithmetic():
    a, b = ti.Matrix([[1, 2], [3, 4]]), ti.Matrix([[5, 6], [7, 8]])
    return [(a @ b).to_numpy(), (a - b).to_numpy(), (a * 2).to_numpy(), a.transpose().to_numpy()]


def python_vectors_have_norms_and_sums():
    a = ti.Vector([3.0, 4.0])
    return [a.norm(), a.norm_sqr(), a.sum(), a.max(), a.min(), a.normalized().to_numpy()]


def in_place_operators_of_python_vectors():
    a = ti.Vector([1, 2])
    a += ti.Vector([3, 4])
    a *= 2
    return a.to_numpy()


def comparison_of_python_vectors_is_element_wise():
    a, b = ti.Vector([1, 5]), ti.Vector([2, 4])
    return [list((a < b).to_numpy()), list((a == a).to_numpy())]


@returns()
def constructors_of_constants() -> ti.types.matrix(2, 2, ti.f32):
    return (
        ti.Matrix.identity(ti.f32, 2)
        + ti.Matrix.one(ti.f32, 2, 2) * 2
        + ti.Matrix.zero(ti.f32, 2, 2)
    )


@returns()
def unit_vectors() -> ti.types.vector(3, ti.i32):
    return ti.Vector.unit(3, 1) + ti.Vector.one(ti.i32, 3)


@returns()
def rows_and_columns_make_matrices() -> ti.types.matrix(4, 2, ti.f32):
    a, b = ti.Vector([1.0, 2.0]), ti.Vector([3.0, 4.0])
    r, c = ti.Matrix.rows([a, b]), ti.Matrix.cols([a, b])
    return ti.Matrix(
        [[r[0, 0], r[0, 1]], [r[1, 0], r[1, 1]], [c[0, 0], c[0, 1]], [c[1, 0], c[1, 1]]]
    )


@returns()
def products_of_matrices_and_vectors() -> ti.types.vector(2, ti.f32):
    m = ti.Matrix([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    return m @ ti.Vector([1.0, 0.5, 2.0])


@returns()
def products_of_rectangular_matrices() -> ti.types.matrix(2, 2, ti.i32):
    a = ti.Matrix([[1, 2, 3], [4, 5, 6]])
    return a @ a.transpose()


def shapes_that_do_not_fit_are_an_error():
    @ti.kernel
    def f():
        a = ti.Matrix([[1, 2, 3], [4, 5, 6]])
        print(a @ a)

    @ti.kernel
    def g():
        print(ti.Vector([1, 2]) + ti.Vector([1, 2, 3]))

    return [refused(f), refused(g)]


@returns()
def determinants_of_two_to_four_dimensions() -> ti.types.vector(3, ti.f32):
    a = ti.Matrix([[1.0, 2.0], [3.0, 4.0]])
    b = ti.Matrix([[2.0, 0.0, 1.0], [1.0, 3.0, 2.0], [1.0, 1.0, 4.0]])
    c = ti.Matrix(
        [[2.0, 0.0, 1.0, 3.0], [1.0, 3.0, 2.0, 1.0], [1.0, 1.0, 4.0, 2.0], [0.0, 2.0, 1.0, 1.0]]
    )
    return ti.Vector([a.determinant(), b.determinant(), c.determinant()])


@returns()
def inverses_of_two_to_four_dimensions() -> ti.types.vector(3, ti.f32):
    a = ti.Matrix([[1.0, 2.0], [3.0, 5.0]])
    b = ti.Matrix([[2.0, 0.0, 1.0], [1.0, 3.0, 2.0], [1.0, 1.0, 4.0]])
    c = ti.Matrix(
        [[2.0, 0.0, 1.0, 3.0], [1.0, 3.0, 2.0, 1.0], [1.0, 1.0, 4.0, 2.0], [0.0, 2.0, 1.0, 1.0]]
    )
    return ti.Vector([a.inverse()[0, 1], b.inverse()[1, 2], c.inverse()[3, 0]])


@refuses()
def determinants_of_five_dimensions_are_an_error() -> ti.f32:
    return ti.Matrix.identity(ti.f32, 5).determinant()


@returns()
def cross_products_of_two_and_three_dimensions() -> ti.types.vector(4, ti.f32):
    a = ti.Vector([1.0, 2.0, 3.0]).cross(ti.Vector([4.0, 5.0, 7.0]))
    b = ti.Vector([1.0, 2.0]).cross(ti.Vector([3.0, 5.0]))
    return ti.Vector([a[0], a[1], a[2], b])


@returns()
def outer_products() -> ti.types.matrix(2, 3, ti.i32):
    return ti.Vector([1, 2]).outer_product(ti.Vector([3, 4, 5]))


@returns()
def norms_and_normalised_vectors() -> ti.types.vector(5, ti.f32):
    v = ti.Vector([3.0, -4.0])
    n = v.normalized()
    return ti.Vector([v.norm(), v.norm_sqr(), n[0], n[1], v.norm_inv()])


@returns()
def norms_take_a_small_number() -> ti.types.vector(2, ti.f32):
    v = ti.Vector([0.0, 0.0])
    return ti.Vector([v.norm(1e-2), v.normalized(1.0)[0]])


@returns()
def traces_and_diagonals() -> ti.i32:
    d = ti.Matrix.diag(3, 4)
    return d.trace() * 10 + d[0, 1]


@returns()
def any_all_and_sums_of_components() -> ti.types.vector(5, ti.i32):
    v = ti.Vector([1, 0, 2])
    return ti.Vector([v.any(), v.all(), v.sum(), v.max(), v.min()])


@returns()
def a_vector_is_filled() -> ti.types.vector(3, ti.i32):
    v = ti.Vector([1, 2, 3])
    v.fill(7)
    return v


@returns()
def element_wise_products_broadcast_numbers() -> ti.types.matrix(2, 2, ti.f32):
    m = ti.Matrix([[1.0, 2.0], [3.0, 4.0]])
    return 2 * m * m + 1 - m / 2


@returns(v=vectors(2, ti.i32, 1))
def locals_are_copies() -> ti.types.vector(4, ti.i32):
    a = ti.Vector([1, 2])
    b = a
    b[0] = 9
    c = v[0]
    c[1] = 5
    return ti.Vector([a[0], b[0], c[1], v[0][1]])


@each(1, 2, 3)
def local_matrices_are_indexed_dynamically(k: ti.i32) -> ti.i32:
    m = ti.Matrix([[1, 2, 3], [4, 5, 6]])
    s = 0
    for i in range(2):
        for j in range(3):
            m[i, j] *= k
    for i in range(2):
        s += m[i, k - 1] * (i + 1)
    return s


@returns()
def rows_of_a_matrix_by_slices() -> ti.types.vector(5, ti.i32):
    m = ti.Matrix([[1, 2, 3], [4, 5, 6]])
    row = m[1, :]
    column = m[:, 2]
    return ti.Vector([row[0], row[1], row[2], column[0], column[1]])


@returns()
def parts_of_vectors_by_slices() -> ti.types.vector(4, ti.i32):
    v = ti.Vector([1, 2, 3, 4, 5])
    a = v[1:3]
    b = v[::3]
    return ti.Vector([a[0], a[1], b[0], b[1]])


@returns()
def slices_are_written() -> ti.types.matrix(2, 3, ti.i32):
    m = ti.Matrix([[1, 2, 3], [4, 5, 6]])
    m[0, :] = [7, 8, 9]
    m[:, 1] += ti.Vector([100, 200])
    return m


def matrices_are_arguments_and_results_of_functions():
    @ti.func
    def twice(m):
        return m * 2

    @ti.kernel
    def f(m: ti.types.matrix(2, 2, ti.f32)) -> ti.types.matrix(2, 2, ti.f32):
        return twice(m) + twice(m.transpose())

    return f(ti.Matrix([[1.0, 2.0], [3.0, 4.0]])).to_numpy()


def vectors_of_python_are_constants_in_kernels():
    g = ti.Vector([0.0, -9.8])
    n = np.array([1, 2, 3], np.int32)

    @ti.kernel
    def f() -> ti.f32:
        return g[1] + g.y

    return [f(), n.tolist()]


@returns()
def lists_may_be_added_to_vectors() -> ti.types.vector(2, ti.i32):
    v = ti.Vector([1, 2])
    v += [10, 20]
    return v + [100, 200]


@returns()
def vectors_have_a_length() -> ti.i32:
    v = ti.Vector([1, 2, 3])
    m = ti.Matrix([[1, 2], [3, 4], [5, 6]])
    return v.n * 1000 + m.n * 100 + m.m * 10 + len(v)


def python_vectors_have_a_length_and_are_iterated():
    v = ti.Vector([1, 2, 3])
    return [len(v), list(v), v.to_list(), ti.Matrix([[1, 2], [3, 4]]).to_list()]


@returns()
def the_type_of_a_vector_is_given() -> ti.types.vector(2, ti.i32):
    v = ti.Vector([1.7, 2.9], dt=ti.i32)
    return v * 2


@returns()
def components_of_different_types_meet() -> ti.types.vector(2, ti.f32):
    v = ti.Vector([1, 2.5])
    return v / 2


@returns()
def casts_of_vectors() -> ti.types.vector(3, ti.i32):
    v = ti.Vector([1.7, -2.9, 3.5])
    return ti.cast(v, ti.i32) + v.cast(ti.i32)


@returns()
def functions_of_numbers_apply_to_components() -> ti.types.vector(3, ti.f32):
    v = ti.Vector([0.25, 1.0, 4.0])
    return ti.sqrt(v) + ti.max(v, 0.5) - ti.floor(v)


def remainders_and_powers_of_vectors():
    w = ti.Vector.field(2, ti.i32, shape=1)
    w[0] = [7, -7]

    @ti.kernel
    def f() -> ti.types.vector(2, ti.i32):
        v = w[0]
        return v % 4 * 100 + v // 4 * 10 + v**2

    return f().to_numpy()


@returns()
def bits_of_vectors() -> ti.types.vector(2, ti.i32):
    v = ti.Vector([6, 5])
    return ((v & 3) << 4) | (v ^ 1) | ~v & 8


@returns()
def a_vector_is_assigned_from_a_list() -> ti.types.vector(2, ti.i32):
    v = ti.Vector([0, 0])
    v = [3, 4]
    return v


@returns()
def augmented_components() -> ti.types.vector(3, ti.i32):
    v = ti.Vector([1, 2, 3])
    v[0] += 5
    v.y -= 7
    v[2] *= 4
    return v


@returns()
def negative_and_positive_signs_of_vectors() -> ti.types.vector(2, ti.i32):
    v = ti.Vector([1, -2])
    return -v + (+v) * 3 + abs(v) * 10


def vectors_typed_by_types_vector():
    vec = ti.types.vector(3, ti.f64)

    @ti.kernel
    def f() -> vec:
        a = vec(1)
        b = vec(1, 2, 3)
        c = vec([0.1, 0.2, 0.3])
        return a + b + c

    return f().to_numpy()


def matrices_typed_by_types_matrix():
    mat = ti.types.matrix(2, 3, ti.i32)

    @ti.kernel
    def f() -> mat:
        a = mat([[1, 2, 3], [4, 5, 6]])
        b = mat(1)
        c = mat(1, 2, 3, 4, 5, 6)
        return a + b + c

    return f().to_numpy()


@returns()
def vectors_are_joined_by_constructors() -> ti.types.vector(4, ti.f32):
    a = ti.math.vec2(1, 2)
    return ti.math.vec4(a, 3, 4) + ti.math.vec4(5, a, 6)


@refuses()
def components_counted_from_the_end() -> ti.i32:
    v = ti.Vector([1, 2, 3])
    return v[-1]


@returns()
def a_matrix_read_without_a_name() -> ti.i32:
    return ti.Matrix([[1, 2], [3, 4]])[1, 0] + ti.Vector([5, 6])[1]


@returns()
def solve_solves_small_systems() -> ti.types.vector(5, ti.f32):
    a = ti.Matrix([[2.0, 1.0], [1.0, 3.0]])
    b = ti.Matrix([[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 2.0]])
    x = ti.solve(a, ti.Vector([3.0, 5.0]))
    y = ti.solve(b, ti.Vector([1.0, 2.0, 3.0]))
    return ti.Vector([x[0], x[1], y[0], y[1], y[2]])


@leaves("m v", m=matrices(2, 2, ti.f32, 3), v=vectors(2, ti.f32, 3))
def fields_of_matrices_are_multiplied():
    for i in m:
        m[i] = ti.Matrix([[i, 1], [2, 3]])
        v[i] = m[i] @ ti.Vector([1.0, i])
        m[i] *= 2
        m[i][0, 1] -= 0.5


def matrices_are_assigned_from_lists_of_rows():
    m = ti.Matrix.field(2, 2, ti.i32, shape=2)

    @ti.kernel
    def f() -> ti.i32:
        m[0] = [[1, 2], [3, 4]]
        a = ti.Matrix([[0, 0], [0, 0]])
        a = [[5, 6], [7, 8]]
        m[1] = a
        return a[1, 0]

    return [f(), m.to_numpy()]


@each(0, 2, m=matrices(3, 2, ti.i32))
def rows_are_chosen_at_run_time(k: ti.i32) -> ti.types.vector(2, ti.i32):
    for i in range(3):
        m[None][i, :] = ti.Vector([i, 10 * i])
    a = ti.Matrix([[1, 2], [3, 4], [5, 6]])
    return a[k, :] + m[None][k, :]


@returns()
def columns_are_changed_at_run_time() -> ti.types.matrix(2, 3, ti.i32):
    a = ti.Matrix([[0, 0, 0], [0, 0, 0]])
    for j in range(3):
        a[:, j] = ti.Vector([j, j * j])
        a[:, j] += 10
    return a
