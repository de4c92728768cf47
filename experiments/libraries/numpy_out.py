"""NumPy without temporaries: `out=` everywhere, products by the BLAS behind it, scratch arrays made once."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np


@cache
def _scratch(shape: tuple[int, ...], dtype: Any, number: int = 0) -> Any:
    return np.zeros(shape, dtype)


def atax(a: Any, x: Any, y: Any) -> Any:
    t = np.matmul(a, x, out=_scratch((a.shape[0],), a.dtype))
    return (np.matmul(t, a, out=y),)


def axpy(x: Any, y: Any, z: Any, alpha: float) -> Any:
    np.multiply(x, alpha, out=z)
    return (np.add(z, y, out=z),)


def axpydot(w: Any, v: Any, u: Any, z: Any, r: Any, alpha: float) -> Any:
    np.multiply(v, -alpha, out=z)
    np.add(z, w, out=z)
    r[0] = np.dot(z, u)
    return z, r


def bicgk(a: Any, p: Any, r: Any, q: Any, s: Any) -> Any:
    return np.matmul(a, p, out=q), np.matmul(r, a, out=s)


def gemver(
    a: Any,
    u1: Any,
    v1: Any,
    u2: Any,
    v2: Any,
    y: Any,
    z: Any,
    b: Any,
    x: Any,
    w: Any,
    alpha: float,
    beta: float,
) -> Any:
    left, right = _scratch((a.shape[0], 2), a.dtype, 1), _scratch((2, a.shape[1]), a.dtype, 2)
    left[:, 0], left[:, 1], right[0], right[1] = u1, u2, v1, v2
    np.matmul(left, right, out=b)
    np.add(b, a, out=b)
    _scaled_sum(np.matmul(y, b, out=x), beta, z)
    np.matmul(b, x, out=w)
    return b, x, np.multiply(w, alpha, out=w)


def _scaled_sum(x: Any, beta: float, z: Any) -> Any:
    np.multiply(x, beta, out=x)
    return np.add(x, z, out=x)


def gesummv(a: Any, b: Any, x: Any, y: Any, alpha: float, beta: float) -> Any:
    t = np.matmul(b, x, out=_scratch(y.shape, y.dtype))
    np.multiply(t, beta, out=t)
    return (_scaled_sum(np.matmul(a, x, out=y), alpha, t),)


def madd(a: Any, b: Any, c: Any) -> Any:
    return (np.add(a, b, out=c),)


def matmul(a: Any, b: Any, c: Any) -> Any:
    return (np.matmul(a, b, out=c),)


def matmul_strided(a: Any, b: Any, c: Any) -> Any:
    packed = _scratch((a.shape[0], b.shape[0]), a.dtype)
    np.copyto(packed, a[:, ::32])
    return (np.matmul(packed, b, out=c),)


def sgemv(a: Any, x: Any, y: Any, z: Any, alpha: float, beta: float) -> Any:
    t = np.multiply(y, beta, out=_scratch(y.shape, y.dtype))
    return (_scaled_sum(np.matmul(a, x, out=z), alpha, t),)


def sgemvt(a: Any, y: Any, z: Any, x: Any, w: Any, alpha: float, beta: float) -> Any:
    _scaled_sum(np.matmul(y, a, out=x), beta, z)
    np.matmul(a, x, out=w)
    return x, np.multiply(w, alpha, out=w)


def sscal(x: Any, alpha: float) -> Any:
    return (np.multiply(x, alpha, out=x),)


def vadd(w: Any, y: Any, z: Any, x: Any) -> Any:
    np.add(w, y, out=x)
    return (np.add(x, z, out=x),)


def waxpby(x: Any, y: Any, w: Any, alpha: float, beta: float) -> Any:
    t = np.multiply(y, beta, out=_scratch(y.shape, y.dtype))
    np.multiply(x, alpha, out=w)
    return (np.add(w, t, out=w),)


peers = SimpleNamespace(
    **{
        f.__name__: f
        for f in (
            *(atax, axpy, axpydot, bicgk, gemver, gesummv, madd),
            *(matmul, matmul_strided, sgemv, sgemvt, sscal, vadd, waxpby),
        )
    }
)
