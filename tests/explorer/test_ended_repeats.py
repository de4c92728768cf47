"""An exploration of a sequence that ends when an array says so: what it saves runs as many steps as the arguments need."""

from __future__ import annotations

import shutil
from pathlib import Path

import kernelscape as ks
import numpy as np
import pytest

nd = ks.types.ndarray()
N, LIMIT = 100, 50


@ks.kernel
def start(x: nd, n: nd):
    n[0] = 0
    for i in range(x.shape[0]):
        x[i] = 1.0


@ks.kernel
def relax(x: nd, b: nd, y: nd):
    for i in range(x.shape[0]):
        y[i] = b[i] + 0.5 * x[i]


@ks.kernel
def compare(x: nd, y: nd, n: nd, done: nd, tolerance: float):
    n[0] += 1
    change = 0.0
    for i in range(x.shape[0]):
        change = max(change, abs(y[i] - x[i]))
    done[0] = change < tolerance


@ks.kernel
def move(y: nd, x: nd):
    for i in range(x.shape[0]):
        x[i] = y[i]


def relaxed(b, x, y, n, done, tolerance):
    start(x, n)
    for _ in ks.repeat(LIMIT, until=done):
        relax(x, b, y)
        compare(x, y, n, done, tolerance)
        move(y, x)


def arguments() -> list[np.ndarray]:
    b = np.linspace(0, 1, N, dtype=np.float32)
    return [b, np.zeros_like(b), np.zeros_like(b), np.zeros(1, np.int32), np.ones(1, np.int32)]


def wanted(b: np.ndarray, tolerance: float) -> tuple[np.ndarray, int]:
    x, n, change = np.ones(N), 0, np.inf
    while change >= tolerance and n < LIMIT:
        y = b + 0.5 * x
        change, x, n = np.abs(y - x).max(), y, n + 1
    return x, n


@pytest.mark.compiler
@pytest.mark.skipif(not shutil.which("gcc"), reason="gcc is not here")
def test_what_was_found_is_replayed_with_other_tolerances(tmp_path: Path) -> None:
    run = ks.explore(
        relaxed, *arguments(), 0.01, max_evals=1, time_limit=5, directory=tmp_path / "run"
    )
    assert run.best is not None
    replayed = ks.replay(tmp_path / "run" / "best.json")
    steps = []
    for tolerance in (0.3, 0.01, 1e-5, -1.0):
        given = arguments()
        replayed(*given, tolerance)
        x, n = wanted(given[0], tolerance)
        np.testing.assert_allclose(given[1], x, rtol=1e-5)
        assert given[3][0] == n
        assert given[4][0] == (n < LIMIT)
        steps.append(n)
    assert sorted(set(steps)) == steps
    assert steps[-1] == LIMIT
