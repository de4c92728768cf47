"""Random numbers of programs: uniform, independent of each other, and a function of the seed alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.ir.op_semantics import mix64

MANY = 40_000
CELLS = 64
# A chi-square of 63 degrees of freedom lies outside of these once in a million draws; the seed is fixed.
LOW, HIGH = 22.0, 130.0


@pytest.fixture(autouse=True)
def _program() -> Iterator[None]:
    ks.init(random_seed=11)
    yield
    ks.reset()


def drawn(dtype: Any, count: int = 1) -> np.ndarray:
    """`count` numbers of each of many iterations."""
    x = ks.field(dtype, shape=(MANY // count, count))

    @ks.kernel
    def draw():
        for i in range(x.shape[0]):
            for k in ks.static(range(count)):
                x[i, k] = ks.random(dtype)

    draw()
    return x.to_numpy()


def unit(x: np.ndarray) -> np.ndarray:
    """Numbers of a type as fractions of its range."""
    if x.dtype.kind == "f":
        return x.astype(np.float64)
    limits = np.iinfo(x.dtype)
    return (x.astype(np.float64) - limits.min) / (float(limits.max) - limits.min + 1)


def chi_square(cells: np.ndarray) -> float:
    counts = np.bincount(cells, minlength=CELLS)
    expected = len(cells) / CELLS
    return float(((counts - expected) ** 2 / expected).sum())


def test_the_mixer_is_that_of_splitmix64() -> None:
    """The first outputs of Vigna's splitmix64.c from the state 1234567."""
    golden, state = 0x9E3779B97F4A7C15, 1234567
    states = [(state + (k + 1) * golden) % 2**64 for k in range(5)]
    assert mix64(np.array(states, dtype=np.uint64)).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


@pytest.mark.parametrize("dtype", [ks.f32, ks.f64, ks.i32, ks.i64, ks.u32, ks.u64])
def test_numbers_fill_their_range_evenly(dtype: Any) -> None:
    x = unit(drawn(dtype)).ravel()
    assert 0 <= x.min() < 0.001
    assert 0.999 < x.max() < 1
    assert LOW < chi_square((x * CELLS).astype(int)) < HIGH
    # Of the 24 bits of an f32 the lowest, too.
    low_bits = (x * 2**18 * CELLS).astype(np.int64) % CELLS
    assert LOW < chi_square(low_bits) < HIGH


@pytest.mark.parametrize("dtype", [ks.f32, ks.u64])
def test_neighbours_are_independent(dtype: Any) -> None:
    """Pairs of neighbouring iterations, of draws of one iteration, and of two calls fill the square evenly."""
    first, second = unit(drawn(dtype, 2)), unit(drawn(dtype, 2))
    pairs = (
        (first[:-1, 0], first[1:, 0]),
        (first[:, 0], first[:, 1]),
        (first[:, 0], second[:, 0]),
        (first[:-1, 1], first[1:, 0]),
    )
    for x, y in pairs:
        cells = (x * 8).astype(int) * 8 + (y * 8).astype(int)
        assert LOW < chi_square(cells) < HIGH
        assert abs(np.corrcoef(x, y)[0, 1]) < 5 / np.sqrt(len(x))


def test_seeds_that_are_neighbours_draw_other_numbers() -> None:
    runs = []
    for seed in (11, 12, 11):
        ks.init(random_seed=seed)
        runs.append(drawn(ks.f64).ravel())
    assert np.array_equal(runs[0], runs[2])
    assert abs(np.corrcoef(runs[0], runs[1])[0, 1]) < 5 / np.sqrt(MANY)


@pytest.mark.parametrize("dtype", [ks.f32, ks.f64])
def test_normal_numbers(dtype: Any) -> None:
    x = ks.field(dtype, shape=MANY)

    @ks.kernel
    def draw():
        for i in x:
            x[i] = ks.randn(dtype)

    draw()
    values = x.to_numpy().astype(np.float64)
    assert np.isfinite(values).all()
    assert abs(values.mean()) < 5 / np.sqrt(MANY)
    assert abs(values.std() - 1) < 5 / np.sqrt(2 * MANY)
    assert abs((values**4).mean() - 3) < 5 * np.sqrt(96 / MANY)
    quantiles = np.array([-1.959964, -0.674490, 0.0, 0.674490, 1.959964])
    shares = (values[:, None] < quantiles).mean(axis=0)
    assert np.allclose(shares, [0.025, 0.25, 0.5, 0.75, 0.975], atol=0.011)
