"""Rotation of a window that follows itself: it begins some calls later, where loops of two runs join."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

W = TypeVar("W")


@dataclass(eq=False)
class Rotation(Generic[W]):
    """The first calls of a window (`prologue`), and the window that begins behind them (`rotated`).

    `n_whole`: runs of `rotated`. `n_cut`: how often Python needed values, or other calls came, before it was whole.
    """

    prologue: W
    rotated: W
    n_whole: int = 0
    n_cut: int = 0

    @property
    def pays(self) -> bool:
        """True unless the rotated window is cut more often than it is whole: each cut makes a window more."""
        return self.n_cut <= self.n_whole

    def holds(self, ran: object) -> bool:
        return ran is self.prologue or ran is self.rotated
