"""Kernels of windows on sparse fields: loops that are one, lists and activations that are left, of first and later runs."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import kernelscape as ks
import pytest
from kernelscape.kernels.frontend.recorder import record_program
from kernelscape.kernels.ir.kernel import For, Stmt
from kernelscape.kernels.ir.walk import children, loads, nested_statements
from kernelscape.kernels.tasks.window_kernels import WindowKernels, window_kernels
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
