"""Arrays of a program in device memory: copied there before a kernel uses them, and back where Python reads them."""

from __future__ import annotations

import typing
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ...kernels.fields.accessed_memory import region
from ...kernels.fields.device_memory import DeviceMemory
from ..api.backend import AbstractArray, AbstractRunner, RunError
from ..api.outcome import Failure

Array = NDArray[Any]
_Key = tuple[int, tuple[int, ...], tuple[int, ...], str]


class AbstractSection(typing.Protocol):
    """An array of a sparse tree, whose rows fill up from the front while cells become active."""

    @property
    def counters(self) -> Any:
        """The array of the tree that `n_used` reads."""

    def n_used(self) -> int:
        """Returns how many elements of each row are in use."""


@dataclass(frozen=True)
class Part:
    """Part of an array of a sparse tree that a kernel may access: the first `n_first` elements of each row.

    `n_wanted`: a larger part, for later kernels, which gets memory where there is room.
    """

    section: AbstractSection
    n_first: int
    n_wanted: int


@dataclass(eq=False)
class _Copy:
    """A host array with its copy on the device.

    `region`: allocation of the host array. `is_valid`: the device copy is up to date. `is_newer`: the host's contents are outdated.
    `lent`: the device memory as other libraries have it. `section`: of a sparse tree, whose array it is, if it is one. Then
    `n_held` elements of each row have memory on the device, and `n_copied` were ever copied: one of both sides may have set them
    to zero since.
    """

    host: Array
    device: AbstractArray
    region: int
    section: AbstractSection | None = None
    n_held: int = 0
    n_copied: int = 0
    is_valid: bool = False
    is_newer: bool = False
    lent: weakref.ref[DeviceMemory] | None = None

    @property
    def is_lent(self) -> bool:
        """True if other libraries use the device memory: they may write to it at any time."""
        return self.lent is not None and self.lent() is not None

    def validate(self) -> None:
        """Copies the host's contents to the device, if they are newer there."""
        if not self.is_valid:
            if self.section is None:
                self.device.upload(self.host)
            else:
                self.device.upload_first(self.host, self._n_moved(self.section))
            self.is_valid = True
            self.is_newer = self.is_lent

    def download(self) -> None:
        """Copies the contents to the host, if they are newer on the device; of a tree, after its counters."""
        if self.is_newer:
            if self.section is None:
                self.host[...] = self.device.download()
            else:
                self.device.download_first(self.host, self._n_moved(self.section))
            self.is_newer = self.is_lent

    def hand_to_host(self) -> None:
        """Copies the contents to the host, which may then change them."""
        self.download()
        self.is_valid = self.is_newer = False

    def hold(self, part: Part) -> None:
        """Gives memory to a part of the device's array. Raises MemoryError."""
        if part.n_first <= self.n_held:
            return
        try:
            self.device.hold(part.n_wanted)
            self.n_held = part.n_wanted
        except MemoryError:
            self.device.hold(part.n_first)
            self.n_held = part.n_first

    @property
    def n_bytes(self) -> int:
        """Bytes of the device's memory that the copy takes."""
        return self.host.nbytes if self.section is None else self.host[..., : self.n_held].nbytes

    def _n_moved(self, section: AbstractSection) -> int:
        self.n_copied = max(self.n_copied, min(section.n_used(), self.n_held))
        return self.n_copied


class DeviceArrays:
    """Device copies of host arrays, each created when a kernel first uses the array.

    What Python reads is copied to the host, and what it may write is uploaded again before the next kernel that uses it.
    """

    def __init__(self, runner: AbstractRunner) -> None:
        self._runner = runner
        self._copies: dict[_Key, _Copy] = {}

    @property
    def are_used(self) -> bool:
        """True if any device copy is valid: the host may be outdated, or must not be changed unnoticed."""
        return any(c.is_valid for c in self._copies.values())

    def on_device(
        self, array: Array, *, is_written: bool, part: Part | None = None
    ) -> AbstractArray:
        """Returns the up-to-date device copy of an array; `is_written`: the next kernel writes to it.

        `part`: of an array of a sparse tree, what the next kernel may access. Raises RunError if the device has no room for it.
        """
        return self._valid(array, is_written=is_written, part=part).device

    def is_newer(self, array: Array) -> bool:
        """True if the contents of an array are newer on the device."""
        copy = self._copies.get(_key(array))
        return copy is not None and copy.is_newer

    def n_held(self, array: Array) -> int | None:
        """Returns how many elements of each row of a tree's array have memory on the device; None if it is not there."""
        copy = self._copies.get(_key(array))
        return None if copy is None else copy.n_held

    def read(self, arrays: Iterable[Array]) -> None:
        """Copies the contents of these arrays to the host."""
        copies = [self._copies.get(_key(a)) for a in arrays]
        for copy in copies:
            if copy is not None:
                copy.download()

    def lend(self, array: Array) -> DeviceMemory | None:
        """Returns the device memory of an array for other libraries; None if they cannot use memory of the device.

        While they have it the array stays there, and each read of the host copies it. Raises RunError like `on_device`.
        """
        copy = self._valid(array, is_written=True)
        if copy.device.lendable is None:
            return None
        memory = None if copy.lent is None else copy.lent()
        if memory is None:
            memory = DeviceMemory(*copy.device.lendable, owner=copy.device)
            copy.lent = weakref.ref(memory)
        return memory

    def to_host(self) -> None:
        """Copies to the host all contents that are newer on the device; the host may then change them."""
        self._read_counters(self._copies.values())
        for copy in self._copies.values():
            copy.hand_to_host()

    def refresh(self, regions: frozenset[int], *, writes: bool) -> None:
        """Copies to the host the contents of arrays in these allocations; `writes`: the host may then change them."""
        copies = [c for c in self._copies.values() if c.region in regions]
        self._read_counters(copies)
        for copy in copies:
            copy.download()
            if writes:
                copy.hand_to_host()

    def take_back(self, arrays: Iterable[Array]) -> None:
        """Copies the contents of these arrays to the host, and frees their device memory unless it is lent."""
        copies = [c for a in arrays if (c := self._copies.get(_key(a))) is not None]
        self._read_counters(copies)
        for copy in copies:
            if not copy.is_lent:
                copy.hand_to_host()
                self._copies.pop(_key(copy.host), None)  # an array may be given twice

    def take_all_back(self) -> None:
        """Copies all contents to the host, and frees all device memory that is not lent."""
        self.take_back([c.host for c in self._copies.values()])

    def publish(self) -> None:
        """Copies what the host may have changed to the memory that other libraries have."""
        for copy in self._copies.values():
            if copy.is_lent:
                copy.validate()

    def clear(self) -> None:
        """Frees all device memory without copying contents back."""
        self._copies.clear()

    def _valid(self, array: Array, *, is_written: bool, part: Part | None = None) -> _Copy:
        copy = self._copies.get(_key(array))
        try:
            if copy is None:
                self._hand_over_overlapping(array)
                copy = self._copies[_key(array)] = self._new(array, part)
            if part is not None:
                copy.hold(part)
        except MemoryError as e:
            n_bytes = sum(c.n_bytes for c in self._copies.values())
            wanted = array.nbytes if part is None else array[..., : part.n_first].nbytes
            advice = f"there is no room for an array of {wanted:,} bytes beside {n_bytes:,} of others: {e}"
            raise RunError(Failure("memory", advice)) from e
        copy.validate()
        copy.is_newer |= is_written
        return copy

    def _new(self, array: Array, part: Part | None) -> _Copy:
        if part is None:
            return _Copy(array, self._runner.allocate(array.shape, array.dtype), region(array))
        device = self._runner.allocate(array.shape, array.dtype, grows=True)
        return _Copy(array, device, region(array), part.section)

    def _read_counters(self, copies: Iterable[_Copy]) -> None:
        """Copies to the host the counters of the trees of some copies, which say how much of these is in use."""
        self.read([c.section.counters for c in copies if c.section is not None and c.is_newer])

    def _hand_over_overlapping(self, array: Array) -> None:
        for copy in [c for c in self._copies.values() if _meet(c.host, array)]:
            copy.hand_to_host()
            self.take_back((copy.host,))


def _key(array: Array) -> _Key:
    return array.ctypes.data, array.shape, array.strides, array.dtype.str


def _meet(a: Array, b: Array) -> bool:
    """True if two contiguous arrays overlap in memory."""
    begin, other = a.ctypes.data, b.ctypes.data
    return begin < other + b.nbytes and other < begin + a.nbytes
