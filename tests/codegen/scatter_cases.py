"""Sequences with updates of elements that iterations share, for the tests of CPUs and GPUs."""

from __future__ import annotations

from typing import Any

import kernelscape as ks
import numpy as np
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.testing.calling import InputSet
from kernelscape.testing.interpreted import run_reference

nd: Any = types.ndarray()


@kernel
def spread(x: nd, grid: nd, mass: nd):
    for p in range(x.shape[0]):
        i0 = ks.i32(ks.floor(x[p, 0] * 2.0)) - 1
        j0 = ks.i32(ks.floor(x[p, 1] * 2.0)) - 1
        for i in range(3):
            for j in range(2):
                if (
                    i0 + i >= 0
                    and i0 + i < grid.shape[0]
                    and j0 + j >= 0
                    and j0 + j < grid.shape[1]
                ):
                    for d in range(2):
                        grid[i0 + i, j0 + j, d] += x[p, d] * (i + 1)
                    mass[i0 + i, j0 + j] += 1


@kernel
def count(key: nd, bins: nd):
    for i in range(key.shape[0]):
        if key[i] > 3:
            bins[key[i] - 4] += i + 1


@kernel
def largest(key: nd, most: nd):
    for i in range(key.shape[0]):
        ks.atomic_max(most[key[i]], ks.f32(i))


@kernel
def edges(edge: nd, u: nd, f: nd):
    for e in range(edge.shape[0]):
        s = u[edge[e, 1]] - u[edge[e, 0]]
        f[edge[e, 0]] += s
        f[edge[e, 1]] -= s


@kernel
def corners(tri: nd, w: nd, f: nd, count: nd):
    for e in range(tri.shape[0]):
        if w[e] > 0.0:
            a = tri[e, 0]
            for k in range(3):
                for d in range(2):
                    f[tri[e, k], d] += w[e] * (k + 1 + d)
            if tri[e, 3] >= 0:
                at = tri[e, 3]
                f[at, 0] -= w[e]
                at = tri[e, 2] // 2
                f[at, 0] += 2.0 * w[e]
            count[a, e % 3] += 1


@kernel
def opposite(tri: nd, w: nd, g: nd):
    """Updates the nodes of `corners` in another order, of another array, by other statements."""
    for e in range(tri.shape[0]):
        if w[e] > 0.0:
            for d in range(2):
                for k in range(3):
                    node = tri[e, 2 - k]
                    g[node, d] += w[e] * (2 + k - d)
            if tri[e, 3] >= 0:
                g[tri[e, 3], 1] += w[e]


def of_meshes(tri: Any, w: Any, f: Any, count: Any, g: Any) -> None:
    """The forces of a mesh, and what would be their adjoint."""
    corners(tri, w, f, count)
    opposite(tri, w, g)


def of_steps(tri: Any, w: Any, f: Any, count: Any, g: Any) -> None:
    for _ in range(20):
        of_meshes(tri, w, f, count, g)


def of_mesh(tri: Any, w: Any, f: Any, count: Any) -> None:
    corners(tri, w, f, count)


def of_particles(x: Any, grid: Any, mass: Any) -> None:
    spread(x, grid, mass)


def of_keys(key: Any, bins: Any, most: Any, edge: Any, u: Any, f: Any) -> None:
    count(key, bins)
    largest(key, most)
    edges(edge, u, f)


def arguments(name: str, rng: Any, n: int) -> tuple[Any, ...]:
    if name == "particles":
        # Some windows begin before the grid, some end behind it; many particles are in one place.
        x = rng.uniform(-0.4, 5.4, (n, 2)).astype(np.float32)
        x[::3] = x[0]
        return x, np.zeros((11, 9, 2), np.float32), np.ones((11, 9), np.int32)
    if name in ("mesh", "star", "meshes", "steps"):
        # A quarter of all elements share a node, some have a node twice, some no fourth node.
        tri = rng.integers(-1, 40, (n, 4)).astype(np.int32)
        tri[:, :3] = np.abs(tri[:, :3])
        tri[:: 1 if name == "star" else 4, 0] = 7
        w = rng.integers(-1, 5, n).astype(np.float32)
        f, count = np.ones((40, 2), np.float32), np.zeros((40, 3), np.int64)
        return (tri, w, f, count, *([f + 1] if name in ("meshes", "steps") else []))
    key = rng.integers(0, 23, n).astype(np.int32)
    key[::4] = 22
    edge = rng.integers(0, 13, (n, 2)).astype(np.int32)
    u = rng.integers(-4, 5, 13).astype(np.float32)
    zeros = np.zeros(19, np.int64), np.full(23, -3.0, np.float32), np.ones(13, np.float32)
    return key, zeros[0], zeros[1], edge, u, zeros[2]


def problem_of(name: str, n: int = 61) -> tuple[Any, list[InputSet]]:
    """The problem of a sequence, and two sets of arguments with what comes out of them."""
    inputs, problem = [], None
    for seed in (1, 2):
        given = arguments(name, np.random.default_rng(seed), n)
        named = {"particles": of_particles, "keys": of_keys, "meshes": of_meshes, "steps": of_steps}
        fn = named.get(name, of_mesh)
        recording = record_sequence(fn, given, name="scatter")
        problem = normalise(recording)
        arrays = dict(zip((a.name for a in recording.arrays), given, strict=True))
        want = run_reference(recording, arrays, {}, dtype=np.float64)
        inputs.append(InputSet(arrays, {}, want, 64.0, 100.0))
    return problem, inputs
