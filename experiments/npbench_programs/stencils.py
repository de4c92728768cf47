"""Time steps and sweeps over grids: NPBench's stencils after PolyBench."""

# mypy: disable-error-code="no-untyped-call,no-untyped-def,untyped-decorator,valid-type"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from ...kernels.frontend.kernel import kernel, types
from ...kernels.frontend.recorder import ndarray
from ..polybench_kernels import five_points, seven_points, sweep
from ..polybench_peers import PEERS
from .ported import Ported, parallel

nd: Any = types.ndarray()
_STEPS = ("steps",)


# --- explicit steps -------------------------------------------------------------------------------


@kernel
def three_points(a: nd, b: nd) -> None:
    for i in range(1, a.shape[0] - 1):
        b[i] = 0.33333 * (a[i - 1] + a[i] + a[i + 1])


def jacobi_1d(a: Any, b: Any, steps: int) -> None:
    for _ in range(1, steps):
        three_points(a, b)
        three_points(b, a)


def _np_jacobi_1d(a, b, steps):
    for _ in range(1, steps):
        for x, y in ((a, b), (b, a)):
            y[1:-1] = 0.33333 * (x[:-2] + x[1:-1] + x[2:])


@parallel
def _nb_jacobi_1d(a, b, steps):
    n = a.shape[0]
    for _ in range(1, steps):
        for i in prange(1, n - 1):
            b[i] = 0.33333 * (a[i - 1] + a[i] + a[i + 1])
        for i in prange(1, n - 1):
            a[i] = 0.33333 * (b[i - 1] + b[i] + b[i + 1])


def _jacobi_1d(rng, n, steps):
    return rng.random(n), rng.random(n)


def jacobi_2d(a: Any, b: Any, steps: int) -> None:
    for _ in range(1, steps):
        five_points(a, b)
        five_points(b, a)


def _jacobi_2d(rng, n, steps):
    return rng.random((n, n)), rng.random((n, n))


def heat_3d(a: Any, b: Any, steps: int) -> None:
    for _ in range(1, steps):
        seven_points(a, b)
        seven_points(b, a)


def _heat_3d(rng, n, steps):
    a = rng.random((n, n, n))
    return a, a.copy()


def seidel_2d(a: Any, steps: int) -> None:
    for _ in range(1, steps):
        sweep(a)


def _seidel_2d(rng, n, steps):
    return (rng.random((n, n)),)


def _one_less(form):
    """The form of PolyBench, whose first step is that behind NPBench's first."""

    def run(*given):
        *arrays, steps = given
        form(*arrays, steps - 1)

    return run


@kernel
def excite(ey: nd, source: nd, t: int) -> None:
    for j in range(ey.shape[1]):
        ey[0, j] = source[t]


@kernel
def electric(ex: nd, ey: nd, hz: nd) -> None:
    for i in range(1, ey.shape[0]):
        for j in range(ey.shape[1]):
            ey[i, j] -= 0.5 * (hz[i, j] - hz[i - 1, j])
    for i in range(ex.shape[0]):
        for j in range(1, ex.shape[1]):
            ex[i, j] -= 0.5 * (hz[i, j] - hz[i, j - 1])


@kernel
def magnetic(ex: nd, ey: nd, hz: nd) -> None:
    for i in range(hz.shape[0] - 1):
        for j in range(hz.shape[1] - 1):
            hz[i, j] -= 0.7 * (ex[i, j + 1] - ex[i, j] + ey[i + 1, j] - ey[i, j])


def fdtd_2d(ex: Any, ey: Any, hz: Any, source: Any) -> None:
    for t in range(source.shape[0]):
        excite(ey, source, t)
        electric(ex, ey, hz)
        magnetic(ex, ey, hz)


def _np_fdtd_2d(ex, ey, hz, source):
    for x in source:
        ey[0] = x
        ey[1:] -= 0.5 * (hz[1:] - hz[:-1])
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (np.diff(ex[:-1], axis=1) + np.diff(ey[:, :-1], axis=0))


@parallel
def _nb_fdtd_2d(ex, ey, hz, source):
    n, m = hz.shape
    for t in range(source.shape[0]):
        for i in prange(n):
            for j in range(m):
                ey[i, j] = source[t] if i == 0 else ey[i, j] - 0.5 * (hz[i, j] - hz[i - 1, j])
            for j in range(1, m):
                ex[i, j] -= 0.5 * (hz[i, j] - hz[i, j - 1])
        for i in prange(n - 1):
            for j in range(m - 1):
                hz[i, j] -= 0.7 * (ex[i, j + 1] - ex[i, j] + ey[i + 1, j] - ey[i, j])


def _fdtd_2d(rng, steps, nx, ny):
    return *(rng.random((nx, ny)) for _ in range(3)), np.arange(steps, dtype=np.float64)


# --- alternating directions -----------------------------------------------------------------------


@kernel
def along_columns(u: nd, v: nd, p: nd, q: nd, a: float, b: float, d: float) -> None:
    """v from u: implicit along the columns with coefficients a and b, explicit along the rows with d."""
    n = u.shape[0]
    for i in range(1, n - 1):
        v[0, i] = 1.0
        p[i, 0] = 0.0
        q[i, 0] = 1.0
        for j in range(1, n - 1):
            below = a * p[i, j - 1] + b
            around = (1.0 + 2.0 * d) * u[j, i] - d * (u[j, i - 1] + u[j, i + 1])
            p[i, j] = -a / below
            q[i, j] = (around - a * q[i, j - 1]) / below
        v[n - 1, i] = 1.0
        for r in range(1, n - 1):
            j = n - 1 - r
            v[j, i] = p[i, j] * v[j + 1, i] + q[i, j]


@kernel
def along_rows(u: nd, v: nd, p: nd, q: nd, a: float, d: float, e: float) -> None:
    """u from v: implicit along the rows with coefficients d and e, explicit along the columns with a."""
    n = u.shape[0]
    for i in range(1, n - 1):
        u[i, 0] = 1.0
        p[i, 0] = 0.0
        q[i, 0] = 1.0
        for j in range(1, n - 1):
            below = d * p[i, j - 1] + e
            around = (1.0 + 2.0 * a) * v[i, j] - a * (v[i - 1, j] + v[i + 1, j])
            p[i, j] = -d / below
            q[i, j] = (around - d * q[i, j - 1]) / below
        u[i, n - 1] = 1.0
        for r in range(1, n - 1):
            j = n - 1 - r
            u[i, j] = p[i, j] * u[i, j + 1] + q[i, j]


def _coefficients(n: int, steps: int) -> tuple[float, float, float, float]:
    """The tridiagonal matrices of both directions: a beside b, and d beside e."""
    along, across = 2.0 * n * n / steps, 1.0 * n * n / steps
    return -along / 2.0, 1.0 + along, -across / 2.0, 1.0 + across


def adi(u: Any, steps: int) -> None:
    v = ndarray(u.dtype, u.shape, name="v")
    p = ndarray(u.dtype, u.shape, name="p")
    q = ndarray(u.dtype, u.shape, name="q")
    a, b, d, e = _coefficients(u.shape[0], steps)
    for _ in range(steps):
        along_columns(u, v, p, q, a, b, d)
        along_rows(u, v, p, q, a, d, e)


def _np_adi(u, steps):
    n = len(u)
    v, p, q = np.zeros_like(u), np.zeros_like(u), np.zeros_like(u)
    a, b, d, e = _coefficients(n, steps)
    inside = slice(1, n - 1)
    for _ in range(steps):
        for x, y, near, middle, far in ((u, v.T, a, b, d), (v.T, u, d, e, a)):
            # y[i, j] of row i: implicit along j; x is explicit across it.
            y[inside, 0] = y[inside, n - 1] = 1.0
            p[inside, 0], q[inside, 0] = 0.0, 1.0
            x = x.T
            for j in range(1, n - 1):
                below = near * p[inside, j - 1] + middle
                around = (1.0 + 2.0 * far) * x[inside, j] - far * (x[:-2, j] + x[2:, j])
                p[inside, j] = -near / below
                q[inside, j] = (around - near * q[inside, j - 1]) / below
            for j in range(n - 2, 0, -1):
                y[inside, j] = p[inside, j] * y[inside, j + 1] + q[inside, j]


@parallel
def _nb_implicit(x, y, p, q, near, middle, far):
    n = x.shape[0]
    for i in prange(1, n - 1):
        y[i, 0] = y[i, n - 1] = 1.0
        p[i, 0], q[i, 0] = 0.0, 1.0
        for j in range(1, n - 1):
            below = near * p[i, j - 1] + middle
            around = (1.0 + 2.0 * far) * x[i, j] - far * (x[i - 1, j] + x[i + 1, j])
            p[i, j] = -near / below
            q[i, j] = (around - near * q[i, j - 1]) / below
        for j in range(n - 2, 0, -1):
            y[i, j] = p[i, j] * y[i, j + 1] + q[i, j]


def _nb_adi(u, steps):
    v, p, q = np.zeros_like(u), np.zeros_like(u), np.zeros_like(u)
    a, b, d, e = _coefficients(len(u), steps)
    for _ in range(steps):
        _nb_implicit(u.T, v.T, p, q, a, b, d)
        _nb_implicit(v, u, p, q, d, e, a)


def _adi(rng, n, steps):
    return (rng.random((n, n)),)


PROGRAMS = (
    Ported(
        jacobi_1d,
        _np_jacobi_1d,
        _nb_jacobi_1d,
        _jacobi_1d,
        (0, 1),
        {"n": 3200, "steps": 800},
        {"n": 9, "steps": 4},
        _STEPS,
    ),
    Ported(
        jacobi_2d,
        _one_less(PEERS["jacobi_2d"]["NumPy"]),
        _one_less(PEERS["jacobi_2d"]["numba"]),
        _jacobi_2d,
        (0, 1),
        {"n": 350, "steps": 80},
        {"n": 7, "steps": 4},
        _STEPS,
    ),
    Ported(
        heat_3d,
        _one_less(PEERS["heat_3d"]["NumPy"]),
        _one_less(PEERS["heat_3d"]["numba"]),
        _heat_3d,
        (0, 1),
        {"n": 40, "steps": 50},
        {"n": 5, "steps": 4},
        _STEPS,
    ),
    Ported(
        seidel_2d,
        _one_less(PEERS["seidel_2d"]["NumPy"]),
        _one_less(PEERS["seidel_2d"]["numba"]),
        _seidel_2d,
        (0,),
        {"n": 100, "steps": 15},
        {"n": 6, "steps": 3},
        _STEPS,
    ),
    Ported(
        fdtd_2d,
        _np_fdtd_2d,
        _nb_fdtd_2d,
        _fdtd_2d,
        (0, 1, 2),
        {"steps": 60, "nx": 400, "ny": 450},
        {"steps": 3, "nx": 6, "ny": 5},
    ),
    Ported(
        adi, _np_adi, _nb_adi, _adi, (0,), {"n": 200, "steps": 20}, {"n": 6, "steps": 3}, _STEPS
    ),
)
