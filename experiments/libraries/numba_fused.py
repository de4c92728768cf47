"""numba, fused by hand and parallel: one loop nest where one will do, rows shared out to threads, the compiler's vectors.

Scalars are converted to the type of the arrays: numba would compute in float64 with Python's numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import SimpleNamespace
from typing import Any

import numba
import numpy as np
from numba import prange

_jit = numba.njit(parallel=True, fastmath=True)


@_jit
def _atax(a, x, y, zero):
    m, n = a.shape
    team = numba.get_num_threads()
    parts = np.zeros((team, n), a.dtype)
    for t in prange(team):
        own = parts[t]
        for i in range(t * m // team, (t + 1) * m // team):
            acc = zero
            for j in range(n):
                acc += a[i, j] * x[j]
            for j in range(n):
                own[j] += a[i, j] * acc
    _add_parts(parts, y)


@numba.njit(fastmath=True)
def _add_parts(parts, y):
    y[:] = parts[0]
    for t in range(1, len(parts)):
        for j in range(len(y)):
            y[j] += parts[t, j]


@_jit
def _axpy(x, y, z, alpha):
    for i in prange(len(z)):
        z[i] = alpha * x[i] + y[i]


@_jit
def _axpydot(w, v, u, z, r, alpha, zero):
    acc = zero
    for i in prange(len(z)):
        t = w[i] - alpha * v[i]
        z[i] = t
        acc += t * u[i]
    r[0] = acc


@_jit
def _bicgk(a, p, r, q, s, zero):
    m, n = a.shape
    team = numba.get_num_threads()
    parts = np.zeros((team, n), a.dtype)
    for t in prange(team):
        own = parts[t]
        for i in range(t * m // team, (t + 1) * m // team):
            acc = zero
            ri = r[i]
            for j in range(n):
                v = a[i, j]
                acc += v * p[j]
                own[j] += v * ri
            q[i] = acc
    _add_parts(parts, s)


@_jit
def _gemver(a, u1, v1, u2, v2, y, z, b, x, w, alpha, beta, zero):
    m, n = a.shape
    team = numba.get_num_threads()
    parts = np.zeros((team, n), a.dtype)
    for t in prange(team):
        own = parts[t]
        for i in range(t * m // team, (t + 1) * m // team):
            s1, s2, yi = u1[i], u2[i], y[i]
            for j in range(n):
                v = a[i, j] + s1 * v1[j] + s2 * v2[j]
                b[i, j] = v
                own[j] += v * yi
    _add_parts(parts, x)
    for j in range(n):
        x[j] = beta * x[j] + z[j]
    for i in prange(m):
        acc = zero
        for j in range(n):
            acc += b[i, j] * x[j]
        w[i] = alpha * acc


@_jit
def _gesummv(a, b, x, y, alpha, beta, zero):
    m, n = a.shape
    for i in prange(m):
        s, t = zero, zero
        for j in range(n):
            s += a[i, j] * x[j]
            t += b[i, j] * x[j]
        y[i] = alpha * s + beta * t


@_jit
def _madd(a, b, c):
    for i in prange(a.shape[0]):
        for j in range(a.shape[1]):
            c[i, j] = a[i, j] + b[i, j]


@_jit
def _matmul(a, b, c, zero):
    m, n = c.shape
    for i in prange(m):
        row = c[i]
        row[:] = zero
        for k in range(b.shape[0]):
            v = a[i, k]
            for j in range(n):
                row[j] += v * b[k, j]


@_jit
def _matmul_strided(a, b, c, zero):
    m, n = c.shape
    for i in prange(m):
        row = c[i]
        row[:] = zero
        for k in range(b.shape[0]):
            v = a[i, 32 * k]
            for j in range(n):
                row[j] += v * b[k, j]


@_jit
def _sgemv(a, x, y, z, alpha, beta, zero):
    m, n = a.shape
    for i in prange(m):
        acc = zero
        for j in range(n):
            acc += a[i, j] * x[j]
        z[i] = alpha * acc + beta * y[i]


@_jit
def _sgemvt(a, y, z, x, w, alpha, beta, zero):
    m, n = a.shape
    team = numba.get_num_threads()
    parts = np.zeros((team, n), a.dtype)
    for t in prange(team):
        own = parts[t]
        for i in range(t * m // team, (t + 1) * m // team):
            yi = y[i]
            for j in range(n):
                own[j] += a[i, j] * yi
    _add_parts(parts, x)
    for j in range(n):
        x[j] = beta * x[j] + z[j]
    for i in prange(m):
        acc = zero
        for j in range(n):
            acc += a[i, j] * x[j]
        w[i] = alpha * acc


@_jit
def _spmv(ptr, col, val, x, y):
    for i in prange(y.shape[0]):
        acc = x.dtype.type(0)
        for k in range(ptr[i], ptr[i + 1]):
            acc += val[k] * x[col[k]]
        y[i] = acc


@_jit
def _sscal(x, alpha):
    for i in prange(len(x)):
        x[i] *= alpha


@_jit
def _vadd(w, y, z, x):
    for i in prange(len(x)):
        x[i] = w[i] + y[i] + z[i]


@_jit
def _waxpby(x, y, w, alpha, beta):
    for i in prange(len(w)):
        w[i] = alpha * x[i] + beta * y[i]


def _typed(kernel: Callable[..., None], takes_zero: bool, n_outputs: int) -> Callable[..., Any]:
    @wraps(kernel)
    def run(*args: Any) -> Any:
        number = args[0].dtype.type
        typed = [number(x) if isinstance(x, (int, float)) else x for x in args]
        kernel(*typed, *([number(0)] if takes_zero else []))
        arrays = [x for x in args if isinstance(x, np.ndarray)]
        return tuple(arrays[-n_outputs:])

    return run


peers = SimpleNamespace(
    atax=_typed(_atax, True, 1),
    axpy=_typed(_axpy, False, 1),
    axpydot=_typed(_axpydot, True, 2),
    bicgk=_typed(_bicgk, True, 2),
    gemver=_typed(_gemver, True, 3),
    gesummv=_typed(_gesummv, True, 1),
    madd=_typed(_madd, False, 1),
    matmul=_typed(_matmul, True, 1),
    matmul_strided=_typed(_matmul_strided, True, 1),
    sgemv=_typed(_sgemv, True, 1),
    sgemvt=_typed(_sgemvt, True, 2),
    spmv=_typed(_spmv, False, 1),
    sscal=_typed(_sscal, False, 1),
    vadd=_typed(_vadd, False, 1),
    waxpby=_typed(_waxpby, False, 1),
)
