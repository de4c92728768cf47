"""Launches, lists and activations of a period in the steady state, of programs whose calls wait; values are the interpreter's.

The programs have the forms of the microbenchmarks of Hu et al. (AsyncTaichi, section 8.1), small.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.fields.program import current_program
from kernelscape.runtime import engine as engine_room
from kernelscape.runtime.engine import planned_window
from kernelscape.runtime.engine.engine import Engine, EngineOptions
from kernelscape.runtime.engine.plan_bank import BoundPlan
from kernelscape.runtime.engine.planned_window import PlannedWindow
from kernelscape.runtime.engine.ran_window import RanWindow
from kernelscape.runtime.engine.rotation import Rotation
from kernelscape.testing.sparse_windows import InterpretingEngine

pytestmark = pytest.mark.compiler
Period = Callable[[], None]
Program = Callable[[], tuple[Period, list[Any]]]


@pytest.fixture(autouse=True)
def engine(engine_of_file: Engine) -> Engine:
    return engine_of_file


def sparse(axes: Any, cells: int, leaf: int, *fields: Any) -> Any:
    node = ks.root.pointer(axes, cells)
    node.dense(axes, leaf).place(*fields)
    return node


def chain_copy() -> tuple[Period, list[Any]]:
    x, y, z = (ks.field(ks.i32, 64) for _ in range(3))

    @ks.kernel
    def first():
        for i in x:
            y[i] = x[i] + 1

    @ks.kernel
    def second():
        for i in x:
            z[i] = y[i] + 4

    def period() -> None:
        first()
        second()

    return period, [y, z]


def increments() -> tuple[Period, list[Any]]:
    x = ks.field(ks.i32, 64)

    @ks.kernel
    def increase():
        for i in x:
            x[i] = x[i] + 1

    def period() -> None:
        for _ in range(10):
            increase()

    return period, [x]


def sparse_saxpy() -> tuple[Period, list[Any]]:
    a, b = ks.field(ks.f32), ks.field(ks.f32)
    sparse(ks.ij, 4, 4, a, b)

    @ks.kernel
    def initialise():
        for i, j in ks.ndrange(16, 16):
            if (i // 4 + j // 4) % 4 == 0:
                a[i, j] = i + 0.5
                b[i, j] = j

    @ks.kernel
    def saxpy(x: ks.template(), y: ks.template(), alpha: ks.f32):
        for i, j in x:
            y[i, j] = alpha * x[i, j] + y[i, j]

    def period() -> None:
        initialise()
        for x, y, alpha in ((a, b, 2), (b, a, 1.5), (b, a, 0.5), (a, b, 3), (a, b, 1), (a, b, 2)):
            saxpy(x, y, alpha)

    return period, [a, b]


def stencil_reduction() -> tuple[Period, list[Any]]:
    a, b, total = ks.field(ks.i32), ks.field(ks.i32), ks.field(ks.i32, ())
    sparse(ks.i, 8, 8, a, b)

    @ks.kernel
    def initialise():
        for i in range(48):
            a[i] = i

    @ks.kernel
    def stencil():
        for i in a:
            b[i] = a[i - 1] + a[i] + a[i + 1]

    @ks.kernel
    def reduce():
        for i in a:
            total[None] += b[i]

    @ks.kernel
    def clear():
        for i in a:
            b[i] = 0

    def period() -> None:
        initialise()
        for _ in range(3):
            stencil()
            reduce()
            clear()

    return period, [a, b, total]


def multires() -> tuple[Period, list[Any]]:
    x = [ks.field(ks.i32) for _ in range(4)]
    for k in range(4):
        sparse(ks.i, 64 >> k, 4, x[k])

    @ks.kernel
    def fill():
        for i in range(200):
            x[0][i] = i

    @ks.kernel
    def downsample(k: ks.template()):
        for i in x[k]:
            if i % 2 == 0:
                x[k + 1][i // 2] = x[k][i]

    fill()

    def period() -> None:
        for k in range(3):
            downsample(k)

    return period, x


def deep_hierarchy() -> tuple[Period, list[Any]]:
    x = ks.field(ks.i32)
    node = ks.root
    for _ in range(4):
        node = node.pointer(ks.i, 2)
    node.dense(ks.i, 4).place(x)

    @ks.kernel
    def fill():
        for i in range(40):
            x[i] = i

    @ks.kernel
    def jitter():
        for i in x:
            if i % 2 == 0:
                x[i] += x[i + 1]

    fill()

    def period() -> None:
        for _ in range(5):
            jitter()

    return period, [x]


def clear_twice() -> tuple[Period, list[Any]]:
    x, y = ks.field(ks.i32), ks.field(ks.i32)
    sparse(ks.i, 8, 4, x, y)

    @ks.kernel
    def fill():
        for i in range(20):
            x[i] = i

    @ks.kernel
    def clear():
        for i in x:
            x[i] = 0
            y[i] = 0

    @ks.kernel
    def increase():
        for i in x:
            x[i] += 1

    fill()

    def period() -> None:
        clear()
        increase()
        clear()

    return period, [x, y]


def overwritten() -> tuple[Period, list[Any]]:
    """Stores to arrays and cells that a later call overwrites unread: from another tree, and wherever numbers point."""
    x, y, n = ks.field(ks.i32), ks.field(ks.i32), ks.field(ks.i32, 32)
    sparse(ks.i, 8, 4, x)
    sparse(ks.i, 4, 4, y)

    @ks.kernel
    def fill():
        for i in range(24):
            x[i] = 3 * i

    @ks.kernel
    def down():
        for i in x:
            y[i // 2] = x[i]

    @ks.kernel
    def scatter():
        for i in range(32):
            n[7 * i % 32] += x[i]

    @ks.kernel
    def again():
        for i in y:
            y[i] = 2 * i

    @ks.kernel
    def clear():
        for i in range(32):
            n[i] = i

    fill()

    def period() -> None:
        for kernel in (down, scatter, scatter, again, clear):
            kernel()

    return period, [x, y, n]


def back_and_forth() -> tuple[Period, list[Any]]:
    """Two trees whose loops activate each other's cells."""
    x, y = ks.field(ks.i32), ks.field(ks.i32)
    sparse(ks.i, 8, 4, x)
    sparse(ks.i, 8, 4, y)

    @ks.kernel
    def up():
        for i in x:
            y[i] = x[i] + i

    @ks.kernel
    def carry():
        for i in y:
            x[i] = y[i] % 100

    x[5] = 3

    def period() -> None:
        up()
        carry()

    return period, [x, y]


def three_passes() -> tuple[Period, list[Any]]:
    """Three channels, each advected there and back and mended, in the order of the program."""
    v = ks.field(ks.i32)
    q = [[ks.field(ks.i32) for _ in range(3)] for _ in range(3)]
    sparse(ks.i, 8, 4, v, *(f for copy in q for f in copy))

    @ks.kernel
    def fill():
        for i in range(4, 28):
            v[i] = i % 3
            for c in ks.static(range(3)):
                q[0][c][i] = i + c

    @ks.kernel
    def advect(a: ks.template(), b: ks.template(), t: ks.template()):
        for i in a:
            b[i] = a[i - v[i]]
        for i in a:
            t[i] = b[i + v[i]]
        for i in a:
            b[i] += (a[i] - t[i]) // 2

    fill()

    def period() -> None:
        for a, b in ((0, 1), (1, 0)):
            for c in range(3):
                advect(q[a][c], q[b][c], q[2][c])

    return period, [f for copy in q for f in copy]


def transfers() -> tuple[Period, list[Any]]:
    """Particles and a grid that is empty at the head of each period."""
    n = 40
    x, v, g, m = ks.field(ks.f32, n), ks.field(ks.f32, n), ks.field(ks.f32), ks.field(ks.i32)
    top = sparse(ks.i, 8, 4, g, m)

    @ks.kernel
    def fill():
        for p in x:
            x[p] = 0.4 * p + 2
            v[p] = 1 - 0.25 * (p % 7)

    @ks.kernel
    def kill():
        for i in m:
            ks.deactivate(top, i)

    @ks.kernel
    def to_grid():
        for p in x:
            base = int(x[p])
            for k in ks.static(range(2)):
                g[base + k] += v[p] * 0.5
                m[base + k] += 1

    @ks.kernel
    def divide():
        for i in m:
            if m[i] > 0:
                g[i] /= m[i]

    @ks.kernel
    def bounce():
        for i in m:
            if i < 3 and g[i] < 0:
                g[i] = 0.0

    @ks.kernel
    def to_particles():
        for p in x:
            v[p] = g[int(x[p])]

    fill()

    def period() -> None:
        for kernel in (kill, to_grid, divide, bounce, to_particles):
            kernel()

    return period, [v, m]


def particles(n_more: int = 0) -> tuple[Period, list[Any]]:
    """Particles that add to a grid and read another one, and steps of a field of its own between."""
    n = 40
    x, v = ks.field(ks.i32, n), ks.field(ks.i32, n)
    g, h, z = ks.field(ks.i32, 8), ks.field(ks.i32, 8), ks.field(ks.i32, 9)

    @ks.kernel
    def fill():
        for p in x:
            x[p] = 3 * p
            v[p] = p % 5

    @ks.kernel
    def to_grid():
        for p in x:
            at = x[p] % 8
            g[at] += v[p]

    @ks.kernel
    def relax():
        for i in g:
            h[i] = g[i] // 2
            g[i] = 0

    @ks.kernel
    def to_particles():
        for p in x:
            v[p] -= h[x[p] % 8]
            x[p] += v[p] % 3

    @ks.kernel
    def shift():
        for i in range(8):
            z[i + 1] += z[i] + 1

    fill()

    def period() -> None:
        to_grid()
        relax()
        for _ in range(n_more):
            shift()
        to_particles()

    return period, [x, v, g, h, z]


class Counts(NamedTuple):
    n_launches: int
    n_lists: int
    n_activations: int


TABLE: tuple[tuple[Program, Counts], ...] = (
    (chain_copy, Counts(1, 0, 0)),
    (increments, Counts(1, 0, 0)),
    (sparse_saxpy, Counts(2, 0, 0)),
    (stencil_reduction, Counts(2, 0, 0)),
    (multires, Counts(3, 0, 0)),
    (deep_hierarchy, Counts(5, 0, 0)),
    (clear_twice, Counts(1, 0, 0)),
    (overwritten, Counts(2, 0, 0)),
    (back_and_forth, Counts(2, 0, 0)),
    (three_passes, Counts(6, 0, 0)),
    (transfers, Counts(4, 1, 4)),
)


def window() -> PlannedWindow:
    follower = current_program().follower
    assert isinstance(follower, PlannedWindow)
    return follower


LIMITS = (1, 5, 20, 50, 200)
N_PERIODS = 24  # whole windows of each program: periods with less than eight calls are folded


def counted(now: Any, before: Any) -> Counts:
    return Counts(*(getattr(now, name) - getattr(before, name) for name in Counts._fields))


def run(program: Program, limit: int, n_periods: int = 5) -> tuple[list[Any], Counts, int]:
    """Returns the fields after some periods, the counts of the last one, and its number of calls.

    `limit` 0: by the interpreter.
    """
    ks.init(cpu_max_num_threads=2, async_mode=limit > 0, async_flush_every=limit or 50)
    if not limit:
        with ks.interpret():
            period, fields = program()
            for _ in range(n_periods):
                period()
        return [x.to_numpy() for x in fields], Counts(0, 0, 0), 0
    period, fields = program()
    before = ks.engine.stats()
    for _ in range(n_periods):
        before = ks.engine.stats()
        period()
        ks.sync()
        window().plans.complete()
    now = ks.engine.stats()
    return [x.to_numpy() for x in fields], counted(now, before), now.n_calls - before.n_calls


def stream(program: Program, limit: int) -> tuple[list[Any], Counts]:
    """Returns the fields after periods that follow one another without a read, and the counts of the last `N_PERIODS`."""
    ks.init(cpu_max_num_threads=2, async_mode=True, async_flush_every=limit)
    period, fields = program()
    before = now = ks.engine.stats()
    for n_periods in (120, *[N_PERIODS] * 3):  # windows at the ends have plans from the third on
        before = ks.engine.stats()
        for _ in range(n_periods):
            period()
        ks.sync()
        window().plans.complete()
        now = ks.engine.stats()
    return [x.to_numpy() for x in fields], counted(now, before)


@pytest.mark.parametrize(("n_more", "pauses"), [(0, 0), (7, 0), (7, 12), (7, 2), (7, 1)])
def test_a_stream_of_periods_is_rotated_where_loops_of_two_periods_join(
    n_more: int, pauses: int
) -> None:
    """`pauses`: periods between two reads; with few of them a rotated window would be cut each time."""
    n_periods = 96

    def told(limit: int) -> tuple[list[Any], float]:
        ks.init(cpu_max_num_threads=2, async_mode=limit > 0, async_flush_every=limit or 50)
        period, fields = particles(n_more)
        found, n_before = list[Any](), 0
        for k in range(n_periods):
            if k == n_periods // 2:
                n_before = ks.engine.stats().n_launches
            period()
            if pauses and k % pauses == pauses - 1:
                found.append(int(fields[1][7]))
            if limit and k < n_periods // 2:
                window().plans.complete()
        found += [x.to_numpy().tolist() for x in fields]
        return found, (ks.engine.stats().n_launches - n_before) / (n_periods / 2)

    with ks.interpret():
        wanted, _ = told(0)
    # A limit may leave as many calls as a rotated window would have in front.
    for limit in (20, 23, 25, 100) if pauses == 0 else (20, 100):
        found, n_launches = told(limit)
        assert found == wanted
        if pauses == 0:
            assert n_launches < 2.2 + n_more
        elif pauses == 12:
            assert n_launches < 2.5 + n_more
        else:
            assert n_launches == 3 + n_more


@pytest.mark.parametrize("n_calls", [9, 17, 19, 23, 59])
def test_calls_before_a_read_that_are_no_whole_period_cut_no_later_window(n_calls: int) -> None:
    """Kind: the rest of a window is known again, so that the next ones end where it ended, and shrink to single calls."""
    with engine_room.using(InterpretingEngine()):
        ks.init(async_mode=True)
        x = ks.field(ks.i32, 8)

        @ks.kernel
        def increase():
            for i in x:
                x[i] = x[i] + 1

        before, n_windows = ks.engine.stats(), list[int]()
        for k in range(12):
            for _ in range(n_calls):
                increase()
            assert x[3] == n_calls * (k + 1)
            window().plans.complete()
            now = ks.engine.stats()
            n_windows.append(now.n_windows - before.n_windows)
            before = now
        assert max(n_windows) <= n_calls // 8 + 2
        assert now.n_planned >= 8 * n_calls


def test_a_rotation_that_paid_is_given_up_where_reads_cut_it_from_then_on() -> None:
    rotation = Rotation("prologue", "rotated")
    for _ in range(100_000):
        rotation.note(is_whole=True)
    cuts = 0
    while rotation.pays:
        rotation.note(is_whole=False)
        cuts += 1
    assert cuts < 10


@pytest.mark.parametrize(("program", "wanted"), TABLE)
def test_a_period_has_the_least_launches_and_lists(program: Program, wanted: Counts) -> None:
    values, _, _ = run(program, 0)
    for limit in LIMITS:
        # One limit runs compiled code: kernels of the others are interpreted.
        engine = engine_room.current_engine() if limit == 20 else InterpretingEngine()
        with engine_room.using(engine):
            found, counts, n_calls = run(program, limit)
        if limit >= 2 * n_calls:
            assert counts == wanted, limit
        for x, y in zip(found, values, strict=True):
            assert np.array_equal(x, y), limit


class Clock:
    """A clock that stands still, but for what a test lets pass."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def around(self, function: Any, seconds: float) -> Any:
        """The function, in whose calls so many seconds pass."""

        def call(*args: Any) -> Any:
            self.now_s += seconds
            return function(*args)

        return call


def test_times_are_those_of_windows_and_of_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """`backend_s` has the runs of kernels and of plans, `wall_s` also what the host does in windows, and nothing else."""
    ks.init(cpu_max_num_threads=2, async_mode=True, async_flush_every=50)
    period, _ = chain_copy()
    for _ in range(3):
        period()
        ks.sync()
    clock = Clock()
    monkeypatch.setattr(planned_window, "perf_counter", clock)
    slow = clock.around(PlannedWindow._run_each, 2.0)  # of two calls
    monkeypatch.setattr(PlannedWindow, "_run_each", lambda *args: slow(*args))
    planned = clock.around(BoundPlan.run, 10.0)
    monkeypatch.setattr(BoundPlan, "run", lambda *args: planned(*args))
    host = clock.around(RanWindow.to_run, 100.0)
    monkeypatch.setattr(RanWindow, "to_run", lambda *args: host(*args))
    with monkeypatch.context() as patch:
        patch.setattr(PlannedWindow, "_run_quickly", lambda *_: False)
        _compare_times(period, clock)
    for _ in range(2):
        period()
    before = ks.engine.stats()
    for _ in range(3):
        period()
    now = ks.engine.stats()
    assert now.wall_s - before.wall_s == now.backend_s - before.backend_s == 3 * 10.0
    assert (now.n_windows - before.n_windows, now.n_planned - before.n_planned) == (3, 6)
    (more,) = {
        why: n - before.ends.get(why, 0) for why, n in now.ends.items() if n != before.ends.get(why)
    }.items()
    assert more == ("a window that ran before", 3)


def _compare_times(period: Period, clock: Clock) -> None:
    found = []
    for is_built in (False, True):
        if is_built:
            window().plans.complete()
        before = ks.engine.stats()
        for _ in range(2):
            period()
            clock.now_s += 1000.0  # of the program
            ks.sync()
        now = ks.engine.stats()
        n_planned = now.n_planned - before.n_planned
        n_kernels = now.n_calls - before.n_calls - n_planned
        n_windows = now.n_windows - before.n_windows
        backend_s = now.backend_s - before.backend_s
        assert backend_s == n_kernels + 10.0 * n_planned / 2  # plans are of two calls
        assert now.wall_s - before.wall_s == backend_s + 100.0 * n_windows
        found.append((n_kernels + n_planned, n_planned))
    assert found[0][0] == 4 and found[1] == (4, 4)


def test_compiled_kernels_are_counted_once_in_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels of plans count, and those of the folder do not."""
    counts = []
    for _ in range(2):
        made = Engine(EngineOptions(folder=tmp_path, cores=2))
        monkeypatch.setattr(engine_room, "_engine", made)
        ks.init(cpu_max_num_threads=2, async_mode=True, async_flush_every=50)
        period, _ = chain_copy()
        for _ in range(4):
            period()
            ks.sync()
            window().plans.complete()
            counts.append(ks.engine.stats().n_compiled)
        ks.reset()
        made.close()
    n_kernels, n_plans = 2, 1
    assert counts == [*counts[:2], n_kernels + n_plans, n_kernels + n_plans, 0, 0, 0, 0]
    assert n_kernels <= counts[0] <= counts[1] <= n_kernels + n_plans


@pytest.mark.parametrize(("program", "wanted"), TABLE)
def test_a_stream_of_periods_has_the_same_counts_at_every_limit(
    program: Program, wanted: Counts
) -> None:
    """Windows end where the program repeats itself, so that the limit cuts no period."""
    values, _ = stream(program, 1)
    found = {}
    for limit in (5, 20, 25, 50, 200):
        now, found[limit] = stream(program, limit)
        for x, y in zip(now, values, strict=True):
            assert np.array_equal(x, y), limit
    del found[5]  # of two periods of some programs, but of no two windows
    assert len(set(found.values())) == 1, found
    # Eight calls are a window, also of ten equal ones.
    least = Counts(wanted.n_launches * 10 / 8, wanted.n_lists, wanted.n_activations)
    assert all(n <= N_PERIODS * x for n, x in zip(found[50], least, strict=True)), found
