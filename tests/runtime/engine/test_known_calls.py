"""Calls that wait and are known by their arguments: with other numbers, in broken periods, and with objects that go."""

from __future__ import annotations

import gc
import random
import signal
import threading
import time
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.fields.program import current_program
from kernelscape.runtime.by_identity import ByIdentities
from kernelscape.runtime.engine.engine import Engine
from kernelscape.runtime.engine.plan_bank import BoundPlan
from kernelscape.runtime.engine.planned_window import PlannedWindow

pytestmark = pytest.mark.compiler


@pytest.fixture(autouse=True)
def engine(engine_of_file: Engine) -> Engine:
    return engine_of_file


def program(*, waits: bool = True) -> SimpleNamespace:
    ks.init(cpu_max_num_threads=1, async_mode=waits)
    x, y, n = ks.field(ks.f32, 4), ks.field(ks.f32, 4), ks.field(ks.i32, 4)

    @ks.kernel
    def add(a: ks.template(), by: ks.f32, k: ks.i32):
        for i in a:
            a[i] += by
            n[i] += k

    @ks.kernel
    def weigh(a: ks.template(), by: ks.template()):
        for i in a:
            a[i] += by / 2

    @ks.kernel
    def double(a: ks.template()):
        for i in a:
            a[i] = 2 * a[i]

    return SimpleNamespace(**locals())


def seen(p: SimpleNamespace) -> list[list[float]]:
    return [field.to_numpy().tolist() for field in (p.x, p.y, p.n)]


def window() -> PlannedWindow:
    follower = current_program().follower
    assert isinstance(follower, PlannedWindow)
    return follower


def settled(period: Callable[[], None], n: int = 8) -> None:
    """Runs a period until a plan runs it."""
    for _ in range(n):
        period()
        ks.sync()
        window().plans.complete()


@pytest.fixture
def n_slow(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of calls that were taken value by value, in a list."""
    found, take = [0], PlannedWindow._take

    def counting(*args: Any, **named: Any) -> bool:
        found[0] += 1
        return take(*args, **named)

    monkeypatch.setattr(PlannedWindow, "_take", counting)
    return found


def test_a_call_with_other_numbers_is_the_call_that_is_known(n_slow: list[int]) -> None:
    """The kind: a counter of steps, for which each call is taken value by value, or that runs with the number of before."""
    p, made = program(), [0.0, 0]

    def period(by: float, k: int) -> None:
        for a in (p.x, p.y, p.x):
            p.add(a, by, k)
            p.double(a)

    settled(lambda: period(0.5, 3))
    p.x.fill(0)
    p.n.fill(0)
    ks.sync()
    before = n_slow[0], ks.engine.stats().n_planned
    for step in range(300, 320):
        period(step / 8, step)
        made = [4 * made[0] + 3 * 2 * step / 8, made[1] + 3 * step]
    assert ks.engine.stats().n_planned - before[1] == 20 * 6
    assert n_slow[0] == before[0]
    assert [p.x[2], p.n[1]] == pytest.approx(made, rel=1e-6)


NUMBERS: tuple[tuple[Any, Any], ...] = (
    (0.25, 7),
    (np.float32(0.5), np.int32(5)),
    (np.float64(0.1), np.int8(-3)),
    (3, True),
    (True, 4),
    (float("nan"), 2),
    (float("-inf"), -(2**31)),
    (-0.0, 2**31),
    (1e300, 1),
    (1.5, 2**40),
    (10**400, 1),
    (0.5, 1.5),
    ("a", 1),
    (0.5, None),
)


@pytest.mark.parametrize("numbers", NUMBERS, ids=lambda x: f"{x!r:.30}")
def test_numbers_that_need_conversion_are_those_of_a_call_that_runs_at_once(numbers: Any) -> None:
    """The kind: a number that is taken as it is where the kernel converts or refuses it."""
    found = []
    for waits in (False, True):
        p = program(waits=waits)
        for given in (*[(0.5, 1)] * 5, numbers, (0.5, 1)):
            for a in (p.x, p.y):
                try:
                    p.add(a, *given)
                except Exception as e:
                    found.append((type(e), str(e)))
            ks.sync()
        found.append(repr(seen(p)))
    half = len(found) // 2
    assert found[:half] == found[half:]


def test_threads_give_their_own_numbers() -> None:
    """The kind: a call that runs with the number of another thread's, or twice, or never."""
    p = program()

    def period() -> None:
        for _ in range(8):
            p.add(p.x, 0.5, 1)

    settled(period, 6)
    p.n.fill(0)
    ks.sync()

    def calls(first: int) -> None:
        for k in range(400):
            p.add(p.x, 0.25, first + k)

    threads = [threading.Thread(target=calls, args=(1000 * k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert p.n[2] == sum(1000 * t + k for t in range(3) for k in range(400))


def test_a_number_that_is_a_template_is_another_kernel() -> None:
    """The kind: a compile-time constant that is taken for an argument."""
    p = program()

    def period(by: float) -> None:
        p.weigh(p.x, by)
        p.weigh(p.y, by)

    settled(lambda: period(2), 6)
    wanted = 6.0
    for by in (3.0, 4, 2, True, 1000.5, 1000.5):
        period(by)
        wanted += by / 2
        assert p.x[1] == p.y[2] == wanted


def test_calls_of_a_broken_period_are_known_by_their_arguments(n_slow: list[int]) -> None:
    """The kind: calls behind the one that breaks a period, which are looked at value by value."""
    p = program()

    def period(breaker: Any = None) -> None:
        for a in (p.x, p.y, p.x):
            p.double(a)
            if breaker is not None:
                breaker(p.n)
            p.weigh(a, 2)

    settled(period)
    for _ in range(2):
        p.double(p.n)
    ks.sync()
    for field in (p.x, p.y, p.n):
        field.fill(1)
    before = n_slow[0]
    period(p.double)
    ks.sync()
    assert n_slow[0] == before
    assert (p.x[0], p.y[0], p.n[0]) == (7, 3, 8)


def test_a_window_that_is_met_once_makes_no_plan() -> None:
    """The kind: calls that are numbered and looked up for a plan that no second run asks for."""
    p = program()
    for k in range(2, 8):
        for _ in range(k):
            p.double(p.x)
        p.double(p.y)
        ks.sync()
    assert not window().plans._plans
    p.double(p.x)
    p.double(p.x)
    p.double(p.y)
    ks.sync()
    (plan,) = window().plans._plans.values()
    assert plan.n_met == 2


def test_known_calls_keep_no_object_alive() -> None:
    """The kind: an object of the program that goes later, or never, since a call of it is known."""
    x = program().x

    @ks.data_oriented
    class Steps:
        @ks.kernel
        def step(self):
            for i in x:
                x[i] += 1

    steps = Steps()
    for _ in range(3):
        steps.step()
    ks.sync()
    gone = weakref.ref(steps)
    del steps
    gc.collect()
    assert gone() is None and x[0] == 3


def test_known_calls_go_with_their_fields() -> None:
    """The kind: a call on the memory of a field that is destroyed."""
    p = program()
    builder, v = ks.FieldsBuilder(), ks.field(ks.f32)
    builder.dense(ks.i, 4).place(v)
    tree = builder.finalize()
    for _ in range(4):
        p.double(v)
        p.double(p.x)
    tree.destroy()
    with pytest.raises(ks.LanguageError):
        p.double(v)
    p.x.fill(1)
    p.double(p.x)
    assert p.x[3] == 2


def test_what_is_stored_by_identity_goes_with_any_of_its_objects() -> None:
    class Kept:
        pass

    a, b, found = Kept(), Kept(), ByIdentities[str](2)
    found.set((a, b), "both")
    found.set((a, 1), "one")
    assert found.get((a, b)) == "both" and found.get((b, a)) is None
    del b
    gc.collect()
    assert len(found._found) == 1 and found.get((a, 1)) == "one"
    found.set((a, 2), "two")
    found.set((a, 3), "three")
    assert found.get((a, 1)) is None and found.get((a, 3)) == "three"


def test_a_period_that_is_run_does_not_run_again_for_what_comes_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kind: a handler of a signal, or a finalizer, that reads a field or makes a call while a known period runs."""
    p = program()

    def period() -> None:
        for a in (p.x, p.y, p.x, p.y):
            p.weigh(a, 2)

    settled(period)
    run, times = BoundPlan.run, [0]

    def between(self: Any, *args: Any) -> None:
        times[0] += 1
        assert p.x[0] == 16  # the calls are being run
        p.double(p.n)
        run(self, *args)

    p.n.fill(1)
    ks.sync()
    monkeypatch.setattr(BoundPlan, "run", between)
    period()
    monkeypatch.setattr(BoundPlan, "run", run)
    assert (p.x[0], p.y[0], p.n[0], times[0]) == (18, 18, 2, 1)


def test_calls_of_windows_that_never_come_again_happen_once_whenever_interrupts_come(
    engine: Engine,
) -> None:
    """The kind: an interrupt between a call that has run and the note of it, where some calls are run at once."""
    p, rng, armed = program(), random.Random(1), False
    steps = (lambda: p.add(p.x, 1.0, 1), lambda: p.weigh(p.y, 2))
    until_s = time.monotonic() + 60
    while engine._quick is None and time.monotonic() < until_s:  # the extension for calls
        time.sleep(0.01)
    for step in steps:
        step()
        ks.sync()
    made = [1, 1]

    def interrupt(*_: Any) -> None:
        nonlocal armed
        if armed:
            armed = False
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(60):
            at = -1
            try:
                armed = True
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-4, 2e-3))
                while True:
                    for _ in range(rng.randint(3, 9)):
                        at = rng.randint(0, 1)
                        steps[at]()
                        made[at] += 1
                    at = -1
                    ks.sync()
            except KeyboardInterrupt:
                signal.setitimer(signal.ITIMER_REAL, 0)
            found = [int(p.n[0]), int(p.y[0])]
            more = [a - b for a, b in zip(found, made, strict=True)]
            assert all(m in ((0, 1) if k == at else (0,)) for k, m in enumerate(more)), more
            made = found
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_an_error_of_a_known_period_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kind: calls that stay deferred, and fail again, or a period that is not followed from then on."""
    p = program()

    def period() -> None:
        for a in (p.x, p.y, p.x, p.y):
            p.weigh(a, 2)

    def fail(*_: Any) -> None:
        raise AssertionError("outside")

    settled(period)
    with monkeypatch.context() as patch:
        patch.setattr(BoundPlan, "run", fail)
        with pytest.raises(AssertionError, match="outside"):
            period()
    assert not window().waits
    before = ks.engine.stats().n_planned
    period()
    assert (p.x[0], ks.engine.stats().n_planned - before) == (18, 4)
