"""Sparse matrices: builders, matrices and solvers of `ti.linalg`."""

import tempfile
from pathlib import Path

import numpy as np
import taichi as ti

from .seeing import printed, refused


@ti.kernel
def band(A: ti.types.sparse_matrix_builder(), n: ti.i32, d: ti.f32):
    """A symmetric matrix of three diagonals."""
    for i in range(n):
        A[i, i] += d
        if i > 0:
            A[i, i - 1] -= 1
            A[i - 1, i] -= 1


def _builder(n, m=None, **options):
    return ti.linalg.SparseMatrixBuilder(n, n if m is None else m, max_num_triplets=100, **options)


def _banded(n, d=3.0, **options):
    made = _builder(n, **options)
    band(made, n, d)
    return made.build()


def _filled(n, m, value):
    """A matrix whose entries are a function of row and column."""
    made = _builder(n, m)

    @ti.kernel
    def fill(A: ti.types.sparse_matrix_builder()):
        for i, j in ti.ndrange(n, m):
            A[i, j] += value(i, j)

    fill(made)
    return made.build()


@ti.func
def ramp(i, j):
    return i + 10 * j


@ti.func
def slope(i, j):
    return i - j


def _entries(A):
    return [[A[i, j] for j in range(A.shape[1])] for i in range(A.shape[0])]


def builders_are_filled_in_kernels():
    return [_entries(_banded(5)), _entries(_banded(4, dtype=ti.f64, storage_format="row_major"))]


def triplets_of_one_place_are_summed():
    made = _builder(2)

    @ti.kernel
    def fill(A: ti.types.sparse_matrix_builder()):
        for i in range(20):
            A[i % 2, 0] += i
            A[0, 1] -= 1

    fill(made)
    return _entries(made.build())


def entries_are_converted_to_the_type_of_the_matrix():
    made = _builder(2)

    @ti.kernel
    def fill(A: ti.types.sparse_matrix_builder(), k: ti.i64, x: ti.f64):
        A[0, 0] += k
        A[1, 1] += x
        A[0, 1] += ti.cast(7, ti.u8)

    fill(made, 3, 0.1)
    return _entries(made.build())


def indices_are_a_vector():
    made = _builder(3)

    @ti.kernel
    def fill(A: ti.types.sparse_matrix_builder()):
        for I in ti.grouped(ti.ndrange(3, 3)):
            A[I[0], I[1]] += I[0] * 3 + I[1]

    fill(made)
    return _entries(made.build())


def kernels_take_two_builders():
    a, b = _builder(2), _builder(2)

    @ti.kernel
    def fill(A: ti.types.sparse_matrix_builder(), B: ti.types.sparse_matrix_builder()):
        for i, j in ti.ndrange(2, 2):
            A[i, j] += i + j
            B[i, j] += i - j

    fill(a, b)
    return [_entries(a.build()), _entries(b.build())]


def built_builders_are_empty():
    made = _builder(2)
    band(made, 2, 3.0)
    first = made.build()
    second = made.build()
    band(made, 2, 5.0)
    return [_entries(first), _entries(second), _entries(made.build())]


def sums_and_differences():
    a, b = _filled(3, 4, ramp), _filled(3, 4, slope)
    return [_entries(a + b), _entries(a - b)]


def sums_in_place():
    a, b = _filled(3, 3, ramp), _filled(3, 3, slope)
    a += b
    first = _entries(a)
    a -= b
    return [first, _entries(a)]


def products_with_numbers():
    a = _filled(2, 3, ramp)
    return [_entries(a * 2.5), _entries(0.5 * a)]


def products_of_entries():
    return _entries(_filled(3, 3, ramp) * _filled(3, 3, slope))


def products_of_matrices():
    a, b = _filled(2, 3, ramp), _filled(3, 4, slope)
    return [_entries(a @ b), (a @ b).shape]


def products_with_vectors():
    a = _filled(3, 4, ramp)
    x = ti.field(ti.f32, shape=4)
    y = ti.ndarray(ti.f32, shape=4)
    for k in range(4):
        x[k] = y[k] = k + 0.5
    by_array = a @ np.arange(4, dtype=np.float32)
    return [by_array, a @ x, (a @ y).to_numpy()]


def transposes():
    a = _filled(2, 3, ramp).transpose()
    return [_entries(a), a.shape]


def entries_are_set_from_python():
    a = _banded(4)
    a[0, 0] = 1024.0
    a[3, 0] = -2.5
    return _entries(a)


def matrices_are_built_from_ndarrays():
    triplets = ti.Vector.ndarray(n=3, dtype=ti.f32, shape=6)

    @ti.kernel
    def fill(triplets: ti.types.ndarray()):
        for i in range(6):
            triplets[i] = ti.Vector([i % 4, (i + 1) % 4, i + 0.5], dt=ti.f32)

    fill(triplets)
    a = ti.linalg.SparseMatrix(n=4, m=5, dtype=ti.f32)
    a.build_from_ndarray(triplets)
    return [_entries(a), a.shape]


def matrices_are_printed():
    a = _banded(3, 12345.678)
    return [str(a), repr(a * 0.25), str(_filled(1, 3, slope))]


def triplets_are_printed():
    made = _builder(3, 4)

    @ti.kernel
    def fill(A: ti.types.sparse_matrix_builder()):
        ti.loop_config(serialize=True)
        for i in range(3):
            A[i, i] += 1.5 * i
            A[i, i + 1] -= 1

    fill(made)
    return printed(made.print_triplets)


def matrices_are_written_to_files():
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "a.mtx")
        _banded(3, 2.5).mmwrite(str(file))
        return file.read_text()


def _solutions(kind, ordering, dtype, a):
    b = ti.field(dtype, shape=a.shape[0])
    for k in range(a.shape[0]):
        b[k] = k + 1
    solver = ti.linalg.SparseSolver(dtype=dtype, solver_type=kind, ordering=ordering)
    solver.analyze_pattern(a)
    solver.factorize(a)
    x = solver.solve(b)
    return [np.round(x.astype(np.float64), 4), solver.info()]


def factorisations_solve_systems():
    kinds, orderings = ("LLT", "LDLT", "LU"), ("AMD", "COLAMD")
    return [
        _solutions(kind, ordering, dtype, _banded(10, dtype=dtype))
        for kind in kinds
        for ordering in orderings
        for dtype in (ti.f32, ti.f64)
    ]


def symmetric_solvers_read_the_lower_triangle():
    a = _banded(4)
    a[0, 3] = 50.0
    return [_solutions(kind, "AMD", ti.f32, a) for kind in ("LLT", "LDLT")]


def solvers_compute_at_once_and_take_arrays():
    solver = ti.linalg.SparseSolver(solver_type="LU")
    a = _filled(2, 2, ramp)
    a[0, 0] = 3.0
    solver.compute(a)
    b = ti.ndarray(ti.f32, shape=2)
    b[0], b[1] = 1.0, 2.0
    by_array = solver.solve(np.array([1, 2], dtype=np.float32))
    return [np.round(by_array, 4), np.round(solver.solve(b).to_numpy(), 4)]


def matrices_that_are_not_positive_definite_are_told():
    a = _banded(4, 0.5)
    found = []
    for kind in ("LLT", "LDLT"):
        solver = ti.linalg.SparseSolver(solver_type=kind)
        solver.compute(a)
        found.append(solver.info())
    return found


def conjugate_gradients_solve_systems():
    a = _banded(8, 4.0)
    b = ti.ndarray(ti.f32, shape=8)
    b.fill(1.0)
    found = []
    for given in (b, np.arange(8, dtype=np.float32)):
        solver = ti.linalg.SparseCG(a, given, np.zeros(8, dtype=np.float32), max_iter=100)
        x, is_found = solver.solve()
        found.append([np.round(x, 4), is_found])
    return found


def conjugate_gradients_of_too_few_iterations_are_told():
    b = np.arange(30, dtype=np.float32)
    return ti.linalg.SparseCG(_banded(30, 2.0), b, max_iter=3).solve()[1]


def _laplacian(n, skew):
    """An operator on fields of two axes, and fields of its right-hand side and solution."""
    b, x = ti.field(ti.f64, shape=(n, n)), ti.field(ti.f64, shape=(n, n))

    @ti.kernel
    def begin():
        for i, j in b:
            b[i, j] = i * 0.5 - j

    @ti.kernel
    def multiply(v: ti.template(), mv: ti.template()):
        for i, j in v:
            west = v[i - 1, j] if i > 0 else 0.0
            east = v[i + 1, j] if i < n - 1 else 0.0
            mv[i, j] = 5 * v[i, j] - skew * west - east

    begin()
    return ti.linalg.LinearOperator(multiply), b, x


def operators_are_solved_by_conjugate_gradients():
    A, b, x = _laplacian(6, 1.0)
    is_found = ti.linalg.MatrixFreeCG(A, b, x, tol=1e-10)
    return [is_found, np.round(x.to_numpy(), 6)]


def operators_that_are_not_symmetric_are_solved():
    A, b, x = _laplacian(6, 2.0)
    is_found = ti.linalg.MatrixFreeBICGSTAB(A, b, x, tol=1e-10)
    return [is_found, np.round(x.to_numpy(), 6)]


def operators_are_applied():
    A, b, x = _laplacian(4, 1.0)
    A.matvec(b, x)
    return x.to_numpy()


def what_does_not_fit_is_refused():
    a, b = _filled(2, 3, ramp), _filled(3, 2, slope)
    return [
        refused(call)
        for call in (
            lambda: a + b,
            lambda: a - b,
            lambda: a * b,
            lambda: a @ a,
            lambda: a @ np.zeros(2, dtype=np.float32),
            lambda: a @ 3,
            lambda: ti.linalg.SparseSolver(solver_type="QR"),
            lambda: ti.linalg.SparseSolver(ordering="none"),
            lambda: ti.linalg.SparseSolver().solve(np.zeros(2, dtype=np.float32)),
            lambda: ti.linalg.SparseSolver().compute(3),
            lambda: ti.linalg.SparseSolver(dtype=ti.f64).analyze_pattern(_banded(3)),
            lambda: a.build_from_ndarray(np.zeros(3)),
        )
    ]


def entries_of_builders_are_only_added_to():
    made = _builder(3)

    @ti.kernel
    def stores(A: ti.types.sparse_matrix_builder()):
        A[0, 0] = 1.0

    @ti.kernel
    def multiplies(A: ti.types.sparse_matrix_builder()):
        A[0, 0] *= 2.0

    @ti.kernel
    def reads(A: ti.types.sparse_matrix_builder()) -> ti.f32:
        return A[0, 0]

    @ti.kernel
    def adds_a_row(A: ti.types.sparse_matrix_builder()):
        A[0] += 2.0

    return [refused(lambda k=k: k(made)) for k in (stores, multiplies, reads, adds_a_row)]


def kernels_refuse_other_arguments_for_builders():
    return [refused(lambda x=x: band(x, 3, 1.0)) for x in (3, np.zeros(9, dtype=np.float32))]
