"""Merged calls do what the calls do one after the other, and loops are one where they meet in equal iterations only."""

from __future__ import annotations

import itertools
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.interpret.kernel import run_kernel
from kernelscape.kernels.ir.kernel import For, KernelIR
from kernelscape.kernels.ir.verify import check
from kernelscape.kernels.sparse.recorded import WindowCall
from kernelscape.kernels.tasks.window_kernels import MOST_STATEMENTS, WindowKernels, window_kernels

nd = ks.types.ndarray()


@ks.kernel
def add(x: nd, y: nd, m: nd):
    for i in range(6):
        y[i] += 2 * x[i]


@ks.kernel
def own(x: nd, y: nd, m: nd):
    for i in range(6):
        t = x[i] + 1
        x[i] = t * t
        if y[i] > 3:
            y[i] = 1


@ks.kernel
def ahead(x: nd, y: nd, m: nd):
    for i in range(5):
        y[i] = x[i + 1]


@ks.kernel
def turn(x: nd, y: nd, m: nd):
    for i in range(6):
        x[i] = y[5 - i]


@ks.kernel
def sums(x: nd, y: nd, m: nd):
    for i in range(6):
        for j in range(3):
            x[i] += m[i, j]


@ks.kernel
def rows(x: nd, y: nd, m: nd):
    for i in range(6):
        for j in range(3):
            m[i, j] += x[i] - y[j]


@ks.kernel
def squares(x: nd, y: nd, m: nd):
    for i in range(6):
        for j in range(3):
            m[i, j] = m[i, j] * m[i, j]


@ks.kernel
def columns(x: nd, y: nd, m: nd):
    for j in range(3):
        for i in range(6):
            m[i, j] -= x[i]


@ks.kernel
def fold(x: nd, y: nd, m: nd):
    s = 0
    for i in range(6):
        s += x[i]
    y[0] = s


@ks.kernel
def onto(x: nd, y: nd, m: nd):
    for i in range(6):
        m[0, 0] += x[i]


@ks.kernel
def some(x: nd, y: nd, m: nd):
    n = 3
    for i in range(6):
        while x[i] > n:
            x[i] -= n


@ks.kernel
def scatter(x: nd, y: nd, m: nd):
    for i in range(6):
        at = x[i] % 6
        m[at, 0] += x[i]
        m[at, 1] += 1


@ks.kernel
def gather(x: nd, y: nd, m: nd):
    for i in range(6):
        x[i] -= 2 * y[x[i] % 6]


@ks.kernel
def relax(x: nd, y: nd, m: nd):
    for i in range(6):
        y[i] = m[i, 0]
        m[i, 0] = 0


@ks.kernel
def far(x: nd, y: nd, m: nd):
    for i in range(6):
        y[x[i] % 6] = m[i, 1]


KERNELS = (
    add,
    own,
    ahead,
    turn,
    sums,
    rows,
    squares,
    columns,
    fold,
    onto,
    some,
    scatter,
    gather,
    relax,
    far,
)


def drawn() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    shapes = {"x": 6, "y": 6, "m": (6, 3)}
    return {name: rng.integers(-4, 5, shape).astype(np.int32) for name, shape in shapes.items()}


def of(*kernels: Any) -> tuple[list[KernelIR], KernelIR]:
    """The instances, and their merged kernel on x, y and m, which are a0, a1 and a2."""
    arrays = drawn()
    parts = [k.instantiate(*arrays.values()) for k in kernels]
    found = window_kernels([WindowCall(ir, numbers_of(ir)) for ir in parts])
    (step,) = found.steps
    return parts, step.kernel.ir


def numbers_of(ir: KernelIR) -> tuple[int, ...]:
    return tuple("xym".index(p.name) for p in ir.arrays)


def n_loops(ir: KernelIR) -> int:
    return sum(isinstance(s, For) for s in ir.body)


def test_merged_calls_do_what_the_calls_do() -> None:
    for kernels in itertools.product(KERNELS, KERNELS, (own, rows)):
        parts, ir = of(*kernels)
        check(ir)
        wanted, found = drawn(), drawn()
        for part in parts:
            run_kernel(part, {p.name: wanted[p.name] for p in part.arrays}, {})
        run_kernel(ir, {p.name: found["xym"[int(p.name[1:])]] for p in ir.arrays}, {})
        for name in found:
            assert np.array_equal(found[name], wanted[name]), [k.name for k in kernels]


@pytest.mark.parametrize(
    ("kernels", "n"),
    [
        ((add, add, add), 1),
        ((add, own, add), 1),
        ((rows, squares), 1),
        ((sums, own), 1),
        ((add, rows), 2),  # whose rows read other elements of y
        ((add, ahead), 2),
        ((ahead, add), 2),
        ((own, turn), 2),
        ((rows, columns), 2),
        ((own, onto), 2),  # sums of threads
        ((add, ahead, add), 3),  # the last one stays behind
        ((onto, squares, sums), 2),  # which moves up past nothing that it uses
        ((own, fold, own), 3),
        ((own, some), 1),
        ((gather, scatter), 1),
        ((gather, scatter, scatter), 2),  # sums of two loops, in their order
        ((add, scatter), 2),  # the first one runs in vectors
        ((scatter, squares), 2),
        ((scatter, gather, rows), 2),
        ((far, far), 2),
        ((far, scatter), 2),
    ],
)
def test_loops_are_one_where_iterations_meet_in_their_own_elements(
    kernels: tuple[Any, ...], n: int
) -> None:
    assert n_loops(of(*kernels)[1]) == n


@pytest.mark.parametrize(
    ("kernels", "wanted"),
    [
        ((add, turn, ahead), 0),  # no loop of a run joins one of the run before
        ((add, own), 0),
        ((scatter, relax, gather), 2),
        ((relax, gather, scatter), 0),
        ((own, turn, ahead, turn, add), 4),
        ((scatter, relax, gather) * 2, 5),
    ],
)
def test_a_window_that_follows_itself_begins_where_fewest_loops_are_left(
    kernels: tuple[Any, ...], wanted: int
) -> None:
    def found(kernels: tuple[Any, ...]) -> WindowKernels:
        parts = [k.instantiate(*drawn().values()) for k in kernels]
        return window_kernels([WindowCall(ir, numbers_of(ir)) for ir in parts])

    given = found(kernels)
    assert given.rotation == wanted
    rotations = [(*kernels[k:], *kernels[:k]) for k in range(len(kernels))]
    least = min(found(x).n_loops for x in rotations)
    assert found(rotations[wanted]).n_loops == least


def test_inner_loops_at_the_seam_are_one() -> None:
    (loop,) = of(rows, squares, rows)[1].body
    assert isinstance(loop, For)
    assert n_loops(KernelIR("", (), (), loop.body, loop.where)) == 1


def test_windows_that_are_too_large_have_kernels_that_come_again() -> None:
    """Equal kernels of a window are one, so that long windows are compiled as fast as short ones."""
    calls = [WindowCall(ir, numbers_of(ir)) for ir in of(add, turn)[0]]
    found = window_kernels(calls * MOST_STATEMENTS)
    assert len(found.steps) == 2 * MOST_STATEMENTS
    assert len({id(step.kernel.ir) for step in found.steps}) == 2
