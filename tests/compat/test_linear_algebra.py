"""Sparse matrices and their solvers beside NumPy's dense ones."""

import sys

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.compat import taichi as ti
from kernelscape.errors import LanguageError

pytest.importorskip("scipy", reason="sparse matrices need SciPy")


@pytest.fixture(autouse=True)
def _program():
    ks.init(arch=ks.cpu)
    yield
    ks.reset()


@ks.kernel
def add_entries(
    A: ks.types.sparse_matrix_builder(),
    at: ks.types.ndarray(),
    values: ks.types.ndarray(),
):
    for k in range(values.shape[0]):
        A[at[k, 0], at[k, 1]] += values[k]


def random_entries(n: int, m: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places, values, and the dense matrix of their sums."""
    draw = np.random.default_rng(7)
    at = np.stack([draw.integers(0, n, count), draw.integers(0, m, count)], axis=1)
    values = draw.normal(size=count)
    dense = np.zeros((n, m))
    np.add.at(dense, (at[:, 0], at[:, 1]), values)
    return at.astype(np.int32), values, dense


def built(n: int, m: int, count: int, **options) -> tuple[object, np.ndarray]:
    at, values, dense = random_entries(n, m, count)
    builder = ti.linalg.SparseMatrixBuilder(n, m, count, dtype=ks.f64, **options)
    add_entries(builder, at, values)
    return builder.build(), dense


@pytest.mark.parametrize("storage_format", ["col_major", "row_major"])
def test_appends_of_parallel_iterations_are_all_there(storage_format: str) -> None:
    a, dense = built(40, 30, 5000, storage_format=storage_format)
    np.testing.assert_allclose(a.matrix.toarray(), dense, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose((a @ a.transpose()).matrix.toarray(), dense @ dense.T, atol=1e-10)
    np.testing.assert_allclose(a @ np.arange(30.0), dense @ np.arange(30.0), atol=1e-10)


def test_functions_append_for_kernels() -> None:
    @ks.func
    def put(A, k, value):
        A[k, k] += value
        A[k, 0] -= 1

    @ks.kernel
    def fill(A: ks.types.sparse_matrix_builder()):
        for i in range(3):
            put(A, i, 2.5)

    builder = ti.linalg.SparseMatrixBuilder(3, 3, 10)
    fill(builder)
    assert builder.build().matrix.toarray().tolist() == [[1.5, 0, 0], [-1, 2.5, 0], [-1, 0, 2.5]]


def test_the_order_of_appends_has_no_effect() -> None:
    at, values, _ = random_entries(5, 5, 400)
    found = []
    for order in (np.arange(400), np.arange(400)[::-1]):
        builder = ti.linalg.SparseMatrixBuilder(5, 5, 400, dtype=ks.f64)
        add_entries(builder, at[order].copy(), values[order].copy())
        found.append(builder.build().matrix.toarray())
    assert found[0].tobytes() == found[1].tobytes()


@pytest.mark.parametrize("kind", ["LLT", "LDLT", "LU"])
def test_factorisations_solve(kind: str) -> None:
    a, dense = built(25, 25, 200)
    spd = a @ a.transpose()
    for k in range(25):
        spd[k, k] = spd[k, k] + 1.0
    solver = ti.linalg.SparseSolver(ks.f64, kind, "COLAMD")
    solver.compute(spd)
    expected = np.linalg.solve(dense @ dense.T + np.eye(25), np.arange(25.0))
    assert solver.info()
    np.testing.assert_allclose(solver.solve(np.arange(25.0)), expected, rtol=1e-8, atol=1e-8)


def test_a_solver_that_found_no_factors_gives_no_numbers() -> None:
    solver = ti.linalg.SparseSolver(ks.f32, "LU")
    solver.compute(ti.linalg.SparseMatrix(3, 3))
    assert not solver.info() and np.isnan(solver.solve(np.ones(3))).all()


def test_triplets_that_do_not_fit_are_refused_when_a_matrix_is_built() -> None:
    at, values, _ = random_entries(5, 5, 10)
    full = ti.linalg.SparseMatrixBuilder(5, 5, 9, dtype=ks.f64)
    add_entries(full, at, values)
    with pytest.raises(LanguageError, match=r"10 triplets were added to .* for 9"):
        full.build()
    narrow = ti.linalg.SparseMatrixBuilder(5, 2, 10, dtype=ks.f64)
    add_entries(narrow, at, values)
    with pytest.raises(IndexError, match=r"of shape \(5, 2\) was given the entry"):
        narrow.build()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: ti.linalg.SparseMatrix(), "the number of rows of a sparse matrix must be"),
        (lambda: ti.linalg.SparseMatrix(3, dtype=ks.i32), "f32 or f64, not i32"),
        (lambda: ti.linalg.SparseMatrix(3, storage_format="best"), "'col_major' or 'row_major'"),
        (lambda: ti.linalg.SparseMatrix(3)[3, 0], r"of shape \(3, 3\) has no entry \(3, 0\)"),
        (lambda: ti.linalg.SparseMatrix(3)[3], "has a row and a column, not 3"),
        (lambda: ti.linalg.SparseMatrix(3) * "a", "takes another one, not str"),
        (lambda: ti.linalg.SparseCG(np.eye(3), np.ones(3)), "a square sparse matrix"),
        (
            lambda: add_entries(np.ones(3), np.ones((1, 2)), np.ones(1)),
            r"sparse_matrix_builder\(\)",
        ),
        (lambda: ti.linalg.MatrixFreeCG(3, 4, 5), "takes a LinearOperator, not int"),
    ],
)
def test_what_cannot_be_done_is_said(call, said: str) -> None:
    with pytest.raises(LanguageError, match=said) as found:
        call()
    assert found.value.where.file == __file__


def test_a_builder_is_empty_behind_an_error() -> None:
    builder = ti.linalg.SparseMatrixBuilder(2, 2, max_num_triplets=4)
    add_entries(builder, np.array([[0, 5]], np.int32), np.ones(1, np.float32))
    with pytest.raises(LanguageError, match="was given the entry"):
        builder.build()
    add_entries(builder, np.array([[1, 0]], np.int32), np.ones(1, np.float32))
    assert builder.build()[1, 0] == 1


def test_matrices_of_integers_and_factors_of_others_are_not_taken() -> None:
    from scipy import sparse

    with pytest.raises(LanguageError, match="entries of type f32 or f64, not i64"):
        ti.linalg.SparseMatrix(sm=sparse.csc_array(np.array([[2, 0], [0, 3]])))
    solver = ti.linalg.SparseSolver(dtype=ti.f64)
    one = ti.linalg.SparseMatrix(sm=sparse.csc_array(np.eye(2)))
    solver.compute(one)
    solver.analyze_pattern(ti.linalg.SparseMatrix(sm=sparse.csc_array(2 * np.eye(2))))
    assert not solver.info()
    assert np.isnan(solver.solve(np.ones(2))).all()


def test_operators_take_fields_with_an_offset() -> None:
    b, x = ti.field(ti.f64), ti.field(ti.f64)
    ti.root.dense(ti.i, 8).place(b, x, offset=(-3,))

    @ti.kernel
    def triple(v: ti.template(), out: ti.template()):
        for i in v:
            out[i] = 3.0 * v[i]

    b.fill(6.0)
    assert ti.linalg.MatrixFreeCG(ti.linalg.LinearOperator(triple), b, x)
    assert x.to_numpy() == pytest.approx(2.0)


def test_files_have_all_digits(tmp_path) -> None:
    from scipy import io, sparse

    given = np.array([[1234567.125, 1e-9], [1 / 3, 0.0]])
    ti.linalg.SparseMatrix(sm=sparse.csc_array(given)).mmwrite(str(tmp_path / "a.mtx"))
    assert io.mmread(tmp_path / "a.mtx").toarray().tolist() == given.tolist()


def test_without_scipy_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(LanguageError, match=r'pip install "kernelscape\[sparse\]"'):
        ti.linalg.SparseMatrix(3)


def test_solvers_without_a_matrix_say_how_they_go(capsys: pytest.CaptureFixture[str]) -> None:
    b, x = ks.field(ks.f32, shape=5), ks.field(ks.f32, shape=5)
    b.from_numpy(np.arange(5, dtype=np.float32))

    @ks.kernel
    def twice(v: ks.template(), mv: ks.template()):
        for i in v:
            mv[i] = 2 * v[i]

    operator = ti.linalg.LinearOperator(twice)
    assert ti.linalg.MatrixFreeCG(operator, b, x, quiet=False)
    np.testing.assert_array_equal(x.to_numpy(), np.arange(5) / 2)
    said = capsys.readouterr().out
    assert said.startswith(">>> Initial residual = 3.000000e+01") and "converged" in said
    assert ti.linalg.MatrixFreeBICGSTAB(operator, b, x)  # it has begun with the solution
    x.fill(1.0)
    assert not ti.linalg.MatrixFreeCG(operator, b, x, maxiter=0)
