"""Backstop of a command: ends the process if a call into C does not return.

During such a call Python processes neither signals nor timers. A kernel that never ends may be called while a user's file is
loaded, or makes its arguments. The search itself makes no such calls.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from ..runtime.cutting import last_resort
from .exits import Exit
from .speaking import say

PATIENCE_S = 1.5  # that such a call is given
_POLL_S = 0.005
_ENDS = {signal.SIGINT: Exit.INTERRUPTED, signal.SIGTERM: Exit.TERMINATED}


@contextmanager
def backstop() -> Iterator[None]:
    """Context manager: a signal or a time limit ends the process if a call into C blocks the main thread.

    No effect in other threads.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    before = signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    watcher = threading.Thread(target=_watch, args=(read_fd,), name="backstop", daemon=True)
    watcher.start()
    try:
        with last_resort(_end_late):
            yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(write_fd)
        watcher.join()
        os.close(read_fd)


def _watch(fd: int) -> None:
    while numbers := os.read(fd, 64):
        for number, code in _ENDS.items():
            if number in numbers and not _comes_back(PATIENCE_S):
                _end("stopped in the middle of a call that does not come back", code)


def _end_late() -> None:
    if not _comes_back(PATIENCE_S):
        _end(
            "the time limit passed in the middle of a call that does not come back: nothing was measured",
            Exit.NOTHING_VALID,
        )


def _comes_back(patience_s: float) -> bool:
    """True if the main thread executes Python code within `patience_s` seconds.

    What it is asked to do is a function of C: in one of Python it would handle signals, and their exceptions would be lost.
    """
    asked = {None}
    _ASKED.append(asked)  # the main thread may clear it at any time
    ctypes.pythonapi.Py_AddPendingCall(ctypes.pythonapi.PySet_Clear, ctypes.py_object(asked))
    late = time.monotonic() + patience_s
    while asked and time.monotonic() < late:
        time.sleep(_POLL_S)
    return not asked


_ASKED: list[set[None]] = []


def _end(sentence: str, code: Exit) -> NoReturn:
    from ..runtime.cpu.compiler import end_compilers

    with suppress(OSError, ValueError):
        say(f"explore: {sentence}", err=True)
    end_compilers()  # other children see that this process is gone
    os._exit(code)
