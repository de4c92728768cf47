"""Several updates of one element as one: which may be, and that elements have the same sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.interpret.kernel import run_kernel
from kernelscape.kernels.ir.kernel import KernelIR, Stmt, Update
from kernelscape.kernels.ir.verify import check
from kernelscape.kernels.ir.walk import nested_statements
from kernelscape.kernels.transforms.derivatives.adjoint import adjoint
from kernelscape.kernels.transforms.derivatives.joined import combined

nd: Any = types.ndarray()
N = 12


@kernel
def corners(x: nd, k: nd, y: nd):
    for e in range(x.shape[0]):
        a, b = k[e], k[N - 1 - e]
        y[a] += x[e]
        s = x[e] * 3.0
        y[b] -= s
        t = s + x[a]
        y[a] += t
        y[b] += 2.0 * t


@kernel
def moved(x: nd, k: nd, y: nd):
    for e in range(x.shape[0]):
        a = k[e]
        y[a] += x[e]
        a = (a + 1) % N
        y[a] += 2.0 * x[e]


@kernel
def shown(x: nd, k: nd, y: nd):
    for e in range(x.shape[0]):
        a = k[e]
        y[a] += x[e]
        s = y[(a + 5) % N]
        y[a] += 2.0 * s


@kernel
def stored(x: nd, k: nd, y: nd):
    for e in range(x.shape[0]):
        a = k[e]
        y[a] += x[e]
        y[k[N - 1 - e]] = 7.0
        y[a] += 2.0


@kernel
def shown_in_a_loop(x: nd, k: nd, y: nd):
    for e in range(x.shape[0]):
        a = k[e]
        y[a] += x[e]
        s = 0.0
        for j in range(3):
            s += y[j]
        y[a] += s


@kernel
def turned(x: nd, k: nd, y: nd):
    for e in range(x.shape[0]):
        y[k[0]] += x[e]
        k[0] = (k[0] + 1) % N
        y[k[0]] += 2.0 * x[e]


@kernel
def both_sides(x: nd, k: nd, y: nd):
    for e in range(x.shape[0]):
        a = k[e]
        y[a] += x[e]
        s = x[e] * 3.0
        if x[e] > 4.0:
            y[k[N - 1 - e]] += 5.0
            s *= 2.0
            y[k[N - 1 - e]] += s
        y[a] += s


def n_updates(body: Sequence[Stmt]) -> int:
    return sum(isinstance(s, Update) for s in nested_statements(tuple(body)))


def arrays(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x, y = (rng.integers(1, 9, N).astype(np.float64) for _ in range(2))
    return {"x": x, "k": rng.integers(0, 4, N).astype(np.int32), "y": y}


def joined(ir: KernelIR) -> KernelIR:
    numbers = count()
    dtypes = {p.name: p.dtype for p in ir.arrays}
    return replace(ir, body=combined(ir.body, dtypes, lambda stem: f"{stem}@{next(numbers)}"))


@pytest.mark.parametrize(
    ("fn", "before", "after"),
    [
        (corners, 4, 2),
        (moved, 2, 2),
        (shown, 2, 2),
        (stored, 2, 2),
        (shown_in_a_loop, 2, 2),
        (turned, 2, 2),
        (both_sides, 4, 2),
    ],
    ids=lambda x: getattr(x, "name", str(x)),
)
def test_updates_are_one_where_nobody_sees_a_part_of_the_sum(
    fn: Any, before: int, after: int
) -> None:
    """Small whole numbers have one sum in any order."""
    ir = fn.instantiate(*arrays(1).values())
    other = joined(ir)
    check(other)
    assert (n_updates(ir.body), n_updates(other.body)) == (before, after)
    for seed in (1, 2):
        states = [arrays(seed) for _ in range(2)]
        for one, state in zip((ir, other), states, strict=True):
            run_kernel(one, {p.name: state[p.name] for p in one.arrays}, {})
        np.testing.assert_array_equal(states[0]["y"], states[1]["y"])


@kernel
def energy(x: nd, k: nd, s: nd):
    for e in range(k.shape[0]):
        a, b, c = k[e, 0], k[e, 1], k[e, 2]
        ux, uy = x[b, 0] - x[a, 0], x[b, 1] - x[a, 1]
        vx, vy = x[c, 0] - x[a, 0], x[c, 1] - x[a, 1]
        area = ux * vy - uy * vx
        s[0] += area * area + ux * ux + vy * vy


def test_an_adjoint_updates_each_corner_of_an_element_once() -> None:
    """And adds in the order of its text where floats may not be reassociated."""
    rng = np.random.default_rng(1)
    given = rng.uniform(size=(9, 2)), rng.integers(0, 9, (20, 3)).astype(np.int32), np.zeros(1)
    ir = energy.instantiate(*given)
    made = [adjoint(x, {"x": "x_bar", "s": "s_bar"}) for x in (ir, replace(ir, fast_math=False))]
    assert n_updates(made[0].body) == 3 * 2
    assert n_updates(made[1].body) > 3 * 2
