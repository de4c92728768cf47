"""Extremes with their positions are reductions, and find what Python finds: it runs the same functions on the same arrays."""

from __future__ import annotations

import numpy as np
import pytest
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.testing.run_tasks import run_tasks

nd = types.ndarray()
F32, I32 = np.float32, np.int32


@kernel
def first(x: nd, y: nd, z: nd):
    for i in range(x.shape[0]):
        best = x[i, 0]
        at = 0
        for j in range(x.shape[1]):
            if x[i, j] > best:
                best = x[i, j]
                at = j
        y[i] = best
        z[i] = at


@kernel
def last_below(x: nd, y: nd, z: nd):
    """A start that may be better than all, and the value on the other side of the comparison."""
    for i in range(x.shape[0]):
        best = 1
        at = -7
        for j in range(x.shape[1]):
            if best >= x[i, j]:
                at = 2 * j + 3
                best = x[i, j]
        y[i] = best
        z[i] = at


@kernel
def last_of_all(x: nd, y: nd, z: nd):
    """No value is below the start: the last of what is not above it counts, if there is any."""
    for i in range(x.shape[0]):
        best = -np.inf
        at = -1
        for j in range(x.shape[1]):
            if x[i, j] >= best:
                best = x[i, j]
                at = j
        y[i] = best
        z[i] = at


@kernel
def in_two_loops(x: nd, y: nd, z: nd):
    best = x[0, 0]
    row = 0
    column = 0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            if x[i, j] < best:
                best = x[i, j]
                row = i
                column = j
    y[0] = best
    z[0] = row
    z[1] = column


@kernel
def nearest(x: nd, y: nd, z: nd):
    """Computed values have positions, too: the labels of k-means."""
    for i in range(x.shape[0]):
        best = 1000.0
        label = 0
        for c in range(x.shape[0]):
            d = 0.0
            for k in range(x.shape[1]):
                d += (x[i, k] - x[c, k]) * (x[i, k] - x[c, k])
            d += 0.5 * abs(c - 2)
            if d < best:
                best = d
                label = c
        y[i] = best
        z[i] = label


@kernel
def where_wanted(x: nd, y: nd, z: nd):
    for i in range(x.shape[0]):
        best = 0.0
        at = -1
        for j in range(x.shape[0]):
            if x[j, i] != 3.0 and x[j, i] < best:
                best = x[j, i]
                at = j
        y[i] = best
        z[i] = at


@kernel
def in_triangle(x: nd, y: nd, z: nd):
    for i in range(x.shape[0]):
        best = 2.0
        at = -1
        for j in range(i, x.shape[0]):
            if x[j, i] > -3.0 and x[i, j] <= best:
                best = x[i, j]
                at = j
        y[i] = best
        z[i] = at


@kernel
def best_alone(x: nd, y: nd, z: nd):
    for i in range(x.shape[0]):
        best = x[i, 0]
        for j in range(1, x.shape[1]):
            if x[i, j] > best:
                best = x[i, j]
        y[i] = best


@kernel
def with_a_load(x: nd, y: nd, z: nd):
    """What another array has at the place, and a number that nothing beats."""
    for i in range(x.shape[0]):
        best = x[i, 0]
        kept = 5.0
        at = -2
        for j in range(1, x.shape[1]):
            if x[i, j] > best:
                best = x[i, j]
                at = 2 * j
                kept = x[i, j - 1]
        y[i] = kept
        z[i] = at


@kernel
def with_a_value(x: nd, y: nd, z: nd):
    """Values that are computed in the iteration, of the last that is best."""
    for i in range(x.shape[0]):
        least = 0.0
        kept = -1.0
        for j in range(x.shape[1]):
            here = x[i, j] * 2.0
            if x[i, j] > -3.0 and x[i, j] <= least:
                least = x[i, j]
                kept = here + j
        y[i] = kept
        z[i] = i


@kernel
def with_a_load_in_two_loops(x: nd, y: nd, z: nd):
    best = x[0, 0]
    beside = x[0, 0]
    for i in range(1, x.shape[0] - 1):
        for j in range(x.shape[1]):
            if x[i, j] > best:
                best = x[i, j]
                beside = x[i + 1, j]
    y[0] = best
    y[1] = beside


KERNELS = [
    first,
    last_below,
    last_of_all,
    in_two_loops,
    nearest,
    where_wanted,
    in_triangle,
    best_alone,
    with_a_load,
    with_a_value,
    with_a_load_in_two_loops,
]


def problem_of(tested, x):
    """The tasks of a kernel, and the names of its arrays."""
    args = [x, np.zeros(len(x), x.dtype), np.zeros(max(2, len(x)), I32)]
    recording = record_sequence(lambda *a: tested(*a), args, "extremes")
    return normalise(recording), dict(zip((a.name for a in recording.arrays), args, strict=True))


@pytest.mark.parametrize("dtype", [F32, I32])
@pytest.mark.parametrize("tested", KERNELS, ids=lambda k: k.__name__)
def test_python_finds_the_same(tested, dtype):
    """Few different numbers, so that many are equal; some floats are NaN or infinite."""
    rng = np.random.default_rng(1)
    for trial in range(4):
        x = rng.integers(-3, 4, (9, 11)).astype(dtype)
        if dtype is F32 and trial and tested is not nearest:
            x[rng.random(x.shape) < 0.2 * trial] = np.nan
            x[rng.random(x.shape) < 0.2] = -np.inf
        problem, arrays = problem_of(tested, x)
        assert all(t.is_structured for t in problem.tasks)
        found = run_tasks(problem, arrays, {})
        wanted = [a.copy() for a in arrays.values()]
        with np.errstate(all="ignore"):
            tested.fn(*wanted)
        for name, value in zip(arrays, wanted, strict=True):
            np.testing.assert_array_equal(found[name], value)


@kernel
def with_an_uneven_load(x: nd, y: nd, z: nd):
    for i in range(x.shape[0]):
        best = x[i, 0]
        kept = 0.0
        for j in range(x.shape[1]):
            if x[i, j] > best:
                best = x[i, j]
                kept = x[j % 9, 0]
        y[i] = kept


@kernel
def read_elsewhere(x: nd, y: nd, z: nd):
    for i in range(x.shape[0]):
        best = x[i, 0]
        for j in range(x.shape[1]):
            if x[i, j] > best:
                best = x[i, j]
            y[i] += best


@kernel
def two_branches(x: nd, y: nd, z: nd):
    for i in range(x.shape[0]):
        best = x[i, 0]
        for j in range(1, x.shape[1]):
            if x[i, j] > best:
                best = x[i, j]
            if x[i, j - 1] > best:
                best = x[i, j - 1]
        y[i] = best


@kernel
def another_value(x: nd, y: nd, z: nd):
    for i in range(x.shape[0]):
        best = x[i, 0]
        for j in range(x.shape[1]):
            if x[i, j] > best:
                best = x[i, 0] - x[i, j]
        y[i] = best


@kernel
def clamped_by_the_program(x: nd, y: nd, z: nd):
    """The clamp is none to the elements of the array, which loads behind `and` have."""
    for i in range(x.shape[0]):
        best = x[i, 0]
        for j in range(x.shape[1]):
            if x[i, min(max(j, 0), 5)] > best:
                best = x[i, j]
        y[i] = best


@pytest.mark.parametrize(
    "tested",
    [with_an_uneven_load, read_elsewhere, two_branches, another_value, clamped_by_the_program],
)
def test_what_is_no_extreme_stays_in_order(tested):
    problem, _ = problem_of(tested, np.zeros((9, 11), F32))
    assert [t for t in problem.tasks if not t.is_structured]
