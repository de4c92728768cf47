"""Ten kernels and their gradients, in Taichi's language: the CPU time of a call of each, in the Python of Taichi or here.

    python -m kernelscape.experiments.gradient_kernels ours|taichi NAME [--calls 5]

One thread computes. The last line of stdout is one JSON object: CPU seconds of the fastest call of the kernel ("function"), of its
adjoint ("gradient") and the sums of all gradients, by which the two may be compared. Needs NumPy and the library only.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Made = tuple[Any, dict[str, Any], Any]  # a kernel, its inputs with gradients, and its output
STEPS = 32  # of the time loop of `rk4`
AD_STACK = 4096  # iterations of a loop whose locals are kept: Taichi fails without a word where it has too few
NEAR = 32  # neighbours of a particle of `sph`


def _field(ti: Any, values: Any) -> Any:
    made = ti.field(ti.f32, shape=values.shape, needs_grad=True)
    made.from_numpy(values.astype(np.float32))
    return made


def _vectors(ti: Any, values: Any) -> Any:
    made = ti.Vector.field(values.shape[-1], ti.f32, shape=values.shape[:-1], needs_grad=True)
    made.from_numpy(values.astype(np.float32))
    return made


def _numbers(ti: Any, values: Any) -> Any:
    made = ti.field(ti.i32, shape=values.shape)
    made.from_numpy(values.astype(np.int32))
    return made


def _loss(ti: Any) -> Any:
    return ti.field(ti.f32, shape=(), needs_grad=True)


def springs(ti: Any, rng: np.random.Generator) -> Made:
    """Energy of springs between near nodes."""
    n = 200_000
    ends = np.stack([np.arange(n), (np.arange(n) + rng.integers(1, 64, n)) % n], 1)
    x, loss = _vectors(ti, rng.random((n, 3))), _loss(ti)
    first, second = _numbers(ti, ends[:, 0]), _numbers(ti, ends[:, 1])

    @ti.kernel
    def energy():
        for e in first:
            d = x[first[e]] - x[second[e]]
            loss[None] += 0.5 * (d.norm(1e-6) - 0.1) ** 2

    return energy, {"x": x}, loss


def stencil(ti: Any, rng: np.random.Generator) -> Made:
    """A step of a reaction with diffusion, by five points."""
    n = 1024
    x, y = _field(ti, rng.random((n, n))), _field(ti, np.zeros((n, n)))

    @ti.kernel
    def step():
        for i, j in ti.ndrange((1, n - 1), (1, n - 1)):
            around = x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1]
            c = x[i, j]
            y[i, j] = c + 0.1 * (around - 4.0 * c) + 0.01 * c * (1.0 - c)

    return step, {"x": x}, y


def matmul(ti: Any, rng: np.random.Generator) -> Made:
    """A product of matrices."""
    n = 256
    a, b, c = (_field(ti, rng.random((n, n))) for _ in range(3))

    @ti.kernel
    def product():
        for i, j in c:
            s = 0.0
            for k in range(n):
                s += a[i, k] * b[k, j]
            c[i, j] = s

    return product, {"a": a, "b": b}, c


def p2g(ti: Any, rng: np.random.Generator) -> Made:
    """Momentum and mass of particles on a grid, by quadratic windows."""
    n, cells = 100_000, 128
    x, v = _vectors(ti, 0.2 + 0.6 * rng.random((n, 2))), _vectors(ti, rng.random((n, 2)))
    grid = _vectors(ti, np.zeros((cells, cells, 3)))

    @ti.kernel
    def scatter():
        for p in x:
            at = x[p] * cells
            base = ti.cast(at - 0.5, ti.i32)
            f = at - ti.cast(base, ti.f32)
            w = [0.5 * (1.5 - f) ** 2, 0.75 - (f - 1.0) ** 2, 0.5 * (f - 0.5) ** 2]
            for i, j in ti.static(ti.ndrange(3, 3)):
                weight = w[i][0] * w[j][1]
                grid[base + ti.Vector([i, j])] += weight * ti.Vector([v[p][0], v[p][1], 1.0])

    return scatter, {"x": x, "v": v}, grid


def fem(ti: Any, rng: np.random.Generator) -> Made:
    """Neo-Hookean energy of triangles."""
    n = 300
    rows, columns = np.meshgrid(np.arange(n - 1), np.arange(n - 1), indexing="ij")
    corner = (rows * n + columns).ravel()
    below = np.stack([corner, corner + 1, corner + n], 1)
    above = np.stack([corner + n + 1, corner + n, corner + 1], 1)
    places = np.stack(np.meshgrid(np.arange(n), np.arange(n), indexing="ij"), -1).reshape(-1, 2)
    x, loss = _vectors(ti, places + 0.1 * rng.random(places.shape)), _loss(ti)
    a, b, c = (_numbers(ti, k) for k in np.concatenate([below, above]).T)

    @ti.kernel
    def energy():
        for e in a:
            f = ti.Matrix.cols([x[b[e]] - x[a[e]], x[c[e]] - x[a[e]]])
            j = f.determinant()
            log_j = ti.log(ti.max(abs(j), 0.01))
            square = (f.transpose() @ f).trace()
            loss[None] += 0.5 * (square - 2.0) - log_j + 0.5 * log_j**2

    return energy, {"x": x}, loss


def softmax(ti: Any, rng: np.random.Generator) -> Made:
    """Softmax of rows."""
    n, m = 2048, 256
    x, y = _field(ti, rng.random((n, m))), _field(ti, np.zeros((n, m)))

    @ti.kernel
    def rows():
        for i in range(n):
            top = x[i, 0]
            for j in range(m):
                top = ti.max(top, x[i, j])
            total = 0.0
            for j in range(m):
                total += ti.exp(x[i, j] - top)
            for j in range(m):
                y[i, j] = ti.exp(x[i, j] - top) / total

    return rows, {"x": x}, y


def nbody(ti: Any, rng: np.random.Generator) -> Made:
    """Energy of bodies that attract each other."""
    n = 2000
    x, loss = _vectors(ti, rng.random((n, 3))), _loss(ti)

    @ti.kernel
    def energy():
        for i in range(n):
            s = 0.0
            for j in range(n):
                d = x[i] - x[j]
                s += 1.0 / ti.sqrt(d.dot(d) + 1e-3)
            loss[None] -= s

    return energy, {"x": x}, loss


def sph(ti: Any, rng: np.random.Generator) -> Made:
    """Densities of particles, by lists of neighbours."""
    n = 50_000
    x, density = _vectors(ti, rng.random((n, 3))), _field(ti, np.zeros(n))
    near = _numbers(ti, (np.arange(n)[:, None] + rng.integers(-256, 257, (n, NEAR))) % n)

    @ti.kernel
    def densities():
        for i in range(n):
            rho = 0.0
            for k in range(NEAR):
                d = x[i] - x[near[i, k]]
                q = 1.0 - d.dot(d)
                if q > 0.0:
                    rho += q * q * q
            density[i] = rho

    return densities, {"x": x}, density


def rk4(ti: Any, rng: np.random.Generator) -> Made:
    """Pendulums through a time loop of Runge and Kutta."""
    n, h = 20_000, 0.05
    x, y = _vectors(ti, rng.random((n, 2))), _field(ti, np.zeros(n))

    @ti.func
    def slope(s):
        return ti.Vector([s[1], -ti.sin(s[0]) - 0.1 * s[1]])

    @ti.kernel
    def advance():
        for p in range(n):
            s = x[p]
            for _ in range(STEPS):
                k1 = slope(s)
                k2 = slope(s + 0.5 * h * k1)
                k3 = slope(s + 0.5 * h * k2)
                k4 = slope(s + h * k3)
                s += h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
            y[p] = s[0]

    return advance, {"x": x}, y


def svd(ti: Any, rng: np.random.Generator) -> Made:
    """Sums of the singular values of matrices of 3 x 3."""
    n = 50_000
    x, y = ti.Matrix.field(3, 3, ti.f32, shape=n, needs_grad=True), _field(ti, np.zeros(n))
    x.from_numpy(rng.random((n, 3, 3)).astype(np.float32))

    @ti.kernel
    def stretch():
        for i in range(n):
            _, sigma, _ = ti.svd(x[i])
            y[i] = sigma.trace()

    return stretch, {"x": x}, y


KERNELS: dict[str, Callable[[Any, np.random.Generator], Made]] = {
    f.__name__: f for f in (springs, stencil, matmul, p2g, fem, softmax, nbody, sph, rk4, svd)
}


def fastest(call: Callable[[], Any], calls: int) -> float:
    """CPU seconds of the fastest of some calls; one before them is not counted."""
    call()
    times = []
    for _ in range(calls):
        begun = time.process_time()
        call()
        times.append(time.process_time() - begun)
    return min(times)


def seeds(shape: tuple[int, ...]) -> Array:
    """Gradients of an output, all different: of equal ones that of a partition of unity is nothing but rounding."""
    return np.random.default_rng(2).uniform(0.5, 1.5, shape).astype(np.float32)


def _softmax_by_numpy() -> Array:
    x = np.random.default_rng(1).random((2048, 256)).astype(np.float32).astype(np.float64)
    y = np.exp(x - x.max(axis=1, keepdims=True))
    y /= y.sum(axis=1, keepdims=True)
    drawn = seeds(y.shape)
    found: Array = y * (drawn - (drawn * y).sum(axis=1, keepdims=True))
    return found


def _rk4_by_numpy() -> Array:
    """By central differences."""
    h, far = 0.05, 1e-5

    def slope(s: Array) -> Array:
        return np.stack([s[:, 1], -np.sin(s[:, 0]) - 0.1 * s[:, 1]], 1)

    def angles(s: Array) -> Array:
        for _ in range(STEPS):
            k1 = slope(s)
            k2 = slope(s + 0.5 * h * k1)
            k3 = slope(s + 0.5 * h * k2)
            k4 = slope(s + h * k3)
            s = s + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
        return s[:, 0]

    x = np.random.default_rng(1).random((20_000, 2)).astype(np.float32).astype(np.float64)
    ways = far * np.eye(2)
    slopes = [(angles(x + way) - angles(x - way)) / (2 * far) for way in ways]
    return seeds((len(x),))[:, None] * np.stack(slopes, 1)


# Where Taichi's gradient is another one.
BY_NUMPY = {"softmax": _softmax_by_numpy, "rk4": _rk4_by_numpy}


def measured(ti: Any, name: str, calls: int) -> dict[str, Any]:
    """The times of a kernel and of its adjoint, and the sums of its gradients after one call."""
    kernel, inputs, output = KERNELS[name](ti, np.random.default_rng(1))

    def function() -> None:
        kernel()
        ti.sync()

    def gradient() -> None:
        kernel.grad()
        ti.sync()

    output.grad.from_numpy(seeds(output.to_numpy().shape))
    function()
    gradient()
    sums = {n: float(np.abs(x.grad.to_numpy().astype(np.float64)).sum()) for n, x in inputs.items()}
    return {
        "function": fastest(function, calls),
        "gradient": fastest(gradient, calls),
        "sums": sums,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=("ours", "taichi"))
    parser.add_argument("name", choices=tuple(KERNELS))
    parser.add_argument("--calls", type=int, default=5)
    given = parser.parse_args(arguments)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    ti: Any = import_module("kernelscape" if given.library == "ours" else "taichi")
    ti.init(
        arch=ti.cpu,
        cpu_max_num_threads=1,
        offline_cache=False,
        log_level="error",
        ad_stack_size=AD_STACK,
    )
    print(json.dumps(measured(ti, given.name, given.calls)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
