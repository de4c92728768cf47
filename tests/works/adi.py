"""Alternating direction implicit steps of heat diffusion: tridiagonal systems along columns, then along rows."""

from __future__ import annotations

import kernelscape as ks
import numpy as np

nd = ks.types.ndarray()
template = ks.template()


@ks.kernel
def columns(u: nd, v: nd, p: nd, q: nd, a: float, b: float, d: float):
    n = u.shape[0]
    for i in range(1, n - 1):
        v[0, i] = 1.0
        p[i, 0] = 0.0
        q[i, 0] = 1.0
        for j in range(1, n - 1):
            p[i, j] = -a / (a * p[i, j - 1] + b)
            q[i, j] = (
                -d * u[j, i - 1] + (1.0 + 2.0 * d) * u[j, i] - d * u[j, i + 1] - a * q[i, j - 1]
            ) / (a * p[i, j - 1] + b)
        v[n - 1, i] = 1.0
        for k in range(n - 2):
            v[n - 2 - k, i] = p[i, n - 2 - k] * v[n - 1 - k, i] + q[i, n - 2 - k]


@ks.kernel
def rows(u: nd, v: nd, p: nd, q: nd, a: float, b: float, d: float):
    n = u.shape[0]
    for i in range(1, n - 1):
        u[i, 0] = 1.0
        p[i, 0] = 0.0
        q[i, 0] = 1.0
        for j in range(1, n - 1):
            p[i, j] = -a / (a * p[i, j - 1] + b)
            q[i, j] = (
                -d * v[i - 1, j] + (1.0 + 2.0 * d) * v[i, j] - d * v[i + 1, j] - a * q[i, j - 1]
            ) / (a * p[i, j - 1] + b)
        u[i, n - 1] = 1.0
        for k in range(n - 2):
            u[i, n - 2 - k] = p[i, n - 2 - k] * u[i, n - 1 - k] + q[i, n - 2 - k]


def adi(u, v, p, q, a, b, c, e, d, f, steps: template):
    for _ in range(steps):
        columns(u, v, p, q, a, b, d)
        rows(u, v, p, q, c, e, f)


def make_arguments(sizes, dtype, rng):
    n, steps = sizes.get("n", 100), sizes.get("t", 5)
    dx, dt = 1.0 / n, 1.0 / steps
    one, two = 2.0 * dt / dx**2, 1.0 * dt / dx**2
    a, c = -one / 2, -two / 2
    u = np.fromfunction(lambda i, j: (i + n - j) / n, (n, n)).astype(dtype)
    arrays = [np.zeros((n, n), dtype) for _ in range(3)]
    return (u, *arrays, a, 1 + one, c, 1 + two, c, a, steps)
