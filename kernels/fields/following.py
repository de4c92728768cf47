"""Interface of executors that defer calls of a program, until code is compiled or a sequence is whole."""

from __future__ import annotations

from typing import Protocol


class AbstractFollower(Protocol):
    """Executor of a program's calls as fields use it.

    `waits`: it holds deferred calls. `ks.init` creates it.
    """

    @property
    def waits(self) -> bool: ...

    def outdate(self) -> None:
        """Drops the sequence that ran last: its fields may be freed, or shared with other libraries."""

    def release(self) -> None:
        """Runs the deferred calls in order, before fields are read or written."""

    def end(self) -> None:
        """Completes the deferred calls at the end of the program.

        It warns of explored sequences that never occurred.
        """
