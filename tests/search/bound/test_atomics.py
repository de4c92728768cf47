"""Atomic updates in the bound: hand-worked values, only where they are decided, and only where the machine was asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.bound.bounder import Bounder
from kernelscape.search.bound.explain import explain
from kernelscape.space import choices as ch
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Space
from kernelscape.testing.machines import root_of, round_target

N, SLOTS, RATE = 1000, 64, 0.5
nd: Any = types.ndarray()


@kernel
def count(at: nd, out: nd) -> None:
    for i in range(at.shape[0]):
        out[at[i]] += 1


@kernel
def splat(at: nd, x: nd, out: nd) -> None:
    for i in range(at.shape[0]):
        for k in range(3):
            out[at[i] + k] += x[i]


@kernel
def some(at: nd, x: nd, out: nd) -> None:
    for i in range(at.shape[0]):
        if x[i] > 0:
            out[at[i]] += x[i]


def space_of(fn: Any, dtype: type, rate: float = RATE) -> Space:
    at, x = np.zeros(N, np.int32), np.zeros(N, dtype)
    out = np.zeros(SLOTS, dtype)
    arguments = (at, out) if fn is count else (at, x, out)
    rates = {f"atomic_{t}_per_ns": rate for t in ("f32", "f64", "i32")}
    problem = normalise(record_sequence(lambda *a: fn(*a), arguments, name="one"))
    return build_space(problem, round_target(**rates))


def atomics_ns(space: Space, *hows: int) -> float:
    (var,) = space.variables.scatter.values()
    domains = root_of(space).domains.copy()
    domains[var] = sum(1 << how for how in hows)
    return dict(Bounder(space).bound(domains).terms).get("atomics", 0.0)


@pytest.mark.parametrize(
    ("fn", "dtype", "n"),
    [
        (count, np.int32, N),
        (count, np.float64, N),
        (splat, np.float32, 3 * N),
        (some, np.float32, 0),
    ],
)
def test_each_update_that_surely_happens_takes_what_an_atomic_one_takes(fn, dtype, n):
    space = space_of(fn, dtype)
    assert atomics_ns(space, ch.BY_ATOMICS) == pytest.approx(n / RATE)
    assert atomics_ns(space, ch.BY_ATOMICS, ch.PRIVATE) == atomics_ns(space, ch.PRIVATE) == 0


def test_nothing_follows_where_the_machine_was_not_asked():
    assert atomics_ns(space_of(splat, np.float32, rate=0.0), ch.BY_ATOMICS) == 0


def test_the_bound_says_what_it_counts():
    space = space_of(splat, np.float32)
    (var,) = space.variables.scatter.values()
    made = root_of(space).decide(var, 1 << ch.BY_ATOMICS)
    bound = Bounder(space).bound(made)
    assert bound.ns >= 3 * N / RATE
    said = [x for x in explain(bound, space) if x.startswith("atomics")]
    cores = space.target.cores
    assert said == [
        f"atomics: 6 us, atomic updates, as if no other core wanted the element: {cores / RATE:.1f} ns on a core (f32), "
        f"{cores / RATE:.1f} ns on a core (f64), {cores / RATE:.1f} ns on a core (i32)"
    ]
