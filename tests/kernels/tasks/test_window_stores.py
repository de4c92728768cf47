"""Stores of a window that a later call of it overwrites unread: who loses them, and who must not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import kernelscape as ks
import pytest
from kernelscape.kernels.fields.program import current_program
from kernelscape.kernels.frontend.recorder import record_program
from kernelscape.kernels.ir.kernel import Store, Update
from kernelscape.kernels.ir.walk import nested_statements
from kernelscape.kernels.tasks.window_kernels import WindowKernels, window_kernels
from kernelscape.testing.sparse_windows import interpreting, window_of


def planned(p: SimpleNamespace, names: str) -> WindowKernels:
    kernels: list[Callable[..., Any]] = [getattr(p, name) for name in names.split()]

    def calls() -> None:
        for k, kernel in enumerate(kernels):
            kernel(*([k] if kernel in (p.some, p.many) else []))

    return window_kernels(window_of(record_program(calls, ())[0]))


def n_stores(found: WindowKernels) -> int:
    every = (s for step in found.steps for s in nested_statements(step.kernel.ir.body))
    return sum(isinstance(s, Store | Update) for s in every)


@pytest.fixture(scope="module")
def dense() -> Iterator[SimpleNamespace]:
    ks.init()
    x, y, z, n = (ks.field(ks.i32, 16) for _ in range(4))

    @ks.kernel
    def shift():
        for i in range(16):
            y[i] = x[(i + 1) % 16]

    @ks.kernel
    def both():
        for i in range(16):
            y[i] = x[i] + 1
            z[i] = x[i]

    @ks.kernel
    def clear():
        for i in range(16):
            y[i] = 0

    @ks.kernel
    def inner():
        for i in range(1, 15):
            y[i] = x[i]

    @ks.kernel
    def even():
        for i in range(8):
            y[2 * i] = 1

    @ks.kernel
    def scatter():
        for i in range(16):
            y[x[i] % 16] = i

    @ks.kernel
    def add():
        for i in range(16):
            y[(5 * i + 1) % 16] += x[i]

    @ks.kernel
    def read():
        for i in range(16):
            x[i] = y[15 - i]

    @ks.kernel
    def guarded():
        for i in range(16):
            if x[i] > 3:
                y[i] = 2

    @ks.kernel
    def some(k: ks.i32):
        for i in range(k):
            y[i] = 3

    @ks.kernel
    def many(k: ks.i32):
        for i in range(n[0]):
            y[i] = k

    yield SimpleNamespace(**locals())
    ks.reset()


@pytest.mark.parametrize(
    ("names", "loops", "stores"),
    [
        ("shift clear", 1, 1),
        ("scatter clear", 1, 1),  # wherever it stores
        ("add add clear", 1, 1),  # which read only for stores that are dead
        ("clear add clear", 1, 1),
        ("both scatter clear", 2, 2),  # the other store of the body stays
        ("inner shift", 1, 1),
        ("shift inner", 2, 2),  # the border stays
        ("shift even", 2, 2),  # elements between stay
        ("shift read clear", 3, 3),  # read between
        ("shift add clear read", 2, 2),
        ("clear add", 2, 2),  # an update reads
        ("shift guarded", 1, 2),
        ("shift scatter", 2, 2),
        ("some clear", 1, 1),
        ("clear some", 2, 2),  # a number decides how far it goes
        ("some some", 2, 2),
        ("many many", 2, 2),  # their texts are equal, what they store to is not
    ],
)
def test_stores_to_arrays(dense: SimpleNamespace, names: str, loops: int, stores: int) -> None:
    found = planned(dense, names)
    assert (found.n_loops, n_stores(found)) == (loops, stores)


@pytest.mark.parametrize(
    ("names", "counts"),
    [
        ("own clear", (1, 0, 0)),
        ("down clear", (1, 0, 0)),  # which stores from another tree
        ("clear down clear", (1, 0, 0)),
        ("clear down total clear", (3, 0, 0)),
        ("down part", (2, 0, 0)),  # a part of the cells
        ("down thin clear", (3, 1, 1)),  # cells may be gone before
        ("vectors one_component", (2, 0, 0)),
        ("vectors components", (1, 0, 0)),
    ],
)
def test_stores_to_trees(trees: SimpleNamespace, names: str, counts: tuple[int, ...]) -> None:
    found = planned(trees, names)
    assert (found.n_loops, found.n_lists, found.n_activations) == counts


@pytest.fixture(scope="module")
def trees() -> Iterator[SimpleNamespace]:
    ks.init()
    x, y, n = ks.field(ks.i32), ks.field(ks.i32), ks.field(ks.i32, ())
    v = ks.Vector.field(2, ks.i32)
    ks.root.pointer(ks.i, 8).dense(ks.i, 4).place(x)
    block = ks.root.pointer(ks.i, 4)
    block.dense(ks.i, 4).place(y, v)
    some = many = None

    @ks.kernel
    def own():
        for i in y:
            y[i] = 2 * i

    @ks.kernel
    def down():
        for i in x:
            y[i // 2] = x[i]

    @ks.kernel
    def clear():
        for i in y:
            y[i] = 0

    @ks.kernel
    def part():
        for i in y:
            if i % 2 == 0:
                y[i] = 1

    @ks.kernel
    def total():
        for i in y:
            n[None] += y[i]

    @ks.kernel
    def thin():
        for i in x:
            ks.deactivate(block, i // 8)

    @ks.kernel
    def vectors():
        for i in x:
            v[i // 2] = [x[i], i]

    @ks.kernel
    def one_component():
        for i in v:
            v[i][1] = 3

    @ks.kernel
    def components():
        for i in v:
            v[i] = [4, 5]

    yield SimpleNamespace(**locals())
    ks.reset()


def test_what_may_fail_sees_all_stores() -> None:
    ks.init(debug=True)
    y = ks.field(ks.i32, 8)

    @ks.kernel
    def store():
        for i in y:
            y[i] = i

    @ks.kernel
    def check():
        for i in range(8):
            assert i < 9

    p = SimpleNamespace(store=store, check=check, some=None, many=None)
    assert planned(p, "store store").n_loops == 1
    assert n_stores(planned(p, "store check store")) == 2
    ks.reset()


def test_a_call_without_stores_runs_again_where_its_loop_has_more_cells() -> None:
    """Its stores are dead as long as it activates no cell: a plan without it assumes the tree that it loops over."""

    def seen(**options: Any) -> list[Any]:
        ks.init(**options)
        x, y = ks.field(ks.i32), ks.field(ks.i32)
        for z in (x, y):
            ks.root.pointer(ks.i, 8).dense(ks.i, 4).place(z)

        @ks.kernel
        def down():
            for i in x:
                y[i] = 3

        @ks.kernel
        def clear():
            for i in y:
                y[i] = i

        found = []
        for k in range(12):
            if k % 6 == 0:
                x[2 * k + 5] = 1
            down()
            clear()
            ks.sync()
            if options:
                current_program().follower.plans.complete()  # type: ignore[union-attr]
            if k % 3 == 2:
                found.append(y.to_numpy().tolist())
        return found

    with ks.interpret():
        wanted = seen()
    with interpreting():
        found = seen(async_mode=True)
        assert ks.engine.stats().n_planned > 0
    assert found == wanted
