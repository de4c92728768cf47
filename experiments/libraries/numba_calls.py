"""numba for experiments/calls.py: what a user would write instead, in one thread."""

from __future__ import annotations

import numba


@numba.njit(fastmath=True)
def add_five(a, b, c, d, e, out):
    for i in range(out.shape[0]):
        out[i] = a[i] + b[i] + c[i] + d[i] + e[i]


@numba.njit(fastmath=True)
def sparse_product(ptr, col, val, x, y):
    for i in range(y.shape[0]):
        acc = x.dtype.type(0)
        for k in range(ptr[i], ptr[i + 1]):
            acc += val[k] * x[col[k]]
        y[i] = acc
