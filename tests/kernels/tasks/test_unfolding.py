"""Short repeats of long sequences: repeats stay where steps cannot share a loop, others are written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.repeats import FEW_CALLS
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.testing.interpreted import run_reference
from kernelscape.testing.run_tasks import run_tasks

nd: Any = types.ndarray()
N = 12


@kernel
def smooth(z: nd, r: nd, first: types.template()):
    for i in range(1, z.shape[0] - 1):
        if i % 2 == first:
            z[i] = 0.25 * (z[i - 1] + z[i + 1]) + r[i]


@kernel
def increment(z: nd):
    for i in range(z.shape[0]):
        z[i] += 1.0


@kernel
def average(x: nd, y: nd):
    for i in range(1, x.shape[0] - 1):
        y[i] = 0.5 * (x[i - 1] + x[i + 1])


@kernel
def scale(x: nd, y: nd):
    for i in range(x.shape[0]):
        y[i] = 0.5 * x[i]


@kernel
def add_up(x: nd, s: nd):
    s[0] = 0.0
    for i in range(x.shape[0]):
        s[0] += x[i]


def different(x: Any, y: Any, s: Any) -> None:
    """Twelve calls that do not repeat."""
    for k in (1, 2, 3):
        for n in range(k):
            add_up(x, s) if n else scale(y, x)
        average(x, y)
        add_up(y, s)


def red_black(x: Any, y: Any, s: Any) -> None:
    for _ in range(2):
        smooth(x, y, 0)
        smooth(x, y, 1)


def red_red(x: Any, y: Any, s: Any) -> None:
    for _ in range(4):
        smooth(x, y, 0)


def increments(x: Any, y: Any, s: Any) -> None:
    for _ in range(4):
        increment(x)


def scalings(x: Any, y: Any, s: Any) -> None:
    for _ in range(2):
        scale(x, y)
        scale(y, x)


def averages(x: Any, y: Any, s: Any) -> None:
    for _ in range(2):
        average(x, y)
        average(y, x)


def sums(x: Any, y: Any, s: Any) -> None:
    for _ in range(2):
        scale(x, y)
        add_up(y, s)


@pytest.mark.parametrize(
    ("repeated", "is_folded"),
    [
        (red_black, True),
        (averages, True),
        (red_red, False),
        (increments, False),
        (scalings, False),
        (sums, False),
    ],
)
def test_a_short_repeat_stays_where_its_steps_share_no_loop(repeated: Any, is_folded: bool) -> None:
    """Kind: what is folded cannot be fused. Only steps that have to wait for one another lose nothing."""

    def long(x: Any, y: Any, s: Any) -> None:
        different(x, y, s)
        repeated(x, y, s)
        different(y, x, s)

    rng = np.random.default_rng(1)
    arrays = {"x": rng.random(N), "y": rng.random(N), "s": rng.random(1)}
    recording = record_sequence(long, tuple(arrays.values()))
    assert sum(recording.n_made) > FEW_CALLS
    problem = normalise(recording)
    assert bool(problem.repeats) == is_folded
    wanted = run_reference(recording, arrays, {}, dtype=np.float64)
    for name, got in run_tasks(problem, arrays, {}, float64=True).items():
        np.testing.assert_allclose(got, wanted[name], rtol=1e-9, err_msg=name)


@pytest.mark.parametrize("n", [3, 4])
def test_four_calls_that_repeat_are_a_repeat_of_a_long_sequence(n: int) -> None:
    def long(x: Any, y: Any, s: Any) -> None:
        different(x, y, s)
        for _ in range(n):
            smooth(x, y, 0)
        different(y, x, s)

    recording = record_sequence(long, (np.ones(N), np.ones(N), np.ones(1)))
    found = [(r.stop - r.first, r.count) for r in recording.repeats]
    assert ((1, 4) in found) == (n == 4)
