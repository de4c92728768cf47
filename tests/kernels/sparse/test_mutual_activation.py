"""Trees whose loops activate each other's cells: what is needless, and programs in which nothing must be left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import kernelscape as ks
import pytest
from kernelscape.kernels.fields.program import current_program
from kernelscape.kernels.frontend.recorder import record_program
from kernelscape.kernels.sparse.redundancy import Facts
from kernelscape.kernels.tasks.window_kernels import window_kernels
from kernelscape.runtime.engine import plan_bank
from kernelscape.runtime.engine.tree_marks import TreeMarks
from kernelscape.testing.sparse_windows import interpreting, window_of

Change = Callable[[], None]


class Made(NamedTuple):
    """A program: the kernels of a period, the trees' fields, and what Python does before some periods."""

    period: Sequence[Callable[[], None]]
    fields: Sequence[Any]
    changes: dict[int, Change]


def tree(axes: Any, *nodes: tuple[str, Any]) -> tuple[Any, list[Any]]:
    x, at, found = ks.field(ks.i32), ks.root, list[Any]()
    for kind, extents in nodes:
        at = getattr(at, kind)(axes, extents)
        found.append(at)
    at.place(x)
    return x, found


def set_cells(x: Any, *cells: Any) -> Change:
    def change() -> None:
        for n, cell in enumerate(cells):
            x[cell] = 3 + n

    return change


def of_parts(a_part: int, b_part: int, forth: int = 0, back: int = 0) -> Made:
    """Two trees of 32 cells in parts of some size, and what their loops add to the index."""
    a, _ = tree(ks.i, ("pointer", 32 // a_part), ("dense", a_part))
    b, (blocks, _) = tree(ks.i, ("pointer", 32 // b_part), ("dense", b_part))

    @ks.kernel
    def up():
        for i in a:
            if 0 <= i + forth < 32:
                b[i + forth] = a[i] + i

    @ks.kernel
    def carry():
        for i in b:
            if 0 <= i + back < 32:
                a[i + back] = b[i] % 50

    changes = {
        0: set_cells(a, 5),
        3: set_cells(b, 17),
        6: blocks.deactivate_all,
        7: set_cells(a, 30),
    }
    return Made((up, carry), (a, b), changes)


def equal() -> Made:
    a, _ = tree(ks.i, ("pointer", 8), ("dense", 4))
    b, (blocks, _) = tree(ks.i, ("hash", 8), ("dense", 4))

    @ks.kernel
    def up():
        for i in a:
            b[i] = a[i] + i

    @ks.kernel
    def carry():
        for i in b:
            a[i] = b[i] % 50

    changes = {
        0: set_cells(a, 5),
        3: set_cells(b, 17),
        6: blocks.deactivate_all,
        7: set_cells(a, 30),
    }
    return Made((up, carry), (a, b), changes)


def transposed(a_part: tuple[int, int], b_part: tuple[int, int], turns_back: bool = True) -> Made:
    a, _ = tree(ks.ij, ("pointer", (8 // a_part[0], 8 // a_part[1])), ("dense", a_part))
    b, _ = tree(ks.ij, ("pointer", (8 // b_part[0], 8 // b_part[1])), ("dense", b_part))

    @ks.kernel
    def up():
        for i, j in a:
            b[j, i] = a[i, j] + i

    @ks.kernel
    def carry():
        for i, j in b:
            if ks.static(turns_back):
                a[j, i] = b[i, j] % 50
            else:
                a[i, j] = b[i, j] % 50

    return Made((up, carry), (a, b), {0: set_cells(a, (1, 6)), 4: set_cells(b, (3, 2))})


def some() -> Made:
    """A guard on indices: every other cell."""
    a, _ = tree(ks.i, ("pointer", 32))
    b, _ = tree(ks.i, ("pointer", 32))

    @ks.kernel
    def up():
        for i in a:
            if i % 2 == 0:
                b[i] = a[i] + i

    @ks.kernel
    def carry():
        for i in b:
            a[i] = b[i] % 50

    return Made((up, carry), (a, b), {0: set_cells(a, 4, 5), 4: set_cells(b, 9, 12)})


def guarded() -> Made:
    """A guard on data: a cell of the second tree comes later than that of the first."""
    a, _ = tree(ks.i, ("pointer", 32))
    b, _ = tree(ks.i, ("pointer", 32))

    @ks.kernel
    def up():
        for i in a:
            a[i] += 1
            if a[i] > 6:
                b[i] = a[i]

    @ks.kernel
    def carry():
        for i in b:
            a[i] = b[i] % 50

    return Made((up, carry), (a, b), {0: set_cells(a, 4, 5, 6), 4: set_cells(b, 9, 12)})


def thinned(in_loop: bool) -> Made:
    """Cells of the second tree become inactive, in the loop that carries or behind it."""
    a, _ = tree(ks.i, ("pointer", 32))
    b, (cells,) = tree(ks.i, ("pointer", 32))

    @ks.kernel
    def up():
        for i in a:
            b[i] = a[i] + i

    @ks.kernel
    def carry():
        for i in b:
            a[i] = b[i] % 50
            if ks.static(in_loop) and i % 3 == 0:
                ks.deactivate(cells, [i])

    @ks.kernel
    def thin():
        for i in b:
            if i % 3 == 0:
                ks.deactivate(cells, [i])

    period = (up, carry) if in_loop else (up, carry, thin)
    return Made(period, (a, b), {0: set_cells(a, 5, 6), 4: set_cells(b, 9, 12)})


def appended() -> Made:
    """The loop that carries also appends to lists below other cells of the first tree, which so become active."""
    a, items = ks.field(ks.i32), ks.field(ks.i32)
    cells = ks.root.pointer(ks.i, 32)
    cells.place(a)
    lists = cells.dynamic(ks.j, 16)
    lists.place(items)
    b, _ = tree(ks.i, ("pointer", 32))

    @ks.kernel
    def up():
        for i in a:
            b[i] = a[i] + i

    @ks.kernel
    def carry():
        for i in b:
            a[i] = b[i] % 50
            if i + 4 < 32:
                ks.append(lists, i + 4, i)

    return Made((up, carry), (a, b), {0: set_cells(a, 1), 4: set_cells(b, 2)})


def other_blocks() -> Made:
    """The loop activates blocks of the first tree, whose numbers are those of cells of the second."""
    a, (blocks, _) = tree(ks.i, ("pointer", 8), ("dense", 4))
    b, _ = tree(ks.i, ("pointer", 8), ("dense", 4))

    @ks.kernel
    def up():
        for i in a:
            b[i] = a[i] + i

    @ks.kernel
    def carry():
        for i in b:
            if i < 8:
                ks.activate(blocks, [i])

    return Made((up, carry), (a, b), {0: set_cells(a, 5), 4: set_cells(b, 1)})


def cells_before() -> Made:
    """A list, whose cells before one become active with it."""
    a, b, n = ks.field(ks.i32), ks.field(ks.i32), ks.field(ks.i32, ())
    ks.root.pointer(ks.i, 8).dynamic(ks.j, 16).place(a)
    ks.root.pointer(ks.ij, (8, 16)).place(b)

    @ks.kernel
    def up():
        for i, j in a:
            b[i, j] = a[i, j] + i + j

    @ks.kernel
    def carry():
        for i, j in b:
            a[i, j] = b[i, j] % 50

    @ks.kernel
    def more():
        for _ in range(1):
            b[n[None] // 2, n[None]] = 7
            n[None] += 1

    # No flag tells of changes of lists, so the window has more than one loop over them.
    return Made((up, more, carry, up), (a, b), {0: set_cells(a, (7, 1))})


def beside() -> Made:
    """The loop goes over cells beside those that the first loop activates, in the same blocks."""
    a, _ = tree(ks.i, ("pointer", 32))
    b, c, n = ks.field(ks.i32), ks.field(ks.i32), ks.field(ks.i32, ())
    blocks = ks.root.pointer(ks.i, 8)
    blocks.pointer(ks.i, 4).place(b)
    blocks.dense(ks.i, 4).place(c)

    @ks.kernel
    def up():
        for i in a:
            b[i] = a[i] + i

    @ks.kernel
    def carry():
        for i in c:
            c[i] += 1
            a[i] = c[i]

    @ks.kernel
    def more():
        for _ in range(1):
            c[3 * n[None]] = 7
            n[None] += 1

    return Made((up, more, carry, up), (a, b, c), {0: set_cells(a, 31)})


NEEDLESS: dict[str, Callable[[], Made]] = {
    "equal": equal,
    "larger parts": lambda: of_parts(1, 4),
    "transposed": lambda: transposed((2, 4), (4, 2)),
    "some": some,
}
NEEDED: dict[str, Callable[[], Made]] = {
    "smaller parts": lambda: of_parts(4, 1),
    "shifted": lambda: of_parts(1, 1, 1),
    "carried too far": lambda: of_parts(1, 1, 0, 1),
    "there and back across parts": lambda: of_parts(4, 4, 1, -1),
    "transposed, other parts": lambda: transposed((2, 4), (2, 4)),
    "transposed once": lambda: transposed((1, 1), (1, 1), turns_back=False),
    "guarded": guarded,
    "thinned": lambda: thinned(False),
    "thinned in the loop": lambda: thinned(True),
    "appended": appended,
    "other blocks": other_blocks,
    "cells before": cells_before,
    "beside": beside,
}
# Needed for other reasons than where the cells of the loop lead.
OTHERS = ("guarded", "thinned", "thinned in the loop", "appended")


def seen(make: Callable[[], Made], n_periods: int = 9, **options: Any) -> list[Any]:
    """Returns the fields behind each period."""
    ks.init(arch=ks.cpu, **options)
    program, found = make(), []
    for k in range(n_periods):
        if k in program.changes:
            program.changes[k]()
            ks.sync()  # so that no store of Python's is in the window
        for kernel in program.period:
            kernel()
        if k % 2:  # windows of two periods
            ks.sync()
            if options:
                current_program().follower.plans.complete()  # type: ignore[union-attr]
        found.append(None if k % 2 == 0 else [x.to_numpy().tolist() for x in program.fields])
    return found


def differs(make: Callable[[], Made]) -> bool:
    """True if a program whose calls wait leaves other values than the interpreter."""
    with ks.interpret():
        wanted = seen(make)
    with interpreting():
        found = [seen(make, async_mode=True, async_flush_every=limit) for limit in (2, 50)]
    return found != [wanted] * 2


@pytest.mark.parametrize("name", [*NEEDLESS, *NEEDED])
def test_trees_that_activate_each_other_have_the_values_of_the_interpreter(name: str) -> None:
    assert not differs({**NEEDLESS, **NEEDED}[name])


@pytest.mark.parametrize("name", [x for x in NEEDED if x not in OTHERS])
def test_facts_that_outlive_other_cells_would_be_seen(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Facts, "_leads_back", lambda *_: True)
    monkeypatch.setattr(plan_bank, "MOST_RUNS", 1)  # two runs would have activated all cells
    assert differs(NEEDED[name])


@pytest.mark.parametrize("name", ["equal", "larger parts", "transposed", "some"])
def test_facts_of_two_runs_behind_one_would_be_seen(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run still adds cells, so the list that its loop has made is old behind it."""
    monkeypatch.setattr(TreeMarks, "are_behind", lambda *_: True)
    assert differs(NEEDLESS[name])


@pytest.mark.parametrize(
    ("changed", "grows", "wanted"),
    [
        ({0}, False, (22, 0)),  # the first two make true what the plan assumes
        ({0}, True, (22, 1)),
        ({0, 12}, False, (20, 0)),
        (set(range(0, 24, 3)), False, (8, 0)),
        (set(range(0, 24, 2)), False, (10, 1)),  # two runs never come in a row
        (set(range(24)), False, (19, 2)),
    ],
)
def test_a_plan_comes_back_behind_changes(
    changed: set[int], grows: bool, wanted: tuple[int, int]
) -> None:
    """`changed`: periods before which Python adds a cell. `grows`: the plan adds cells to a third tree, about which it assumes.

    `wanted`: the number of periods that run by plan, and of lists that the last plan makes.
    """

    def told(**options: Any) -> list[Any]:
        ks.init(arch=ks.cpu, **options)
        a, _ = tree(ks.i, ("pointer", 64))
        b, _ = tree(ks.i, ("pointer", 64))
        c, _ = tree(ks.i, ("pointer", 64))
        n = ks.field(ks.i32, ())

        @ks.kernel
        def up():
            for i in a:
                b[i] = a[i] + i

        @ks.kernel
        def carry():
            for i in b:
                a[i] = b[i] % 50

        @ks.kernel
        def grow():
            for _ in range(1):
                c[n[None]] = 1
                n[None] += 1

        @ks.kernel
        def add():
            for i in c:
                c[i] += i

        period = (up, carry, grow, add) if grows else (up, carry)
        stats = [ks.engine.stats()] * 2
        for k in range(24):
            if k in changed:
                (a, b)[k % 2][2 * k] = 7
            for kernel in period:
                kernel()
            ks.sync()
            if options:
                current_program().follower.plans.complete()  # type: ignore[union-attr]
            stats.append(ks.engine.stats())
        found: list[Any] = [x.to_numpy().tolist() for x in (a, b, c)]
        if options:
            n_planned = (stats[-1].n_planned - stats[0].n_planned) // len(period)
            found.append((n_planned, stats[-1].n_lists - stats[-2].n_lists))
        return found

    with ks.interpret():
        values = told()
    with interpreting():
        assert told(async_mode=True) == [*values, wanted]


@pytest.mark.parametrize("name", [*NEEDLESS, *NEEDED])
def test_cells_that_come_from_active_ones_are_activated_once(name: str) -> None:
    ks.init(arch=ks.cpu)
    period = {**NEEDLESS, **NEEDED}[name]().period

    def calls() -> None:
        for kernel in period:
            kernel()

    found = window_kernels(window_of(record_program(calls, ())[0]))
    assert (found.n_activations == 0) == (name in NEEDLESS)
    ks.reset()
