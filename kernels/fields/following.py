"""Calls of a program that are held back while they may turn out to be a sequence that was explored."""

from __future__ import annotations

from typing import Protocol


class AbstractFollower(Protocol):
    """What fields know of it: `waits` says whether calls are held back. Made by `ks.init(decisions=...)`."""

    waits: bool

    def outdate(self) -> None:
        """Forgets the sequence that ran last: its fields may be gone, or seen by others."""

    def release(self) -> None:
        """Runs the calls that wait, one kernel after the other: somebody looks at the fields."""

    def end(self) -> None:
        """The program ends: runs the calls that wait, and warns of sequences that were never met."""
