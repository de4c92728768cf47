"""Results that are moved by a unit in the last place: which are, how far, and that compiled loops and arrays are moved alike.

The kind: what a run of Monte Carlo arithmetic stands for. An exact result that was moved would make a comparison of whole numbers
undecided; a sum by BLAS that was moved less than its loop would make a right product wrong.
"""

from __future__ import annotations

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.interpret.moved import ArrayMover
from kernelscape.runtime import reference
from kernelscape.runtime.reference import Reference

nd = ks.types.ndarray()


@ks.kernel
def every(x: nd, y: nd, out: nd):
    for i in range(x.shape[0]):
        out[i, 0] = x[i] + y[i]
        out[i, 1] = x[i] - y[i]
        out[i, 2] = x[i] * y[i]
        out[i, 3] = x[i] / y[i]
        out[i, 4] = ks.sqrt(x[i])
        out[i, 5] = ks.exp(x[i])
        out[i, 6] = ks.rsqrt(x[i])
        out[i, 7] = ks.floor(x[i])
        out[i, 8] = max(x[i], y[i])


@ks.kernel
def product(a: nd, b: nd, c: nd):
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            total = 0.0
            for k in range(a.shape[1]):
                total += a[i, k] * b[k, j]
            c[i, j] = total


def moved(kernel, args, seed, monkeypatch, *, is_compiled=True):
    """The last argument after a call that is moved, compiled or on arrays."""
    recording = record_sequence(kernel, args)
    if not is_compiled:
        monkeypatch.setattr(reference, "can_print", lambda ir: False)
    arrays = dict(zip((p.name for p in recording.arrays), args, strict=True))
    found = Reference().run(recording, arrays, {}, wide=False, seed=seed)
    monkeypatch.undo()
    return found[recording.arrays[-1].name]


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_was_rounded_moves_by_a_unit_and_what_is_exact_stays(dtype, is_compiled, monkeypatch):
    rng = np.random.default_rng(0)
    x, y = (rng.uniform(0.5, 2, 200).astype(dtype) for _ in range(2))
    x[:4], y[:4] = [4, 1, 9, 16], [2, 1, 3, 8]
    args = x, y, np.zeros((200, 9), dtype)
    recording = record_sequence(every, args)
    plain = Reference().run(recording, {"x": x, "y": y, "out": args[2]}, {}, wide=False)["out"]
    first, second = (
        moved(every, args, seed, monkeypatch, is_compiled=is_compiled) for seed in (1, 2)
    )
    units = np.abs(first - plain) / np.spacing(np.abs(plain))
    assert units[:, :5].max() <= 2  # where a power of two is crossed, a unit is half as large
    assert units[:, 5:7].max() <= 4  # NumPy's functions are others than those of the C library
    assert (units[4:, 2:7] > 0).mean() > 0.95
    np.testing.assert_array_equal(first[:4, :5], plain[:4, :5])
    np.testing.assert_array_equal(first[:, 7:], plain[:, 7:])
    again = moved(every, args, 1, monkeypatch, is_compiled=is_compiled)
    np.testing.assert_array_equal(first, again)
    share = ((first > plain) == (second > plain))[4:, 2:6].mean()
    assert 0.4 < share < 0.6  # up or down by chance


@pytest.mark.parametrize("sign", [0.0, -1.0])
def test_products_by_blas_move_as_far_as_their_loops(sign, monkeypatch):
    rng = np.random.default_rng(1)
    args = rng.uniform(sign, 1, (12, 300)), rng.uniform(sign, 1, (300, 12)), np.zeros((12, 12))
    exact = (args[0].astype(np.longdouble) @ args[1].astype(np.longdouble)).astype(float)
    far = [
        np.mean(
            [np.abs(moved(product, args, s, monkeypatch, is_compiled=c) - exact) for s in range(6)]
        )
        for c in (True, False)
    ]
    assert 0.5 < far[1] / far[0] < 4


def test_products_and_sums_of_whole_numbers_stay():
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-9, 9, (20, 30)).astype(np.float32) for _ in range(2))
    mover = ArrayMover(1)
    np.testing.assert_array_equal(mover.contracted(a.T, b.T, (30, 20), 1), (a * b).sum(axis=1))
    np.testing.assert_array_equal(mover.reduced("add", a, (0,)), a.sum(axis=0))
    assert (mover.reduced("add", a / 3, (0,)) != (a / 3).sum(axis=0)).any()
