"""Blocks of Python that are left once it is time, wherever they are."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LOOK_S = 0.05
_AGAIN_S = 1.0  # what is raised in the middle of a finaliser is lost: it is raised again
_resorts: list[Callable[[], None]] = []


@contextmanager
def last_resort(end: Callable[[], None]) -> Iterator[None]:
    """Within this block `end` is called, in another thread, where a block that is to be left was not left a second later."""
    _resorts.append(end)
    try:
        yield
    finally:
        _resorts.remove(end)


@contextmanager
def stopped_when(is_over: Callable[[], bool]) -> Iterator[None]:
    """Raises Stopped within the block, in this thread and between two steps of Python, once `is_over`."""
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
