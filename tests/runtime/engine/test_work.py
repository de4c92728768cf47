"""Background work: results, errors, threads, and interrupts at any instruction."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import weakref

import pytest
from kernelscape.runtime.engine.work import Work, Workers


@pytest.fixture
def workers() -> Workers:
    return Workers(2, lambda: None)


def test_results_and_exceptions_come_back(workers: Workers) -> None:
    works = [workers.submit(pow, 2, k) for k in range(50)]
    assert [w.result() for w in works] == [2**k for k in range(50)]
    failed = workers.submit(lambda: 1 // 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            failed.result()
    assert isinstance(failed.exception(), ZeroDivisionError)
    assert Work.of(3).result() == 3 and Work.of(3).done()


def test_works_run_in_order_by_at_most_two_threads(workers: Workers) -> None:
    begun, running, most = list[int](), set[int](), list[int]()

    def one(k: int) -> None:
        begun.append(k)
        running.add(threading.get_ident())
        most.append(len(running))
        time.sleep(0.002)
        running.discard(threading.get_ident())

    for k in range(40):
        workers.submit(one, k)
    workers.wait()
    assert sorted(begun) == list(range(40)) and max(most) == 2
    assert all(k <= i + 1 for i, k in enumerate(begun))
    assert workers.submit(pow, 3, 2).result() == 9  # threads that have ended are no loss


def test_callbacks_are_called_whenever_they_are_added(workers: Workers) -> None:
    gate, called = threading.Event(), list[int]()
    work = workers.submit(gate.wait, 60)
    work.add_done_callback(lambda w: called.append(w.result()))
    assert not called and not work.done()
    gate.set()
    workers.wait()
    work.add_done_callback(lambda w: called.append(w.result()))
    assert called == [True, True]


@pytest.mark.parametrize("fails", [False, True])
def test_a_finalizer_in_the_thread_of_a_work_gets_its_result(workers: Workers, fails: bool) -> None:
    begun, seen, called = threading.Event(), list[object](), list[object]()
    works = list[Work[int]]()
    n_runs = 0

    def function() -> int:
        nonlocal n_runs
        n_runs += 1
        if n_runs == 1:
            begun.wait(60)
            gc.collect()  # which runs the finalizer
            return 1
        if fails:
            raise ZeroDivisionError
        return 2

    class Owner:
        def __init__(self) -> None:
            self.cycle = self

        def __del__(self) -> None:
            seen.append(works[0].exception())

    gc.disable()
    try:
        Owner()
        works.append(workers.submit(function))
        works[0].add_done_callback(lambda w: called.append(w))
        begun.set()
        workers.wait()
    finally:
        gc.enable()
    assert n_runs == 2 and called == works
    assert isinstance(seen[0], ZeroDivisionError) if fails else seen == [None]
    assert works[0].exception() is seen[0]
    assert fails or works[0].result() == 2


def test_nothing_keeps_a_result_but_its_work(workers: Workers) -> None:
    class Code:
        pass

    work = workers.submit(Code)
    kept = weakref.ref(work.result())
    workers.wait()
    gc.disable()
    try:
        del work
        assert kept() is None
    finally:
        gc.enable()


def test_a_work_without_a_thread_is_refused(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as m:
        m.setattr("_thread.start_new_thread", none)
        with pytest.raises(RuntimeError, match="thread"):
            workers.submit(pow, 2, 2)
    workers.wait()
    assert workers.submit(pow, 2, 3).result() == 8


def test_interrupts_leave_no_lock_locked() -> None:
    """Kind: an interrupt in the middle of `with` for a lock that is entered by Python code, and all wait for ever.

    Signals come after as many microseconds as are drawn; `concurrent.futures` stands still within some hundred rounds.
    """
    program = """
import random, signal, sys, time
from kernelscape.runtime.engine.work import Workers

def interrupt(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
workers, numbers = Workers(2, lambda: None), random.Random(1)
late = time.monotonic() + 2.0
n, works = 0, []
while time.monotonic() < late:
    try:
        signal.setitimer(signal.ITIMER_REAL, numbers.uniform(1e-6, 3e-4))
        while True:
            works = [workers.submit(pow, 2, 10) for _ in range(3)]
            works[0].add_done_callback(lambda w: w.done())
            assert all(w.result() == 1024 and w.done() for w in works)
    except KeyboardInterrupt:
        n += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    for w in works:
        w.result()
workers.wait()
print(n)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) > 50
