"""Interface of plan replay, which defers calls of a program while they may form an explored sequence."""

from __future__ import annotations

from typing import Protocol


class AbstractFollower(Protocol):
    """The plan replay as fields see it: `waits` is true while calls are deferred. Made by `ks.init(decisions=...)`."""

    waits: bool

    def outdate(self) -> None:
        """Drops the sequence that ran last: its fields may be gone, or visible to others."""

    def release(self) -> None:
        """Runs the deferred calls, one kernel after the other, before the fields are read or written."""

    def end(self) -> None:
        """Runs the deferred calls at the end of the program, and warns of sequences that never occurred."""
