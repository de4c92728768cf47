"""The programs of `experiments/polybench.py` beside ours: their arrays, and what NumPy and numba run in their place.

NumPy's versions call BLAS and LAPACK where they have what is asked for; numba's are loops with `prange` where iterations are
independent, `fastmath`, and the order of loops that runs along rows.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numba import njit, prange

from .polybench_kernels import ALPHA, BETA, STEPS, SWEEPS

Arrays = tuple[np.ndarray[Any, Any], ...]
COLUMNS = 16  # of the block that a sparse matrix is multiplied by
PER_ROW = 16  # entries of a row of it, on average
_parallel = njit(parallel=True, fastmath=True, cache=False)
_serial = njit(fastmath=True, cache=False)


def arrays_of(name: str, n: int, rng: np.random.Generator) -> Arrays:
    """The arguments of a program."""

    def square() -> np.ndarray[Any, Any]:
        return rng.standard_normal((n, n))

    match name:
        case "syrk" | "trmm":
            return square(), square()
        case "syr2k":
            return square(), square(), square()
        case "covariance":
            return square(), np.zeros(n), np.zeros((n, n))
        case "correlation":
            return square(), np.zeros(n), np.zeros(n), np.zeros((n, n))
        case "lu":
            return (square() + n * np.eye(n),)
        case "cholesky":
            a = square()
            return (a @ a.T + n * np.eye(n),)
        case "jacobi_2d":
            a = square()
            return a, a.copy()
        case "heat_3d":
            a = rng.standard_normal((n, n, n))
            return a, a.copy()
        case "seidel_2d":
            return (square(),)
        case "floyd_warshall":
            return (rng.integers(1, 1000, (n, n)).astype(np.float64),)
        case "nussinov":  # a row behind the last one: what is read below the diagonal is zero
            return rng.integers(0, 4, n).astype(np.float64), np.zeros((n + 1, n))
        case "csr_vector" | "csr_block":
            lengths = rng.integers(0, 2 * PER_ROW + 1, n)
            start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
            column = rng.integers(0, n, int(start[-1])).astype(np.int32)
            value = rng.standard_normal(len(column))
            shape = (n,) if name == "csr_vector" else (n, COLUMNS)
            return start, column, value, rng.standard_normal(shape), np.zeros(shape)
    raise ValueError(f"no program {name!r}")


# --- NumPy ----------------------------------------------------------------------------------------


def _np_syrk(c, a):
    full = a @ a.T  # NumPy calls syrk here, and mirrors
    full *= ALPHA
    full += BETA * c
    np.copyto(c, full, where=np.tri(len(c), dtype=bool))


def _np_syr2k(c, a, b):
    half = a @ b.T
    half *= ALPHA
    full = half + half.T
    full += BETA * c
    np.copyto(c, full, where=np.tri(len(c), dtype=bool))


def _np_trmm(a, b):
    unit = np.tril(a, -1)
    np.fill_diagonal(unit, 1.0)
    np.multiply(unit.T @ b, ALPHA, out=b)


def _np_covariance(data, mean, cov):
    np.mean(data, axis=0, out=mean)
    data -= mean
    np.matmul(data.T, data, out=cov)
    cov /= len(data) - 1.0


def _np_correlation(data, mean, stddev, corr):
    np.mean(data, axis=0, out=mean)
    data -= mean
    np.sqrt(np.einsum("ij,ij->j", data, data) / len(data), out=stddev)
    stddev[stddev <= 0.1] = 1.0
    data /= np.sqrt(len(data)) * stddev
    np.matmul(data.T, data, out=corr)
    np.fill_diagonal(corr, 1.0)


def _np_lu(a):
    for k in range(len(a) - 1):
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= a[k + 1 :, k : k + 1] * a[k, k + 1 :]


def _np_cholesky(a):
    np.copyto(a, np.linalg.cholesky(a), where=np.tri(len(a), dtype=bool))


def _np_jacobi_2d(a, b, steps=STEPS):
    for _ in range(steps):
        for x, y in ((a, b), (b, a)):
            inside = y[1:-1, 1:-1]
            np.add(x[1:-1, 1:-1], x[1:-1, :-2], out=inside)
            inside += x[1:-1, 2:]
            inside += x[2:, 1:-1]
            inside += x[:-2, 1:-1]
            inside *= 0.2


def _np_heat_3d(a, b, steps=STEPS):
    for _ in range(steps):
        for x, y in ((a, b), (b, a)):
            inside = y[1:-1, 1:-1, 1:-1]
            np.add(x[2:, 1:-1, 1:-1], x[:-2, 1:-1, 1:-1], out=inside)
            inside += x[1:-1, 2:, 1:-1]
            inside += x[1:-1, :-2, 1:-1]
            inside += x[1:-1, 1:-1, 2:]
            inside += x[1:-1, 1:-1, :-2]
            inside *= 0.125
            inside += 0.25 * x[1:-1, 1:-1, 1:-1]


def _np_seidel_2d(a, sweeps=SWEEPS):
    n = len(a)
    for _ in range(sweeps):
        for i in range(1, n - 1):
            row = a[i - 1, :-2] + a[i - 1, 1:-1] + a[i - 1, 2:] + a[i, 1:-1] + a[i, 2:]
            row += a[i + 1, :-2] + a[i + 1, 1:-1] + a[i + 1, 2:]
            left = a[i, 0]
            for j, x in enumerate(row.tolist()):  # each element needs the one before it
                left = (left + x) / 9.0
                a[i, j + 1] = left


def _np_floyd_warshall(path):
    for k in range(len(path)):
        np.minimum(path, path[:, k : k + 1] + path[k], out=path)


def _np_nussinov(seq, table):
    n = len(seq)
    for i in range(n - 1, -1, -1):
        row = table[i]
        for j in range(i + 1, n):
            pair = 1.0 if i < j - 1 and seq[i] + seq[j] == 3.0 else 0.0
            best = max(row[j], row[j - 1], table[i + 1, j], table[i + 1, j - 1] + pair)
            if j > i + 1:
                best = max(best, np.max(row[i + 1 : j] + table[i + 2 : j + 1, j]))
            row[j] = best


def _np_csr_vector(start, column, value, x, y):
    sums = np.concatenate([[0.0], np.cumsum(value * x[column])])
    np.subtract(sums[start[1:]], sums[start[:-1]], out=y)


def _np_csr_block(start, column, value, x, y):
    filled = np.flatnonzero(start[1:] > start[:-1])
    y[:] = 0.0
    y[filled] = np.add.reduceat(value[:, None] * x[column], start[filled], axis=0)


# --- numba ----------------------------------------------------------------------------------------


@_parallel
def _nb_syrk(c, a):
    n = c.shape[0]
    for r in prange(n):
        i = r // 2 if r % 2 == 0 else n - 1 - r // 2  # short and long rows in turn
        for j in range(i + 1):
            acc = 0.0
            for k in range(a.shape[1]):
                acc += a[i, k] * a[j, k]
            c[i, j] = BETA * c[i, j] + ALPHA * acc


@_parallel
def _nb_syr2k(c, a, b):
    n = c.shape[0]
    for r in prange(n):
        i = r // 2 if r % 2 == 0 else n - 1 - r // 2
        for j in range(i + 1):
            acc = 0.0
            for k in range(a.shape[1]):
                acc += a[j, k] * b[i, k] + b[j, k] * a[i, k]
            c[i, j] = BETA * c[i, j] + ALPHA * acc


@_parallel
def _nb_trmm(a, b):
    n, width = b.shape[0], 64
    for block in prange((b.shape[1] + width - 1) // width):
        low, high = block * width, min((block + 1) * width, b.shape[1])
        for i in range(n):
            for k in range(i + 1, n):
                for j in range(low, high):
                    b[i, j] += a[k, i] * b[k, j]
            for j in range(low, high):
                b[i, j] *= ALPHA


@_parallel
def _nb_centre(data, mean):
    n, m = data.shape
    for block in prange((m + 63) // 64):
        low, high = block * 64, min(block * 64 + 64, m)
        mean[low:high] = 0.0
        for i in range(n):
            for j in range(low, high):
                mean[j] += data[i, j]
        for j in range(low, high):
            mean[j] /= n
        for i in range(n):
            for j in range(low, high):
                data[i, j] -= mean[j]


@_parallel
def _nb_products(data, out, scale):
    m = out.shape[0]
    turned = np.ascontiguousarray(data.T)
    for r in prange(m):
        i = r // 2 if r % 2 == 0 else m - 1 - r // 2
        for j in range(i, m):
            acc = 0.0
            for k in range(turned.shape[1]):
                acc += turned[i, k] * turned[j, k]
            out[i, j] = acc * scale
            out[j, i] = acc * scale


def _nb_covariance(data, mean, cov):
    _nb_centre(data, mean)
    _nb_products(data, cov, 1.0 / (len(data) - 1.0))


@_parallel
def _nb_standardise(data, stddev):
    n, m = data.shape
    for block in prange((m + 63) // 64):
        low, high = block * 64, min(block * 64 + 64, m)
        stddev[low:high] = 0.0
        for i in range(n):
            for j in range(low, high):
                stddev[j] += data[i, j] * data[i, j]
        for j in range(low, high):
            stddev[j] = np.sqrt(stddev[j] / n)
            if stddev[j] <= 0.1:
                stddev[j] = 1.0
        for i in range(n):
            for j in range(low, high):
                data[i, j] /= np.sqrt(n) * stddev[j]


def _nb_correlation(data, mean, stddev, corr):
    _nb_centre(data, mean)
    _nb_standardise(data, stddev)
    _nb_products(data, corr, 1.0)
    np.fill_diagonal(corr, 1.0)


@_parallel
def _nb_lu(a):
    n = a.shape[0]
    for k in range(n):
        for i in prange(k + 1, n):
            x = a[i, k] / a[k, k]
            a[i, k] = x
            for j in range(k + 1, n):
                a[i, j] -= x * a[k, j]


@_parallel
def _nb_cholesky(a):
    n = a.shape[0]
    for k in range(n):
        for j in range(k):
            a[k, k] -= a[k, j] * a[k, j]
        a[k, k] = np.sqrt(a[k, k])
        for i in prange(k + 1, n):
            acc = 0.0
            for j in range(k):
                acc += a[i, j] * a[k, j]
            a[i, k] = (a[i, k] - acc) / a[k, k]


@_parallel
def _nb_jacobi_2d(a, b, steps=STEPS):
    n, m = a.shape
    for _ in range(steps):
        for i in prange(1, n - 1):
            for j in range(1, m - 1):
                b[i, j] = 0.2 * (a[i, j] + a[i, j - 1] + a[i, j + 1] + a[i + 1, j] + a[i - 1, j])
        for i in prange(1, n - 1):
            for j in range(1, m - 1):
                a[i, j] = 0.2 * (b[i, j] + b[i, j - 1] + b[i, j + 1] + b[i + 1, j] + b[i - 1, j])


@njit(fastmath=True, inline="always")
def _nb_seven(x, y, i):
    for j in range(1, x.shape[1] - 1):
        for k in range(1, x.shape[2] - 1):
            around = x[i + 1, j, k] + x[i - 1, j, k] + x[i, j + 1, k] + x[i, j - 1, k]
            y[i, j, k] = 0.125 * (around + x[i, j, k + 1] + x[i, j, k - 1]) + 0.25 * x[i, j, k]


@_parallel
def _nb_heat_3d(a, b, steps=STEPS):
    for _ in range(steps):
        for i in prange(1, a.shape[0] - 1):
            _nb_seven(a, b, i)
        for i in prange(1, a.shape[0] - 1):
            _nb_seven(b, a, i)


@_serial
def _nb_seidel_2d(a, sweeps=SWEEPS):
    n, m = a.shape
    for _ in range(sweeps):
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                above = a[i - 1, j - 1] + a[i - 1, j] + a[i - 1, j + 1]
                below = a[i + 1, j - 1] + a[i + 1, j] + a[i + 1, j + 1]
                a[i, j] = (above + a[i, j] + a[i, j + 1] + below + a[i, j - 1]) / 9.0


@_parallel
def _nb_floyd_warshall(path):
    n = path.shape[0]
    for k in range(n):
        for i in prange(n):
            x = path[i, k]
            for j in range(n):
                path[i, j] = min(path[i, j], x + path[k, j])


@_parallel
def _nb_nussinov(seq, table):
    n = seq.shape[0]
    for d in range(1, n):  # all elements of a diagonal are independent
        for i in prange(n - d):
            j = i + d
            pair = 1.0 if d > 1 and seq[i] + seq[j] == 3.0 else 0.0
            best = max(table[i, j], table[i, j - 1])
            best = max(best, max(table[i + 1, j], table[i + 1, j - 1] + pair))
            for k in range(i + 1, j):
                best = max(best, table[i, k] + table[k + 1, j])
            table[i, j] = best


@_parallel
def _nb_csr_vector(start, column, value, x, y):
    for i in prange(y.shape[0]):
        acc = 0.0
        for k in range(start[i], start[i + 1]):
            acc += value[k] * x[column[k]]
        y[i] = acc


@_parallel
def _nb_csr_block(start, column, value, x, y):
    for i in prange(y.shape[0]):
        y[i, :] = 0.0
        for k in range(start[i], start[i + 1]):
            for j in range(y.shape[1]):
                y[i, j] += value[k] * x[column[k], j]


PEERS: Mapping[str, Mapping[str, Callable[..., None]]] = {
    "syrk": {"NumPy": _np_syrk, "numba": _nb_syrk},
    "syr2k": {"NumPy": _np_syr2k, "numba": _nb_syr2k},
    "trmm": {"NumPy": _np_trmm, "numba": _nb_trmm},
    "covariance": {"NumPy": _np_covariance, "numba": _nb_covariance},
    "correlation": {"NumPy": _np_correlation, "numba": _nb_correlation},
    "lu": {"NumPy": _np_lu, "numba": _nb_lu},
    "cholesky": {"NumPy": _np_cholesky, "numba": _nb_cholesky},
    "jacobi_2d": {"NumPy": _np_jacobi_2d, "numba": _nb_jacobi_2d},
    "heat_3d": {"NumPy": _np_heat_3d, "numba": _nb_heat_3d},
    "seidel_2d": {"NumPy": _np_seidel_2d, "numba": _nb_seidel_2d},
    "floyd_warshall": {"NumPy": _np_floyd_warshall, "numba": _nb_floyd_warshall},
    "nussinov": {"NumPy": _np_nussinov, "numba": _nb_nussinov},
    "csr_vector": {"NumPy": _np_csr_vector, "numba": _nb_csr_vector},
    "csr_block": {"NumPy": _np_csr_block, "numba": _nb_csr_block},
}
