"""Notification that numba compiles. Listeners can register before numba is imported, and do not import it."""

from __future__ import annotations

from collections.abc import Callable

_listeners: list[Callable[[], None]] = []


def tell_when_compiling(tell: Callable[[], None]) -> None:
    """Registers `tell`, which is called once, before this process compiles its first uncached function."""
    if tell not in _listeners:
        _listeners.append(tell)


def announce_compiling() -> None:
    """Calls all listeners. `jit.py` calls it once per process."""
    for tell in _listeners:
        tell()
