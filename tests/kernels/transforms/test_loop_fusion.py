"""Loop fusion: small bodies whose loops may be one, or must not, and random ones against the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.interpret.kernel import run_kernel
from kernelscape.kernels.ir.kernel import For, KernelIR, Stmt
from kernelscape.kernels.ir.walk import nested_statements
from kernelscape.kernels.transforms.loop_fusion import loops_fused
from kernelscape.kernels.transforms.own_names import Names, with_own_names
from kernelscape.testing.generator.features import STATEMENTS
from kernelscape.testing.generator.sequences import kernels_of

nd: Any = types.ndarray()


def n_loops(ir: KernelIR) -> int:
    return sum(isinstance(s, For) for top in ir.body for s in nested_statements(top.body))


def doubled(outer: dict[str, str], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """A body twice, with locals and loops of its own each time but the loops around it."""
    taken = set(outer)
    made: list[Stmt] = []
    for _ in range(2):
        names: Names = {("loop", a): b for a, b in outer.items()}
        made += with_own_names(body, names, taken)
    return tuple(made)


def changed(ir: KernelIR, change: Callable[[tuple[Stmt, ...]], tuple[Stmt, ...]]) -> KernelIR:
    """A kernel with the bodies of its outer loops changed."""
    body = tuple(replace(s, body=change(s.body)) if isinstance(s, For) else s for s in ir.body)
    return replace(ir, body=body)


@kernel
def same_place(x: nd, y: nd, z: nd):
    for i in range(3):
        for c in range(4):
            x[4 * i + c] = y[4 * i + c] * 2.0
        for d in range(4):
            z[4 * i + d] = y[4 * i + d] + x[4 * i + d]


@kernel
def later_place(x: nd, y: nd, z: nd):
    """Reads what a later iteration of the first loop writes."""
    for i in range(3):
        for c in range(4):
            x[4 * i + c] = y[4 * i + c] * 2.0
        for d in range(4):
            z[4 * i + d] = y[4 * i + d] + x[4 * i + 3 - d]


@kernel
def overwritten(x: nd, y: nd, z: nd):
    """Writes what a later iteration of the first loop reads."""
    for i in range(3):
        for c in range(3):
            x[4 * i + c] = y[4 * i + c] + z[4 * i + c + 1]
        for d in range(3):
            z[4 * i + d] = y[4 * i + d]


@kernel
def nothing_in_common(x: nd, y: nd, z: nd):
    for i in range(3):
        for c in range(4):
            x[4 * i + c] = y[4 * i + c] * 2.0
        for d in range(4):
            z[4 * i + d] = 3.0 * z[4 * i + d]


@kernel
def value_between(x: nd, y: nd, z: nd):
    for i in range(3):
        for c in range(4):
            x[4 * i + c] = y[4 * i + c] * 2.0
        a = z[4 * i] + 1.0
        for d in range(4):
            z[4 * i + d] = y[4 * i + d] * a


@kernel
def result_between(x: nd, y: nd, z: nd):
    """The value between the loops is what the first one has made."""
    for i in range(3):
        for c in range(4):
            x[4 * i + c] = y[4 * i + c] * 2.0
        a = x[4 * i] + 1.0
        for d in range(4):
            z[4 * i + d] = y[4 * i + d] * a


@kernel
def read_again_between(x: nd, y: nd, z: nd):
    """The local between the loops has had another value in the first one."""
    for i in range(3):
        a = y[i]
        for c in range(4):
            x[4 * i + c] = y[4 * i + c] * a
        a = 2.0
        for d in range(4):
            z[4 * i + d] = y[4 * i + d] * a


@kernel
def sum_of_the_first(x: nd, y: nd, z: nd):
    for i in range(3):
        total = 0.0
        for c in range(4):
            total += y[4 * i + c]
        for d in range(4):
            z[4 * i + d] = y[4 * i + d] * total


@kernel
def one_base(x: nd, y: nd, z: nd):
    """Places that lie behind one local, whatever it is."""
    for i in range(3):
        base = int(y[i]) + 4 * i
        for c in range(4):
            x[base + c] = y[c] * 2.0
        for d in range(4):
            z[base + d] = y[d] + x[base + d]


@kernel
def two_bases(x: nd, y: nd, z: nd):
    for i in range(3):
        a, b = int(y[i]) + 5 * i, int(y[i + 1]) + 5 * i
        for c in range(2):
            x[a + c] = y[c] * 2.0
        for d in range(2):
            z[b + d] = y[d] + x[b + d]


@kernel
def other_extent(x: nd, y: nd, z: nd):
    for i in range(3):
        for c in range(4):
            x[4 * i + c] = y[4 * i + c] * 2.0
        for d in range(3):
            z[4 * i + d] = y[4 * i + d]


@kernel
def extent_changed(x: nd, y: nd, z: nd):
    """The first loop stores what the extent of the second one is loaded from."""
    for i in range(3):
        for c in range(int(x[4 * i])):
            x[4 * i + c] = y[4 * i + c] + 1.0
        for d in range(int(x[4 * i])):
            z[4 * i + d] = y[4 * i + d]


@kernel
def branches(x: nd, y: nd, z: nd):
    for i in range(3):
        if y[i] > 1.0:
            for c in range(4):
                x[4 * i + c] = y[4 * i + c] * 2.0
        if y[i] > 1.0:
            for d in range(4):
                z[4 * i + d] = y[4 * i + d] + x[4 * i + d]


@kernel
def branch_changed(x: nd, y: nd, z: nd):
    """The first branch stores what the condition is loaded from."""
    for i in range(3):
        if x[4 * i] > 1.0:
            for c in range(4):
                x[4 * i + c] = y[4 * i + c] - 2.0
        if x[4 * i] > 1.0:
            for d in range(4):
                z[4 * i + d] = y[4 * i + d]


@kernel
def updates_of_one_element(x: nd, y: nd, z: nd):
    """Sums of floats have an order."""
    for i in range(3):
        for c in range(4):
            x[i] += y[4 * i + c] * 0.1
        for d in range(4):
            x[i] += y[4 * i + d] * 0.7


@kernel
def nests(x: nd, y: nd, z: nd):
    for i in range(3):
        for b in range(2):
            for c in range(2):
                x[4 * i + 2 * b + c] = y[4 * i + 2 * b + c] * 2.0
        for d in range(2):
            for e in range(2):
                z[4 * i + 2 * d + e] = y[4 * i + 2 * d + e] + x[4 * i + 2 * d + e]


# By kernel: loops inside of its body that are left.
CASES = [
    (same_place, 1),
    (later_place, 2),
    (overwritten, 2),
    (nothing_in_common, 2),
    (value_between, 1),
    (result_between, 2),
    (read_again_between, 2),
    (sum_of_the_first, 2),
    (one_base, 1),
    (two_bases, 2),
    (other_extent, 2),
    (extent_changed, 2),
    (branches, 1),
    (branch_changed, 2),
    (updates_of_one_element, 2),
    (nests, 2),
]


@pytest.mark.parametrize(("fn", "left"), CASES)
def test_loops_that_are_left_compute_the_same(fn: Any, left: int) -> None:
    arrays = [np.random.default_rng(k).integers(0, 4, 20).astype(np.float32) for k in range(3)]
    (call,) = record_sequence(lambda *given: fn(*given), arrays, "one").calls
    made = changed(call.ir, loops_fused)
    assert n_loops(made) == left
    found = [
        dict(zip((p.name for p in call.ir.arrays), map(np.copy, arrays), strict=True))
        for _ in range(2)
    ]
    for ir, given in zip((call.ir, made), found, strict=True):
        run_kernel(ir, given, {})
    for name in found[0]:
        np.testing.assert_array_equal(found[0][name], found[1][name])


def test_random_bodies_mean_what_they_meant() -> None:
    """Each drawn body, and behind it the same one with other locals."""
    n_fused = 0
    for ir, start in kernels_of(STATEMENTS, range(80)):
        twice = changed(
            ir, partial(doubled, {s.loop: s.loop for s in ir.body if isinstance(s, For)})
        )
        made = changed(twice, loops_fused)
        n_fused += n_loops(twice) - n_loops(made)
        found = [{name: a.copy() for name, a in start.items()} for _ in range(2)]
        for kernel_ir, arrays in zip((twice, made), found, strict=True):
            with np.errstate(all="ignore"):
                run_kernel(kernel_ir, arrays, {})
        for name in found[0]:
            np.testing.assert_array_equal(found[0][name], found[1][name])
    assert n_fused > 3
