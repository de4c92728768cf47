"""The functions of experiments/gradient_kernels.py and their gradients in JAX: the CPU time of a call of each, compiled.

    python -m kernelscape.experiments.gradient_kernels_jax NAME [--calls 5]

One thread computes. The last line of stdout is as that of `gradient_kernels`; a gradient is a function of inputs and seeds, so it
computes the function again, too. Needs NumPy and JAX only.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np

from .gradient_kernels import KERNELS, STEPS, fastest, seeds


class _Values:
    """Stands for a field: it has the values that it is given."""

    def __init__(self, dtype: Any, shape: tuple[int, ...]) -> None:
        self.values = np.zeros(shape, dtype)

    def from_numpy(self, values: Any) -> None:
        self.values = values


def _inputs() -> tuple[Any, list[_Values]]:
    """Returns a stand-in for Taichi's module, under which kernels are made, and the fields in the order in which they are made."""
    made: list[_Values] = []

    def field(*about: Any, shape: Any = (), needs_grad: bool = False) -> _Values:
        *elements, dtype = about
        made.append(_Values(dtype, (*np.atleast_1d(shape), *elements)))
        return made[-1]

    types = SimpleNamespace(f32=np.float32, i32=np.int32)
    kinds = SimpleNamespace(field=field)

    def same(f: Any) -> Any:
        """Stands for `ti.kernel` and `ti.func`: nothing calls the kernels."""
        return f

    ti = SimpleNamespace(
        **vars(types), field=field, Vector=kinds, Matrix=kinds, kernel=same, func=same
    )
    return ti, made


def functions(jax: Any) -> dict[str, Callable[..., Any]]:
    """Returns the functions by name: of the fields of a kernel, in the order in which they are made there."""
    jnp = jax.numpy

    def springs(x, _, first, second):
        d = x[first] - x[second]
        return (0.5 * (jnp.sqrt((d * d).sum(1) + 1e-6) - 0.1) ** 2).sum()

    def stencil(x, y):
        c = x[1:-1, 1:-1]
        around = x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]
        return y.at[1:-1, 1:-1].set(c + 0.1 * (around - 4.0 * c) + 0.01 * c * (1.0 - c))

    def matmul(a, b, _):
        return a @ b

    def p2g(x, v, grid):
        at = x * grid.shape[0]
        base = (at - 0.5).astype(jnp.int32)
        f = at - base
        w = [0.5 * (1.5 - f) ** 2, 0.75 - (f - 1.0) ** 2, 0.5 * (f - 0.5) ** 2]
        value = jnp.concatenate([v, jnp.ones((len(v), 1), v.dtype)], 1)
        for i in range(3):
            for j in range(3):
                weight = (w[i][:, 0] * w[j][:, 1])[:, None]
                grid = grid.at[base[:, 0] + i, base[:, 1] + j].add(weight * value)
        return grid

    def fem(x, _, a, b, c):
        first, second = x[b] - x[a], x[c] - x[a]
        j = first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0]
        log_j = jnp.log(jnp.maximum(jnp.abs(j), 0.01))
        square = (first * first + second * second).sum(1)
        return (0.5 * (square - 2.0) - log_j + 0.5 * log_j**2).sum()

    def softmax(x, _):
        e = jnp.exp(x - x.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    def nbody(x, _):
        d = x[:, None] - x[None]
        return -(1.0 / jnp.sqrt((d * d).sum(-1) + 1e-3)).sum()

    def sph(x, _, near):
        d = x[:, None] - x[near]
        q = jnp.maximum(1.0 - (d * d).sum(-1), 0.0)
        return (q * q * q).sum(1)

    def rk4(x, _):
        h = 0.05

        def slope(s):
            return jnp.stack([s[:, 1], -jnp.sin(s[:, 0]) - 0.1 * s[:, 1]], 1)

        def step(s, _):
            k1 = slope(s)
            k2 = slope(s + 0.5 * h * k1)
            k3 = slope(s + 0.5 * h * k2)
            k4 = slope(s + h * k3)
            return s + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4), None

        return jax.lax.scan(step, x, None, length=STEPS)[0][:, 0]

    def svd(x, _):
        sigma = jnp.linalg.svd(x, compute_uv=False)
        least = jnp.sign(jax.lax.stop_gradient(jnp.linalg.det(x)))  # of rotations U and V
        return sigma[:, 0] + sigma[:, 1] + least * sigma[:, 2]

    every = (springs, stencil, matmul, p2g, fem, softmax, nbody, sph, rk4, svd)
    return {f.__name__: f for f in every}


def measured(jax: Any, name: str, calls: int) -> dict[str, Any]:
    """The times of a function and of its gradient, and the sums of the gradients."""
    ti, made = _inputs()
    _, inputs, output = KERNELS[name](ti, np.random.default_rng(1))
    places = {n: made.index(x) for n, x in inputs.items()}
    given = [jax.numpy.asarray(x.values) for x in made]
    function = functions(jax)[name]
    compiled = jax.jit(function)

    def pulled_back(seed: Any, *fields: Any) -> Any:
        def of_inputs(*values: Any) -> Any:
            changed = list(fields)
            for place, value in zip(places.values(), values, strict=True):
                changed[place] = value
            return function(*changed)

        _, back = jax.vjp(of_inputs, *(fields[place] for place in places.values()))
        return back(seed)

    gradient, seed = jax.jit(pulled_back), jax.numpy.asarray(seeds(output.values.shape))
    found = gradient(seed, *given)
    sums = {
        n: float(np.abs(np.asarray(x, np.float64)).sum())
        for n, x in zip(places, found, strict=True)
    }
    return {
        "function": fastest(lambda: jax.block_until_ready(compiled(*given)), calls),
        "gradient": fastest(lambda: jax.block_until_ready(gradient(seed, *given)), calls),
        "sums": sums,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=tuple(KERNELS))
    parser.add_argument("--calls", type=int, default=5)
    given = parser.parse_args(arguments)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print(json.dumps(measured(import_module("jax"), given.name, given.calls)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
