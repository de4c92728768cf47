"""Announcement that numba compiles. Whoever is to be told can say so before numba is loaded, and without loading it."""

from __future__ import annotations

from collections.abc import Callable

_listeners: list[Callable[[], None]] = []


def tell_when_compiling(tell: Callable[[], None]) -> None:
    """Call `tell` once, before this process compiles the first function that no earlier one has left in the cache."""
    if tell not in _listeners:
        _listeners.append(tell)


def announce_compiling() -> None:
    """Tells all listeners; called by `jit.py`, once a process."""
    for tell in _listeners:
        tell()
