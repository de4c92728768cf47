"""Successors of a window: those that ran behind it of late."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

W = TypeVar("W")

_MOST = 4


class Successors(Generic[W]):
    """The windows that ran behind a window, the last one first; at most 4."""

    def __init__(self) -> None:
        self._found: list[W] = []
        self.last: W | None = None  # the window that ran behind it when it ran last

    def note(self, ran: W) -> None:
        """Adds the window that ran behind it just now."""
        if self.last is not ran:
            others = [x for x in self._found if x is not ran]
            self._found = [ran, *others][:_MOST]
            self.last = ran

    def __iter__(self) -> Iterator[W]:
        return iter(self._found)
