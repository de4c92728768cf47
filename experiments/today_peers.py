"""The workloads of `experiments/today.py` in numba: loops with `prange` where iterations are independent, and `fastmath`.

They take the same arrays in the same order as the sequences of `today_kernels`.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import cos, erf, exp, log, sqrt
from typing import Any

import numpy as np
from numba import njit, prange

from .today_arrays import DAMPING, FEED, KILL, PATHS, RADIUS, SPREAD_U, SPREAD_V, STEPS

_parallel = njit(parallel=True, fastmath=True, cache=False)
_serial = njit(fastmath=True, cache=False)
F32 = np.float32


@_parallel
def _softmax(x, y):
    for i in prange(x.shape[0]):
        top = x[i, 0]
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        total = F32(0.0)
        for j in range(x.shape[1]):
            y[i, j] = exp(x[i, j] - top)
            total += y[i, j]
        for j in range(x.shape[1]):
            y[i, j] /= total


@_parallel
def _layer_norm(x, gain, bias, y):
    for i in prange(x.shape[0]):
        mean = F32(0.0)
        for j in range(x.shape[1]):
            mean += x[i, j]
        mean /= F32(x.shape[1])
        variance = F32(0.0)
        for j in range(x.shape[1]):
            variance += (x[i, j] - mean) * (x[i, j] - mean)
        scale = F32(1.0) / sqrt(variance / F32(x.shape[1]) + F32(1e-5))
        for j in range(x.shape[1]):
            y[i, j] = (x[i, j] - mean) * scale * gain[j] + bias[j]


@_parallel
def _rms_norm(x, gain, y):
    for i in prange(x.shape[0]):
        total = F32(0.0)
        for j in range(x.shape[1]):
            total += x[i, j] * x[i, j]
        scale = F32(1.0) / sqrt(total / F32(x.shape[1]) + F32(1e-5))
        for j in range(x.shape[1]):
            y[i, j] = x[i, j] * scale * gain[j]


@_parallel
def _gelu(x, y):
    for i in prange(x.shape[0]):
        y[i] = F32(0.5) * x[i] * (F32(1.0) + erf(x[i] * F32(0.7071067811865476)))


@_parallel
def _attention(q, k, v, o):
    heads, n, width = q.shape
    for row in prange(heads * n):
        h, i = row // n, row % n
        s = np.empty(n, F32)
        top = F32(-1e30)
        for j in range(i + 1):
            a = F32(0.0)
            for d in range(width):
                a += q[h, i, d] * k[h, j, d]
            s[j] = a * F32(0.125)
            top = max(top, s[j])
        total = F32(0.0)
        for j in range(i + 1):
            s[j] = exp(s[j] - top)
            total += s[j]
        for e in range(width):
            o[h, i, e] = F32(0.0)
        for j in range(i + 1):
            for e in range(width):
                o[h, i, e] += s[j] * v[h, j, e]
        for e in range(width):
            o[h, i, e] /= total


@_parallel
def _k_means(x, centres, sums, counts, labels):
    for i in prange(x.shape[0]):
        best, label = F32(1e30), 0
        for c in range(centres.shape[0]):
            d = F32(0.0)
            for k in range(x.shape[1]):
                d += (x[i, k] - centres[c, k]) * (x[i, k] - centres[c, k])
            if d < best:
                best, label = d, c
        labels[i] = label
    sums[:] = F32(0.0)
    counts[:] = F32(0.0)
    for i in range(x.shape[0]):
        counts[labels[i]] += F32(1.0)
        for k in range(x.shape[1]):
            sums[labels[i], k] += x[i, k]


@_parallel
def _bilateral(image, out):
    r = RADIUS
    for i in prange(r, image.shape[0] - r):
        for j in range(r, image.shape[1] - r):
            total, weights = F32(0.0), F32(0.0)
            for a in range(-r, r + 1):
                for b in range(-r, r + 1):
                    other = image[i + a, j + b]
                    apart = other - image[i, j]
                    near = F32(a * a + b * b)
                    w = exp(F32(-0.08) * near - F32(50.0) * apart * apart)
                    total += w * other
                    weights += w
            out[i, j] = total / weights


@_parallel
def _convolution(image, taps, out):
    for i in prange(out.shape[0]):
        for j in range(out.shape[1]):
            total = F32(0.0)
            for a in range(taps.shape[0]):
                for b in range(taps.shape[1]):
                    total += taps[a, b] * image[i + a, j + b]
            out[i, j] = total


@_parallel
def _blur_and_edges(image, blurred, out):
    for i in prange(1, image.shape[0] - 1):
        for j in range(1, image.shape[1] - 1):
            total = 4 * np.int32(image[i, j])
            total += 2 * (np.int32(image[i - 1, j]) + np.int32(image[i + 1, j]))
            total += 2 * (np.int32(image[i, j - 1]) + np.int32(image[i, j + 1]))
            total += np.int32(image[i - 1, j - 1]) + np.int32(image[i - 1, j + 1])
            total += np.int32(image[i + 1, j - 1]) + np.int32(image[i + 1, j + 1])
            blurred[i, j] = total // 16
    for i in prange(2, image.shape[0] - 2):
        for j in range(2, image.shape[1] - 2):
            across = np.int32(blurred[i, j + 1]) - np.int32(blurred[i, j - 1])
            down = np.int32(blurred[i + 1, j]) - np.int32(blurred[i - 1, j])
            out[i, j] = 255 if abs(across) + abs(down) > 24 else 0


@_parallel
def _react(u, v, u2, v2):
    n, m = u.shape
    for i in prange(n):
        up, down = (i - 1) % n, (i + 1) % n
        for j in range(m):
            left, right = (j - 1) % m, (j + 1) % m
            lu = u[up, j] + u[down, j] + u[i, left] + u[i, right] - F32(4.0) * u[i, j]
            lv = v[up, j] + v[down, j] + v[i, left] + v[i, right] - F32(4.0) * v[i, j]
            uvv = u[i, j] * v[i, j] * v[i, j]
            u2[i, j] = u[i, j] + F32(SPREAD_U) * lu - uvv + F32(FEED) * (F32(1.0) - u[i, j])
            v2[i, j] = v[i, j] + F32(SPREAD_V) * lv + uvv - F32(FEED + KILL) * v[i, j]


def _gray_scott(u2, v2, u, v):
    for _ in range(STEPS // 2):
        _react(u, v, u2, v2)
        _react(u2, v2, u, v)


_CX = (0, 1, -1, 0, 0, 1, -1, 1, -1)
_CY = (0, 0, 0, 1, -1, 1, -1, -1, 1)
_WEIGHTS = (4 / 9, *(1 / 9,) * 4, *(1 / 36,) * 4)


@_parallel
def _collide(f, g):
    _, n, m = f.shape
    for i in prange(n):
        local = np.empty(9, F32)
        for j in range(m):
            rho, x, y = F32(0.0), F32(0.0), F32(0.0)
            for q in range(9):
                local[q] = f[q, (i - _CX[q]) % n, (j - _CY[q]) % m]
                rho += local[q]
                x += F32(_CX[q]) * local[q]
                y += F32(_CY[q]) * local[q]
            x /= rho
            y /= rho
            c = F32(1.0) - F32(1.5) * (x * x + y * y)
            for q in range(9):
                a = F32(_CX[q]) * x + F32(_CY[q]) * y
                wanted = rho * F32(_WEIGHTS[q]) * (c + F32(3.0) * a + F32(4.5) * a * a)
                g[q, i, j] = F32(0.4) * local[q] + F32(0.6) * wanted


def _lattice_boltzmann(g, f):
    for _ in range(STEPS // 2):
        _collide(f, g)
        _collide(g, f)


@_parallel
def _batched_product(a, b, c):
    for h in prange(c.shape[0]):
        for i in range(c.shape[1]):
            for j in range(c.shape[2]):
                c[h, i, j] = F32(0.0)
            for k in range(a.shape[2]):
                for j in range(c.shape[2]):
                    c[h, i, j] += a[h, i, k] * b[h, k, j]


@_serial
def _histogram(x, counts):
    counts[:] = 0
    for i in range(x.shape[0]):
        counts[x[i]] += 1


@_serial
def _prefix_sum(x, y):
    total = F32(0.0)
    for i in range(x.shape[0]):
        total += x[i]
        y[i] = total


@_parallel
def _sparse_product(start, column, value, x, y):
    for i in prange(y.shape[0]):
        total = F32(0.0)
        for k in range(start[i], start[i + 1]):
            total += value[k] * x[column[k]]
        y[i] = total


@_parallel
def _follow_links(start, column, share, x, y):
    for i in prange(y.shape[0]):
        total = F32(0.0)
        for k in range(start[i], start[i + 1]):
            total += x[column[k]] * share[column[k]]
        y[i] = F32(1.0 - DAMPING) / F32(y.shape[0]) + F32(DAMPING) * total


def _page_rank(start, column, share, y, x):
    for _ in range(STEPS // 2):
        _follow_links(start, column, share, x, y)
        _follow_links(start, column, share, y, x)


@_parallel
def _selective_scan(x, delta, a, b, c, h, y):
    for d in prange(x.shape[1]):
        for k in range(a.shape[1]):
            h[d, k] = F32(0.0)
        for t in range(x.shape[0]):
            total = F32(0.0)
            for k in range(a.shape[1]):
                decay = exp(delta[t, d] * a[d, k])
                h[d, k] = decay * h[d, k] + delta[t, d] * b[t, k] * x[t, d]
                total += h[d, k] * c[t, k]
            y[t, d] = total


@_parallel
def _shorter(path, k):
    for i in prange(path.shape[0]):
        for j in range(path.shape[1]):
            path[i, j] = min(path[i, j], path[i, k] + path[k, j])


def _floyd_warshall(path):
    for k in range(len(path)):
        _shorter(path, k)


@_parallel
def _black_scholes(spot, strike, years, call, put):
    half = F32(0.7071067811865476)
    for i in prange(spot.shape[0]):
        root = F32(0.3) * sqrt(years[i])
        d1 = (log(spot[i] / strike[i]) + F32(0.065) * years[i]) / root
        d2 = d1 - root
        n1 = F32(0.5) + F32(0.5) * erf(d1 * half)
        n2 = F32(0.5) + F32(0.5) * erf(d2 * half)
        later = strike[i] * exp(F32(-0.02) * years[i])
        call[i] = spot[i] * n1 - later * n2
        put[i] = later * (F32(1.0) - n2) - spot[i] * (F32(1.0) - n1)


@_parallel
def _monte_carlo(spot, price):
    for i in prange(spot.shape[0]):
        total = F32(0.0)
        for _ in range(PATHS):
            radius = sqrt(F32(-2.0) * log(F32(1.0) - F32(np.random.random())))
            angle = F32(6.283185307179586) * F32(np.random.random())
            drift = F32(0.3) * radius * cos(angle) - F32(0.025)
            total += max(spot[i] * exp(drift) - F32(100.0), F32(0.0))
        price[i] = total / F32(PATHS)


NUMBA: Mapping[str, Callable[..., Any]] = {
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "gelu": _gelu,
    "attention": _attention,
    "k_means": _k_means,
    "bilateral": _bilateral,
    "convolution": _convolution,
    "blur_and_edges": _blur_and_edges,
    "gray_scott": _gray_scott,
    "lattice_boltzmann": _lattice_boltzmann,
    "batched_product": _batched_product,
    "histogram": _histogram,
    "prefix_sum": _prefix_sum,
    "sparse_product": _sparse_product,
    "page_rank": _page_rank,
    "selective_scan": _selective_scan,
    "floyd_warshall": _floyd_warshall,
    "black_scholes": _black_scholes,
    "monte_carlo": _monte_carlo,
}
