"""Arrays of a program in device memory: copied there before a kernel uses them, and back where Python reads them."""

from __future__ import annotations

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


@dataclass(eq=False)
class _Copy:
    """A host array with its copy on the device.

    `region`: allocation of the host array. `is_valid`: the device copy is up to date. `is_newer`: the host's contents are outdated.
    `lent`: the device memory as other libraries have it.
    """

    host: Array
    device: AbstractArray
    region: int
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
            self.device.upload(self.host)
            self.is_valid = True
            self.is_newer = self.is_lent

    def download(self) -> None:
        """Copies the contents to the host, if they are newer on the device."""
        if self.is_newer:
            self.host[...] = self.device.download()
            self.is_newer = self.is_lent

    def hand_to_host(self) -> None:
        """Copies the contents to the host, which may then change them."""
        self.download()
        self.is_valid = self.is_newer = False


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

    def on_device(self, array: Array, *, is_written: bool) -> AbstractArray:
        """Returns the up-to-date device copy of an array; `is_written`: the next kernel writes to it.

        Raises RunError if the device has no room for it.
        """
        return self._valid(array, is_written=is_written).device

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
        for copy in self._copies.values():
            copy.hand_to_host()

    def refresh(self, regions: frozenset[int], *, writes: bool) -> None:
        """Copies to the host the contents of arrays in these allocations; `writes`: the host may then change them."""
        for copy in self._copies.values():
            if copy.region in regions:
                copy.download()
                if writes:
                    copy.hand_to_host()

    def take_back(self, arrays: Iterable[Array]) -> None:
        """Copies the contents of these arrays to the host, and frees their device memory unless it is lent."""
        for array in arrays:
            copy = self._copies.get(_key(array))
            if copy is not None and not copy.is_lent:
                copy.hand_to_host()
                del self._copies[_key(array)]

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

    def _valid(self, array: Array, *, is_written: bool) -> _Copy:
        copy = self._copies.get(_key(array))
        if copy is None:
            self._hand_over_overlapping(array)
            copy = self._copies[_key(array)] = _Copy(array, self._new(array), region(array))
        copy.validate()
        copy.is_newer |= is_written
        return copy

    def _new(self, array: Array) -> AbstractArray:
        try:
            return self._runner.allocate(array.shape, array.dtype)
        except MemoryError as e:
            n_bytes = sum(c.host.nbytes for c in self._copies.values())
            advice = f"there is no room for an array of {array.nbytes:,} bytes beside {n_bytes:,} of others: {e}"
            raise RunError(Failure("memory", advice)) from e

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
