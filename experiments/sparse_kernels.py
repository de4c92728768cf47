"""Small sequences on sparse fields, one for each choice that sparse_choices.py compares: fields are made and filled."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from ..kernels.language.kernel import kernel

N_LOOPS = 4  # of the sequences that take a layout, a list or a directory several times
N_COMPONENTS = 8

ks: Any = import_module(__package__.partition(".")[0])
Step = Callable[[], None]


def _places(n: int, extent: int) -> tuple[Any, Any]:
    """Two dense fields of `n` random coordinates."""
    rng, made = np.random.default_rng(1), (ks.field(ks.i32, n), ks.field(ks.i32, n))
    for one in made:
        one.from_numpy(rng.integers(0, extent, n).astype(np.int32))
    return made


def _components(n: int) -> Any:
    """A field of n^2 cells of all components, in leaves of 16^2."""
    q = ks.Vector.field(N_COMPONENTS, ks.f32)
    ks.root.pointer(ks.ij, n // 16).dense(ks.ij, 16).place(q)

    @kernel
    def fill() -> None:
        for i, j in ks.ndrange(n, n):
            for c in ks.static(range(N_COMPONENTS)):
                q[i, j][c] = 0.001 * i + 0.002 * j + c

    fill()
    return q


def far_reads(n: int) -> Step:
    """All components of n^2 random cells of n^2."""
    q, out = _components(n), ks.field(ks.f32, n * n)
    row, column = _places(n * n, n)

    @kernel
    def gather() -> None:
        for p in range(n * n):
            for c in ks.static(range(N_COMPONENTS)):
                out[p] += q[row[p], column[p]][c]

    def step() -> None:
        for _ in range(N_LOOPS):
            gather()

    return step


def near_reads(n: int) -> Step:
    """All components of n^2 cells in their order."""
    q = _components(n)

    @kernel
    def add() -> None:
        for i, j in q:
            for c in ks.static(range(0, N_COMPONENTS, 2)):
                q[i, j][c] = 0.5 * q[i, j][c] + 0.25 * q[i, j][c + 1]

    def step() -> None:
        for _ in range(N_LOOPS):
            add()

    return step


def windows(n: int) -> Step:
    """Sums of 4^2 cells at n^2 / 8 random places, in leaves of 64^2."""
    x, out = ks.field(ks.f32), ks.field(ks.f32, n * n // 8)
    ks.root.pointer(ks.ij, n // 64).dense(ks.ij, 64).place(x)
    row, column = _places(n * n // 8, n - 3)

    @kernel
    def fill() -> None:
        for i, j in ks.ndrange(n, n):
            x[i, j] = 0.001 * i + 0.002 * j

    @kernel
    def gather() -> None:
        for p in range(n * n // 8):
            for a, b in ks.static(ks.ndrange(4, 4)):
                out[p] += x[row[p] + a, column[p] + b]

    def step() -> None:
        for _ in range(N_LOOPS):
            gather()

    fill()
    return step


def stencil(n: int, leaf: int, has_corners: bool) -> Step:
    """On the middle eighth of n^3 cells, one component."""
    x, y = ks.field(ks.f32), ks.field(ks.f32)
    ks.root.pointer(ks.ijk, n // leaf).dense(ks.ijk, leaf).place(x, y)
    low, high = n // 4, 3 * n // 4

    @kernel
    def fill() -> None:
        for i, j, k in ks.ndrange((low, high), (low, high), (low, high)):
            x[i, j, k] = 0.1 * i + 0.01 * j + k

    @kernel
    def seven() -> None:
        for i, j, k in x:
            near = x[i - 1, j, k] + x[i + 1, j, k] + x[i, j - 1, k] + x[i, j + 1, k]
            y[i, j, k] = 0.4 * x[i, j, k] + 0.1 * (near + x[i, j, k - 1] + x[i, j, k + 1])

    @kernel
    def all_around() -> None:
        for i, j, k in x:
            near = 0.0
            for a, b, c in ks.static(ks.ndrange((-1, 2), (-1, 2), (-1, 2))):
                near += x[i + a, j + b, k + c]
            y[i, j, k] = 0.03 * near

    fill()
    return lambda: all_around() if has_corners else seven()


def grow(n: int) -> Step:
    """n cells in leaves of 64 are stored to half as many in blocks of 256, which the stores make active."""
    x, y = ks.field(ks.f32), ks.field(ks.f32)
    ks.root.pointer(ks.i, n // 64).dense(ks.i, 64).place(x)
    ks.root.pointer(ks.i, n // 256).dense(ks.i, 256).place(y)

    @kernel
    def fill() -> None:
        for i in range(n):
            x[i] = 0.001 * (i // 2)

    @kernel
    def down() -> None:
        for i in x:
            y[i // 2] = x[i]

    fill()
    return lambda: down()


def lists(n: int) -> Step:
    """Loops over a list of the n^2 / 4 active ones of n^2 nodes, each with two cells."""
    x, y = ks.field(ks.f32), ks.field(ks.f32)
    ks.root.pointer(ks.ij, n).dense(ks.ij, (1, 2)).place(x, y)

    @kernel
    def fill() -> None:
        for i, j in ks.ndrange(n // 2, n // 2):
            x[(7 * i + 3 * j) % n, 4 * j] = 0.001 * i + j

    @kernel
    def add() -> None:
        for i, j in x:
            y[i, j] += 0.5 * x[i, j]

    def step() -> None:
        for _ in range(N_LOOPS):
            add()

    fill()
    return step


def look_ups(n: int, kind: str = "pointer") -> Step:
    """Random cells of a node of n^2, of which 5,000 are active (fewer where n is small), half a million times a loop."""
    n_active, m = min(5000, n * n // 800), n * n // 8
    x, out = ks.field(ks.f32), ks.field(ks.f32, m)
    getattr(ks.root, kind)(ks.ij, n).place(x)
    row, column = _places(m, n)

    @kernel
    def fill() -> None:
        for k in range(n_active):
            x[row[k], column[k]] = 1.0 + k

    @kernel
    def gather() -> None:
        for p in range(m):
            out[p] += x[row[p], column[p]]

    def step() -> None:
        for _ in range(N_LOOPS):
            gather()

    fill()
    return step
