"""Comparison with the reference."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernelscape.runtime.worker.verify import (
    Expected,
    find_mismatch,
    integers_like,
    poison_value,
    signed_like,
    tolerance_factor,
)

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("got", "want", "fits"),
    [
        ([1.0, 2.0], [1.0, 2.0], True),
        ([1.0, 2.0], [1.0, 2.1], False),
        ([NAN, 2.0], [1.0, 2.0], False),
        ([1.0, 2.0], [NAN, 2.0], False),
        ([NAN, 2.0], [NAN, 2.0], True),
        ([INF, 2.0], [INF, 2.0], True),
        ([-INF, 2.0], [INF, 2.0], False),
        ([INF, 2.0], [1.0, 2.0], False),
        ([1.0, 2.0], [INF, 2.0], False),
        ([INF, 2.0], [1e300, 2.0], True),  # beyond float32
        ([0.0, 2.0], [1e-50, 2.0], True),  # below float32
    ],
)
def test_table(got, want, fits):
    found = find_mismatch(np.array(got, np.float32), Expected(np.array(want)))
    assert (found is None) == fits


@pytest.mark.parametrize("dtype", ["int32", "int64", "bool"])
def test_integers_must_be_equal(dtype):
    want = np.array([0, 1, 1], dtype)
    assert find_mismatch(want.copy(), Expected(want)) is None
    got = want.copy()
    got[2] = 0
    found = find_mismatch(got, Expected(want))
    assert found is not None
    assert found.index == (2,)


def test_first_mismatch_is_named():
    want = np.zeros((300, 400))
    got = want.astype(np.float32)
    got[123, 45] = got[200, 7] = 3
    found = find_mismatch(got, Expected(want, magnitude=1.0))
    assert found is not None
    assert (found.index, found.got, found.n_wrong) == ((123, 45), 3.0, 2)
    assert "[123, 45] is 3.0 and should be 0.0 within 1.9e-06 (2 of 120000" in str(found)


def test_magnitude_may_differ_by_element():
    want = np.array([0.0, 0.0])
    got = np.array([1e-3, 1e-3], np.float32)
    found = find_mismatch(got, Expected(want, 16.0, np.array([1e4, 1.0])))
    assert found is not None
    assert found.index == (1,)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("value", [INF, -INF, NAN, 1.0])
def test_what_may_be_off_by_more_than_its_type_holds_may_be_infinite(dtype, value):
    """The kind: a recurrence that explodes, whose rounding decides where it leaves the range of its type."""
    most = float(np.finfo(dtype).max)
    want, got = np.array([-2e37, 1.0]), np.array([value, 1.0], dtype)
    with np.errstate(over="ignore"):
        magnitude = np.array([most / np.finfo(dtype).eps, 1.0])
    assert find_mismatch(got, Expected(want, magnitude=magnitude)) is None
    assert find_mismatch(got, Expected(want, magnitude=1.0)) is not None


def test_shapes_that_differ_are_a_bug():
    with pytest.raises(ValueError, match="shape"):
        find_mismatch(np.zeros(3, np.float32), Expected(np.zeros(4)))


@given(st.integers(1, 20000), st.integers(0, 2**32), st.sampled_from(["float32", "float64"]))
def test_sums_in_any_order_pass_and_a_lost_block_does_not(n, seed, dtype):
    rng = np.random.default_rng(seed)
    x = signed_like(np.empty(n, dtype), rng)
    want = np.array([x.astype(np.float64).sum()])
    expected = Expected(want, tolerance_factor(1), float(np.abs(x).sum()))
    sequential = np.cumsum(x, dtype=dtype)[-1:]
    assert find_mismatch(sequential, expected) is None
    assert find_mismatch(np.cumsum(x[::-1], dtype=dtype)[-1:], expected) is None
    lost = sequential + np.array([0.2 * np.sqrt(n) + 0.2], dtype)
    assert find_mismatch(lost, expected) is not None


def test_exact_inputs_show_one_lost_element():
    x = integers_like(np.empty(1 << 20, np.float32), np.random.default_rng(0))
    expected = Expected(np.array([x.sum(dtype=np.float64)]), 0.0)
    assert find_mismatch(np.cumsum(x, dtype=np.float32)[-1:], expected) is None
    assert find_mismatch(x[:-1].sum(keepdims=True) - 1 + x[-1], expected) is not None


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "bool"])
def test_poison_fits_its_dtype(dtype):
    assert np.full(3, poison_value(np.dtype(dtype)), dtype).dtype == np.dtype(dtype)


def test_sums_of_few_different_values_are_right_and_a_lost_summand_is_seen():
    """Of equal summands that are no whole numbers all roundings of a running sum have one direction."""
    n = 1000
    x = np.tile([0.9939, -1.0061], n // 2)
    running = np.add.accumulate(x * x)[-1:]
    want = np.array([math.fsum(x * x)])
    assert find_mismatch(running, Expected(want, tolerance_factor(1), float(want[0]))) is not None
    expected = Expected(want, tolerance_factor(1, n, 2**-52), float(want[0]))
    assert find_mismatch(running, expected) is None
    assert find_mismatch(running - x[:1] * x[:1], expected) is not None
    assert (
        tolerance_factor(1, 2**24, 2**-23) == tolerance_factor(1, n, 2**-23) == tolerance_factor(1)
    )
