"""Interface of executors that defer calls of a program: while they are compiled, or may form an explored sequence."""

from __future__ import annotations

from typing import Protocol


class AbstractFollower(Protocol):
    """The executor of a program as fields see it: `waits` is true while calls are deferred. Made by `ks.init`."""

    @property
    def waits(self) -> bool: ...

    def outdate(self) -> None:
        """Drops the sequence that ran last: its fields may be gone, or visible to others."""

    def release(self) -> None:
        """Runs the deferred calls, one kernel after the other, before the fields are read or written."""

    def end(self) -> None:
        """Completes the deferred calls at the end of the program, and warns of sequences that never occurred."""
