"""heat: twice u += dt (laplace(u) + f); v = clamp(u); r = max |v - u|."""

# mypy: disable-error-code="valid-type"

from __future__ import annotations

from typing import Any

import numpy as np

from ..frontend.kernel import kernel, types
from ..frontend.recorder import ndarray
from . import MATRIX_SIZES, LibrarySequence, Sizes, signed, zeros


@kernel
def copy(u: types.ndarray(), v: types.ndarray()) -> None:
    for i in range(v.shape[0]):
        for j in range(v.shape[1]):
            v[i, j] = u[i, j]


@kernel
def step(u: types.ndarray(), v: types.ndarray(), dt: float) -> None:
    for i in range(1, u.shape[0] - 1):
        for j in range(1, u.shape[1] - 1):
            around = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]
            v[i, j] = u[i, j] + dt * (around - 4.0 * u[i, j])


@kernel
def add_source(f: types.ndarray(), v: types.ndarray(), dt: float) -> None:
    for i in range(v.shape[0]):
        for j in range(v.shape[1]):
            v[i, j] += dt * f[i, j]


@kernel
def clamp(v: types.ndarray(), low: float, high: float) -> None:
    for i in range(v.shape[0]):
        for j in range(v.shape[1]):
            v[i, j] = min(max(v[i, j], low), high)


@kernel
def largest_change(u: types.ndarray(), v: types.ndarray(), r: types.ndarray()) -> None:
    acc = 0.0
    for i in range(u.shape[0]):
        for j in range(u.shape[1]):
            acc = max(acc, abs(v[i, j] - u[i, j]))
    r[0] = acc


def heat(u: Any, f: Any, v: Any, r: Any, dt: float) -> None:
    t = ndarray(u.dtype, u.shape, name="t")
    copy(u, t)
    step(u, t, dt)
    add_source(f, t, dt)
    copy(t, v)
    step(t, v, dt)
    add_source(f, v, dt)
    clamp(v, -1.0, 1.0)
    largest_change(u, v, r)


def make_arguments(sizes: Sizes, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    m, n = sizes["m"], sizes["n"]
    return (
        signed(rng, dtype, m, n),
        signed(rng, dtype, m, n),
        zeros(dtype, m, n),
        zeros(dtype, 1),
        0.125,
    )


def reference(u: Any, f: Any, v: Any, r: Any, dt: Any) -> None:
    v[:] = u
    for _ in range(2):
        t = v.copy()
        around = t[:-2, 1:-1] + t[2:, 1:-1] + t[1:-1, :-2] + t[1:-1, 2:]
        v[1:-1, 1:-1] += dt * (around - 4 * t[1:-1, 1:-1])
        v += dt * f
    np.clip(v, -1, 1, out=v)
    r[0] = np.abs(v - u).max()


ENTRY = LibrarySequence(
    name="heat",
    formula="twice u += dt (laplace(u) + f); v = clamp(u); r = max |v - u|",
    sequence=heat,
    sizes={"m": 2048, "n": 2048},
    benchmark_sizes=MATRIX_SIZES,
    make_arguments=make_arguments,
    reference=reference,
    flops=lambda sizes: 20 * sizes["m"] * sizes["n"],
)
