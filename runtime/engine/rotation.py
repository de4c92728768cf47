"""Rotation of a window that follows itself: it begins some calls later, where loops of two runs join."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

W = TypeVar("W")

_MOST_CREDIT = 8


@dataclass(eq=False)
class Rotation(Generic[W]):
    """The first calls of a window (`prologue`), and the window that begins behind them (`rotated`).

    `credit`: runs of `rotated`, at most 8, minus how often Python needed values, or other calls came, before it was whole.
    """

    prologue: W
    rotated: W
    credit: int = 0

    @property
    def pays(self) -> bool:
        """True unless the rotated window is cut more often than it is whole of late: each cut makes a window more."""
        return self.credit >= 0

    def note(self, *, is_whole: bool) -> None:
        """Counts a run of `rotated`, or a cut before it was whole."""
        self.credit = min(self.credit + 1, _MOST_CREDIT) if is_whole else self.credit - 1

    def holds(self, ran: object) -> bool:
        return ran is self.prologue or ran is self.rotated
