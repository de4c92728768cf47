"""Nests of updates that iterations share, cut into sums: which are, and that they compute what they did."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.interpret.kernel import run_kernel
from kernelscape.kernels.ir.kernel import For, KernelIR, LoopIndex, Stmt, Store, Update
from kernelscape.kernels.ir.verify import check
from kernelscape.kernels.ir.walk import walk
from kernelscape.kernels.transforms.gathered import gathered

nd: Any = types.ndarray()
N = 5


@kernel
def product(a: nd, b: nd, c: nd, x: nd, y: nd, s: nd):
    for i in range(N):
        for j in range(N):
            t = c[i, j]
            c[i, j] = 0.0
            for k in range(N):
                x[i, k] += t * b[k, j]
                y[k, j] += t * a[i, k]


@kernel
def locals_that_change(a: nd, b: nd, c: nd, x: nd, y: nd, s: nd):
    for i in range(N):
        f = a[i, 1]
        for j in range(N):
            t = b[i, j] * f
            x[i, 2] += t
            t += 1.0
            x[j, 2] += t
            t = t * t
            x[i, 2] -= t


@kernel
def sums_of_rows(a: nd, b: nd, c: nd, x: nd, y: nd, s: nd):
    for i in range(N):
        for j in range(N):
            s[i] += a[i, j]


@kernel
def sums_of_columns(a: nd, b: nd, c: nd, x: nd, y: nd, s: nd):
    for i in range(N):
        for j in range(N):
            s[j] += a[i, j]


@kernel
def moved_by_both(a: nd, b: nd, c: nd, x: nd, y: nd, s: nd):
    for i in range(N):
        for j in range(N):
            s[i] += a[i, j]
            s[j] += a[i, j]


@kernel
def neighbours(a: nd, b: nd, c: nd, x: nd, y: nd, s: nd):
    for i in range(1, N - 1):
        for j in range(1, N - 1):
            t = c[i, j]
            c[i, j] = 0.0
            u = t * a[i, j]
            x[i, j] += u
            x[i - 1, j] += t
            u += 1.0
            x[i, j + 1] += u
            y[i, j] += u * u
            x[i, j - 1] += t


@kernel
def neighbours_of_rows(a: nd, b: nd, c: nd, x: nd, y: nd, s: nd):
    for i in range(1, N - 1):
        for j in range(N):
            x[i - 1, j] += a[i, j]
            x[i + 1, j] += a[i, j]


@kernel
def columns(a: nd, b: nd, c: nd, x: nd, y: nd, s: nd):
    for i in range(1, N - 1):
        for j in range(N):
            x[j, i - 1] += a[i, j]
            x[j, i + 1] += a[i, j]


@kernel
def components(a: nd, b: nd, c: nd, x: nd, y: nd, s: nd):
    for i in range(1):
        for j in range(N):
            x[j, 0] += a[i, j]
            x[j, 1] += b[i, j]


@kernel
def one_loop(a: nd, b: nd, c: nd, x: nd, y: nd, s: nd):
    for i in range(1, N - 1):
        s[i] += a[i, 0]
        s[i + 1] += a[i, 1]


@kernel
def nothing(a: nd, b: nd, c: nd, x: nd, y: nd, s: nd):
    for i in range(N):
        for j in range(N):
            t = a[i, j]  # noqa: F841


@kernel
def cleared_elsewhere(a: nd, b: nd, c: nd, x: nd, y: nd, s: nd):
    for i in range(N):
        for j in range(N):
            x[j, 0] += c[j, 0] + a[i, j]
            x[i, 0] += 1.0
        c[i, 0] = 0.0


@kernel
def cleared_before(a: nd, b: nd, c: nd, x: nd, y: nd, s: nd):
    for i in range(N):
        c[i, 0] = 0.0
        for j in range(N):
            x[j, 0] += c[i, 0] + a[i, j]
            x[i, 0] += 1.0


@kernel
def cleared_several_times(a: nd, b: nd, c: nd, x: nd, y: nd, s: nd):
    for i in range(N):
        for j in range(N):
            x[j, 0] += c[i, 0]
            x[i, 0] += 1.0
            c[i, 0] = 0.0


@kernel
def reads_sums(a: nd, b: nd, c: nd, x: nd, y: nd, s: nd):
    for i in range(N):
        for j in range(N):
            s[j] += s[i] * a[i, j]
            s[i] += 1.0


@kernel
def carried_locals(a: nd, b: nd, c: nd, x: nd, y: nd, s: nd):
    for i in range(N):
        t = 0.0
        for j in range(N):
            t += a[i, j]
            s[j] += t
            s[i] += t


@kernel
def branches(a: nd, b: nd, c: nd, x: nd, y: nd, s: nd):
    for i in range(N):
        for j in range(N):
            if a[i, j] > 2.0:
                s[j] += b[i, j]
                s[i] += b[i, j]


@kernel
def places_of_two_loops(a: nd, b: nd, c: nd, x: nd, y: nd, s: nd):
    for i in range(N // 2):
        for j in range(N // 2):
            s[i + j] += a[i, j]


@kernel
def maxima(a: nd, b: nd, c: nd, x: nd, y: nd, s: nd):
    for i in range(N):
        for j in range(N):
            ks.atomic_max(s[j], a[i, j])
            ks.atomic_max(s[i], a[i, j])


@kernel
def dear_locals(a: nd, b: nd, c: nd, x: nd, y: nd, s: nd):
    for i in range(N):
        t = a[i, 0] * a[i, 1] * a[i, 2] + a[i, 3] * (a[i, 4] + a[i, 1] * b[i, 0] * b[i, 1])
        for j in range(N):
            s[j] += t
            s[i] += 1.0


CUT = (product, locals_that_change, moved_by_both)
KEPT = (cleared_elsewhere, cleared_before, cleared_several_times, reads_sums, carried_locals, branches)  # fmt: skip
KEPT += (
    places_of_two_loops,
    maxima,
    dear_locals,
    neighbours_of_rows,
    columns,
    sums_of_rows,
    sums_of_columns,
)


def arrays() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [*(rng.integers(0, 5, (N, N)).astype(float) for _ in range(5)), np.arange(float(N))]


def after(ir: KernelIR) -> list[np.ndarray]:
    given = dict(zip("abcxys", arrays(), strict=True))
    run_kernel(ir, {p.name: given[p.name] for p in ir.arrays}, {})
    return list(given.values())


def shared_updates(body: tuple[Stmt, ...], around: frozenset[str] = frozenset()) -> int:
    """The updates in loops that do not move their element."""
    n = 0
    for s in body:
        if isinstance(s, For):
            n += shared_updates(s.body, around | {s.loop})
        elif isinstance(s, Update):
            own = {x.loop for i in s.indices for x in walk(i) if isinstance(x, LoopIndex)}
            n += own != around
    return n


@pytest.mark.parametrize("fn", CUT, ids=lambda k: k.name)
def test_no_update_is_in_a_loop_that_its_element_has_not(fn: Any) -> None:
    ir = fn.instantiate(*arrays())
    made = gathered(ir)
    check(made)
    assert shared_updates(ir.body) and not shared_updates(made.body)
    for x, y in zip(after(made), after(ir), strict=True):
        assert np.array_equal(x, y)


def test_no_innermost_loop_updates_neighbours() -> None:
    ir = neighbours.instantiate(*arrays())
    made = gathered(ir)
    check(made)
    (nest,) = made.body
    assert isinstance(nest, For)
    written = [
        [s.indices[-1] for s in row.body if isinstance(s, Store | Update)]
        for row in nest.body
        if isinstance(row, For)
    ]
    assert [len(row) for row in written] == [3, 1, 1, 1]
    assert all(len(set(row)) == 1 for row in written)
    for x, y in zip(after(made), after(ir), strict=True):
        assert np.array_equal(x, y)


@pytest.mark.parametrize("fn", KEPT, ids=lambda k: k.name)
def test_nest_stays_where_the_order_of_its_statements_matters_or_work_grows(fn: Any) -> None:
    ir = fn.instantiate(*arrays())
    assert gathered(ir) == ir


def test_order_of_sums_is_kept_where_it_must_be() -> None:
    ir = replace(product.instantiate(*arrays()), fast_math=False)
    assert gathered(ir) == ir
