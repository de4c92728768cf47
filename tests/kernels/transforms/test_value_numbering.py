"""Value numbering: small bodies that may share, or must not, and random ones against the interpreter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.interpret.kernel import run_kernel
from kernelscape.kernels.ir.kernel import KernelIR, Load, Select, Store
from kernelscape.kernels.ir.walk import children, loads, nested_statements
from kernelscape.kernels.transforms.value_numbering import numbered
from kernelscape.testing.generator.features import STATEMENTS
from kernelscape.testing.generator.sequences import kernels_of

nd: Any = types.ndarray()


def with_values_once(ir: KernelIR) -> KernelIR:
    dtypes = {a.name: a.dtype for a in ir.arrays}
    body = tuple(replace(s, body=numbered(s.body, dtypes)) for s in ir.body)
    return replace(ir, body=body)


def n_loads(ir: KernelIR) -> int:
    every = [e for s in nested_statements(ir.body) for e in children(s)]
    return sum(len(loads(e)) for e in every)


def n_stores(ir: KernelIR) -> int:
    return sum(isinstance(s, Store) for s in nested_statements(ir.body))


def ir_of(fn: Any, *arrays: np.ndarray) -> KernelIR:
    (call,) = record_sequence(lambda *given: fn(*given), arrays, "one").calls
    return call.ir


@kernel
def same_place(x: nd, y: nd, z: nd):
    for i in range(7):
        x[i] = y[i] + 1.0
        z[i] = x[i] * 2.0
        x[i] = z[i] + y[i]


@kernel
def shifted_place(x: nd, y: nd, z: nd):
    for i in range(7):
        x[i + 1] = y[i]
        z[i] = x[i] + x[i + 1]
        x[i + 1] = x[i] + x[i]


@kernel
def any_place(x: nd, y: nd, z: nd):
    for i in range(7):
        k = int(y[i])
        z[i] = x[0] * x[0]
        x[k] = 5.0
        z[i + 1] = x[0] + x[k]


@kernel
def one_side(x: nd, y: nd, z: nd):
    for i in range(7):
        if y[i] > 0.0:
            x[i] = z[int(y[i])] + 1.0
        else:
            x[i] = 2.0
        z[i] = z[int(abs(y[i]))] + x[i]


@kernel
def clamped_twice(x: nd, y: nd, z: nd):
    for i in range(7):
        a = y[i]
        if a < 0.0:
            a = 0.0
        x[i] = y[int(a)]
        b = y[i]
        if b < 0.0:
            b = 0.0
        z[i] = y[int(b)]


@kernel
def in_a_loop(x: nd, y: nd, z: nd):
    for i in range(7):
        total = y[i] * y[i]
        for k in range(3):
            total += y[i] * y[i]
            x[i] = x[i] + y[k] * y[k] + total
        z[i] = total + y[i] * y[i]


# By kernel: loads and stores that are left, of how many.
CASES = [
    (same_place, 1, 2),
    (shifted_place, 2, 2),
    (any_place, 3, 3),
    (one_side, 4, 3),
    (clamped_twice, 2, 2),
    (in_a_loop, 3, 2),
]


def arguments(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 7, 9).astype(np.float32) for _ in range(3)]


@pytest.mark.parametrize(("fn", "loaded", "stored"), CASES)
def test_what_is_left(fn: Any, loaded: int, stored: int) -> None:
    ir = ir_of(fn, *arguments(0))
    made = with_values_once(ir)
    assert (n_loads(made), n_stores(made)) == (loaded, stored)
    for seed in range(4):
        found = [
            dict(zip((p.name for p in ir.arrays), arguments(seed), strict=True)) for _ in range(2)
        ]
        for kernel_ir, arrays in zip((ir, made), found, strict=True):
            run_kernel(kernel_ir, arrays, {})
        for name in found[0]:
            np.testing.assert_array_equal(found[0][name], found[1][name])


def test_sides_of_a_choice_are_not_evaluated_for_others() -> None:
    """A load on one side of a choice is no value that another statement may keep."""

    @kernel
    def chosen(x: nd, y: nd):
        for i in range(7):
            x[i] = y[i] if i < 3 else 0.0
            x[i + 1] = y[i] * 2.0

    made = with_values_once(ir_of(chosen, *arguments(0)[:2]))
    selects = [
        e
        for s in nested_statements(made.body)
        for e in children(s)
        if isinstance(e, Select) and any(isinstance(a, Load) for a in (e.a, e.b))
    ]
    assert len(selects) == 1


def test_random_bodies_mean_what_they_meant() -> None:
    """Each drawn kernel, and the same with its statements twice."""
    changed = 0
    for ir, start in kernels_of(STATEMENTS, range(60)):
        twice = replace(ir, body=tuple(replace(s, body=s.body * 2) for s in ir.body))
        for given in (ir, twice):
            made = with_values_once(given)
            changed += made != given
            found = [{name: a.copy() for name, a in start.items()} for _ in range(2)]
            for kernel_ir, arrays in zip((given, made), found, strict=True):
                with np.errstate(all="ignore"):
                    run_kernel(kernel_ir, arrays, {})
            for name in found[0]:
                np.testing.assert_array_equal(found[0][name], found[1][name])
    assert changed > 20
