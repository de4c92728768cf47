"""Python's accesses to fields: deferred kernels run before them, and recorded sequences note them."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from .accessed_memory import AbstractMemory, HostAccess, allocation, region
from .caller_location import fail
from .device_memory import DeviceMemory
from .following import AbstractFollower


class AbstractHostKernels(ABC):
    """Operations of Python on whole fields, made as calls of kernels so that they can be recorded or deferred.

    Each method returns False if it made no call; Python then does the operation itself.
    """

    @abstractmethod
    def fill(self, field: Any, value: Any) -> bool:
        """Calls a kernel that sets each active element to `value`; False if it made no call."""

    @abstractmethod
    def copy(self, field: Any, other: Any) -> bool:
        """Calls a kernel that copies the elements of `other` to `field`; False if it made no call."""

    @abstractmethod
    def take(self, field: Any, array: Any) -> bool:
        """Calls a kernel that sets the active elements from an array of the sequence; False if it made no call."""

    @abstractmethod
    def deactivate_all(self, node: Any) -> bool:
        """Calls a kernel that makes all cells of a sparse node inactive; False if it made no call."""


class AbstractRecording(AbstractHostKernels):
    """Sequence that is being recorded, as fields use it."""

    @property
    @abstractmethod
    def has_calls(self) -> bool:
        """True once a kernel call is recorded."""

    @abstractmethod
    def note_write(self, label: str, arrays: Iterable[NDArray[Any]]) -> None:
        """Notes that Python writes to these arrays: a replay of the recording would not repeat the write."""


_recording: ContextVar[AbstractRecording | None] = ContextVar("recording", default=None)


def host_kernels() -> AbstractHostKernels | None:
    """Returns the kernels for operations on whole fields: while a sequence is recorded, or the program defers calls.

    None otherwise.
    """
    return _recording.get() or _host_kernels


def record_into(made: AbstractRecording) -> Callable[[], None]:
    """Makes `made` the sequence that is being recorded. Returns a function that restores the previous one."""
    token = _recording.set(made)
    return lambda: _recording.reset(token)


@dataclass(frozen=True)
class _SharedMemory:
    """Memory that Python has an array or an address of: its label, and the allocation while it exists."""

    label: str
    found: weakref.ref[NDArray[Any]]

    def arrays(self) -> tuple[NDArray[Any], ...]:
        found = self.found()
        return () if found is None else (found,)


_shared: dict[int, _SharedMemory] = {}  # by region
_follower: AbstractFollower | None = None
_host_kernels: AbstractHostKernels | None = None


def defer_by(follower: AbstractFollower | None, kernels: AbstractHostKernels | None) -> None:
    """Makes `follower` the executor that defers calls of the current program.

    `kernels`: its kernels for operations on whole fields.
    """
    global _follower, _host_kernels
    _follower, _host_kernels = follower, kernels


def settle() -> None:
    """Runs the deferred kernels, if there are any."""
    if _follower is not None and _follower.waits:
        _follower.release()


def publish() -> None:
    """Copies what Python has written to the device memory that other libraries have."""
    if _follower is not None:
        _follower.publish()


def lent_memory(memory: AbstractMemory, array: NDArray[Any]) -> DeviceMemory | None:
    """Returns the device memory of a field's array, for other libraries; None if it is in the host's memory.

    LanguageError in a recorded sequence after its first call.
    """
    _refuse_in_sequence(memory, "uses")
    return None if _follower is None else _follower.lend(array)


def settle_for(memory: AbstractMemory, *, writes: bool = False) -> None:
    """Runs deferred kernels, in order, until none is left that writes `memory`; with `writes` none that reads it either."""
    if _follower is not None and _follower.waits:
        _follower.release_for(HostAccess(memory, writes))
        settle_shared()


def settle_shared() -> None:
    """Runs deferred kernels, in order, until none is left that uses memory that others can read and write at any time.

    Each access of Python's does so, since Python may use an array that it has kept beside what it names.
    """
    if _follower is not None and _follower.waits:
        for memory in list(_shared.values()):
            _follower.release_for(HostAccess(memory, True))


def settle_for_reading(memory: AbstractMemory) -> None:
    """Runs the deferred kernels that write `memory`, before Python reads it.

    LanguageError in a recorded sequence after its first call.
    """
    _refuse_in_sequence(memory, "reads")
    settle_for(memory)


def settle_for_writing(memory: AbstractMemory) -> None:
    """Runs the deferred kernels that use `memory`, before Python writes to it.

    A sequence that is being recorded notes the write. LanguageError after its first call.
    """
    _refuse_in_sequence(memory, "writes")
    settle_for(memory, writes=True)
    found = _recording.get()
    if found is not None:
        found.note_write(memory.label, memory.arrays())


def settle_for_sharing(memory: AbstractMemory) -> None:
    """Runs the deferred kernels that use `memory`, before others can read and write it at any time.

    LanguageError in a recorded sequence after its first call.
    """
    _refuse_in_sequence(memory, "uses")
    settle_for(memory, writes=True)
    for gone in [x for x, shared in _shared.items() if not shared.arrays()]:
        del _shared[gone]
    for array in memory.arrays():
        _shared.setdefault(
            region(array), _SharedMemory(memory.label, weakref.ref(allocation(array)))
        )


def _refuse_in_sequence(memory: AbstractMemory, verb: str) -> None:
    found = _recording.get()
    if found is not None and found.has_calls:
        fail(
            f"a sequence only calls kernels, but Python {verb} {memory.label} after the first call: do that before, or in a "
            "kernel; a loop that ends by a value is ks.repeat(n, until=...)"
        )
