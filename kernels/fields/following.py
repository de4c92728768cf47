"""Interface of executors that defer calls of a program, until code is compiled or a sequence is whole."""

from __future__ import annotations

from typing import Protocol

from .accessed_memory import HostAccess


class AbstractFollower(Protocol):
    """Executor of a program's calls as fields use it.

    `waits`: it holds deferred calls. `ks.init` creates it.
    """

    @property
    def waits(self) -> bool: ...

    def outdate(self) -> None:
        """Drops the sequence that ran last: its fields may be freed, or shared with other libraries."""

    def release(self) -> None:
        """Runs the deferred calls in order."""

    def release_for(self, access: HostAccess) -> None:
        """Runs deferred calls in order, until `access` conflicts with none that is left."""

    def end(self) -> None:
        """Completes the deferred calls at the end of the program.

        It warns of explored sequences that never occurred.
        """
