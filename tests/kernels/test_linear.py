"""Decompositions of small matrices: compiled, and as Python on values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import kernelscape as ks
import numpy as np
import pytest

MANY = 400
TYPES = pytest.mark.parametrize(
    ("dtype", "rows"), [(ks.f32, 2), (ks.f32, 3), (ks.f64, 2), (ks.f64, 3)]
)


@pytest.fixture(autouse=True)
def _program() -> Iterator[None]:
    ks.init()
    yield
    ks.reset()


def matrices(rows: int, dtype: Any) -> np.ndarray:
    """Random ones, then zero, multiples of the identity, of rank one, whole numbers, graded, huge and tiny ones."""
    rng = np.random.default_rng(rows)
    a = rng.standard_normal((MANY, rows, rows))
    a[0] = 0
    a[1:4] = np.eye(rows) * np.reshape([1, -1, 2], (3, 1, 1))
    a[4], a[5] = np.eye(rows)[::-1], np.diag(np.arange(rows))
    a[6] = np.eye(rows) + 1e-7
    a[10:60] = rng.standard_normal((50, rows, 1)) * rng.standard_normal((50, 1, rows))
    a[60:160] = rng.integers(-2, 3, (100, rows, rows))
    a[160:200] *= 10.0 ** rng.uniform(-6, 6, (40, rows, rows))
    a[200:220] *= 1e30
    a[220:240] *= 1e-30
    turns = np.linalg.qr(rng.standard_normal((40, rows, rows)))[0]
    a[240:280] = a[240:280] @ np.diag([1, 1e-5, 1e-9][:rows]) @ turns
    return a.astype(dtype.numpy)


def field(values: np.ndarray, dtype: Any) -> Any:
    """A field that holds an array of matrices or vectors."""
    if values.ndim == 3:
        made = ks.Matrix.field(*values.shape[1:], dtype, shape=len(values))
    else:
        made = ks.Vector.field(values.shape[1], dtype, shape=len(values))
    made.from_numpy(values)
    return made


def read(x: Any) -> np.ndarray:
    return x.to_numpy().astype(np.float64)


def flipped(x: np.ndarray) -> np.ndarray:
    return x.swapaxes(1, 2)


def error(found: np.ndarray, wanted: np.ndarray, dtype: Any) -> float:
    """The largest difference, in units of the last place of the largest entry of a matrix."""
    size = np.abs(wanted).max((1, 2))
    size[size == 0] = 1
    return float((np.abs(found - wanted).max((1, 2)) / size).max() / np.finfo(dtype.numpy).eps)


def loss_of_orthogonality(q: np.ndarray, dtype: Any) -> float:
    return float(np.abs(q @ flipped(q) - np.eye(q.shape[1])).max() / np.finfo(dtype.numpy).eps)


@TYPES
def test_singular_values_are_those_of_numpy(dtype: Any, rows: int) -> None:
    A = field(matrices(rows, dtype), dtype)
    U, S, V = (field(np.zeros((MANY, rows, rows)), dtype) for _ in range(3))

    @ks.kernel
    def decompose():
        for i in A:
            U[i], S[i], V[i] = ks.svd(A[i], dtype)

    decompose()
    a, u, s, v = (read(x) for x in (A, U, S, V))
    assert error(u @ s @ flipped(v), a, dtype) < 16
    assert loss_of_orthogonality(u, dtype) < 10
    assert loss_of_orthogonality(v, dtype) < 10
    values = np.diagonal(s, axis1=1, axis2=2)
    assert np.array_equal(s, np.eye(rows) * values[:, None, :])
    assert (np.diff(np.abs(values), axis=1) <= 0).all()
    known = np.linalg.svd(a)[1]
    known_size = np.maximum(known[:, :1], 1e-300)
    assert (np.abs(np.abs(values) - known) / known_size).max() < 10 * np.finfo(dtype.numpy).eps
    assert np.allclose(np.linalg.det(v), 1)
    is_certain = np.abs(np.linalg.det(a)) > 1e-3 * known[:, 0] ** rows
    signs = np.sign(np.linalg.det(a))[is_certain]
    if rows == 2:
        assert (values >= 0).all()
        assert np.allclose(np.linalg.det(u)[is_certain], signs)
    else:
        assert np.allclose(np.linalg.det(u), 1)
        assert (values[:, :2] >= 0).all()
        assert np.array_equal(np.sign(values[is_certain, 2]), signs)


def test_small_singular_values_keep_their_digits() -> None:
    """One-sided Jacobi, unlike methods through A^T A, does not lose what is below the root of the precision."""
    columns = np.linalg.qr(np.random.default_rng(0).standard_normal((MANY, 3, 3)))[0]
    a = (columns * [1, 1e-6, 1e-12]).astype(np.float32)
    A, S = field(a, ks.f32), field(np.zeros((MANY, 3)), ks.f32)

    @ks.kernel
    def values():
        for i in A:
            _, sigma, _ = ks.svd(A[i])
            S[i] = ks.Vector([sigma[0, 0], sigma[1, 1], abs(sigma[2, 2])])

    values()
    assert np.allclose(read(S) / [1, 1e-6, 1e-12], 1, rtol=1e-5)


@TYPES
def test_polar_factors(dtype: Any, rows: int) -> None:
    A = field(matrices(rows, dtype), dtype)
    U, P = (field(np.zeros((MANY, rows, rows)), dtype) for _ in range(2))

    @ks.kernel
    def decompose():
        for i in A:
            U[i], P[i] = ks.polar_decompose(A[i], dtype)

    decompose()
    a, u, p = (read(x) for x in (A, U, P))
    assert error(u @ p, a, dtype) < 20
    assert error(flipped(p), p, dtype) < 8
    assert loss_of_orthogonality(u, dtype) < 12
    if rows == 2:
        size = np.maximum(np.abs(a).max((1, 2)), 1e-300)
        assert (np.linalg.eigvalsh(p).min(axis=1) / size).min() > -4 * np.finfo(dtype.numpy).eps
    else:
        assert np.allclose(np.linalg.det(u), 1)
    assert np.array_equal(u[0], np.eye(rows))


@TYPES
def test_symmetric_matrices_have_orthonormal_eigenvectors(dtype: Any, rows: int) -> None:
    a = matrices(rows, dtype)
    A = field(a + flipped(a), dtype)
    W, Q = field(np.zeros((MANY, rows)), dtype), field(np.zeros((MANY, rows, rows)), dtype)

    @ks.kernel
    def decompose():
        for i in A:
            W[i], Q[i] = ks.sym_eig(A[i], dtype)

    decompose()
    b, w, q = (read(x) for x in (A, W, Q))
    assert error(q * w[:, None, :] @ flipped(q), b, dtype) < 24
    assert loss_of_orthogonality(q, dtype) < 12
    steps = np.diff(w, axis=1)
    assert (steps <= 0).all() if rows == 2 else (steps >= 0).all()


@pytest.mark.parametrize("dtype", [ks.f32, ks.f64])
def test_eigenvalues_of_any_matrix_of_two_rows(dtype: Any) -> None:
    given = matrices(2, dtype)
    given[7:10] = [[[2, 1], [0, 2]], [[0, 1], [-1, 0]], [[1, 0], [1, 1]]]
    A = field(given, dtype)
    L, X = field(np.zeros((MANY, 2, 2)), dtype), field(np.zeros((MANY, 4, 2)), dtype)

    @ks.kernel
    def decompose():
        for i in A:
            L[i], X[i] = ks.eig(A[i], dtype)

    decompose()
    a, values, vectors = (read(x) for x in (A, L, X))
    numbers = values[..., 0] + 1j * values[..., 1]
    columns = vectors[:, 0::2] + 1j * vectors[:, 1::2]
    assert np.allclose(np.linalg.norm(columns, axis=1), 1)
    size = np.abs(a).max((1, 2))[:, None, None] + 1e-300
    rest = np.abs(a @ columns - columns * numbers[:, None, :]) / size
    # An eigenvalue that is nearly double is known to half of the digits only; its vector fits it.
    assert rest.max() < 20 * np.finfo(dtype.numpy).eps
    assert (numbers[:, 0].imag >= 0).all()
    assert (numbers[:, 0].real >= numbers[:, 1].real).all()


@pytest.mark.parametrize("rows", [2, 3, 4])
def test_linear_systems(rows: int) -> None:
    rng = np.random.default_rng(4)
    a = rng.standard_normal((MANY, rows, rows))
    a[0] = np.eye(rows)[::-1]
    a[1:50] *= rng.choice([0, 1], (49, rows, 1), p=[0.01, 0.99])
    A, b = field(a, ks.f64), field(rng.standard_normal((MANY, rows)), ks.f64)
    x = field(np.zeros((MANY, rows)), ks.f64)

    @ks.kernel
    def solve():
        for i in A:
            x[i] = ks.solve(A[i], b[i], ks.f64)

    solve()
    found = read(x)
    regular = np.abs(np.linalg.det(a)) > 0
    assert not np.isfinite(found[~regular]).all(axis=1).any()
    rest = np.einsum("nij,nj->ni", a, found)[regular] - read(b)[regular]
    size = np.maximum(np.abs(found[regular]).max(axis=1), 1)
    assert (np.abs(rest).max(axis=1) / size).max() < 1e-14


def test_types_follow_the_program_or_what_is_asked_for() -> None:
    out = ks.field(ks.f64, shape=2)

    @ks.kernel
    def precise():
        A = ks.Matrix([[1.0, 0.1], [0.1, 1.0]], ks.f64)
        out[0] = ks.svd(A)[1][0, 0]
        out[1] = ks.svd(A, ks.f64)[1][0, 0]

    precise()
    assert out[0] == pytest.approx(1.1, rel=1e-6)
    assert out[0] == np.float32(out[0])
    literal = float(np.float32(0.1))  # what `0.1` is in a program of f32
    assert out[1] == pytest.approx(1 + literal, rel=1e-15)


def test_python_calls_them_on_values() -> None:
    a = np.random.default_rng(2).standard_normal((3, 3))
    for rows in (2, 3):
        A = ks.Matrix(a[:rows, :rows])
        U, S, V = ks.svd(A, ks.f64)
        assert np.allclose(U @ S @ V.transpose(), A)
        R, P = ks.polar_decompose(A, ks.f64)
        assert np.allclose(R @ P, A)
        w, q = ks.sym_eig(A + A.transpose(), ks.f64)
        assert np.allclose(q @ ks.Matrix.diag(rows, 1.0) @ q.transpose(), np.eye(rows))
        assert np.allclose(sorted(w), np.linalg.eigvalsh(a[:rows, :rows] + a[:rows, :rows].T))
        b = ks.Vector(a[0, :rows])
        assert np.allclose(A @ ks.solve(A, b, ks.f64), b)
    values, _ = ks.eig(ks.Matrix([[0.0, 1.0], [-4.0, 0.0]]), ks.f64)
    assert np.allclose(values, [[0, 2], [0, -2]])
    with pytest.raises(AssertionError, match="singular"):
        ks.solve(ks.Matrix([[1.0, 1.0], [1.0, 1.0]]), ks.Vector([1.0, 1.0]), ks.f64)
