"""Notification of numba compilation. Listeners register without loading numba, also before it is loaded."""

from __future__ import annotations

from collections.abc import Callable

_listeners: list[Callable[[], None]] = []


def tell_when_compiling(tell: Callable[[], None]) -> None:
    """Calls `tell` once, before this process compiles the first function that is missing in the cache."""
    if tell not in _listeners:
        _listeners.append(tell)


def announce_compiling() -> None:
    """Calls all listeners. `jit.py` calls it once per process."""
    for tell in _listeners:
        tell()
