"""Asynchronous interruption of Python blocks: a watcher thread raises an exception in them."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LOOK_S = 0.05
_AGAIN_S = 1.0  # an exception raised inside a finaliser is lost, so it is raised again
_resorts: list[Callable[[], None]] = []


@contextmanager
def last_resort(end: Callable[[], None]) -> Iterator[None]:
    """Registers `end` for this block. Another thread calls it if an interrupted block is still running a second later."""
    _resorts.append(end)
    try:
        yield
    finally:
        _resorts.remove(end)


@contextmanager
def stopped_when(is_over: Callable[[], bool]) -> Iterator[None]:
    """Raises Stopped in this block once `is_over`: in this thread, between two steps of Python."""
    from .forked import Stopped  # which loads NumPy: a last resort does without

    thread, is_left = ctypes.c_ulong(threading.get_ident()), threading.Event()
    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc

    def watch() -> None:
        wait_s = _LOOK_S
        while not is_left.wait(wait_s):
            if is_over():
                raise_in(thread, ctypes.py_object(Stopped))
                if wait_s == _AGAIN_S:
                    for end in _resorts:
                        end()
                wait_s = _AGAIN_S

    watcher = threading.Thread(target=watch, name="cutting", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_left.set()
        watcher.join()
        raise_in(thread, None)  # what comes too late
