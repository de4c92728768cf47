"""Asynchronous interruption of Python blocks: a watcher thread raises an exception in the thread of the block."""

from __future__ import annotations

import _thread
import ctypes
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import CO_GENERATOR
from types import FrameType

_LOOK_S = 0.05
_STEP_S = 2e-4  # while the watcher ends
_AGAIN_S = 1.0  # an exception raised inside a finaliser is lost, so it is raised again
_resorts: list[Callable[[], None]] = []


@contextmanager
def last_resort(end: Callable[[], None]) -> Iterator[None]:
    """Context manager: registers `end`, which another thread calls if the block still runs 1 s after its interruption."""
    _resorts.append(end)
    try:
        yield
    finally:
        _resorts.remove(end)


@contextmanager
def stopped_when(is_over: Callable[[], bool]) -> Iterator[None]:
    """Context manager: raises Stopped in this block once `is_over` is true, between two Python instructions."""
    from .forked import Stopped  # which loads NumPy: a last resort does without

    thread, ended, is_left = threading.get_ident(), list[bool](), False
    frame = _frame_of_block()
    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    inside = threading.Lock()  # held until the block is left
    inside.acquire()

    def watch() -> None:
        wait_s = _LOOK_S
        try:
            while not inside.acquire(timeout=wait_s) and not is_left:
                if is_over() and _is_running(frame, thread):
                    raise_in(ctypes.c_ulong(thread), ctypes.py_object(Stopped))
                    if wait_s == _AGAIN_S:
                        for end in _resorts:
                            end()
                    wait_s = _AGAIN_S
        finally:
            ended.append(True)

    def wait() -> None:
        """Waits until the watcher thread has ended; a pending exception is raised here."""
        if inside.locked():
            inside.release()
        while not ended:
            time.sleep(_STEP_S)
        time.sleep(0.0)

    try:
        try:
            _thread.start_new_thread(
                watch, ()
            )  # one step: an exception in `Thread.start` would leave the watcher behind
        except (RuntimeError, MemoryError):  # no more threads
            ended.append(True)
            raise
        yield
    finally:
        # Exceptions that come too late are dropped: one that was raised before, and one of a watcher that had looked before. Two
        # ways are closed: to cancel one, since CPython 3.11 then looks for it at each call for ever, and calls that a debugger or a
        # coverage tool traces never return; and to join the watcher or set an Event, whose locks stay held where one comes in the
        # middle.
        is_left = True
        try:
            try:
                wait()
            except Stopped:
                wait()
        except Stopped:
            wait()


def _frame_of_block() -> FrameType | None:
    """Returns the frame that entered a `with` block: the first caller that is no context manager."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and (
        frame.f_code.co_flags & CO_GENERATOR or frame.f_globals.get("__name__") == "contextlib"
    ):
        frame = frame.f_back
    return frame


def _is_running(frame: FrameType | None, thread: int) -> bool:
    """True if a frame is on the stack of a thread.

    A signal at the first instruction of `__exit__` leaves the block, but the context manager is not resumed as long as something
    references its traceback.
    """
    at = sys._current_frames().get(thread)
    while at is not None and at is not frame:
        at = at.f_back
    return at is not None
