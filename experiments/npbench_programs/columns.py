"""Stencils of a weather model and recursions along columns: horizontal diffusion, vertical advection, Deriche's edge detector."""

# mypy: disable-error-code="no-untyped-call,no-untyped-def,untyped-decorator,valid-type"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from ...kernels.frontend.kernel import kernel, types
from ...kernels.frontend.recorder import ndarray
from .ported import Ported, parallel

nd: Any = types.ndarray()


# --- weather --------------------------------------------------------------------------------------


@kernel
def laplacian(x: nd, lap: nd) -> None:
    for i in range(lap.shape[0]):
        for j in range(lap.shape[1]):
            for k in range(lap.shape[2]):
                lap[i, j, k] = 4.0 * x[i + 1, j + 1, k] - (
                    x[i + 2, j + 1, k] + x[i, j + 1, k] + x[i + 1, j + 2, k] + x[i + 1, j, k]
                )


@kernel
def limited_fluxes(x: nd, lap: nd, fx: nd, fy: nd) -> None:
    """Differences of the Laplacian, zero where they have the sign of those of the field."""
    for i in range(fx.shape[0]):
        for j in range(fx.shape[1]):
            for k in range(fx.shape[2]):
                step = lap[i + 1, j + 1, k] - lap[i, j + 1, k]
                rise = x[i + 2, j + 2, k] - x[i + 1, j + 2, k]
                fx[i, j, k] = 0.0 if step * rise > 0.0 else step
    for i in range(fy.shape[0]):
        for j in range(fy.shape[1]):
            for k in range(fy.shape[2]):
                step = lap[i + 1, j + 1, k] - lap[i + 1, j, k]
                rise = x[i + 2, j + 2, k] - x[i + 2, j + 1, k]
                fy[i, j, k] = 0.0 if step * rise > 0.0 else step


@kernel
def diffuse(x: nd, weight: nd, fx: nd, fy: nd, out: nd) -> None:
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            for k in range(out.shape[2]):
                out[i, j, k] = x[i + 2, j + 2, k] - weight[i, j, k] * (
                    fx[i + 1, j, k] - fx[i, j, k] + fy[i, j + 1, k] - fy[i, j, k]
                )


def hdiff(x: Any, weight: Any, out: Any) -> None:
    n, m, levels = out.shape
    lap = ndarray(x.dtype, (n + 2, m + 2, levels), name="lap")
    fx = ndarray(x.dtype, (n + 1, m, levels), name="fx")
    fy = ndarray(x.dtype, (n, m + 1, levels), name="fy")
    laplacian(x, lap)
    limited_fluxes(x, lap, fx, fy)
    diffuse(x, weight, fx, fy, out)


def _np_hdiff(x, weight, out):
    lap = 4.0 * x[1:-1, 1:-1] - x[2:, 1:-1] - x[:-2, 1:-1] - x[1:-1, 2:] - x[1:-1, :-2]
    fx = np.diff(lap[:, 1:-1], axis=0)
    fx[fx * np.diff(x[1:-1, 2:-2], axis=0) > 0.0] = 0.0
    fy = np.diff(lap[1:-1], axis=1)
    fy[fy * np.diff(x[2:-2, 1:-1], axis=1) > 0.0] = 0.0
    np.subtract(x[2:-2, 2:-2], weight * (np.diff(fx, axis=0) + np.diff(fy, axis=1)), out=out)


@parallel
def _nb_hdiff(x, weight, out):
    n, m, levels = out.shape
    lap = np.empty((n + 2, m + 2, levels), x.dtype)
    for i in prange(n + 2):
        for j in range(m + 2):
            for k in range(levels):
                beside = x[i + 1, j + 2, k] + x[i + 1, j, k]
                lap[i, j, k] = (
                    4.0 * x[i + 1, j + 1, k] - x[i + 2, j + 1, k] - x[i, j + 1, k] - beside
                )
    for i in prange(n):
        for j in range(m):
            for k in range(levels):
                total = 0.0
                for s in range(2):
                    step = lap[i + s + 1, j + 1, k] - lap[i + s, j + 1, k]
                    if step * (x[i + s + 2, j + 2, k] - x[i + s + 1, j + 2, k]) <= 0.0:
                        total += step if s == 1 else -step
                    step = lap[i + 1, j + s + 1, k] - lap[i + 1, j + s, k]
                    if step * (x[i + 2, j + s + 2, k] - x[i + 2, j + s + 1, k]) <= 0.0:
                        total += step if s == 1 else -step
                out[i, j, k] = x[i + 2, j + 2, k] - weight[i, j, k] * total


def _hdiff(rng, n, m, levels):
    shape = n, m, levels
    return rng.random((n + 4, m + 4, levels)), rng.random(shape), np.zeros(shape)


@kernel
def advect(stage: nd, u: nd, w: nd, position: nd, tendency: nd, c: nd, d: nd, rate: float) -> None:
    """Advection along each column, half of it implicit: a tridiagonal system, solved by Thomas's recursion."""
    top = u.shape[2] - 1
    for i in range(u.shape[0]):
        for j in range(u.shape[1]):
            above = 0.125 * (w[i + 1, j, 1] + w[i, j, 1])
            known = rate * position[i, j, 0] + tendency[i, j, 0] + stage[i, j, 0]
            c[i, j, 0] = above / (rate - above)
            d[i, j, 0] = (known - above * (u[i, j, 1] - u[i, j, 0])) / (rate - above)
            for k in range(1, top):
                below = -0.125 * (w[i + 1, j, k] + w[i, j, k])
                above = 0.125 * (w[i + 1, j, k + 1] + w[i, j, k + 1])
                known = rate * position[i, j, k] + tendency[i, j, k] + stage[i, j, k]
                known -= below * (u[i, j, k - 1] - u[i, j, k])
                known -= above * (u[i, j, k + 1] - u[i, j, k])
                pivot = rate - below - above - c[i, j, k - 1] * below
                c[i, j, k] = above / pivot
                d[i, j, k] = (known - d[i, j, k - 1] * below) / pivot
            below = -0.125 * (w[i + 1, j, top] + w[i, j, top])
            known = rate * position[i, j, top] + tendency[i, j, top] + stage[i, j, top]
            known -= below * (u[i, j, top - 1] - u[i, j, top])
            pivot = rate - below - c[i, j, top - 1] * below
            value = (known - d[i, j, top - 1] * below) / pivot
            stage[i, j, top] = rate * (value - position[i, j, top])
            for r in range(1, top + 1):
                k = top - r
                value = d[i, j, k] - c[i, j, k] * value
                stage[i, j, k] = rate * (value - position[i, j, k])


_RATE = 3.0 / 20.0


def vadv(stage: Any, u: Any, w: Any, position: Any, tendency: Any) -> None:
    c = ndarray(u.dtype, u.shape, name="c")
    d = ndarray(u.dtype, u.shape, name="d")
    advect(stage, u, w, position, tendency, c, d, _RATE)


def _np_vadv(stage, u, w, position, tendency):
    top = u.shape[2] - 1
    rises = 0.125 * (w[1:] + w[:-1])
    c, d = np.zeros_like(u), _RATE * position + tendency + stage
    jumps = np.diff(u, axis=2)
    d[:, :, :top] -= rises[:, :, 1:] * jumps
    d[:, :, 1:] -= rises[:, :, 1:] * jumps
    for k in range(top + 1):
        pivot = np.full(u.shape[:2], _RATE, u.dtype)
        if k < top:
            pivot -= rises[:, :, k + 1]
            c[:, :, k] = rises[:, :, k + 1]
        if k > 0:
            pivot += rises[:, :, k] * (1.0 + c[:, :, k - 1])
            d[:, :, k] += d[:, :, k - 1] * rises[:, :, k]
        c[:, :, k] /= pivot
        d[:, :, k] /= pivot
    for k in range(top - 1, -1, -1):
        d[:, :, k] -= c[:, :, k] * d[:, :, k + 1]
    np.multiply(d - position, _RATE, out=stage)


@parallel
def _nb_vadv(stage, u, w, position, tendency):
    n, m, levels = u.shape
    for i in prange(n):
        c, d = np.empty(levels, u.dtype), np.empty(levels, u.dtype)
        for j in range(m):
            for k in range(levels):
                known = _RATE * position[i, j, k] + tendency[i, j, k] + stage[i, j, k]
                pivot, above = _RATE, 0.0
                if k < levels - 1:
                    above = 0.125 * (w[i + 1, j, k + 1] + w[i, j, k + 1])
                    known -= above * (u[i, j, k + 1] - u[i, j, k])
                    pivot -= above
                if k > 0:
                    below = -0.125 * (w[i + 1, j, k] + w[i, j, k])
                    known -= below * (u[i, j, k - 1] - u[i, j, k]) + d[k - 1] * below
                    pivot -= below * (1.0 + c[k - 1])
                c[k], d[k] = above / pivot, known / pivot
            for k in range(levels - 1, -1, -1):
                if k < levels - 1:
                    d[k] -= c[k] * d[k + 1]
                stage[i, j, k] = _RATE * (d[k] - position[i, j, k])


def _vadv(rng, n, m, levels):
    shape = n, m, levels
    columns = rng.random(shape), rng.random(shape), rng.random((n + 1, m, levels))
    return *columns, rng.random(shape), rng.random(shape)


# --- an edge detector -----------------------------------------------------------------------------

_ALPHA = 0.25
_DECAY = float(np.exp(-_ALPHA))
_SCALE = (1.0 - _DECAY) ** 2 / (1.0 + 2.0 * _ALPHA * _DECAY - _DECAY**2)
_HERE, _BEFORE = _SCALE, _SCALE * _DECAY * (_ALPHA - 1.0)
_NEXT, _AFTER = _SCALE * _DECAY * (_ALPHA + 1.0), -_SCALE * _DECAY**2
_ONE, _TWO = 2.0**-_ALPHA, -(_DECAY**2)


@kernel
def smooth_rows(x: nd, left: nd, right: nd, y: nd) -> None:
    """A recursive filter of second order along each row, in both directions."""
    m = x.shape[1]
    for i in range(x.shape[0]):
        x1 = 0.0
        y1 = 0.0
        y2 = 0.0
        for j in range(m):
            left[i, j] = _HERE * x[i, j] + _BEFORE * x1 + _ONE * y1 + _TWO * y2
            x1 = x[i, j]
            y2 = y1
            y1 = left[i, j]
        x1 = 0.0
        x2 = 0.0
        y1 = 0.0
        y2 = 0.0
        for r in range(m):
            right[i, m - 1 - r] = _NEXT * x1 + _AFTER * x2 + _ONE * y1 + _TWO * y2
            x2 = x1
            x1 = x[i, m - 1 - r]
            y2 = y1
            y1 = right[i, m - 1 - r]
        for j in range(m):
            y[i, j] = left[i, j] + right[i, j]


@kernel
def smooth_columns(x: nd, down: nd, up: nd, y: nd) -> None:
    """The same along each column."""
    n = x.shape[0]
    for j in range(x.shape[1]):
        x1 = 0.0
        y1 = 0.0
        y2 = 0.0
        for i in range(n):
            down[i, j] = _HERE * x[i, j] + _BEFORE * x1 + _ONE * y1 + _TWO * y2
            x1 = x[i, j]
            y2 = y1
            y1 = down[i, j]
        x1 = 0.0
        x2 = 0.0
        y1 = 0.0
        y2 = 0.0
        for r in range(n):
            up[n - 1 - r, j] = _NEXT * x1 + _AFTER * x2 + _ONE * y1 + _TWO * y2
            x2 = x1
            x1 = x[n - 1 - r, j]
            y2 = y1
            y1 = up[n - 1 - r, j]
        for i in range(n):
            y[i, j] = down[i, j] + up[i, j]


def deriche(image: Any, out: Any) -> None:
    one = ndarray(image.dtype, image.shape, name="one")
    two = ndarray(image.dtype, image.shape, name="two")
    rows = ndarray(image.dtype, image.shape, name="rows")
    smooth_rows(image, one, two, rows)
    smooth_columns(rows, one, two, out)


def _np_both_ways(x):
    """The filter along the first axis, forwards and backwards."""
    n = len(x)
    y, z = np.zeros_like(x), np.zeros_like(x)
    for i in range(n):
        y[i] = _HERE * x[i]
        if i > 0:
            y[i] += _BEFORE * x[i - 1] + _ONE * y[i - 1]
        if i > 1:
            y[i] += _TWO * y[i - 2]
    for i in range(n - 2, -1, -1):
        z[i] = _NEXT * x[i + 1] + _ONE * z[i + 1]
        if i < n - 2:
            z[i] += _AFTER * x[i + 2] + _TWO * z[i + 2]
    return y + z


def _np_deriche(image, out):
    out[:] = _np_both_ways(np.ascontiguousarray(_np_both_ways(image.T).T))


@parallel
def _nb_both_ways(x, y):
    n, m = x.shape
    for i in prange(n):
        x1 = x2 = y1 = y2 = 0.0
        for j in range(m):
            y[i, j] = _HERE * x[i, j] + _BEFORE * x1 + _ONE * y1 + _TWO * y2
            x1, y1, y2 = x[i, j], y[i, j], y1
        x1 = x2 = y1 = y2 = 0.0
        for j in range(m - 1, -1, -1):
            back = _NEXT * x1 + _AFTER * x2 + _ONE * y1 + _TWO * y2
            x1, x2, y1, y2 = x[i, j], x1, back, y1
            y[i, j] += back


def _nb_deriche(image, out):
    rows = np.empty_like(image)
    _nb_both_ways(image, rows)
    columns = np.ascontiguousarray(rows.T)
    turned = np.empty_like(columns)
    _nb_both_ways(columns, turned)
    out[:] = turned.T


def _deriche(rng, w, h):
    return rng.random((w, h)), np.zeros((w, h))


PROGRAMS = (
    Ported(
        hdiff,
        _np_hdiff,
        _nb_hdiff,
        _hdiff,
        (2,),
        {"n": 128, "m": 128, "levels": 160},
        {"n": 4, "m": 3, "levels": 5},
    ),
    Ported(
        vadv,
        _np_vadv,
        _nb_vadv,
        _vadv,
        (0,),
        {"n": 112, "m": 112, "levels": 80},
        {"n": 3, "m": 4, "levels": 5},
    ),
    Ported(
        deriche, _np_deriche, _nb_deriche, _deriche, (1,), {"w": 1500, "h": 1000}, {"w": 6, "h": 5}
    ),
)
