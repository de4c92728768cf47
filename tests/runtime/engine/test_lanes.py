"""Loops of standalone kernels that run in lanes."""

from __future__ import annotations

from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen.plan.nest_plan import NestPlan
from kernelscape.runtime.engine.planning import default_plan

A: Any = ks.types.ndarray
N = 64


@ks.kernel
def samples(x: A(), table: A(), y: A()):
    for i in range(x.shape[0]):
        k = ks.cast(x[i], ks.i32)
        f = x[i] - k
        y[i] = table[k] * (1.0 - f) + table[k + 1] * f


@ks.kernel
def apart(x: A(), table: A(), y: A()):
    for i in range(x.shape[0]):
        k = ks.cast(x[i], ks.i32)
        f = x[i] - k
        y[i] = table[k] * (1.0 - f) + table[k + 100] * f


@ks.kernel
def copies(x: A(), table: A(), y: A()):
    for i in range(x.shape[0]):
        y[i] = table[ks.cast(x[i], ks.i32)]


@pytest.mark.parametrize(("kernel", "runs"), [(samples, True), (apart, False), (copies, False)])
def test_loops_with_elements_near_one_another_run_in_lanes(kernel: Any, runs: bool) -> None:
    """Compilers gather them one by one, if at all."""
    arrays = [np.zeros(n, np.float32) for n in (N, 200, N)]
    (step,) = default_plan(kernel.instantiate(*arrays), 2, 32).tasks[0].steps
    assert isinstance(step, NestPlan)
    assert (step.lanes is not None) == runs
