"""Arrays of a program in the memory of a device: copied there before a kernel uses them, and back before Python does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ..api.backend import AbstractArray, AbstractRunner

Array = NDArray[Any]


@dataclass(eq=False)
class _Copy:
    """An array with its memory on the device. `is_valid`: the device has the contents; `is_newer`: the host lacks them."""

    host: Array
    device: AbstractArray
    is_valid: bool = False
    is_newer: bool = False

    def is_of(self, array: Array) -> bool:
        own = self.host
        same = own.shape == array.shape and own.dtype == array.dtype
        return same and own.ctypes.data == array.ctypes.data and own.strides == array.strides


class DeviceArrays:
    """Copies of arrays of the host, each made at the first use by a kernel.

    Python may change an array whenever the host is up to date, so all are uploaded again after `to_host`.
    """

    def __init__(self, runner: AbstractRunner) -> None:
        self._runner = runner
        self._copies: dict[int, _Copy] = {}  # by the address on the host

    @property
    def are_used(self) -> bool:
        """True if the device has contents that the host lacks, or that Python must not change unnoticed."""
        return any(c.is_valid for c in self._copies.values())

    def on_device(self, array: Array, *, is_written: bool) -> AbstractArray:
        """Returns the copy of an array with its contents. The next kernel writes to it if `is_written`. Raises MemoryError."""
        copy = self._copies.get(array.ctypes.data)
        if copy is None or not copy.is_of(array):
            self._forget_overlapping(array)
            device = self._runner.allocate(array.shape, array.dtype)
            copy = self._copies[array.ctypes.data] = _Copy(array, device)
        if not copy.is_valid:
            copy.device.upload(array)
            copy.is_valid = True
        copy.is_newer |= is_written
        return copy.device

    def to_host(self) -> None:
        """Copies all newer contents to the host."""
        for copy in self._copies.values():
            self._download(copy)

    def take_back(self, arrays: Iterable[Array]) -> None:
        """Copies the contents of arrays to the host, and drops their memory on the device."""
        for array in arrays:
            copy = self._copies.pop(array.ctypes.data, None)
            if copy is not None:
                self._download(copy)

    def clear(self) -> None:
        """Frees all memory on the device, with its contents."""
        self._copies.clear()

    def _forget_overlapping(self, array: Array) -> None:
        self.take_back([c.host for c in self._copies.values() if _meet(c.host, array)])

    @staticmethod
    def _download(copy: _Copy) -> None:
        if copy.is_newer:
            copy.host[...] = copy.device.download()
        copy.is_valid = copy.is_newer = False


def _meet(a: Array, b: Array) -> bool:
    """True if two contiguous arrays share memory."""
    begin, other = a.ctypes.data, b.ctypes.data
    return begin < other + b.nbytes and other < begin + a.nbytes
