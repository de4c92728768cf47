"""Interface of executors that defer calls of a program, until code is compiled or a sequence is whole."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

from .accessed_memory import HostAccess
from .device_memory import DeviceMemory


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

    def lend(self, array: NDArray[Any]) -> DeviceMemory | None:
        """Returns the device memory of a field's array, for other libraries; None if it is in the host's memory."""

    def publish(self) -> None:
        """Copies what Python has written to the device memory that other libraries have."""

    def end(self) -> None:
        """Completes the deferred calls at the end of the program.

        It warns of explored sequences that never occurred.
        """
