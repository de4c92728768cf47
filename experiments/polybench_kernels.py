"""The programs of `experiments/polybench.py` in the kernel language, as a user would write them (after PolyBench 4.2, f64).

Each sequence works in place on arrays that `polybench_peers.arrays_of` makes, in the same order.
"""

# mypy: disable-error-code="valid-type"

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..kernels.frontend.intrinsics import loop_config
from ..kernels.frontend.kernel import kernel, types

nd: Any = types.ndarray()
STEPS = 100  # of jacobi_2d and heat_3d
SWEEPS = 10  # of seidel_2d
ALPHA, BETA = 1.5, 1.2


# --- products -------------------------------------------------------------------------------------


@kernel
def rank_k(c: nd, a: nd, alpha: float, beta: float) -> None:
    for i in range(c.shape[0]):
        for j in range(i + 1):
            acc = 0.0
            for k in range(a.shape[1]):
                acc += a[i, k] * a[j, k]
            c[i, j] = beta * c[i, j] + alpha * acc


def syrk(c: Any, a: Any) -> None:
    rank_k(c, a, ALPHA, BETA)


@kernel
def rank_2k(c: nd, a: nd, b: nd, alpha: float, beta: float) -> None:
    for i in range(c.shape[0]):
        for j in range(i + 1):
            acc = 0.0
            for k in range(a.shape[1]):
                acc += a[j, k] * b[i, k] + b[j, k] * a[i, k]
            c[i, j] = beta * c[i, j] + alpha * acc


def syr2k(c: Any, a: Any, b: Any) -> None:
    rank_2k(c, a, b, ALPHA, BETA)


@kernel
def triangular_product(a: nd, b: nd, alpha: float) -> None:
    for j in range(b.shape[1]):
        for i in range(b.shape[0]):
            acc = b[i, j]
            for k in range(i + 1, b.shape[0]):
                acc += a[k, i] * b[k, j]
            b[i, j] = alpha * acc


def trmm(a: Any, b: Any) -> None:
    triangular_product(a, b, ALPHA)


# --- statistics -----------------------------------------------------------------------------------


@kernel
def centre(data: nd, mean: nd) -> None:
    for j in range(data.shape[1]):
        acc = 0.0
        for i in range(data.shape[0]):
            acc += data[i, j]
        mean[j] = acc / data.shape[0]
    for i in range(data.shape[0]):
        for j in range(data.shape[1]):
            data[i, j] -= mean[j]


@kernel
def moments(data: nd, cov: nd) -> None:
    for i in range(cov.shape[0]):
        for j in range(i, cov.shape[0]):
            acc = 0.0
            for k in range(data.shape[0]):
                acc += data[k, i] * data[k, j]
            cov[i, j] = acc / (data.shape[0] - 1.0)


@kernel
def mirror(cov: nd) -> None:
    for i in range(cov.shape[0]):
        for j in range(i + 1, cov.shape[0]):
            cov[j, i] = cov[i, j]


def covariance(data: Any, mean: Any, cov: Any) -> None:
    centre(data, mean)
    moments(data, cov)
    mirror(cov)


@kernel
def standardise(data: nd, stddev: nd, eps: float) -> None:
    for j in range(data.shape[1]):
        acc = 0.0
        for i in range(data.shape[0]):
            acc += data[i, j] * data[i, j]
        stddev[j] = (acc / data.shape[0]) ** 0.5
    for j in range(data.shape[1]):
        if stddev[j] <= eps:
            stddev[j] = 1.0
    for i in range(data.shape[0]):
        for j in range(data.shape[1]):
            data[i, j] /= float(data.shape[0]) ** 0.5 * stddev[j]


@kernel
def correlations(data: nd, corr: nd) -> None:
    for i in range(corr.shape[0]):
        corr[i, i] = 1.0
    for i in range(corr.shape[0]):
        for j in range(i + 1, corr.shape[0]):
            acc = 0.0
            for k in range(data.shape[0]):
                acc += data[k, i] * data[k, j]
            corr[i, j] = acc


def correlation(data: Any, mean: Any, stddev: Any, corr: Any) -> None:
    centre(data, mean)
    standardise(data, stddev, 0.1)
    correlations(data, corr)
    mirror(corr)


# --- factorisations -------------------------------------------------------------------------------


@kernel
def lu_column(a: nd, k: int) -> None:
    for i in range(k + 1, a.shape[0]):
        a[i, k] /= a[k, k]


@kernel
def lu_update(a: nd, k: int) -> None:
    for i in range(k + 1, a.shape[0]):
        for j in range(k + 1, a.shape[0]):
            a[i, j] -= a[i, k] * a[k, j]


def lu(a: Any) -> None:
    for k in range(a.shape[0]):
        lu_column(a, k)
        lu_update(a, k)


@kernel
def cholesky_column(a: nd, k: int) -> None:
    a[k, k] = a[k, k] ** 0.5
    for i in range(k + 1, a.shape[0]):
        a[i, k] /= a[k, k]


@kernel
def cholesky_update(a: nd, k: int) -> None:
    for i in range(k + 1, a.shape[0]):
        for j in range(k + 1, i + 1):
            a[i, j] -= a[i, k] * a[j, k]


def cholesky(a: Any) -> None:
    """Of the lower triangle; what is above it stays."""
    for k in range(a.shape[0]):
        cholesky_column(a, k)
        cholesky_update(a, k)


# --- stencils -------------------------------------------------------------------------------------


@kernel
def five_points(a: nd, b: nd) -> None:
    for i in range(1, a.shape[0] - 1):
        for j in range(1, a.shape[1] - 1):
            b[i, j] = 0.2 * (a[i, j] + a[i, j - 1] + a[i, j + 1] + a[i + 1, j] + a[i - 1, j])


def jacobi_2d(a: Any, b: Any) -> None:
    for _ in range(STEPS):
        five_points(a, b)
        five_points(b, a)


@kernel
def seven_points(a: nd, b: nd) -> None:
    for i in range(1, a.shape[0] - 1):
        for j in range(1, a.shape[1] - 1):
            for k in range(1, a.shape[2] - 1):
                b[i, j, k] = (
                    0.125 * (a[i + 1, j, k] - 2.0 * a[i, j, k] + a[i - 1, j, k])
                    + 0.125 * (a[i, j + 1, k] - 2.0 * a[i, j, k] + a[i, j - 1, k])
                    + 0.125 * (a[i, j, k + 1] - 2.0 * a[i, j, k] + a[i, j, k - 1])
                    + a[i, j, k]
                )


def heat_3d(a: Any, b: Any) -> None:
    for _ in range(STEPS):
        seven_points(a, b)
        seven_points(b, a)


@kernel
def sweep(a: nd) -> None:
    loop_config(serialize=True)
    for i in range(1, a.shape[0] - 1):
        for j in range(1, a.shape[1] - 1):
            a[i, j] = (
                a[i - 1, j - 1] + a[i - 1, j] + a[i - 1, j + 1]
                + a[i, j - 1] + a[i, j] + a[i, j + 1]
                + a[i + 1, j - 1] + a[i + 1, j] + a[i + 1, j + 1]
            ) / 9.0  # fmt: skip


def seidel_2d(a: Any) -> None:
    for _ in range(SWEEPS):
        sweep(a)


# --- dynamic programming --------------------------------------------------------------------------


@kernel
def shorter(path: nd, k: int) -> None:
    for i in range(path.shape[0]):
        for j in range(path.shape[1]):
            path[i, j] = min(path[i, j], path[i, k] + path[k, j])


def floyd_warshall(path: Any) -> None:
    for k in range(path.shape[0]):
        shorter(path, k)


@kernel
def fold(seq: nd, table: nd) -> None:
    n = seq.shape[0]
    loop_config(serialize=True)
    for r in range(n):
        i = n - 1 - r
        for j in range(i + 1, n):
            best = max(table[i, j], table[i, j - 1])
            best = max(best, table[i + 1, j])
            if i < j - 1 and seq[i] + seq[j] == 3.0:
                best = max(best, table[i + 1, j - 1] + 1.0)
            else:
                best = max(best, table[i + 1, j - 1])
            for k in range(i + 1, j):
                best = max(best, table[i, k] + table[k + 1, j])
            table[i, j] = best


def nussinov(seq: Any, table: Any) -> None:
    fold(seq, table)


# --- sparse matrices ------------------------------------------------------------------------------


@kernel
def rows_by_vector(start: nd, column: nd, value: nd, x: nd, y: nd) -> None:
    for i in range(y.shape[0]):
        acc = 0.0
        for k in range(start[i], start[i + 1]):
            acc += value[k] * x[column[k]]
        y[i] = acc


def csr_vector(start: Any, column: Any, value: Any, x: Any, y: Any) -> None:
    rows_by_vector(start, column, value, x, y)


@kernel
def rows_by_block(start: nd, column: nd, value: nd, x: nd, y: nd) -> None:
    for i in range(y.shape[0]):
        for j in range(y.shape[1]):
            y[i, j] = 0.0
        for k in range(start[i], start[i + 1]):
            for j in range(y.shape[1]):
                y[i, j] += value[k] * x[column[k], j]


def csr_block(start: Any, column: Any, value: Any, x: Any, y: Any) -> None:
    rows_by_block(start, column, value, x, y)


_ALL = (
    *(syrk, syr2k, trmm, covariance, correlation, lu, cholesky, jacobi_2d, heat_3d, seidel_2d),
    *(floyd_warshall, nussinov, csr_vector, csr_block),
)
SEQUENCES: Mapping[str, Callable[..., None]] = {f.__name__: f for f in _ALL}
