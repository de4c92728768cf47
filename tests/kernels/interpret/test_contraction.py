"""Sums of products, given to BLAS, are what the loops in order compute."""

from __future__ import annotations

import numpy as np
import pytest
from kernelscape import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.interpret import arithmetic
from kernelscape.kernels.interpret import kernel as meaning
from kernelscape.kernels.interpret.contraction import contract
from kernelscape.kernels.interpret.lanes import plan_lanes


@kernel
def product(a: types.ndarray(), b: types.ndarray(), c: types.ndarray()):
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            acc = 0.0
            for k in range(b.shape[0]):
                acc += a[i, k] * b[k, j]
            c[i, j] = acc


@kernel
def mixed(a: types.ndarray(), b: types.ndarray(), c: types.ndarray()):
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            acc = a[i, j]
            for k in range(b.shape[0]):
                acc += a[j, j] * b[k, i]
            for _k in range(b.shape[0]):
                acc += a[i, j] * b[j, i]
            for k in range(3):
                for l in range(2):
                    acc += a[i, k + l] * b[k, k]
            for k in range(4):
                if c[i, j] > 0.0:
                    acc += a[i, k] * b[k, j]
            c[i, j] = acc


@kernel
def lower(a: types.ndarray(), b: types.ndarray(), c: types.ndarray()):
    for i in range(c.shape[0]):
        for j in range(i + 1):
            acc = 0.0
            for k in range(b.shape[0]):
                acc += a[i, k] * a[j, k] + b[k, i] * a[k, j]
            c[i, j] = c[i, j] + acc


@kernel
def upper(a: types.ndarray(), b: types.ndarray(), c: types.ndarray()):
    """From the diagonal on, of the transposed, in rows that end before the last one."""
    for i in range(c.shape[0]):
        for j in range(i, c.shape[0] - 1):
            acc = 0.0
            for k in range(b.shape[0]):
                acc += a[k, i] * a[k, j]
            if acc > 0.0:
                for k in range(b.shape[0]):
                    acc += a[k, i] * b[k, j]
            c[j, i] = acc


@kernel
def beyond(a: types.ndarray(), b: types.ndarray(), c: types.ndarray()):
    """What lanes that are masked out would read is outside of the array, or in two lanes of one axis."""
    for i in range(c.shape[0]):
        for j in range(i + 1):
            acc = 0.0
            if i + 1 < c.shape[0]:
                for k in range(b.shape[0]):
                    acc += a[i + 1, k] * b[k, j]
            c[i, j] = acc
    for i in range(c.shape[0]):
        for j in range(c.shape[0] - i):
            acc = 0.0
            for k in range(b.shape[0]):
                acc += a[j + i, k] * b[j, k]
            c[i, j] += acc


@kernel
def substitution(a: types.ndarray(), b: types.ndarray(), c: types.ndarray()):
    for j in range(c.shape[1]):
        for i in range(c.shape[0]):
            acc = c[i, j]
            for k in range(i + 1, c.shape[0]):
                acc += a[k, i] * c[k, j]
            c[i, j] = 2.0 * acc


@pytest.mark.parametrize("fn", [product, mixed, lower, upper, beyond, substitution])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("max_lanes", [1, 5, 1 << 21])
def test_contractions_are_loops_in_order(fn, dtype, max_lanes, monkeypatch):
    rng = np.random.default_rng(1)
    if dtype is np.int64 and fn is not product:
        pytest.skip("its accumulator would be a float")
    n = 5
    arrays = [rng.integers(-4, 5, (n, n)).astype(dtype) for _ in range(3)]
    ir = record_sequence(lambda a, b, c: fn(a, b, c), arrays, "s").calls[0].ir
    wanted, found = (dict(zip("abc", (x.copy() for x in arrays), strict=True)) for _ in range(2))
    monkeypatch.setattr(meaning, "plan_lanes", lambda body: {})
    meaning.run_kernel(ir, wanted, {})
    monkeypatch.setattr(meaning, "plan_lanes", plan_lanes)
    monkeypatch.setattr(meaning, "MAX_LANES", max_lanes)
    meaning.run_kernel(ir, found, {})
    np.testing.assert_array_equal(found["c"], wanted["c"])


@pytest.mark.parametrize("fn", [lower, upper, substitution])
def test_triangles_of_sums_take_few_steps(fn, monkeypatch):
    """BLAS has a whole triangle at once, or a row of it where rows wait for one another."""
    steps, n = [], 40
    arrays = [np.ones((n, n)) for _ in range(3)]
    ir = record_sequence(lambda a, b, c: fn(a, b, c), arrays, "s").calls[0].ir
    monkeypatch.setattr(arithmetic, "contract", lambda *x: steps.append(x) or contract(*x))
    meaning.run_kernel(ir, dict(zip("abc", arrays, strict=True)), {})
    assert 0 < len(steps) <= (n if fn is substitution else 2)


@pytest.mark.parametrize(
    ("a", "b", "shape", "n_reduced"),
    [
        ((4, 1, 3), (4, 2, 1), (4, 2, 3), 1),
        ((4, 1, 3), (4, 2, 3), (4, 2, 3), 1),
        ((1, 1, 3), (1, 2, 1), (4, 2, 3), 1),  # nothing depends on the loop
        ((), (4, 1, 1), (4, 2, 3), 1),
        ((3,), (4, 1, 3), (4, 2, 3), 2),
        ((4, 2), (4, 2), (4, 2), 2),
    ],
)
def test_contract_sums_the_broadcast_product(a, b, shape, n_reduced):
    rng = np.random.default_rng(2)
    x, y = (rng.integers(-4, 5, s).astype(np.float64) for s in (a, b))
    wanted = np.broadcast_to(x * y, shape).sum(axis=tuple(range(n_reduced)))
    found = np.broadcast_to(contract(x, y, shape, n_reduced), wanted.shape)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("a", "b", "n_reduced"),
    [
        ((7, 4), (7, 1), 1),  # a matrix and a vector
        ((4, 7, 1), (1, 7, 1), 2),
        ((7, 1, 1), (7, 3, 1), 1),
        ((7, 4, 1), (7, 1, 3), 1),
        ((7, 1, 3), (7, 4, 1), 1),  # the factors' order is not the result's
        ((2, 7, 4, 1), (2, 7, 1, 3), 2),
        ((2, 7, 4, 1), (2, 1, 1, 3), 2),  # one sum is of one factor alone
        ((7, 4, 3), (7, 1, 3), 1),  # an axis of both is kept
    ],
)
def test_products_of_any_axes(a, b, n_reduced):
    rng = np.random.default_rng(1)
    x, y = rng.integers(-4, 5, a).astype(float), rng.integers(-4, 5, b).astype(float)
    shape = np.broadcast_shapes(a, b)
    wanted = (x * y).sum(axis=tuple(range(n_reduced)))
    np.testing.assert_array_equal(contract(x, y, shape, n_reduced), wanted)
