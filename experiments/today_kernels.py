"""The workloads of `experiments/today.py` in the kernel language, as a user would write them, in f32.

Each sequence works in place on arrays that `today_arrays.arrays_of` makes, in the same order; its results are the last ones.
"""

# mypy: disable-error-code="valid-type"

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..kernels.frontend.functions import cos, erf, exp, log, sqrt
from ..kernels.frontend.intrinsics import cast, random
from ..kernels.frontend.kernel import kernel, types
from ..kernels.frontend.recorder import ndarray
from ..kernels.ir.kernel import DType
from .polybench_kernels import csr_vector, floyd_warshall
from .today_arrays import DAMPING, FEED, KILL, PATHS, RADIUS, SPREAD_U, SPREAD_V, STEPS

nd: Any = types.ndarray()
f32, i32, u8 = DType.f32, DType.i32, DType.u8


# --- rows -----------------------------------------------------------------------------------------


@kernel
def softmax(x: nd, y: nd) -> None:
    for i in range(x.shape[0]):
        top = x[i, 0]
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        total = 0.0
        for j in range(x.shape[1]):
            total += exp(x[i, j] - top)
        for j in range(x.shape[1]):
            y[i, j] = exp(x[i, j] - top) / total


@kernel
def layer_norm(x: nd, gain: nd, bias: nd, y: nd) -> None:
    for i in range(x.shape[0]):
        mean = 0.0
        for j in range(x.shape[1]):
            mean += x[i, j]
        mean /= x.shape[1]
        variance = 0.0
        for j in range(x.shape[1]):
            variance += (x[i, j] - mean) * (x[i, j] - mean)
        scale = 1.0 / sqrt(variance / x.shape[1] + 1e-5)
        for j in range(x.shape[1]):
            y[i, j] = (x[i, j] - mean) * scale * gain[j] + bias[j]


@kernel
def rms_norm(x: nd, gain: nd, y: nd) -> None:
    for i in range(x.shape[0]):
        total = 0.0
        for j in range(x.shape[1]):
            total += x[i, j] * x[i, j]
        scale = 1.0 / sqrt(total / x.shape[1] + 1e-5)
        for j in range(x.shape[1]):
            y[i, j] = x[i, j] * scale * gain[j]


@kernel
def gelu(x: nd, y: nd) -> None:
    for i in range(x.shape[0]):
        y[i] = 0.5 * x[i] * (1.0 + erf(x[i] * 0.7071067811865476))


@kernel
def causal_attention(q: nd, k: nd, v: nd, s: nd, o: nd) -> None:
    for h in range(q.shape[0]):
        for i in range(q.shape[1]):
            top = -1e30
            for j in range(i + 1):
                a = 0.0
                for d in range(q.shape[2]):
                    a += q[h, i, d] * k[h, j, d]
                s[h, i, j] = a * 0.125
                top = max(top, s[h, i, j])
            total = 0.0
            for j in range(i + 1):
                s[h, i, j] = exp(s[h, i, j] - top)
                total += s[h, i, j]
            for e in range(v.shape[2]):
                a = 0.0
                for j in range(i + 1):
                    a += s[h, i, j] * v[h, j, e]
                o[h, i, e] = a / total


def attention(q: Any, k: Any, v: Any, o: Any) -> None:
    s = ndarray(f32, (q.shape[0], q.shape[1], k.shape[1]), name="s")
    causal_attention(q, k, v, s, o)


@kernel
def k_means(x: nd, centres: nd, sums: nd, counts: nd, labels: nd) -> None:
    for i in range(x.shape[0]):
        best = 1e30
        label = 0
        for c in range(centres.shape[0]):
            d = 0.0
            for k in range(x.shape[1]):
                d += (x[i, k] - centres[c, k]) * (x[i, k] - centres[c, k])
            if d < best:
                best = d
                label = c
        labels[i] = label
    for c in range(centres.shape[0]):
        counts[c] = 0.0
        for k in range(x.shape[1]):
            sums[c, k] = 0.0
    for i in range(x.shape[0]):
        counts[labels[i]] += 1.0
        for k in range(x.shape[1]):
            sums[labels[i], k] += x[i, k]


# --- images and grids -----------------------------------------------------------------------------


@kernel
def bilateral(image: nd, out: nd) -> None:
    for i in range(RADIUS, image.shape[0] - RADIUS):
        for j in range(RADIUS, image.shape[1] - RADIUS):
            total = 0.0
            weights = 0.0
            for a in range(2 * RADIUS + 1):
                for b in range(2 * RADIUS + 1):
                    other = image[i + a - RADIUS, j + b - RADIUS]
                    apart = other - image[i, j]
                    near = (a - RADIUS) * (a - RADIUS) + (b - RADIUS) * (b - RADIUS)
                    w = exp(-0.08 * near - 50.0 * apart * apart)
                    total += w * other
                    weights += w
            out[i, j] = total / weights


@kernel
def convolution(image: nd, taps: nd, out: nd) -> None:
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            total = 0.0
            for a in range(taps.shape[0]):
                for b in range(taps.shape[1]):
                    total += taps[a, b] * image[i + a, j + b]
            out[i, j] = total


@kernel
def blur_and_edges(image: nd, blurred: nd, out: nd) -> None:
    for i in range(1, image.shape[0] - 1):
        for j in range(1, image.shape[1] - 1):
            total = 4 * i32(image[i, j])
            total += 2 * (i32(image[i - 1, j]) + i32(image[i + 1, j]))
            total += 2 * (i32(image[i, j - 1]) + i32(image[i, j + 1]))
            total += i32(image[i - 1, j - 1]) + i32(image[i - 1, j + 1])
            total += i32(image[i + 1, j - 1]) + i32(image[i + 1, j + 1])
            blurred[i, j] = cast(total // 16, u8)
    for i in range(2, image.shape[0] - 2):
        for j in range(2, image.shape[1] - 2):
            across = i32(blurred[i, j + 1]) - i32(blurred[i, j - 1])
            down = i32(blurred[i + 1, j]) - i32(blurred[i - 1, j])
            out[i, j] = cast(255 if abs(across) + abs(down) > 24 else 0, u8)


@kernel
def react(u: nd, v: nd, u2: nd, v2: nd) -> None:
    n, m = u.shape[0], u.shape[1]
    for i in range(n):
        for j in range(m):
            up, down, left, right = (i - 1) % n, (i + 1) % n, (j - 1) % m, (j + 1) % m
            lu = u[up, j] + u[down, j] + u[i, left] + u[i, right] - 4.0 * u[i, j]
            lv = v[up, j] + v[down, j] + v[i, left] + v[i, right] - 4.0 * v[i, j]
            uvv = u[i, j] * v[i, j] * v[i, j]
            u2[i, j] = u[i, j] + SPREAD_U * lu - uvv + FEED * (1.0 - u[i, j])
            v2[i, j] = v[i, j] + SPREAD_V * lv + uvv - (FEED + KILL) * v[i, j]


def gray_scott(u2: Any, v2: Any, u: Any, v: Any) -> None:
    for _ in range(STEPS // 2):
        react(u, v, u2, v2)
        react(u2, v2, u, v)


@kernel
def stream_and_collide(f: nd, g: nd) -> None:
    """Lattice-Boltzmann with nine velocities (D2Q9), periodic, BGK: pulls from neighbours, relaxes by 0.6."""
    n, m = f.shape[1], f.shape[2]
    for i in range(n):
        for j in range(m):
            up, down, left, right = (i - 1) % n, (i + 1) % n, (j - 1) % m, (j + 1) % m
            f0 = f[0, i, j]
            f1 = f[1, up, j]
            f2 = f[2, down, j]
            f3 = f[3, i, left]
            f4 = f[4, i, right]
            f5 = f[5, up, left]
            f6 = f[6, down, right]
            f7 = f[7, up, right]
            f8 = f[8, down, left]
            rho = f0 + f1 + f2 + f3 + f4 + f5 + f6 + f7 + f8
            x = (f1 - f2 + f5 - f6 + f7 - f8) / rho
            y = (f3 - f4 + f5 - f6 - f7 + f8) / rho
            c = 1.0 - 1.5 * (x * x + y * y)
            g[0, i, j] = 0.4 * f0 + 0.6 * rho * (4.0 / 9.0) * c
            g[1, i, j] = 0.4 * f1 + 0.6 * rho * (1.0 / 9.0) * (c + 3.0 * x + 4.5 * x * x)
            g[2, i, j] = 0.4 * f2 + 0.6 * rho * (1.0 / 9.0) * (c - 3.0 * x + 4.5 * x * x)
            g[3, i, j] = 0.4 * f3 + 0.6 * rho * (1.0 / 9.0) * (c + 3.0 * y + 4.5 * y * y)
            g[4, i, j] = 0.4 * f4 + 0.6 * rho * (1.0 / 9.0) * (c - 3.0 * y + 4.5 * y * y)
            a, b = x + y, x - y
            g[5, i, j] = 0.4 * f5 + 0.6 * rho * (1.0 / 36.0) * (c + 3.0 * a + 4.5 * a * a)
            g[6, i, j] = 0.4 * f6 + 0.6 * rho * (1.0 / 36.0) * (c - 3.0 * a + 4.5 * a * a)
            g[7, i, j] = 0.4 * f7 + 0.6 * rho * (1.0 / 36.0) * (c + 3.0 * b + 4.5 * b * b)
            g[8, i, j] = 0.4 * f8 + 0.6 * rho * (1.0 / 36.0) * (c - 3.0 * b + 4.5 * b * b)


def lattice_boltzmann(g: Any, f: Any) -> None:
    for _ in range(STEPS // 2):
        stream_and_collide(f, g)
        stream_and_collide(g, f)


# --- products, sums and scans ---------------------------------------------------------------------


@kernel
def batched_product(a: nd, b: nd, c: nd) -> None:
    for h in range(c.shape[0]):
        for i in range(c.shape[1]):
            for j in range(c.shape[2]):
                total = 0.0
                for k in range(a.shape[2]):
                    total += a[h, i, k] * b[h, k, j]
                c[h, i, j] = total


@kernel
def histogram(x: nd, counts: nd) -> None:
    for b in range(counts.shape[0]):
        counts[b] = 0
    for i in range(x.shape[0]):
        counts[x[i]] += 1


@kernel
def prefix_sum(x: nd, y: nd) -> None:
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i]
        y[i] = total


@kernel
def follow_links(start: nd, column: nd, share: nd, x: nd, y: nd) -> None:
    for i in range(y.shape[0]):
        total = 0.0
        for k in range(start[i], start[i + 1]):
            total += x[column[k]] * share[column[k]]
        y[i] = (1.0 - DAMPING) / y.shape[0] + DAMPING * total


def page_rank(start: Any, column: Any, share: Any, y: Any, x: Any) -> None:
    for _ in range(STEPS // 2):
        follow_links(start, column, share, x, y)
        follow_links(start, column, share, y, x)


@kernel
def selective_scan(x: nd, delta: nd, a: nd, b: nd, c: nd, h: nd, y: nd) -> None:
    """The state-space layer of Mamba: a state of each channel decays and takes in as the input says."""
    for d in range(x.shape[1]):
        for k in range(a.shape[1]):
            h[d, k] = 0.0
        for t in range(x.shape[0]):
            total = 0.0
            for k in range(a.shape[1]):
                h[d, k] = exp(delta[t, d] * a[d, k]) * h[d, k] + delta[t, d] * b[t, k] * x[t, d]
                total += h[d, k] * c[t, k]
            y[t, d] = total


# --- finance --------------------------------------------------------------------------------------


@kernel
def black_scholes(spot: nd, strike: nd, years: nd, call: nd, put: nd) -> None:
    for i in range(spot.shape[0]):
        root = 0.3 * sqrt(years[i])
        d1 = (log(spot[i] / strike[i]) + (0.02 + 0.045) * years[i]) / root
        d2 = d1 - root
        n1 = 0.5 + 0.5 * erf(d1 * 0.7071067811865476)
        n2 = 0.5 + 0.5 * erf(d2 * 0.7071067811865476)
        later = strike[i] * exp(-0.02 * years[i])
        call[i] = spot[i] * n1 - later * n2
        put[i] = later * (1.0 - n2) - spot[i] * (1.0 - n1)


@kernel
def monte_carlo(spot: nd, price: nd) -> None:
    for i in range(spot.shape[0]):
        total = 0.0
        for _ in range(PATHS):
            radius = sqrt(-2.0 * log(1.0 - random(f32)))
            drift = 0.3 * radius * cos(6.283185307179586 * random(f32)) - 0.025
            total += max(spot[i] * exp(drift) - 100.0, 0.0)
        price[i] = total / PATHS


def _of_one(made: Any) -> Callable[..., None]:
    """The sequence that calls one kernel."""

    def sequence(*arrays: Any) -> None:
        made(*arrays)

    sequence.__name__ = made.name
    return sequence


_KERNELS = (
    *(softmax, layer_norm, rms_norm, gelu, k_means, bilateral, convolution, blur_and_edges),
    *(batched_product, histogram, prefix_sum, selective_scan, black_scholes, monte_carlo),
)
_SEVERAL = (attention, gray_scott, lattice_boltzmann, page_rank, floyd_warshall)
SEQUENCES: Mapping[str, Callable[..., None]] = {
    **{made.name: _of_one(made) for made in _KERNELS},
    **{sequence.__name__: sequence for sequence in _SEVERAL},
    "sparse_product": csr_vector,
}
