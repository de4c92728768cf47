"""Kernels that come from a file stay inside their arrays, as far as that does not depend on data."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.kernel import KernelIR
from kernelscape.kernels.library import load, names
from kernelscape.kernels.tasks.bounds_check import first_outside

nd = types.ndarray()
N = 9


@kernel
def shifted(x: nd, y: nd):
    for i in range(x.shape[0] - 1):
        y[i] = x[i + 1]


@kernel
def triangle(x: nd, y: nd):
    for i in range(x.shape[0]):
        for j in range(i):
            y[i] += x[i - j - 1]


@kernel
def guarded(x: nd, y: nd):
    for i in range(x.shape[0]):
        if i > 0 and x[i] > 0.0:
            y[i] = x[i - 1]


@kernel
def guarded_below(x: nd, y: nd):
    for i in range(x.shape[0]):
        if i + 1 < x.shape[0]:
            y[i] = x[i + 1]


@kernel
def by_data(x: nd, y: nd):
    for i in range(x.shape[0]):
        if x[i] > 0.0:
            y[i] = x[i - 1]


@kernel
def gathered(x: nd, y: nd, p: nd):
    for i in range(y.shape[0]):
        y[i] = x[p[i]]


def ir_of(fn: Any) -> KernelIR:
    x = np.ones(N, np.float32)
    args = (x, x.copy(), np.zeros(N, np.int64)) if fn is gathered else (x, x.copy())
    return record_sequence(fn, args, name="one").calls[0].ir


def shortened(ir: KernelIR, n: int) -> KernelIR:
    """As a hostile file has it: the same loops, over arrays that are shorter."""
    return replace(ir, arrays=tuple(replace(p, shape=(n,)) for p in ir.arrays))


@pytest.mark.parametrize("fn", [shifted, triangle, guarded, guarded_below, by_data, gathered])
def test_what_is_inside_is_let_through(fn: Any) -> None:
    assert first_outside(ir_of(fn)) is None


@pytest.mark.parametrize(
    ("fn", "array"), [(shifted, "x"), (triangle, "x"), (guarded, "x"), (guarded_below, "x")]
)
def test_one_element_less_is_outside(fn: Any, array: str) -> None:
    found = first_outside(shortened(ir_of(fn), N - 2))
    assert found is not None
    assert re.fullmatch(
        rf"the index `.+` of {array} leaves 0\.\.6 \(axis 0; kernel {fn.__name__}, line \d+\)",
        found,
    )


def test_what_depends_on_data_is_outside_only_where_nothing_makes_it_right() -> None:
    assert first_outside(shortened(ir_of(by_data), N)) is None
    ir = ir_of(guarded_below)
    assert first_outside(shortened(ir, 0)) is not None


@kernel
def never(x: nd, y: nd):
    for i in range(x.shape[0]):
        if x[i] > 1.0:
            y[N] = x[i]


@kernel
def never_long(x: nd, y: nd, p: nd):
    for i in range(x.shape[0]):
        for j in range(p[i]):
            y[N + j] = x[i]


def test_what_may_never_run_is_refused_of_a_file_alone() -> None:
    x = np.ones(N, np.float32)
    for fn, args in ((never, (x, x.copy())), (never_long, (x, x.copy(), np.zeros(N, np.int64)))):
        ir = record_sequence(fn, args, name="one").calls[0].ir
        assert first_outside(ir) is None
    found = first_outside(ir_of(never), of_file=True)
    assert found is not None
    assert "`9` of y leaves 0..8" in found


@pytest.mark.parametrize("name", names())
def test_the_library_is_inside(name: str) -> None:
    entry = load(name)
    sizes = dict.fromkeys(entry.sizes, 6)
    args = entry.make_arguments(sizes, np.float32, np.random.default_rng(1))
    for call in record_sequence(entry.sequence, args).calls:
        assert first_outside(call.ir) is None
