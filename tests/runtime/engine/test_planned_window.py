"""Programs whose calls wait compute what the interpreter does, whatever the limit of a window."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.fields import field_memory
from kernelscape.kernels.fields.host_access import host_kernels
from kernelscape.kernels.fields.program import current_program
from kernelscape.kernels.frontend.host_kernels import WaitingAccesses
from kernelscape.kernels.tasks import window_kernels
from kernelscape.runtime import engine as engine_room
from kernelscape.runtime.engine import plan_bank, planned_window
from kernelscape.runtime.engine.engine import Engine, EngineOptions
from kernelscape.runtime.engine.planned_window import PlannedWindow
from kernelscape.runtime.engine.window_calls import head_of, period_of
from kernelscape.runtime.files import is_torn

pytestmark = pytest.mark.compiler


@pytest.fixture(autouse=True)
def engine(engine_of_file: Engine) -> Engine:
    return engine_of_file


def program() -> SimpleNamespace:
    """Dense and sparse fields of whole numbers, and kernels with all kinds of accesses to them."""
    x, y, z, at = (ks.field(ks.i32, 16) for _ in range(4))
    m, n, v = ks.field(ks.i32, (16, 4)), ks.field(ks.i32, ()), ks.Vector.field(2, ks.i32, 16)
    s, t, d, u = (ks.field(ks.i32) for _ in range(4))
    block = ks.root.pointer(ks.i, 8)
    block.dense(ks.i, 4).place(s)
    ks.root.bitmasked(ks.i, 16).place(t)
    coarse = ks.root.pointer(ks.i, 4)
    coarse.dense(ks.i, 4).place(u)
    cells = ks.root.dynamic(ks.i, 64, chunk_size=8)
    cells.place(d)

    @ks.kernel
    def add(a: ks.i32):
        for i in x:
            x[i] += a

    @ks.kernel
    def mix():
        for i in x:
            y[i] = 2 * x[i] - y[i]

    @ks.kernel
    def shift():
        for i in range(1, 15):
            z[i] = x[i - 1] + x[i + 1]

    @ks.kernel
    def turn():
        for i in x:
            x[i] = y[15 - i] + i

    @ks.kernel
    def count():
        for i in x:
            n[None] += x[i]

    @ks.kernel
    def spread():
        for i in x:
            if z[i] % 2 == 0:
                y[i] += n[None] % 7
            v[i] += [1, y[i]]

    @ks.kernel
    def rows():
        for i, j in m:
            m[i, j] += x[i] - v[j][0]

    @ks.kernel
    def sums():
        for i in x:
            for j in range(4):
                x[i] += m[i, j] % 5

    @ks.kernel
    def swap(a: ks.template(), b: ks.template()):
        for i in a:
            old = a[i]
            a[i] = b[i]
            b[i] = old

    @ks.kernel
    def grow(k: ks.i32):
        for i in range(4):
            s[3 * i + k] = i + k

    @ks.kernel
    def loop():
        for i in s:
            s[i] += 1

    @ks.kernel
    def down():
        for i in s:
            t[i // 2] += s[i]

    @ks.kernel
    def shrink():
        for i in range(2):
            ks.deactivate(block, 2 * i)

    @ks.kernel
    def list_up():
        for i in range(2):
            d.append(i)

    @ks.kernel
    def lift():
        for i in s:
            u[i // 2] += s[i]

    @ks.kernel
    def raise_all():
        for i in u:
            u[i] += 1

    @ks.kernel
    def cut():
        for i in range(2):
            ks.deactivate(coarse, 2 * i)

    @ks.kernel
    def gather():
        for i in x:
            y[i] += x[at[i]]

    @ks.kernel
    def total() -> ks.i32:
        r = 0
        for i in y:
            r += y[i]
        return r

    at.from_numpy(np.arange(16, dtype=np.int32)[::-1].copy())
    return SimpleNamespace(**locals())


STEPS: tuple[Callable[[Any], Any], ...] = (
    lambda p: p.add(3),
    lambda p: p.mix(),
    lambda p: p.shift(),
    lambda p: p.turn(),
    lambda p: p.count(),
    lambda p: p.spread(),
    lambda p: p.rows(),
    lambda p: p.sums(),
    lambda p: p.swap(p.x, p.y),
    lambda p: p.swap(p.y, p.x),
    lambda p: p.grow(1),
    lambda p: p.grow(9),
    lambda p: p.loop(),
    lambda p: p.down(),
    lambda p: p.shrink(),
    lambda p: p.list_up(),
    lambda p: p.gather(),
    lambda p: p.total(),
    lambda p: p.x[3],
    lambda p: p.s[4],
    lambda p: ks.length(p.cells, []),
    lambda p: p.y.__setitem__(2, 5),
    lambda p: p.z.fill(2),
    lambda p: p.x.copy_from(p.y),
    lambda p: p.block.deactivate_all(),
    lambda p: p.lift(),
    lambda p: p.raise_all(),
    lambda p: p.cut(),
    lambda p: given(p.x, 3),
    lambda p: given(p.s, 5),
    lambda p: given(p.v, 2),
    lambda p: p.t.parent().deactivate_all(),
    lambda p: p.cells.deactivate_all(),
    lambda p: ks.deactivate_all_snodes(),
)
N_OF_KERNELS = 16  # of the steps, from the first


def given(field: Any, first: int) -> None:
    """Gives a field an array that changes at once."""
    array = np.arange(first, first + field.shape[0], dtype=np.int32)
    if field.element_shape:
        array = np.stack([array, -array], axis=1)
    field.from_numpy(array)
    array[...] = -1


def drawn(seed: int) -> list[Callable[[Any], Any]]:
    """5 to 40 steps, some of them several times."""
    rng = random.Random(seed)
    found: list[Callable[[Any], Any]] = []
    n = rng.randint(5, 40)
    while len(found) < n:
        steps = STEPS[:N_OF_KERNELS] if rng.random() < 0.85 else STEPS
        some = [rng.choice(steps) for _ in range(rng.randint(1, 4))]
        found += some * rng.choice((1, 1, 1, 2, 5))
    return found[:n]


def seen(p: SimpleNamespace) -> dict[str, Any]:
    fields = {name: getattr(p, name).to_numpy().tolist() for name in "xyzmnvstu"}
    return {**fields, "d": sorted(p.d.to_numpy().tolist())}


def told(steps: list[Callable[[Any], Any]], limit: int, n_periods: int = 3) -> list[Any]:
    """Returns the values that Python reads in each step and after each period; `limit` 0: by the interpreter."""
    ks.init(cpu_max_num_threads=2, async_mode=limit > 0, async_flush_every=limit or 50)
    p = program()
    found: list[Any] = []
    for _ in range(n_periods):
        if limit:
            found += [step(p) for step in steps]
            ks.sync()
            window().plans.complete()
        else:
            with ks.interpret():
                found += [step(p) for step in steps]
        found.append(seen(p))
    return found


def window() -> PlannedWindow:
    follower = current_program().follower
    assert isinstance(follower, PlannedWindow)
    return follower


@pytest.mark.parametrize(("seed", "limits"), [(0, (1, 20)), (1, (5,)), (2, (50,))])
def test_values_are_those_of_the_interpreter(seed: int, limits: tuple[int, ...]) -> None:
    steps = drawn(seed)
    wanted = told(steps, 0)
    for limit in limits:
        assert told(steps, limit) == wanted, limit


@pytest.mark.parametrize(
    ("calls", "head", "period"),
    [
        ("abababab", 0, 2),
        ("fabababab", 1, 2),
        ("fgababababa", 2, 2),
        ("fabcabcabca", 1, 3),
        ("fgabcab", 0, 7),  # less than two periods
        ("abcdefgxxxx", 0, 11),  # less than half of the calls
        ("aaaa", 0, 1),
        ("abcbcbcbc", 1, 2),
        ("abc", 0, 3),
        ("f", 0, 1),
    ],
)
def test_a_stream_of_periods_may_begin_behind_other_calls(
    calls: str, head: int, period: int
) -> None:
    kernels = {x: object() for x in calls}
    made = [kernels[x] for x in calls]
    assert head_of(made) == head
    assert period_of(made[head:], 1, is_whole=False) == period


CORES = ((10, 12, 25, 12), (12, 25, 25, 26), (25, 12, 8, 26, 13))
DISTURBERS = (10, 11, 12, 13, 14, 15, 18, 20, 22, 24, 27, 27, 27)


def disturbed(seed: int, limit: int) -> tuple[list[Any], int]:
    """Returns what is seen after each period of a program between whose periods other steps run, and the number of calls that ran
    by plans.
    """
    rng = random.Random(seed)
    ks.init(cpu_max_num_threads=2, async_mode=limit > 0, async_flush_every=limit or 50)
    p, found = program(), list[Any]()
    p.grow(3)
    core, others = CORES[seed % len(CORES)], [None] * 4
    others += [rng.choice((None, *DISTURBERS)) for _ in range(10)]
    for other in others:
        for k in core:
            STEPS[k](p)
        ks.sync()
        if limit:
            window().plans.complete()
        if other is not None:
            STEPS[other](p)
            ks.sync()
            if rng.random() < 0.5:
                p.loop()  # the lists are those of all cells again
                p.raise_all()
                ks.sync()
        found.append(seen(p))
    return found, ks.engine.stats().n_planned


@pytest.mark.parametrize("seed", range(4))
def test_plans_notice_what_changes_cells_between_windows(seed: int) -> None:
    """Assumptions of a plan end with each change of active cells, by kernels and by Python, seen by later loops or not."""
    with ks.interpret():
        wanted, _ = disturbed(seed, 0)
    found, n_planned = disturbed(seed, 50)
    assert found == wanted
    assert n_planned > 0


def test_an_interrupt_leaves_no_call_of_a_plan_behind() -> None:
    ks.init(async_mode=True)
    p, steps = program(), (10, 12, 13, 2)  # of two kernels: what may fail is one by itself

    def period() -> None:
        for k in steps:
            STEPS[k](p)

    for _ in range(5):
        period()
        ks.sync()
        window().plans.complete()
    (ran,) = (x for x in window()._ran.values() if x.bound is not None)
    runs = ran.bound._runs
    assert len(runs) > 1

    def interrupted(*values: Any) -> bool:
        runs[0][0](*values)
        raise KeyboardInterrupt

    # Only callers that are no part of the extension are interrupted before they return.
    ran.bound._runs = None
    ran.bound._callers = lambda numbers: [(interrupted, *runs[0][1:]), *runs[1:]]
    with pytest.raises(KeyboardInterrupt):
        period()  # the last step runs them
    found = seen(p)
    with ks.interpret():
        ks.init()
        p = program()
        for k in steps * 6:
            STEPS[k](p)
        assert seen(p) == found


def test_a_kernel_that_asserts_runs_once_if_an_interrupt_comes_meanwhile() -> None:
    """By itself and in a plan. It runs for longer than the interrupt needs to come."""
    ks.init(async_mode=True)
    n, m, last = ks.field(ks.i32, 1), ks.field(ks.i32, 8), ks.field(ks.i32, 1)

    @ks.kernel
    def slow(step: ks.i32):  # 0 is an error
        for i in n:
            a = 1
            for _ in range(0, 2_000_000, step):
                a = (3 * a + n[i]) % 1_000_003
            last[i] = a
            n[i] += 1

    @ks.kernel
    def other():
        for i in m:
            m[i] += 1

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    found, before = [], signal.signal(signal.SIGALRM, interrupt)
    try:
        for k in range(8):
            with suppress(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 5e-3 * (k > 0))
                slow(1)
                other()
                ks.sync()
            signal.setitimer(signal.ITIMER_REAL, 0)
            ks.sync()
            window().plans.complete()
            found.append((n[0], m[0]))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert found == [(k, k) for k in range(1, 9)]
    assert any(x.bound is not None for x in window()._ran.values())


def test_a_plan_that_assumes_in_vain_is_made_without_assumptions() -> None:
    def told(limit: int) -> list[Any]:
        ks.init(cpu_max_num_threads=2, async_mode=limit > 0, async_flush_every=limit or 50)
        p, found = program(), list[Any]()
        for k in range(12):
            p.block.deactivate_all()
            p.grow(k)
            for step in (p.loop, p.down, p.loop, p.down):
                step()
            found.append(seen(p))
            if limit:
                window().plans.complete()
        return found

    with ks.interpret():
        wanted = told(0)
    assert told(50) == wanted
    assert ks.engine.stats().n_planned > 0


def pipeline(limit: int = 1024) -> SimpleNamespace:
    ks.init(cpu_max_num_threads=1, async_mode=limit > 0, async_flush_every=limit or 1)
    x, y, z = (ks.field(ks.i32, 8) for _ in range(3))

    @ks.kernel
    def first():
        for i in x:
            x[i] += 1

    @ks.kernel
    def second():
        for i in x:
            y[i] += 2 * x[i]

    @ks.kernel
    def third():
        for i in x:
            z[i] = y[i] - x[i]

    n = ks.field(ks.i32, 8)
    n.fill(10)

    @ks.kernel
    def count():
        for i in range(7):
            n[i + 1] += 1

    def period():
        first()
        second()
        third()

    return SimpleNamespace(**locals())


def reached(n: int) -> tuple[int, int, int]:
    """The elements of x, y and z after so many periods."""
    y = n * (n + 1)
    return n, y, y - n


def test_a_period_that_is_known_is_one_launch_of_its_plan() -> None:
    """Loops of equal elements are one launch; a plan that is there is used with no further look at the calls."""
    p = pipeline()
    for _ in range(40):
        p.period()
    ks.sync()
    window().plans.complete()
    before = ks.engine.stats()
    for _ in range(40):
        p.period()
    assert (p.x[7], p.y[7], p.z[7]) == reached(80)
    now = ks.engine.stats()
    assert now.n_calls - before.n_calls == now.n_planned - before.n_planned == 120
    assert now.n_launches_without - before.n_launches_without == 120
    assert now.n_launches - before.n_launches == now.n_windows - before.n_windows == 20
    p.first()
    assert p.x[0] == 81
    assert any(end.startswith("Python reads the field ") for end in ks.engine.stats().ends)


def test_of_several_windows_that_follow_a_window_the_calls_say_which_it_is() -> None:
    """The kind: periods that are told from what followed the last time, and are no longer known behind a window in between."""
    p = pipeline()

    def other() -> None:
        p.second()
        p.first()

    def told(n: int) -> tuple[int, int]:
        """Windows and planned calls of a round: `n` periods, and two other calls with the period behind them as one window."""
        before = ks.engine.stats()
        other()
        p.period()
        ks.sync()
        for _ in range(n):
            p.period()
        now = ks.engine.stats()
        ks.sync()
        return now.n_windows - before.n_windows, now.n_planned - before.n_planned

    for _ in range(40):
        p.period()
    ks.sync()
    window().plans.complete()
    for _ in range(4):
        told(6)
    window().plans.complete()
    assert told(6) == (1 + 3, 5 + 18)
    assert told(4) == (1 + 2, 5 + 12)
    x, y, _ = reached(40)
    for n in (6, 6, 6, 6, 6, 4):
        y += 2 * x
        x += 1
        for _ in range(n + 1):
            x += 1
            y += 2 * x
    assert (p.x[7], p.y[7], p.z[7]) == (x, y, y - x)


def test_an_access_ends_a_window_only_where_a_call_of_it_depends_on_it() -> None:
    """The kind: a read or a write of Python that no deferred call can tell."""
    ks.init(async_mode=True, async_flush_every=50)
    p = program()
    q, w = ks.field(ks.i32, 16), ks.Vector.field(2, ks.i32, 16)
    q[2], w[3] = 5, [1, 2]
    element = w[3]
    p.mix()  # writes y, reads x and y
    p.loop()  # the tree of s
    assert (q[2], p.x[3], p.t[1], element.y, w.to_numpy()[3].tolist()) == (5, 0, 0, 2, [1, 2])
    q[2], p.t[1], element.x = 6, 1, 7
    q.fill(3)
    q.from_numpy(np.ones(16, np.int32))
    q.copy_from(p.x)
    assert window().waits and not ks.engine.stats().ends
    p.x[3] = 4
    (end,) = ks.engine.stats().ends
    assert end.startswith("Python writes the field ") and f"{__file__}:" in end
    assert p.y[3] == 0
    p.mix()
    assert window().waits and p.y[3] == 8
    p.grow(1)
    assert window().waits and p.s[1] == 1
    assert ks.engine.stats().n_windows == 3


def test_deferred_calls_run_before_others_share_their_memory() -> None:
    """The kind: memory that is written behind the window's back while calls that read it are deferred."""
    ks.init(async_mode=True, async_flush_every=50)
    p = program()
    p.shift()
    p.x.array[...] = 2
    assert p.z[5] == 0
    p.mix()
    np.from_dlpack(p.x)
    assert not window().waits and p.y[5] == 4


def test_arrays_that_python_keeps_are_up_to_date_at_each_access() -> None:
    """The kind: an access names one field, and Python uses beside it what it has of another one."""
    ks.init(async_mode=True, async_flush_every=50)
    p = program()
    a = p.x.array
    for k in range(1, 6):
        p.add(1)
        p.y.from_numpy(a)
        p.add(1)
        p.y.from_numpy(a[::-1])
        assert p.y[3] == 2 * k
        p.add(0)
        assert p.z[0] == 0
        assert a[3] == 2 * k and not window().waits


def test_arrays_are_taken_by_python_where_no_copy_can_be_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While another thread fills the copy, or without memory for it."""
    ks.init(async_mode=True, async_flush_every=50)
    p = program()
    for k in range(3):
        given(p.x, k)
    assert window().waits
    kernels = host_kernels()
    assert isinstance(kernels, WaitingAccesses)
    with kernels._filling:
        given(p.x, 4)
    assert not window().waits and p.x[1] == 5

    def refuse(*_: Any) -> Any:
        raise MemoryError

    given(p.v, 1)
    monkeypatch.setattr(field_memory, "zeros", refuse)
    for k in range(2, 5):
        given(p.v, k)
    assert not window().waits and p.v[1].to_numpy().tolist() == [5, -5]


def test_trees_are_destroyed_behind_deferred_calls() -> None:
    ks.init(async_mode=True, async_flush_every=50)
    p = program()
    builder, v = ks.FieldsBuilder(), ks.Vector.field(2, ks.i32)
    builder.pointer(ks.i, 4).dense(ks.i, 4).place(v)
    tree = builder.finalize()

    @ks.kernel
    def grow():
        for i in range(9):
            v[i] = [i, -i]

    v[3] = [1, 2]
    element = v[3]
    grow()
    assert window().waits
    tree.destroy()
    assert not window().waits
    p.add(1)
    assert element.y == -3 and p.x[0] == 1


def test_operations_of_python_on_whole_fields_are_deferred() -> None:
    """From the third time on; their values are those of the call."""
    ks.init(async_mode=True, async_flush_every=50)
    p = program()
    for k in range(5):
        p.grow(1)
        given(p.x, k)
        given(p.s, k)
        given(p.v, k)
        p.cells.deactivate_all()
        p.block.deactivate_all()
        assert p.x.to_numpy().tolist() == [*range(k, k + 16)]
        assert p.v.to_numpy()[3].tolist() == [k + 3, -k - 3]
        assert not p.s.to_numpy().any()
    assert ks.engine.stats().n_calls == 2 * 1 + 3 * 6
    given(p.x, 7)
    given(p.x, 8)  # which runs the first one
    with pytest.raises(ks.LanguageError, match="takes an array of shape"):
        p.x.from_numpy(np.zeros(3, np.int32))
    assert p.x[0] == 8


def test_threads_children_and_interrupts_run_each_call_once() -> None:
    p = pipeline()
    threads = [threading.Thread(target=lambda: [p.first() for _ in range(99)]) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert p.x[0] == 198
    p.x.fill(0)
    p.period()
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends the child where it waits for a thread that is not there
        p.period()
        os._exit((p.x[7], p.y[7], p.z[7]) != reached(2))
    assert os.waitpid(child, 0)[1] == 0
    kernel = window()._held[1][0]
    run = kernel.run
    kernel.run = lambda values: (run(values), signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        ks.sync()
    kernel.run = run
    assert (p.x[7], p.y[7], p.z[7]) == reached(1)


@pytest.mark.parametrize("delay_s", [0.0, 0.02, 0.2])
def test_a_kill_while_a_plan_is_built_leaves_no_half_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delay_s: float
) -> None:
    """The kind: a kill before, in or behind a run of the compiler. What was there before is there afterwards."""
    options = EngineOptions(folder=tmp_path / "kernels", cores=1)
    child = os.fork()
    if child == 0:
        try:
            killed_while_it_plans(options, delay_s)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    kept = {x: x.read_bytes() for x in options.folder.glob("*.so")}
    assert len(kept) >= 3  # the kernels of single calls
    assert not any(map(is_torn, kept))
    made = Engine(options)
    monkeypatch.setattr(engine_room, "_engine", made)
    p = planned()
    assert (p.x[7], p.y[7], p.z[7]) == reached(10)
    assert all(x.read_bytes() == before for x, before in kept.items())
    ks.reset()
    made.close()


def killed_while_it_plans(options: EngineOptions, delay_s: float) -> None:
    """Runs a program, in a process that is killed `delay_s` after the build of a plan's kernel has begun."""
    signal.alarm(60)
    made = engine_room._engine = Engine(options)
    build = made._build

    def killing(ir: Any, *given: Any) -> Any:
        if ir.name == "window":
            threading.Timer(delay_s, os.kill, (os.getpid(), signal.SIGKILL)).start()
        return build(ir, *given)

    made._build = killing
    p = pipeline()
    while True:
        p.period()
        ks.sync()


def planned() -> SimpleNamespace:
    """A pipeline after ten periods, the last of which were run by a plan."""
    p = pipeline()
    for _ in range(10):
        p.period()
        ks.sync()
        window().plans.complete()
    assert ks.engine.stats().n_planned > 0
    return p


def interrupts_once(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
    """Makes the next call of a function of a module an interrupt before it begins."""
    real = getattr(module, name)

    def interrupted(*args: Any) -> Any:
        monkeypatch.setattr(module, name, real)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, name, interrupted)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (plan_bank, "starmap"),
        (plan_bank, "takewhile"),
        (planned_window, "perf_counter"),
    ],
)
def test_an_interrupt_before_a_window_runs_leaves_its_calls_deferred(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str
) -> None:
    p = planned()
    interrupts_once(monkeypatch, module, name)
    p.first()
    p.second()
    with pytest.raises(KeyboardInterrupt):
        p.third()
    p.period()
    assert (p.x[7], p.y[7], p.z[7]) == reached(12)


def test_calls_that_returned_have_happened_whenever_interrupts_come() -> None:
    p = planned()
    for _ in range(10):
        p.first()
        p.count()
        ks.sync()
        window().plans.complete()
    made, armed, rng = [20, 20], False, random.Random(1)

    def interrupt(*_: Any) -> None:
        nonlocal armed
        if armed:
            armed = False
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(150):
            at = -1
            try:
                armed = True
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-4, 2e-3))
                while True:
                    at = 0
                    p.first()
                    made[0] += 1
                    at = 1
                    p.count()
                    made[1] += 1
            except KeyboardInterrupt:
                signal.setitimer(signal.ITIMER_REAL, 0)
            found = [int(p.x[7]), int(p.n[7])]
            more = [a - b for a, b in zip(found, made, strict=True)]
            assert all(m in ((0, 1) if k == at else (0,)) for k, m in enumerate(more)), more
            made = found
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("limit", [0, 1, 1024])
def test_finalizers_in_threads_that_compile_may_call_kernels_and_read_fields(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """The kind: a thread that waits for code with a lock, or for code that it compiles itself."""
    made = Engine(EngineOptions(folder=tmp_path, cores=2))
    monkeypatch.setattr(engine_room, "_engine", made)
    p = pipeline(limit)
    build, finalized, seen = made._build, threading.Event(), list[int]()

    def finalizing(*given: Any) -> Any:
        if not finalized.is_set():
            finalized.set()
            p.third()
            seen.append(int(p.z[7]))
        return build(*given)

    monkeypatch.setattr(made, "_build", finalizing)

    def calls() -> None:
        for _ in range(40):  # more than are deferred
            p.first()
            p.second()
        seen.append(int(p.x[7]))

    thread = threading.Thread(target=calls, daemon=True)
    thread.start()
    thread.join(timeout=60)
    assert seen[-1] == 40 and len(seen) == 2
    made.close()


@pytest.mark.parametrize("name", ["_find", "_built_team", "_load_extension"])
def test_finalizers_in_threads_that_prepare_the_engine_may_call_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The kind: a thread that needs its own result, or a lock that is held by a thread that waits for it."""
    made = Engine(EngineOptions(folder=tmp_path, cores=2))
    monkeypatch.setattr(engine_room, "_engine", made)
    prepare, is_ready, has_finalized = getattr(made, name), threading.Event(), threading.Event()
    seen = list[int]()

    def finalizing(*given: Any) -> Any:
        if not has_finalized.is_set():
            has_finalized.set()
            is_ready.wait(60)
            second()
            seen.append(int(y[7]))
        return prepare(*given)

    monkeypatch.setattr(made, name, finalizing)
    ks.init(cpu_max_num_threads=1)
    x, y = ks.field(ks.i32, 8), ks.field(ks.i32, 8)

    @ks.kernel
    def first():
        for i in x:
            x[i] += 1

    @ks.kernel
    def second():
        for i in y:
            y[i] += 7

    def calls() -> None:
        is_ready.set()
        first()
        first()
        seen.append(int(x[7]))

    thread = threading.Thread(target=calls, daemon=True)
    thread.start()
    thread.join(timeout=60)
    assert not thread.is_alive()
    made.close()
    assert sorted(seen) == [2, 7]


def test_a_read_waits_for_the_window_that_another_thread_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    p, runs = planned(), threading.Event()
    real = plan_bank.BoundPlan.run

    def slowly(self: Any, *args: Any) -> None:
        runs.set()
        for _ in range(20):  # other threads have their turns
            threading.Event().wait(1e-3)
        real(self, *args)

    monkeypatch.setattr(plan_bank.BoundPlan, "run", slowly)
    p.first()
    p.second()
    other = threading.Thread(target=p.third)
    other.start()
    assert runs.wait(60)
    assert p.x[7] == 11
    other.join()


def test_calls_run_without_plans_where_none_can_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    p = pipeline()
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "submit", refuses)  # Python ends
        for _ in range(3):
            p.period()
            ks.sync()
    monkeypatch.setattr(window_kernels, "Window", overflows)
    p.period()
    ks.sync()
    with pytest.warns(RuntimeWarning, match="runs call by call: its plan failed: RecursionError"):
        window().plans.complete()
    for _ in range(3):
        p.period()
        ks.sync()
    assert (p.x[7], p.y[7], p.z[7]) == reached(7)
    assert ks.engine.stats().n_planned == 0


def refuses(*_: Any) -> None:
    raise RuntimeError("cannot schedule new futures after shutdown")


def overflows(*_: Any) -> None:
    raise RecursionError


def test_an_error_of_a_call_that_waited_ends_its_window() -> None:
    p = pipeline()
    s = ks.field(ks.i32)
    ks.root.pointer(ks.i, 2).place(s)

    @ks.kernel
    def outside():
        for i in range(1):
            s[i + 7] = 1

    p.first()
    outside()
    p.first()
    with pytest.raises(AssertionError, match="outside"):
        ks.sync()
    p.second()
    assert (p.x[0], p.y[0]) == (1, 2)


def test_programs_without_the_option_have_no_statistics() -> None:
    ks.init()
    assert ks.engine.stats().n_calls == 0
