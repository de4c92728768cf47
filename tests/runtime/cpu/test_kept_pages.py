"""Protected pages whose beginning may be written: a handler of faults gives them up, whoever comes, as long as they are there."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable

import numpy as np
import pytest
from kernelscape.runtime.cpu.guarded_arrays import CpuArray
from kernelscape.runtime.cpu.runner import CpuRunner
from kernelscape.runtime.device import open_device

N_KEPT, ROW = 10, 1024  # of f64: a row is two pages
pytestmark = pytest.mark.compiler


@pytest.fixture(scope="module")
def harness() -> ctypes.CDLL:
    runner = open_device("cpu").runner
    assert isinstance(runner, CpuRunner)
    return runner.harness


def ends_with(harness: ctypes.CDLL, work: Callable[[], None]) -> int:
    """The signal that a child which handles faults ends with."""
    pid = os.fork()
    if pid == 0:
        try:
            harness.ks_report_faults(os.open(os.devnull, os.O_WRONLY))
            work()
        finally:
            os._exit(0)
    return os.waitpid(pid, 0)[1]


def kept(n_rows: int) -> CpuArray:
    array = CpuArray((n_rows, ROW), np.dtype(np.float64), border=N_KEPT)
    array.upload(np.zeros((n_rows, ROW)))
    array.keep(N_KEPT)
    return array


def test_threads_may_meet_such_pages_at_once(harness: ctypes.CDLL) -> None:
    n_rows = 400

    def work() -> None:
        array = kept(n_rows)
        ends = [array.span[0] + k * ROW * 8 - 8 for k in range(1, n_rows)]
        write, both = ctypes.CDLL(None).memset, threading.Barrier(2)

        def every_second(first: int) -> None:
            both.wait()
            for address in ends[first::2]:
                write(ctypes.c_void_p(address), 1, 8)

        for _ in range(10):
            array.upload(np.zeros((n_rows, ROW)))
            array.keep(N_KEPT)
            threads = [threading.Thread(target=every_second, args=(k,)) for k in range(2)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()

    assert ends_with(harness, work) == 0


def test_who_gets_their_addresses_next_is_protected(harness: ctypes.CDLL) -> None:
    def work() -> None:
        array = kept(2)
        end = array.span[0] + ROW * 8 - 8
        del array
        other = CpuArray((2, ROW), np.dtype(np.float64), border=N_KEPT)
        other.freeze()
        first, behind = other.span
        if not first <= end < behind:
            os.kill(os.getpid(), signal.SIGKILL)  # they are others
        ctypes.memset(end, 1, 8)

    assert ends_with(harness, work) == signal.SIGSEGV


def test_of_more_pages_than_are_known_only_whole_ones_are_protected(harness: ctypes.CDLL) -> None:
    def work() -> None:
        array = kept(1100)
        for k in range(1, 1100):
            ctypes.memset(array.span[0] + k * ROW * 8 - 8, 1, 8)

    assert ends_with(harness, work) == 0
