"""Kernels of windows on sparse fields: loops that are one, lists and activations that are left, of first and later runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import kernelscape as ks
import pytest
from kernelscape.kernels.frontend.recorder import record_program
from kernelscape.kernels.ir.kernel import For, Stmt
from kernelscape.kernels.ir.walk import children, loads, nested_statements, written_in
from kernelscape.kernels.tasks.window_kernels import WindowKernels, window_kernels
from kernelscape.runtime.engine.planning import default_plan
from kernelscape.testing.sparse_windows import window_of

ALL = frozenset(range(4))  # trees


def planned(p: SimpleNamespace, names: str, unsure: frozenset[int] = frozenset()) -> WindowKernels:
    kernels: list[Callable[..., Any]] = [getattr(p, name) for name in names.split()]

    def calls() -> None:
        for kernel in kernels:
            kernel(*([2] if kernel is p.one else []))

    return window_kernels(window_of(record_program(calls, ())[0]), unsure)


def counts(found: WindowKernels) -> tuple[int, int, int]:
    return found.n_loops, found.n_lists, found.n_activations


@pytest.mark.parametrize(
    ("names", "first", "later"),
    [
        ("own own components", (1, 1, 0), (1, 0, 0)),
        ("own around", (2, 1, 0), (2, 0, 0)),  # which reads what other iterations have changed
        ("around own", (2, 1, 0), (2, 0, 0)),
        ("own around apart", (2, 1, 0), (2, 0, 0)),  # the last one moves up
        ("total apart total", (1, 1, 0), (1, 0, 0)),  # one sum
        ("total scaled", (2, 1, 0), (2, 0, 0)),
        ("total scaled total", (3, 1, 0), (3, 0, 0)),
        ("down coarse down", (3, 2, 1), (3, 0, 0)),  # the list of z is new once
        ("down own down", (2, 1, 1), (1, 0, 0)),  # what may fail stays by itself
        ("some own some own", (4, 1, 1), (4, 0, 0)),
        ("one own", (1, 1, 1), (1, 1, 1)),  # a number decides
        ("thin own", (2, 2, 0), (2, 1, 0)),
        ("mask masked masked", (2, 1, 1), (2, 0, 1)),  # changes of masks have no flag
    ],
)
def test_loops_lists_and_activations_of_a_window(
    p: SimpleNamespace, names: str, first: tuple[int, ...], later: tuple[int, ...]
) -> None:
    assert counts(planned(p, names, ALL)) == first
    assert counts(planned(p, names)) == later


def test_calls_that_stay_apart_have_kernels_of_their_own(p: SimpleNamespace) -> None:
    names = "own around own around own"
    calls = window_of(record_program(lambda: [getattr(p, n)() for n in names.split()], ())[0])
    alone = window_kernels(calls, ALL)
    found = window_kernels(calls, ALL, [range(1, 2), range(2, 4)])
    assert found.apart == (range(1, 2), range(2, 4))
    assert [step.call for step in found.steps] == [0, 1, 2, 4]
    assert counts(found) == counts(alone)
    assert len(alone.steps) == 1


def test_no_common_loop_is_lost_for_calls_that_are_to_stay_apart(p: SimpleNamespace) -> None:
    calls = window_of(record_program(lambda: [p.own() for _ in range(5)], ())[0])
    found, alone = window_kernels(calls, ALL, [range(1, 2)]), window_kernels(calls, ALL)
    assert found.apart == ()
    assert (found.n_loops, found.rotation) == (alone.n_loops, alone.rotation)


def test_a_window_assumes_what_it_needs_of_its_own_trees_only(p: SimpleNamespace) -> None:
    assert planned(p, "own around").assumed == (0,)
    assert planned(p, "masked").assumed == ()
    assert planned(p, "own", ALL).assumed == ()
    assert planned(p, "thin own").reshaped == {0}
    assert planned(p, "down coarse").reshaped == frozenset()
    assert counts(planned(p, "down coarse", frozenset({0}))) == (2, 2, 1)
    assert counts(planned(p, "down coarse", frozenset({1}))) == (2, 1, 1)


def test_certainly_active_cells_are_searched_once_an_element(p: SimpleNamespace) -> None:
    """The kind: a walk down the tree in each cell, which takes longer than all else of a light loop."""
    (step,) = planned(p, "down").steps
    assert counts(planned(p, "down")) == (1, 0, 0)
    (element,) = (s for s in step.kernel.ir.body if isinstance(s, For))
    *before, cells = element.body
    assert isinstance(cells, For)

    def tables(body: tuple[Stmt, ...]) -> int:
        every = (x for s in nested_statements(body) for e in children(s) for x in loads(e))
        return sum(x.array == "t1_table0" for x in every)

    assert (tables(tuple(before)), tables((cells,))) == (1, 0)


@pytest.fixture
def multigrid() -> Iterator[SimpleNamespace]:
    """Kernels as of a multigrid solver, on leaves of 8 cells: `q` is of the coarse level, all others are of the fine level."""
    ks.init()
    r, z, q, u, w = (ks.field(ks.f32) for _ in range(5))
    ks.root.pointer(ks.i, 64).dense(ks.i, 8).place(r, z, u, w)
    ks.root.pointer(ks.i, 32).dense(ks.i, 8).place(q)

    @ks.kernel
    def move():
        for i in r:
            r[i] -= 0.5 * z[i]

    @ks.kernel
    def clear():
        for i in w:
            w[i] = 0.0

    @ks.kernel
    def blur():
        for i in u:
            u[i] = r[i - 1] + r[i + 1]

    @ks.kernel
    def clip():
        for i in z:
            if z[i] < 0.0:
                z[i] = r[i]

    @ks.kernel
    def sweep():
        for i in r:
            if i % 2 == 0:
                z[i] = (r[i] + z[i - 1] + z[i + 1]) / 2.0

    @ks.kernel
    def restrict():
        for i in r:
            residual = r[i] - (2.0 * z[i] - z[i - 1] - z[i + 1])
            q[i // 2] += 0.5 * residual

    yield SimpleNamespace(**{k: v for k, v in locals().items() if k not in "rzquw"})
    ks.reset()


def of_calls(*kernels: Callable[..., Any]) -> WindowKernels:
    def calls() -> None:
        for kernel in kernels:
            kernel()

    return window_kernels(window_of(record_program(calls, ())[0]))


def test_coloured_sweeps_share_no_loop_with_others(multigrid: SimpleNamespace) -> None:
    """Compilers keep a sweep scalar, with all loops that become one with it."""
    m = multigrid
    assert of_calls(m.move, m.clip).n_loops == 1
    assert of_calls(m.move, m.sweep).n_loops == 2
    assert of_calls(m.clear, m.sweep).n_loops == 2
    assert of_calls(m.move, m.clear, m.sweep).n_loops == 2


def test_loops_pass_others_only_to_their_arrays(multigrid: SimpleNamespace) -> None:
    """A loop that only shares a list stays near the loops behind it, so that what it writes is in the caches."""
    m = multigrid
    for calls, arrays in (
        ((m.move, m.blur, m.clear), [1, 2]),  # not the first loop
        ((m.move, m.blur, m.clip), [2, 1]),
        ((m.move, m.clear), [2]),
    ):
        (step,) = of_calls(*calls).steps
        loops = [s for s in step.kernel.ir.body if isinstance(s, For)]
        assert [len(written_in((s,))) for s in loops] == arrays


def test_default_decisions_of_multigrid_are_those_of_scalar_rows(
    multigrid: SimpleNamespace,
) -> None:
    """Vectors would store the cells of one colour with masks, and gather rows of leaves for updates that lanes make one by one."""

    def choices(kernel: Callable[..., Any]) -> dict[str, set[str]]:
        (step,) = of_calls(kernel).steps
        found = default_plan(step.kernel.ir, 2, 64).choices
        return {kind: set(values.values()) for kind, values in found.items()}

    assert "ANY_ORDER" in choices(multigrid.move)["iterations"]
    assert "ANY_ORDER" in choices(multigrid.clip)["iterations"]
    assert "iterations" not in choices(multigrid.sweep)
    assert "VECTOR" not in choices(multigrid.restrict)["dim_kind"]


def test_kernels_have_floats_of_one_mode() -> None:
    ks.init()
    x, y = ks.field(ks.f32, 8), ks.field(ks.f32, 8)

    @ks.kernel(fast_math=False)
    def add():
        for i in x:
            x[i] += y[i]

    @ks.kernel
    def scale():
        for i in x:
            x[i] *= 2

    def calls() -> None:
        add()
        add()
        scale()
        add()

    found = window_kernels(window_of(record_program(calls, ())[0]))
    assert [step.kernel.ir.fast_math for step in found.steps] == [False, True, False]
    assert found.n_loops == 3
    ks.reset()


def test_assertions_stay_where_they_are() -> None:
    ks.init(debug=True)
    x = ks.field(ks.i32, 8)

    @ks.kernel
    def add():
        for i in x:
            x[i] += 1

    @ks.kernel
    def check():
        for i in x:
            assert x[i] < 9

    p = SimpleNamespace(add=add, check=check, one=None)
    assert counts(planned(p, "add add add")) == (1, 0, 0)
    assert counts(planned(p, "add check add")) == (3, 0, 0)
    assert len(planned(p, "add check add").steps) == 2
    ks.reset()
