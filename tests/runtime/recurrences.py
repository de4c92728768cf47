"""Kernels that are no box of independent elements, in the manner of PolyBench and NPBench, with arguments; each with one that is a
little wrong.
"""

from __future__ import annotations

import kernelscape as ks
import numpy as np

nd = ks.types.ndarray()
template = ks.template()


@ks.kernel
def lu(a: nd, lost: template):
    for _ in range(1):
        for i in range(a.shape[0]):
            for j in range(i):
                for k in range(j - lost):
                    a[i, j] -= a[i, k] * a[k, j]
                a[i, j] /= a[j, j]
            for j in range(i, a.shape[0]):
                for k in range(i):
                    a[i, j] -= a[i, k] * a[k, j]


@ks.kernel
def durbin(r: nd, y: nd, z: nd, lost: template):
    for _ in range(1):
        y[0] = -r[0]
        beta = 1.0
        alpha = -r[0]
        for k in range(1, r.shape[0]):
            beta = (1.0 - alpha * alpha) * beta
            acc = 0.0
            for i in range(k - lost):
                acc += r[k - i - 1] * y[i]
            alpha = -(r[k] + acc) / beta
            for i in range(k):
                z[i] = y[i] + alpha * y[k - i - 1]
            for i in range(k):
                y[i] = z[i]
            y[k] = alpha


@ks.kernel
def mandelbrot(c: nd, d: nd, count: nd, z: nd, lost: template):
    for i in range(c.shape[0]):
        for j in range(d.shape[0]):
            zr = 0.0
            zi = 0.0
            n = 0
            for _ in range(30 - lost):
                if zr * zr + zi * zi < 4.0:
                    t = zr * zr - zi * zi + c[i]
                    zi = 2.0 * zr * zi + d[j]
                    zr = t
                    n += 1
            count[i, j] = n
            z[i, j] = zr


@ks.kernel
def vadv(a: nd, u: nd, x: nd, c: nd, d: nd, lost: template):
    for i in range(x.shape[0]):
        c[i, 0] = u[i, 0] / (1.0 + a[i, 0])
        d[i, 0] = x[i, 0] / (1.0 + a[i, 0])
        for k in range(1, x.shape[1]):
            scale = 1.0 / (1.0 + a[i, k] + u[i, k] - 0.9 * c[i, k - 1] * a[i, k])
            c[i, k] = u[i, k] * scale
            d[i, k] = (x[i, k] - a[i, k] * d[i, k - 1]) * scale
        for k in range(x.shape[1] - 1 - lost):
            d[i, x.shape[1] - 2 - k] -= c[i, x.shape[1] - 2 - k] * d[i, x.shape[1] - 1 - k]


@ks.kernel
def syrk(c: nd, a: nd, alpha: float, lost: template):
    for i in range(c.shape[0]):
        for j in range(i + 1):
            for k in range(a.shape[1] - lost):
                c[i, j] += alpha * a[i, k] * a[j, k]


@ks.kernel
def trmm(a: nd, b: nd, lost: template):
    for j in range(b.shape[1]):
        for i in range(b.shape[0]):
            for k in range(i + 1, b.shape[0] - lost):
                b[i, j] += a[k, i] * b[k, j]


@ks.kernel
def gemv(a: nd, x: nd, y: nd, lost: template):
    for i in range(a.shape[0]):
        acc = 0.0
        for j in range(a.shape[1] - lost):
            acc += a[i, j] * x[j]
        y[i] = acc


@ks.kernel
def spmv(first: nd, column: nd, v: nd, x: nd, y: nd, lost: template):
    for i in range(y.shape[0]):
        acc = 0.0
        for k in range(first[i], first[i + 1] - lost):
            acc += v[k] * x[column[k]]
        y[i] = acc


@ks.kernel
def scatter(p: nd, x: nd, y: nd, lost: template):
    for i in range(x.shape[0] - lost):
        y[p[i]] = 2.0 * x[i]


def _cases() -> dict[str, tuple[object, tuple[np.ndarray | float, ...]]]:
    rng = np.random.default_rng(0)
    n = 14

    def signed(*shape: int) -> np.ndarray:
        return rng.uniform(-1, 1, shape)

    steep = signed(n, n) + n * np.eye(n)
    decay = np.arange(n + 1.0, 1.0, -1.0) / n**2
    grid = np.linspace(-2, 0.5, 12), np.linspace(-1.2, 1.2, 13)
    planes = tuple(np.abs(signed(3, 20)) for _ in range(5))
    first = np.concatenate([[0], np.cumsum(rng.integers(1, 5, 20))])
    single, zeros = np.float32, np.zeros(n)
    return {
        "lu": (lu, (steep,)),
        "lu in single precision": (lu, (steep.astype(single),)),
        "durbin": (durbin, (decay, zeros, zeros.copy())),
        "mandelbrot": (mandelbrot, (*grid, np.zeros((12, 13), np.int64), np.zeros((12, 13)))),
        "vadv": (vadv, planes),
        "syrk": (syrk, (signed(n, n), signed(n, 9), 1.5)),
        "trmm": (trmm, (signed(n, n), signed(n, 9))),
        "single to double": (
            gemv,
            (signed(n, 500).astype(single), signed(500).astype(single), zeros),
        ),
        "double to single": (gemv, (signed(n, 500), signed(500), zeros.astype(single))),
        "spmv": (
            spmv,
            (first, rng.integers(0, 30, first[-1]), signed(first[-1]), signed(30), np.zeros(20)),
        ),
        "scatter": (scatter, (rng.permutation(50), signed(50), np.zeros(50))),
    }


CASES = _cases()
