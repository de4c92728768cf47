"""Decompositions: svd, polar, eigenvalues, systems."""

import numpy as np
import taichi as ti

from .seeing import calls

A2 = [[1.0, 2.0], [-3.0, 0.5]]
A3 = [[1.0, 2.0, 0.5], [-3.0, 0.5, 1.0], [0.25, 4.0, -2.0]]
S2 = [[2.0, 1.0], [1.0, 3.0]]
S3 = [[4.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 2.0]]


def _svd(values, dtype):
    n = len(values)
    mat = ti.types.matrix(n, n, dtype)
    u, s, v = (ti.Matrix.field(n, n, dtype, shape=()) for _ in range(3))

    @ti.kernel
    def f(a: mat):
        u[None], s[None], v[None] = ti.svd(a, dtype)

    f(mat(values))
    u, s, v = (x.to_numpy().astype(np.float64) for x in (u, s, v))
    eps = 1e-4 if dtype == ti.f32 else 1e-9
    return {
        "singular": np.sort(np.abs(np.diag(s))).astype(np.float32),
        "product": bool(np.allclose(u @ s @ v.T, values, atol=eps)),
        "orthogonal": bool(
            np.allclose(u @ u.T, np.eye(n), atol=eps) and np.allclose(v @ v.T, np.eye(n), atol=eps)
        ),
        "diagonal": bool(np.allclose(s, np.diag(np.diag(s)), atol=eps)),
        "signs": [round(float(np.linalg.det(x))) for x in (u, v)],
    }


svd_of_two_dimensions = calls(_svd, A2, ti.f32)
svd_of_three_dimensions = calls(_svd, A3, ti.f32)
svd_of_two_dimensions_in_f64 = calls(_svd, A2, ti.f64)
svd_of_three_dimensions_in_f64 = calls(_svd, A3, ti.f64)
svd_of_the_identity = calls(_svd, [[1.0, 0.0], [0.0, 1.0]], ti.f32)
svd_of_a_reflection = calls(_svd, [[1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, 1.0]], ti.f32)


def _polar(values, dtype):
    n = len(values)
    mat = ti.types.matrix(n, n, dtype)
    r, s = ti.Matrix.field(n, n, dtype, shape=()), ti.Matrix.field(n, n, dtype, shape=())

    @ti.kernel
    def f(a: mat):
        r[None], s[None] = ti.polar_decompose(a, dtype)

    f(mat(values))
    return [np.round(r.to_numpy(), 3), np.round(s.to_numpy(), 3)]


polar_decomposition_of_two_dimensions = calls(_polar, A2, ti.f32)
polar_decomposition_of_three_dimensions = calls(_polar, A3, ti.f64)


def _sym_eig(values, dtype):
    n = len(values)
    mat = ti.types.matrix(n, n, dtype)
    w, q = ti.Vector.field(n, dtype, shape=()), ti.Matrix.field(n, n, dtype, shape=())

    @ti.kernel
    def f(a: mat):
        w[None], q[None] = ti.sym_eig(a, dtype)

    f(mat(values))
    w, q = w.to_numpy(), q.to_numpy()
    return {
        "values": np.sort(w).astype(np.float32),  # Taichi's have no more digits
        "order": bool((np.diff(w) <= 1e-6).all()),
        "vectors": bool(np.allclose(q @ np.diag(w) @ q.T, values, atol=1e-4)),
    }


symmetric_eigenvalues_of_two_dimensions = calls(_sym_eig, S2, ti.f32)
symmetric_eigenvalues_of_three_dimensions = calls(_sym_eig, S3, ti.f32)
symmetric_eigenvalues_of_three_dimensions_in_f64 = calls(_sym_eig, S3, ti.f64)
symmetric_eigenvalues_of_a_diagonal = calls(
    _sym_eig, [[3.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 2.0]], ti.f32
)


def _eig(values):
    w, q = ti.Matrix.field(2, 2, ti.f32, shape=()), ti.Matrix.field(4, 2, ti.f32, shape=())
    mat = ti.types.matrix(2, 2, ti.f32)

    @ti.kernel
    def f(a: mat):
        w[None], q[None] = ti.eig(a)

    f(mat(values))
    w = w.to_numpy()
    return w[np.lexsort((w[:, 1], w[:, 0]))]


real_eigenvalues_of_two_dimensions = calls(_eig, [[1.0, 2.0], [3.0, 4.0]])
complex_eigenvalues_of_two_dimensions = calls(_eig, A2)


def _solve(values, b, dtype):
    n = len(values)
    mat, vec = ti.types.matrix(n, n, dtype), ti.types.vector(n, dtype)

    @ti.kernel
    def f(a: mat, b: vec) -> vec:
        return ti.solve(a, b, dtype)

    return f(mat(values), vec(b)).to_numpy()


systems_of_two = calls(_solve, A2, [1.0, 2.0], ti.f32)
systems_of_three = calls(_solve, A3, [1.0, 2.0, 3.0], ti.f32)
systems_of_three_in_f64 = calls(_solve, A3, [1.0, 2.0, 3.0], ti.f64)
systems_that_need_a_pivot = calls(
    _solve, [[0.0, 1.0, 2.0], [1.0, 0.0, 3.0], [2.0, 1.0, 0.0]], [1.0, 2.0, 3.0], ti.f32
)
