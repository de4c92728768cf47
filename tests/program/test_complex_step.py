"""Gradients of analytic kernels against complex steps of the same functions in NumPy (Squire and Trapp, 1998)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from numpy.typing import NDArray

pytestmark = pytest.mark.compiler
STEP = 1e-30
N = 7
Array = NDArray[Any]


@pytest.fixture(autouse=True)
def _program() -> Iterator[None]:
    ks.init(default_fp=ks.f64)
    yield
    ks.reset()


def soft_maximum(x: Any, loss: Any) -> Callable[[], None]:
    total = ks.field(float, (), needs_grad=True)

    @ks.kernel
    def add():
        for i in x:
            total[None] += ks.exp(3.0 * x[i])

    @ks.kernel
    def logarithm():
        loss[None] += ks.log(total[None]) / 3.0

    def run() -> None:
        add()
        logarithm()

    return run


def pairs(x: Any, loss: Any) -> Callable[[], None]:
    @ks.kernel
    def run():
        for i in x:
            for j in range(N):
                if i != j:
                    d = x[i] - x[j]
                    loss[None] += (1.0 + i) / ks.sqrt(d * d + 0.01)

    return run


def steps(x: Any, loss: Any) -> Callable[[], None]:
    @ks.kernel
    def run():
        for i in x:
            a, v = x[i], 0.0
            for k in range(9):
                v += -ks.sin(a) * 0.1
                a += v * 0.1 + ks.tanh(a * k) * 0.01
            loss[None] += a * a + ks.exp(-v) + ks.atan2(v, 2.0)

    return run


def numpy_steps(x: Array) -> Any:
    a, v = x, 0.0 * x
    for k in range(9):
        v = v - np.sin(a) * 0.1
        a = a + v * 0.1 + np.tanh(a * k) * 0.01
    return (a * a + np.exp(-v) + np.arctan(v / 2.0)).sum()


def numpy_pairs(x: Array) -> Any:
    d = x[:, None] - x[None, :]
    each = (1.0 + np.arange(N))[:, None] / np.sqrt(d * d + 0.01)
    return (each * (1.0 - np.eye(N))).sum()


CASES: list[tuple[Callable[[Any, Any], Callable[[], None]], Callable[[Array], Any]]] = [
    (soft_maximum, lambda x: np.log(np.exp(3.0 * x).sum()) / 3.0),
    (pairs, numpy_pairs),
    (steps, numpy_steps),
]


@pytest.mark.parametrize(("make", "function"), CASES, ids=[make.__name__ for make, _ in CASES])
def test_gradients_are_those_of_complex_steps(make: Any, function: Any) -> None:
    x, loss = ks.field(float, N, needs_grad=True), ks.field(float, (), needs_grad=True)
    run = make(x, loss)
    at = np.random.default_rng(1).standard_normal(N)
    x.from_numpy(at)
    with ks.ad.Tape(loss):
        run()
    assert loss[None] == pytest.approx(function(at), rel=1e-14)
    wanted = [function(at + 1j * STEP * np.eye(N)[k]).imag / STEP for k in range(N)]
    np.testing.assert_allclose(x.grad.to_numpy(), wanted, rtol=1e-12)
