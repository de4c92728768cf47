"""Factorisations and systems of equations: NPBench's programs whose steps need one another."""

# mypy: disable-error-code="no-untyped-call,no-untyped-def,untyped-decorator,valid-type"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from ...kernels.frontend.functions import sqrt
from ...kernels.frontend.intrinsics import loop_config
from ...kernels.frontend.kernel import kernel, types
from ...kernels.frontend.recorder import ndarray
from ..polybench_kernels import cholesky, lu
from ..polybench_peers import PEERS
from .ported import Ported, parallel, serial

nd: Any = types.ndarray()


def _dominant(rng, n):
    return rng.standard_normal((n, n)) + 2.0 * n * np.eye(n)


def _lu(rng, n):
    return (_dominant(rng, n),)


def _cholesky(rng, n):
    a = rng.standard_normal((n, n))
    return (a @ a.T + n * np.eye(n),)


# --- triangular systems ---------------------------------------------------------------------------


@kernel
def solve_lower(a: nd, x: nd, b: nd) -> None:
    loop_config(serialize=True)
    for i in range(a.shape[0]):
        total = b[i]
        for j in range(i):
            total -= a[i, j] * x[j]
        x[i] = total / a[i, i]


def trisolv(a: Any, x: Any, b: Any) -> None:
    solve_lower(a, x, b)


def _np_trisolv(a, x, b):
    for i in range(len(x)):
        x[i] = (b[i] - a[i, :i] @ x[:i]) / a[i, i]


@serial
def _nb_trisolv(a, x, b):
    for i in range(a.shape[0]):
        total = b[i]
        for j in range(i):
            total -= a[i, j] * x[j]
        x[i] = total / a[i, i]


def _trisolv(rng, n):
    return np.tril(_dominant(rng, n)), np.zeros(n), rng.standard_normal(n)


@kernel
def solve_unit_lower(a: nd, y: nd, b: nd) -> None:
    loop_config(serialize=True)
    for i in range(a.shape[0]):
        total = b[i]
        for j in range(i):
            total -= a[i, j] * y[j]
        y[i] = total


@kernel
def solve_upper(a: nd, x: nd, y: nd) -> None:
    n = a.shape[0]
    loop_config(serialize=True)
    for r in range(n):
        i = n - 1 - r
        total = y[i]
        for j in range(i + 1, n):
            total -= a[i, j] * x[j]
        x[i] = total / a[i, i]


def ludcmp(a: Any, b: Any, x: Any, y: Any) -> None:
    lu(a)
    solve_unit_lower(a, y, b)
    solve_upper(a, x, y)


def _np_ludcmp(a, b, x, y):
    PEERS["lu"]["NumPy"](a)
    for i in range(len(b)):
        y[i] = b[i] - a[i, :i] @ y[:i]
    for i in range(len(b) - 1, -1, -1):
        x[i] = (y[i] - a[i, i + 1 :] @ x[i + 1 :]) / a[i, i]


@serial
def _nb_both_triangles(a, b, x, y):
    n = a.shape[0]
    for i in range(n):
        total = b[i]
        for j in range(i):
            total -= a[i, j] * y[j]
        y[i] = total
    for i in range(n - 1, -1, -1):
        total = y[i]
        for j in range(i + 1, n):
            total -= a[i, j] * x[j]
        x[i] = total / a[i, i]


def _nb_ludcmp(a, b, x, y):
    PEERS["lu"]["numba"](a)
    _nb_both_triangles(a, b, x, y)


def _ludcmp(rng, n):
    return _dominant(rng, n), rng.standard_normal(n), np.zeros(n), np.zeros(n)


# --- Gram-Schmidt and Levinson-Durbin -------------------------------------------------------------


@kernel
def normalise_column(a: nd, q: nd, r: nd, k: int) -> None:
    total = 0.0
    for i in range(a.shape[0]):
        total += a[i, k] * a[i, k]
    r[k, k] = sqrt(total)
    for i in range(a.shape[0]):
        q[i, k] = a[i, k] / r[k, k]


@kernel
def project_columns(a: nd, q: nd, r: nd, k: int) -> None:
    for j in range(k + 1, a.shape[1]):
        total = 0.0
        for i in range(a.shape[0]):
            total += q[i, k] * a[i, j]
        r[k, j] = total
    for i in range(a.shape[0]):
        for j in range(k + 1, a.shape[1]):
            a[i, j] -= q[i, k] * r[k, j]


def gramschmidt(a: Any, q: Any, r: Any) -> None:
    for k in range(a.shape[1]):
        normalise_column(a, q, r, k)
        project_columns(a, q, r, k)


def _np_gramschmidt(a, q, r):
    for k in range(a.shape[1]):
        r[k, k] = np.sqrt(a[:, k] @ a[:, k])
        q[:, k] = a[:, k] / r[k, k]
        r[k, k + 1 :] = q[:, k] @ a[:, k + 1 :]
        a[:, k + 1 :] -= q[:, k : k + 1] * r[k, k + 1 :]


@parallel
def _nb_gramschmidt(a, q, r):
    n, m = a.shape
    for k in range(m):
        total = a[0, k] * a[0, k]
        for i in range(1, n):
            total += a[i, k] * a[i, k]
        r[k, k] = np.sqrt(total)
        for i in range(n):
            q[i, k] = a[i, k] / r[k, k]
        for j in prange(k + 1, m):
            along = q[0, k] * a[0, j]
            for i in range(1, n):
                along += q[i, k] * a[i, j]
            r[k, j] = along
            for i in range(n):
                a[i, j] -= q[i, k] * along


def _gramschmidt(rng, m, n):
    return rng.random((m, n)), np.zeros((m, n)), np.zeros((n, n))


@kernel
def yule_walker(r: nd, y: nd, z: nd) -> None:
    """The recursion of Levinson and Durbin for a Toeplitz matrix with ones on its diagonal."""
    y[0] = -r[0]
    alpha = -r[0]
    beta = 1.0
    loop_config(serialize=True)
    for k in range(1, r.shape[0]):
        beta *= 1.0 - alpha * alpha
        total = r[k]
        for i in range(k):
            total += r[k - 1 - i] * y[i]
        alpha = -total / beta
        for i in range(k):
            z[i] = y[i] + alpha * y[k - 1 - i]
        for i in range(k):
            y[i] = z[i]
        y[k] = alpha


def durbin(r: Any, y: Any) -> None:
    z = ndarray(r.dtype, r.shape, name="z")
    yule_walker(r, y, z)


def _np_durbin(r, y):
    y[0] = alpha = -r[0]
    beta = 1.0
    for k in range(1, len(r)):
        beta *= 1.0 - alpha * alpha
        alpha = -(r[k] + r[k - 1 :: -1] @ y[:k]) / beta
        y[:k] += alpha * y[k - 1 :: -1]
        y[k] = alpha


@serial
def _nb_durbin(r, y):
    z = np.empty_like(y)
    y[0] = alpha = -r[0]
    beta = 1.0
    for k in range(1, r.shape[0]):
        beta *= 1.0 - alpha * alpha
        total = r[k]
        for i in range(k):
            total += r[k - 1 - i] * y[i]
        alpha = -total / beta
        for i in range(k):
            z[i] = y[i] + alpha * y[k - 1 - i]
        for i in range(k):
            y[i] = z[i]
        y[k] = alpha


def _durbin(rng, n):
    return rng.uniform(-0.5, 0.5, n) / n, np.zeros(n)


# --- a contour integral ---------------------------------------------------------------------------


@kernel
def transfer_matrices(h: nd, z: nd, t: nd) -> None:
    """T(z) = z H0 + H1 + H2 / z at each point of the contour."""
    for p in range(z.shape[0]):
        for i in range(t.shape[1]):
            for j in range(t.shape[2]):
                t[p, i, j] = z[p] * h[0, i, j] + h[1, i, j] + h[2, i, j] / z[p]


@kernel
def solve_each(t: nd, x: nd, y: nd) -> None:
    """x = T^-1 y at each point: elimination with partial pivoting."""
    n = t.shape[1]
    for p in range(t.shape[0]):
        for i in range(n):
            for j in range(x.shape[2]):
                x[p, i, j] = y[i, j]
        for k in range(n):
            pivot = k
            largest = abs(t[p, k, k])
            for i in range(k + 1, n):
                if abs(t[p, i, k]) > largest:
                    largest = abs(t[p, i, k])
                    pivot = i
            for j in range(n):
                upper = t[p, k, j]
                t[p, k, j] = t[p, pivot, j]
                t[p, pivot, j] = upper
            for j in range(x.shape[2]):
                right = x[p, k, j]
                x[p, k, j] = x[p, pivot, j]
                x[p, pivot, j] = right
            for i in range(k + 1, n):
                factor = t[p, i, k] / t[p, k, k]
                for j in range(k + 1, n):
                    t[p, i, j] -= factor * t[p, k, j]
                for j in range(x.shape[2]):
                    x[p, i, j] -= factor * x[p, k, j]
        for r in range(n):
            i = n - 1 - r
            for k in range(i + 1, n):
                for j in range(x.shape[2]):
                    x[p, i, j] -= t[p, i, k] * x[p, k, j]
            for j in range(x.shape[2]):
                x[p, i, j] = x[p, i, j] / t[p, i, i]


@kernel
def moments_of(z: nd, x: nd, p0: nd, p1: nd) -> None:
    for i in range(p0.shape[0]):
        for j in range(p0.shape[1]):
            p0[i, j] = 0.0
            p1[i, j] = 0.0
            for p in range(z.shape[0]):
                if abs(z[p]) < 1.0:
                    p0[i, j] -= x[p, i, j]
                    p1[i, j] -= z[p] * x[p, i, j]
                else:
                    p0[i, j] += x[p, i, j]
                    p1[i, j] += z[p] * x[p, i, j]


def contour_integral(h: Any, z: Any, y: Any, p0: Any, p1: Any) -> None:
    n, m = y.shape[0], y.shape[1]
    t = ndarray(z.dtype, (z.shape[0], n, n), name="t")
    x = ndarray(z.dtype, (z.shape[0], n, m), name="x")
    transfer_matrices(h, z, t)
    solve_each(t, x, y)
    moments_of(z, x, p0, p1)


def _np_contour_integral(h, z, y, p0, p1):
    p0[:] = p1[:] = 0.0
    for point in z:
        x = np.linalg.solve(point * h[0] + h[1] + h[2] / point, y)
        if abs(point) < 1.0:
            x = -x
        p0 += x
        p1 += point * x


@parallel
def _nb_solutions(h, z, y, x):
    for p in prange(len(z)):
        x[p] = np.linalg.solve(z[p] * h[0] + h[1] + h[2] / z[p], y)


def _nb_contour_integral(h, z, y, p0, p1):
    x = np.empty((len(z), *y.shape), y.dtype)
    _nb_solutions(h, z, y, x)
    x *= np.where(abs(z) < 1.0, -1.0, 1.0)[:, None, None]
    p0[:] = x.sum(axis=0)
    p1[:] = (z[:, None, None] * x).sum(axis=0)


def _contour_integral(rng, n, m, points):
    def drawn(*shape):
        return rng.random(shape) + 1j * rng.random(shape)

    results = np.zeros((n, m), np.complex128), np.zeros((n, m), np.complex128)
    return drawn(3, n, n), drawn(points), drawn(n, m), *results


_SMALL = {"n": 6}
PROGRAMS = (
    Ported(
        cholesky,
        PEERS["cholesky"]["NumPy"],
        PEERS["cholesky"]["numba"],
        _cholesky,
        (0,),
        {"n": 300},
        _SMALL,
    ),
    Ported(lu, PEERS["lu"]["NumPy"], PEERS["lu"]["numba"], _lu, (0,), {"n": 220}, _SMALL),
    Ported(ludcmp, _np_ludcmp, _nb_ludcmp, _ludcmp, (0, 2, 3), {"n": 220}, _SMALL),
    Ported(trisolv, _np_trisolv, _nb_trisolv, _trisolv, (1,), {"n": 2000}, _SMALL),
    Ported(durbin, _np_durbin, _nb_durbin, _durbin, (1,), {"n": 1000}, _SMALL),
    Ported(
        gramschmidt,
        _np_gramschmidt,
        _nb_gramschmidt,
        _gramschmidt,
        (1, 2),
        {"m": 220, "n": 180},
        {"m": 7, "n": 5},
    ),
    Ported(
        contour_integral,
        _np_contour_integral,
        _nb_contour_integral,
        _contour_integral,
        (3, 4),
        {"n": 50, "m": 150, "points": 32},
        {"n": 4, "m": 3, "points": 5},
    ),
)
