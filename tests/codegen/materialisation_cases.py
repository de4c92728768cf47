"""Sequences whose bodies share values, for the tests of CPUs and GPUs."""

from __future__ import annotations

from typing import Any

import kernelscape as ks
import numpy as np
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.testing.calling import InputSet
from kernelscape.testing.interpreted import run_reference

nd: Any = types.ndarray()


@kernel
def energy(x: nd, edge: nd, total: nd):
    for e in range(edge.shape[0]):
        d = x[edge[e, 1]] - x[edge[e, 0]]
        length = ks.sqrt(d * d + 0.5) + ks.exp(d)
        total[0] += (length - 1.0) * (length - 1.0) / length


@kernel
def force(x: nd, edge: nd, f: nd):
    for e in range(edge.shape[0]):
        d = x[edge[e, 1]] - x[edge[e, 0]]
        length = ks.sqrt(d * d + 0.5) + ks.exp(d)
        pull = (1.0 - 1.0 / (length * length)) * d / length
        f[edge[e, 0]] += pull
        f[edge[e, 1]] -= pull


@kernel
def move(x: nd, f: nd):
    for i in range(x.shape[0]):
        x[i] += 0.25 * f[i]


@kernel
def push(x: nd, edge: nd):
    """Overwrites what other iterations read."""
    for e in range(edge.shape[0]):
        d = x[edge[e, 1]] - x[edge[e, 0]]
        length = ks.sqrt(d * d + 0.5) + ks.exp(d)
        x[edge[e, 0]] += 0.125 * d / length


@kernel
def rows(x: nd, y: nd):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            k = min(max(int(x[i, j] * 3.0), 0), x.shape[1] - 1)
            d = ks.sqrt(x[i, k] * x[i, k] + 1.0) / (x[i, j] * x[i, j] + 2.0)
            y[i, j] = d + x[i, k]


@kernel
def squares(x: nd, z: nd):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            k = min(max(int(x[i, j] * 3.0), 0), x.shape[1] - 1)
            d = ks.sqrt(x[i, k] * x[i, k] + 1.0) / (x[i, j] * x[i, j] + 2.0)
            z[i, j] = d * d - x[i, k]


@kernel
def forwarded(x: nd, k: nd, y: nd):
    """Loads an integer from an array to which it stored it."""
    for i in range(x.shape[0]):
        k[i] = i + 1
        g = ks.cast(k[i], ks.f64)
        y[k[i] - 1] += ks.sin(g) * ks.exp(g * 0.01) + g


@kernel
def clear(k: nd):
    for i in range(k.shape[0]):
        k[i] = 0


@kernel
def counted(x: nd, k: nd, y: nd):
    for i in range(x.shape[0]):
        g = ks.cast(i + 1, ks.f64)
        s = ks.sin(g) * ks.exp(g * 0.01) + g
        y[k[i]] += s * g - g - x[i]


@kernel
def summed(x: nd, k: nd, y: nd):
    """A value of a local that changes several times."""
    for i in range(x.shape[0]):
        s = ks.sin(x[k[i]])
        s += ks.exp(x[i]) * x[i]
        if x[i] > 0.5:
            s = ks.cos(x[i])
        y[k[i]] += ks.sqrt(s * s + 1.0) / (s + 3.0) + ks.exp(s) * ks.sin(s)


@kernel
def summed_twice(x: nd, k: nd, y: nd):
    for i in range(x.shape[0]):
        s = ks.sin(x[k[i]])
        s += ks.exp(x[i]) * x[i]
        if x[i] > 0.5:
            s = ks.cos(x[i])
        y[k[i]] += 2.0 * (ks.sqrt(s * s + 1.0) / (s + 3.0) + ks.exp(s) * ks.sin(s))


def cleared_between(x, k, y, z):
    forwarded(x, k, y)
    clear(k)
    counted(x, k, z)


def changing(x, k, y, z):
    summed(x, k, y)
    summed_twice(x, k, z)


def apart(x, k, y, z):
    """Two pairs, one of them across a loop of time steps."""
    summed(x, k, y)
    for _ in range(40):
        summed(x, k, z)
    for out in (y, z, y):
        summed_twice(x, k, out)


def gradient(x, edge, total, f):
    energy(x, edge, total)
    force(x, edge, f)


def nest(x, y, z):
    rows(x, y)
    squares(x, z)


def moved_between(x, edge, total, f):
    energy(x, edge, total)
    move(x, f)
    force(x, edge, f)


def moved_by_itself(x, edge, total, f):
    energy(x, edge, total)
    push(x, edge)


def arguments(fn: Any, seed: int = 1, n: int = 23) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    if fn in (cleared_between, changing, apart):
        k = rng.permutation(n).astype(np.int64)
        return rng.random(n), k, np.zeros(n), np.zeros(n)
    if fn is nest:
        x = rng.uniform(-0.5, 1.5, (5, n)).astype(np.float32)
        return x, np.zeros_like(x), np.ones_like(x)
    x = rng.uniform(-1, 1, 13).astype(np.float32)
    edge = rng.integers(0, 13, (n, 2)).astype(np.int32)
    return x, edge, np.zeros(1, np.float32), np.zeros(13, np.float32)


def problem_of(fn: Any) -> tuple[Any, Any, dict[str, Any]]:
    given = arguments(fn)
    recording = record_sequence(fn, given, name="one")
    arrays = dict(zip((a.name for a in recording.arrays), given, strict=True))
    return recording, normalise(recording), arrays


def inputs_of(recording: Any, fn: Any) -> list[InputSet]:
    found = []
    for seed in (1, 2):
        arrays = dict(zip((a.name for a in recording.arrays), arguments(fn, seed), strict=True))
        want = run_reference(recording, arrays, {}, dtype=np.float64)
        found.append(InputSet(arrays, {}, want, 64.0, 100.0))
    return found


def decided(root: Any, value: int, *others: tuple[int, int]) -> Any:
    (var,) = root.space.variables.of_places["materialised"].values()
    for choice, domain in ((var, 1 << value), *others):
        root = root.decide(choice, domain)
    return root


def loads_stored_values(candidate: Any) -> bool:
    """True if the second body of a candidate's plan loads what the first one has stored."""
    first, second = (t.body for t in plan_of(candidate).problem.tasks[:2])
    stored = {s.state.name for s in first.sites if s.writes}
    loaded = {s.state.name for s in second.sites if s.reads}
    return any(name.startswith("shared_value") for name in stored & loaded)
