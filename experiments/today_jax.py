"""The workloads of `experiments/today.py` in JAX, as whole-array expressions under `jit`, in the Python of JAX.

    python -m kernelscape.experiments.today_jax ROW N SEED RESULTS.npz

Keeps its first results in a file, says "ready", and then answers each line of its input with the nanoseconds of one more run. Needs
NumPy and JAX only. Arrays are on the device before, and matrices are in JAX's own form: a row number for each entry.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,import-not-found"

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from . import today_arrays


def functions() -> Mapping[str, Callable[..., tuple[Any, ...]]]:
    """The functions by workload; each returns its results. JAX is imported here: other scripts read this module's text alone."""
    import jax
    import jax.numpy as jnp
    from jax import lax
    from jax.scipy.special import erf

    def softmax(x, _):
        return (jax.nn.softmax(x, axis=1),)

    def layer_norm(x, gain, bias, _):
        mean, variance = x.mean(1, keepdims=True), x.var(1, keepdims=True)
        return ((x - mean) * lax.rsqrt(variance + 1e-5) * gain + bias,)

    def rms_norm(x, gain, _):
        return (x * lax.rsqrt((x * x).mean(1, keepdims=True) + 1e-5) * gain,)

    def gelu(x, _):
        return (jax.nn.gelu(x, approximate=False),)

    def attention(q, k, v, _):
        s = jnp.einsum("hid,hjd->hij", q, k) * 0.125
        n = s.shape[1]
        s = jnp.where(jnp.tril(jnp.ones((n, n), bool)), s, -jnp.inf)
        return (jnp.einsum("hij,hje->hie", jax.nn.softmax(s, axis=2), v),)

    def k_means(x, centres, *_):
        squares = (x * x).sum(1)[:, None] - 2.0 * x @ centres.T + (centres * centres).sum(1)
        labels = jnp.argmin(squares, axis=1)
        of = jax.nn.one_hot(labels, len(centres), dtype=x.dtype)
        return of.T @ x, of.sum(0), labels.astype(jnp.int32)

    def bilateral(image, out):
        n, r = len(image), today_arrays.RADIUS
        inside = image[r : n - r, r : n - r]
        total = weights = jnp.zeros_like(inside)
        for a in range(2 * r + 1):
            for b in range(2 * r + 1):
                other = image[a : n - 2 * r + a, b : n - 2 * r + b]
                near = (a - r) ** 2 + (b - r) ** 2
                w = jnp.exp(-0.08 * near - 50.0 * (other - inside) ** 2)
                total, weights = total + w * other, weights + w
        return (out.at[r : n - r, r : n - r].set(total / weights),)

    def convolution(image, taps, _):
        made = lax.conv_general_dilated(image[None, None], taps[None, None], (1, 1), "VALID")
        return (made[0, 0],)

    def blur_and_edges(image, blurred, out):
        x = image.astype(jnp.int32)
        rows = x[:-2] + 2 * x[1:-1] + x[2:]
        blurred = blurred.at[1:-1, 1:-1].set(
            ((rows[:, :-2] + 2 * rows[:, 1:-1] + rows[:, 2:]) // 16).astype(jnp.uint8)
        )
        y = blurred.astype(jnp.int32)
        across, down = y[2:-2, 3:-1] - y[2:-2, 1:-3], y[3:-1, 2:-2] - y[1:-3, 2:-2]
        edges = jnp.where(jnp.abs(across) + jnp.abs(down) > 24, 255, 0).astype(jnp.uint8)
        return blurred, out.at[2:-2, 2:-2].set(edges)

    def gray_scott(u2, v2, u, v):
        def around(x):
            return sum(jnp.roll(x, s, a) for s in (1, -1) for a in (0, 1)) - 4.0 * x

        def step(_, uv):
            u, v = uv
            uvv = u * v * v
            new_u = u + today_arrays.SPREAD_U * around(u) - uvv + today_arrays.FEED * (1.0 - u)
            return new_u, v + today_arrays.SPREAD_V * around(v) + uvv - (
                today_arrays.FEED + today_arrays.KILL
            ) * v

        return tuple(lax.fori_loop(0, today_arrays.STEPS, step, (u, v)))

    def lattice_boltzmann(_, f):
        cx, cy = (0, 1, -1, 0, 0, 1, -1, 1, -1), (0, 0, 0, 1, -1, 1, -1, -1, 1)
        shares = (4 / 9, *(1 / 9,) * 4, *(1 / 36,) * 4)

        def step(_, f):
            f = [jnp.roll(f[q], (cx[q], cy[q]), (0, 1)) for q in range(9)]
            rho = sum(f)
            x = sum(cx[q] * f[q] for q in range(9)) / rho
            y = sum(cy[q] * f[q] for q in range(9)) / rho
            c = 1.0 - 1.5 * (x * x + y * y)
            along = [cx[q] * x + cy[q] * y for q in range(9)]
            wanted = [rho * shares[q] * (c + 3.0 * a + 4.5 * a * a) for q, a in enumerate(along)]
            return jnp.stack([0.4 * a + 0.6 * b for a, b in zip(f, wanted, strict=True)])

        return (lax.fori_loop(0, today_arrays.STEPS, step, f),)

    def batched_product(a, b, _):
        return (a @ b,)

    def histogram(x, counts):
        return (jnp.bincount(x, length=len(counts)).astype(jnp.int32),)

    def prefix_sum(x, _):
        return (jnp.cumsum(x),)

    def sparse_product(rows, column, value, x, y):
        terms = value * x[column]
        return (jax.ops.segment_sum(terms, rows, len(y), indices_are_sorted=True),)

    def page_rank(rows, column, share, _, x):
        n = len(x)

        def step(_, x):
            found = jax.ops.segment_sum((x * share)[column], rows, n, indices_are_sorted=True)
            return (1.0 - today_arrays.DAMPING) / n + today_arrays.DAMPING * found

        return (lax.fori_loop(0, today_arrays.STEPS, step, x),)

    def selective_scan(x, delta, a, b, c, h, _):
        def step(h, now):
            x, delta, b, c = now
            h = jnp.exp(delta[:, None] * a) * h + (delta * x)[:, None] * b
            return h, (h * c).sum(1)

        return (lax.scan(step, h, (x, delta, b, c))[1],)

    def floyd_warshall(path):
        def step(k, path):
            return jnp.minimum(path, path[:, k][:, None] + path[k])

        return (lax.fori_loop(0, len(path), step, path),)

    def black_scholes(spot, strike, years, *_):
        root = 0.3 * jnp.sqrt(years)
        d1 = (jnp.log(spot / strike) + 0.065 * years) / root
        n1 = 0.5 + 0.5 * erf(d1 * 0.7071067811865476)
        n2 = 0.5 + 0.5 * erf((d1 - root) * 0.7071067811865476)
        later = strike * jnp.exp(-0.02 * years)
        return spot * n1 - later * n2, later * (1.0 - n2) - spot * (1.0 - n1)

    def monte_carlo(spot, _):
        first, second = jax.random.uniform(jax.random.key(1), (2, len(spot), today_arrays.PATHS))
        radius = jnp.sqrt(-2.0 * jnp.log(1.0 - first))
        drift = 0.3 * radius * jnp.cos(6.283185307179586 * second) - 0.025
        return (jnp.maximum(spot[:, None] * jnp.exp(drift) - 100.0, 0.0).mean(1),)

    found = dict(locals())
    return {name: found[name] for name in dict.fromkeys(x for x, _ in today_arrays.ROWS.values())}


def main(row: str, n: str, seed: str, results: str) -> None:
    """Prepares a workload, and runs it once a line."""
    import jax

    workload, _ = today_arrays.ROWS[row]
    arrays = list(today_arrays.arrays_of(row, int(n), np.random.default_rng(int(seed))))
    if workload in ("sparse_product", "page_rank"):
        lengths = np.diff(arrays[0])
        arrays[0] = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    given = [jax.device_put(a) for a in arrays]
    run = jax.jit(functions()[workload])
    np.savez(results, *jax.block_until_ready(run(*given)))
    print("ready", flush=True)
    for _ in sys.stdin:
        started = time.perf_counter_ns()
        jax.block_until_ready(run(*given))
        print(time.perf_counter_ns() - started, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
