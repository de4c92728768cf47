"""Products of matrices and vectors: the BLAS programs of NPBench, after PolyBench."""

# mypy: disable-error-code="no-untyped-call,no-untyped-def,untyped-decorator,valid-type"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from ...kernels.frontend.kernel import kernel, types
from ...kernels.frontend.recorder import ndarray
from ..polybench_kernels import ALPHA, BETA, syr2k, syrk, trmm
from ..polybench_peers import PEERS
from .ported import Ported, parallel

nd: Any = types.ndarray()
_BLOCK = 64  # columns that a thread of numba sums at a time


@kernel
def multiply(a: nd, b: nd, c: nd) -> None:
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            total = 0.0
            for k in range(a.shape[1]):
                total += a[i, k] * b[k, j]
            c[i, j] = total


@kernel
def multiply_add(a: nd, b: nd, c: nd, alpha: float, beta: float) -> None:
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            total = 0.0
            for k in range(a.shape[1]):
                total += a[i, k] * b[k, j]
            c[i, j] = alpha * total + beta * c[i, j]


@kernel
def rows_by(a: nd, x: nd, y: nd) -> None:
    for i in range(a.shape[0]):
        total = 0.0
        for j in range(a.shape[1]):
            total += a[i, j] * x[j]
        y[i] = total


@kernel
def columns_by(a: nd, x: nd, y: nd) -> None:
    for j in range(a.shape[1]):
        total = 0.0
        for i in range(a.shape[0]):
            total += a[i, j] * x[i]
        y[j] = total


@parallel
def _nb_multiply_add(a, b, c, alpha, beta):
    for i in prange(c.shape[0]):
        for j in range(c.shape[1]):
            c[i, j] *= beta
        for k in range(a.shape[1]):
            x = alpha * a[i, k]
            for j in range(c.shape[1]):
                c[i, j] += x * b[k, j]


@parallel
def _nb_rows_by(a, x, y):
    for i in prange(a.shape[0]):
        total = a[i, 0] * x[0]
        for j in range(1, a.shape[1]):
            total += a[i, j] * x[j]
        y[i] = total


@parallel
def _nb_columns_by(a, x, y):
    n, m = a.shape
    for block in prange((m + _BLOCK - 1) // _BLOCK):
        low, high = block * _BLOCK, min(block * _BLOCK + _BLOCK, m)
        y[low:high] = 0
        for i in range(n):
            for j in range(low, high):
                y[j] += a[i, j] * x[i]


# --- products of matrices -------------------------------------------------------------------------


def gemm(c: Any, a: Any, b: Any) -> None:
    multiply_add(a, b, c, ALPHA, BETA)


def _np_gemm(c, a, b):
    c *= BETA
    c += ALPHA * (a @ b)


def _nb_gemm(c, a, b):
    _nb_multiply_add(a, b, c, ALPHA, BETA)


def _gemm(rng, ni, nj, nk):
    normal = rng.standard_normal
    return normal((ni, nj)), normal((ni, nk)), normal((nk, nj))


def k2mm(d: Any, a: Any, b: Any, c: Any) -> None:
    ab = ndarray(a.dtype, (a.shape[0], b.shape[1]), name="ab")
    multiply(a, b, ab)
    multiply_add(ab, c, d, ALPHA, BETA)


def _np_k2mm(d, a, b, c):
    d *= BETA
    d += ALPHA * (a @ b @ c)


def _nb_k2mm(d, a, b, c):
    ab = np.zeros((a.shape[0], b.shape[1]), a.dtype)
    _nb_multiply_add(a, b, ab, 1.0, 0.0)
    _nb_multiply_add(ab, c, d, ALPHA, BETA)


def _k2mm(rng, ni, nj, nk, nl):
    normal = rng.standard_normal
    return normal((ni, nl)), normal((ni, nk)), normal((nk, nj)), normal((nj, nl))


def k3mm(a: Any, b: Any, c: Any, d: Any, e: Any) -> None:
    ab = ndarray(a.dtype, (a.shape[0], b.shape[1]), name="ab")
    cd = ndarray(a.dtype, (c.shape[0], d.shape[1]), name="cd")
    multiply(a, b, ab)
    multiply(c, d, cd)
    multiply(ab, cd, e)


def _np_k3mm(a, b, c, d, e):
    np.matmul(a @ b, c @ d, out=e)


def _nb_k3mm(a, b, c, d, e):
    ab = np.zeros((a.shape[0], b.shape[1]), a.dtype)
    cd = np.zeros((c.shape[0], d.shape[1]), a.dtype)
    _nb_multiply_add(a, b, ab, 1.0, 0.0)
    _nb_multiply_add(c, d, cd, 1.0, 0.0)
    _nb_multiply_add(ab, cd, e, 1.0, 0.0)


def _k3mm(rng, ni, nj, nk, nl, nm):
    normal = rng.standard_normal
    factors = normal((ni, nk)), normal((nk, nj)), normal((nj, nm)), normal((nm, nl))
    return *factors, np.zeros((ni, nl))


@kernel
def each_row_by(a: nd, b: nd, c: nd) -> None:
    for r in range(a.shape[0]):
        for q in range(a.shape[1]):
            for p in range(a.shape[2]):
                total = 0.0
                for s in range(a.shape[2]):
                    total += a[r, q, s] * b[s, p]
                c[r, q, p] = total


@kernel
def copy_box(a: nd, b: nd) -> None:
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            for k in range(a.shape[2]):
                b[i, j, k] = a[i, j, k]


def doitgen(a: Any, b: Any) -> None:
    products = ndarray(a.dtype, a.shape, name="products")
    each_row_by(a, b, products)
    copy_box(products, a)


def _np_doitgen(a, b):
    flat = a.reshape(-1, a.shape[2])
    flat[:] = flat @ b


@parallel
def _nb_doitgen(a, b):
    rows = a.shape[0] * a.shape[1]
    for row in prange(rows):
        r, q = row // a.shape[1], row % a.shape[1]
        sums = np.zeros(a.shape[2], a.dtype)
        for s in range(a.shape[2]):
            for p in range(a.shape[2]):
                sums[p] += a[r, q, s] * b[s, p]
        a[r, q, :] = sums


def _doitgen(rng, nr, nq, n):
    return rng.standard_normal((nr, nq, n)), rng.standard_normal((n, n))


@kernel
def multiply_symmetric(c: nd, a: nd, b: nd, alpha: float, beta: float) -> None:
    """c = beta c + alpha S b, where a has the lower triangle of the symmetric matrix S."""
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            total = 0.0
            for k in range(i + 1):
                total += a[i, k] * b[k, j]
            for k in range(i + 1, c.shape[0]):
                total += a[k, i] * b[k, j]
            c[i, j] = beta * c[i, j] + alpha * total


def symm(c: Any, a: Any, b: Any) -> None:
    multiply_symmetric(c, a, b, ALPHA, BETA)


def _np_symm(c, a, b):
    whole = np.tril(a) + np.tril(a, -1).T
    c *= BETA
    c += ALPHA * (whole @ b)


@parallel
def _nb_symm(c, a, b):
    n, m = c.shape
    for i in prange(n):
        for j in range(m):
            c[i, j] *= BETA
        for k in range(n):
            x = ALPHA * (a[i, k] if k <= i else a[k, i])
            for j in range(m):
                c[i, j] += x * b[k, j]


def _symm(rng, m, n):
    normal = rng.standard_normal
    return normal((m, n)), normal((m, m)), normal((m, n))


def _syrk(rng, m, n):
    return rng.standard_normal((n, n)), rng.standard_normal((n, m))


def _syr2k(rng, m, n):
    return *_syrk(rng, m, n), rng.standard_normal((n, m))


def _trmm(rng, m, n):
    return rng.standard_normal((m, m)), rng.standard_normal((m, n))


# --- products with vectors ------------------------------------------------------------------------


def atax(a: Any, x: Any, y: Any) -> None:
    ax = ndarray(a.dtype, a.shape[0], name="ax")
    rows_by(a, x, ax)
    columns_by(a, ax, y)


def _np_atax(a, x, y):
    np.matmul(a @ x, a, out=y)


def _nb_atax(a, x, y):
    ax = np.empty(a.shape[0], a.dtype)
    _nb_rows_by(a, x, ax)
    _nb_columns_by(a, ax, y)


def _atax(rng, m, n):
    return rng.standard_normal((m, n)), rng.standard_normal(n), np.zeros(n)


def bicg(a: Any, p: Any, r: Any, q: Any, s: Any) -> None:
    rows_by(a, p, q)
    columns_by(a, r, s)


def _np_bicg(a, p, r, q, s):
    np.matmul(a, p, out=q)
    np.matmul(r, a, out=s)


def _nb_bicg(a, p, r, q, s):
    _nb_rows_by(a, p, q)
    _nb_columns_by(a, r, s)


def _bicg(rng, m, n):
    normal = rng.standard_normal
    return normal((n, m)), normal(m), normal(n), np.zeros(n), np.zeros(m)


@kernel
def add_rows_by(a: nd, x: nd, y: nd, alpha: float) -> None:
    for i in range(a.shape[0]):
        total = 0.0
        for j in range(a.shape[1]):
            total += a[i, j] * x[j]
        y[i] += alpha * total


@kernel
def add_columns_by(a: nd, x: nd, y: nd, alpha: float) -> None:
    for j in range(a.shape[1]):
        total = 0.0
        for i in range(a.shape[0]):
            total += a[i, j] * x[i]
        y[j] += alpha * total


def mvt(a: Any, x1: Any, x2: Any, y1: Any, y2: Any) -> None:
    add_rows_by(a, y1, x1, 1.0)
    add_columns_by(a, y2, x2, 1.0)


def _np_mvt(a, x1, x2, y1, y2):
    x1 += a @ y1
    x2 += y2 @ a


def _nb_mvt(a, x1, x2, y1, y2):
    rows, columns = np.empty_like(x1), np.empty_like(x2)
    _nb_rows_by(a, y1, rows)
    _nb_columns_by(a, y2, columns)
    x1 += rows
    x2 += columns


def _mvt(rng, n):
    return rng.standard_normal((n, n)), *(rng.standard_normal(n) for _ in range(4))


@kernel
def sum_of_products(a: nd, b: nd, x: nd, y: nd, alpha: float, beta: float) -> None:
    for i in range(a.shape[0]):
        by_a = 0.0
        by_b = 0.0
        for j in range(a.shape[1]):
            by_a += a[i, j] * x[j]
            by_b += b[i, j] * x[j]
        y[i] = alpha * by_a + beta * by_b


def gesummv(a: Any, b: Any, x: Any, y: Any) -> None:
    sum_of_products(a, b, x, y, ALPHA, BETA)


def _np_gesummv(a, b, x, y):
    np.add(ALPHA * (a @ x), BETA * (b @ x), out=y)


@parallel
def _nb_gesummv(a, b, x, y):
    for i in prange(a.shape[0]):
        by_a, by_b = a[i, 0] * x[0], b[i, 0] * x[0]
        for j in range(1, a.shape[1]):
            by_a += a[i, j] * x[j]
            by_b += b[i, j] * x[j]
        y[i] = ALPHA * by_a + BETA * by_b


def _gesummv(rng, n):
    normal = rng.standard_normal
    return normal((n, n)), normal((n, n)), normal(n), np.zeros(n)


@kernel
def add_outer(a: nd, u1: nd, v1: nd, u2: nd, v2: nd) -> None:
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            a[i, j] += u1[i] * v1[j] + u2[i] * v2[j]


@kernel
def add_to(x: nd, z: nd) -> None:
    for i in range(x.shape[0]):
        x[i] += z[i]


def gemver(a: Any, u1: Any, v1: Any, u2: Any, v2: Any, w: Any, x: Any, y: Any, z: Any) -> None:
    add_outer(a, u1, v1, u2, v2)
    add_columns_by(a, y, x, BETA)
    add_to(x, z)
    add_rows_by(a, x, w, ALPHA)


def _np_gemver(a, u1, v1, u2, v2, w, x, y, z):
    a += np.outer(u1, v1)
    a += np.outer(u2, v2)
    x += BETA * (y @ a) + z
    w += ALPHA * (a @ x)


@parallel
def _nb_add_outer(a, u1, v1, u2, v2):
    for i in prange(a.shape[0]):
        for j in range(a.shape[1]):
            a[i, j] += u1[i] * v1[j] + u2[i] * v2[j]


def _nb_gemver(a, u1, v1, u2, v2, w, x, y, z):
    _nb_add_outer(a, u1, v1, u2, v2)
    columns, rows = np.empty_like(x), np.empty_like(w)
    _nb_columns_by(a, y, columns)
    x += BETA * columns + z
    _nb_rows_by(a, x, rows)
    w += ALPHA * rows


def _gemver(rng, n):
    return rng.standard_normal((n, n)), *(rng.standard_normal(n) / n**0.5 for _ in range(8))


_FIVE = {"ni": 5, "nj": 6, "nk": 7}
PROGRAMS = (
    Ported(gemm, _np_gemm, _nb_gemm, _gemm, (0,), {"ni": 1000, "nj": 1100, "nk": 1200}, _FIVE),
    Ported(
        k2mm,
        _np_k2mm,
        _nb_k2mm,
        _k2mm,
        (0,),
        {"ni": 800, "nj": 850, "nk": 900, "nl": 950},
        _FIVE | {"nl": 4},
    ),
    Ported(
        k3mm,
        _np_k3mm,
        _nb_k3mm,
        _k3mm,
        (4,),
        {"ni": 800, "nj": 850, "nk": 900, "nl": 950, "nm": 1000},
        _FIVE | {"nl": 4, "nm": 3},
    ),
    Ported(
        doitgen,
        _np_doitgen,
        _nb_doitgen,
        _doitgen,
        (0,),
        {"nr": 60, "nq": 60, "n": 128},
        {"nr": 3, "nq": 4, "n": 5},
    ),
    Ported(symm, _np_symm, _nb_symm, _symm, (0,), {"m": 120, "n": 150}, {"m": 6, "n": 5}),
    Ported(
        syrk,
        PEERS["syrk"]["NumPy"],
        PEERS["syrk"]["numba"],
        _syrk,
        (0,),
        {"m": 150, "n": 200},
        {"m": 6, "n": 5},
    ),
    Ported(
        syr2k,
        PEERS["syr2k"]["NumPy"],
        PEERS["syr2k"]["numba"],
        _syr2k,
        (0,),
        {"m": 110, "n": 140},
        {"m": 6, "n": 5},
    ),
    Ported(
        trmm,
        PEERS["trmm"]["NumPy"],
        PEERS["trmm"]["numba"],
        _trmm,
        (1,),
        {"m": 200, "n": 250},
        {"m": 6, "n": 5},
    ),
    Ported(atax, _np_atax, _nb_atax, _atax, (2,), {"m": 4000, "n": 5000}, {"m": 6, "n": 5}),
    Ported(bicg, _np_bicg, _nb_bicg, _bicg, (3, 4), {"m": 4000, "n": 5000}, {"m": 6, "n": 5}),
    Ported(mvt, _np_mvt, _nb_mvt, _mvt, (1, 2), {"n": 5500}, {"n": 7}),
    Ported(gesummv, _np_gesummv, _nb_gesummv, _gesummv, (3,), {"n": 4000}, {"n": 7}),
    Ported(gemver, _np_gemver, _nb_gemver, _gemver, (0, 5, 6), {"n": 3000}, {"n": 7}),
)
