"""Sequences of stencils, and candidates in which blocks are copied with their borders."""

from __future__ import annotations

import numpy as np
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.space import choices as ch
from kernelscape.space.candidate import Candidate
from kernelscape.testing import checking

nd = types.ndarray()


@kernel
def cross(x: nd, y: nd) -> None:
    for i in range(y.shape[0] - 2):
        for j in range(y.shape[1] - 3):
            y[i + 1, j + 2] = (
                4 * x[i + 1, j + 2] - x[i, j + 2] - x[i + 2, j + 2] - x[i + 1, j] * x[i + 1, j + 3]
            )


@kernel
def turned(x: nd, y: nd, z: nd) -> None:
    for i in range(z.shape[0]):
        for j in range(z.shape[1]):
            z[i, j] = x[j, i] + x[j + 1, i] - x[j + 1, i + 2] + y[i, j]


@kernel
def corners(x: nd, y: nd) -> None:
    for i in range(y.shape[0] - 1):
        for j in range(y.shape[1] - 1):
            for k in range(y.shape[2] - 1):
                y[i, j, k] = x[i, j, k] - x[i + 1, j + 1, k + 1] + x[i + 1, j, k]


@kernel
def slopes(x: nd, y: nd) -> None:
    for i in range(y.shape[0]):
        y[i] = x[i + 3] - 2 * x[i]


def two_sweeps(x, t, y):
    cross(x, t)
    cross(t, y)


def a_turned_one(x, y, t, z):
    cross(y, t)
    turned(x, t, z)


@kernel
def mean(x: nd, y: nd) -> None:
    for i in range(y.shape[0]):
        y[i] = x[i] + x[2 * i] + y[i]


@kernel
def edges(x: nd, y: nd) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            if i > j:
                y[i, j] = x[i - 1, j] - 3 * x[i, j]


@kernel
def obstacles(x: nd, m: nd, y: nd) -> None:
    for i in range(1, x.shape[0] - 1):
        for j in range(1, x.shape[1] - 1):
            if m[i, j] > 0:
                y[i, j] = x[i - 1, j] + x[i, j - 1] - 2 * x[i, j] + x[i + 1, j + 1]


@kernel
def sweep(x: nd, colour: int) -> None:
    for i in range(1, x.shape[0] - 1):
        for j in range(1, x.shape[1] - 1):
            if (i + j) % 2 == colour:
                x[i, j] += x[i - 1, j] - x[i + 1, j] - x[i, j - 1] + x[i, j + 1]


@kernel
def largest_around(x: nd, y: nd) -> None:
    for i in range(x.shape[0]):
        for j in range(1, x.shape[1] - 1):
            most = x[i, j]
            for d in range(3):
                if x[i, j + d - 1] > most:
                    most = x[i, j + d - 1]
            if i > 0:
                most -= x[i - 1, j]
            n = 0
            while n < 3 and most < 4:
                most += 1
                n += 1
            y[i, j] = most


def two_colours(x):
    sweep(x, 0)
    sweep(x, 1)


HALOS = ("two sweeps", "a turned one", "corners", "slopes")
GUARDED = ("edges", "obstacles", "two colours", "statements")
SEQUENCES = {
    "two sweeps": (two_sweeps, ((13, 37), (13, 37), (13, 37))),
    "a turned one": (a_turned_one, ((32, 15), (13, 31), (13, 31), (13, 31))),
    "corners": (lambda x, y: corners(x, y), ((5, 9, 18), (5, 9, 18))),
    "slopes": (lambda x, y: slopes(x, y), ((130,), (127,))),
    "edges": (lambda x, y: edges(x, y), ((11, 21), (11, 21))),
    "obstacles": (lambda x, m, y: obstacles(x, m, y), ((13, 37), (13, 37), (13, 37))),
    "two colours": (two_colours, ((13, 37),)),
    "statements": (lambda x, y: largest_around(x, y), ((12, 40), (12, 40))),
    "no windows": (lambda x, y: mean(x, y), ((9,), (5,))),
}


def recorded(name, dtype=np.float32):
    sequence, shapes = SEQUENCES[name]
    rng = np.random.default_rng(len(name))
    args = tuple(rng.integers(-4, 5, shape).astype(dtype) for shape in shapes)
    return record_sequence(sequence, args, name.replace(" ", "_")), args


def with_halos(space, n, seed):
    """So many random candidates in which something is copied with its border."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(60 * n):
        windows = [o for o in space.variables.staged if o.is_window]
        o = windows[rng.integers(len(windows))]
        root = space.root().decide(space.variables.staged[o], 1 << ch.COPY)
        made = checking.random_candidate(root, rng) if isinstance(root, Candidate) else root
        found += [made] if isinstance(made, Candidate) else []
        if len(found) == n:
            break
    return found
