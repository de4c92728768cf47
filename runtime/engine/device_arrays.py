"""Arrays of a program in device memory: copied there before a kernel uses them, and back before Python does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ..api.backend import AbstractArray, AbstractRunner

Array = NDArray[Any]


@dataclass(eq=False)
class _Copy:
    """A host array with its copy on the device.

    `is_valid`: the device copy is up to date. `is_newer`: the host's contents are outdated.
    """

    host: Array
    device: AbstractArray
    is_valid: bool = False
    is_newer: bool = False

    def is_of(self, array: Array) -> bool:
        own = self.host
        same = own.shape == array.shape and own.dtype == array.dtype
        return same and own.ctypes.data == array.ctypes.data and own.strides == array.strides


class DeviceArrays:
    """Device copies of host arrays, each created when a kernel first uses the array.

    Python may change an array while the host is up to date, so all are uploaded again after `to_host`.
    """

    def __init__(self, runner: AbstractRunner) -> None:
        self._runner = runner
        self._copies: dict[int, _Copy] = {}  # by the address on the host

    @property
    def are_used(self) -> bool:
        """True if any device copy is valid: the host may be outdated, or must not be changed unnoticed."""
        return any(c.is_valid for c in self._copies.values())

    def on_device(self, array: Array, *, is_written: bool) -> AbstractArray:
        """Returns the up-to-date device copy of an array; `is_written`: the next kernel writes to it.

        Raises MemoryError.
        """
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
        """Copies to the host all contents that are newer on the device, and marks device copies as outdated."""
        for copy in self._copies.values():
            self._download(copy)

    def take_back(self, arrays: Iterable[Array]) -> None:
        """Copies the contents of these arrays to the host, and frees their device memory."""
        for array in arrays:
            copy = self._copies.pop(array.ctypes.data, None)
            if copy is not None:
                self._download(copy)

    def clear(self) -> None:
        """Frees all device memory without copying contents back."""
        self._copies.clear()

    def _forget_overlapping(self, array: Array) -> None:
        self.take_back([c.host for c in self._copies.values() if _meet(c.host, array)])

    @staticmethod
    def _download(copy: _Copy) -> None:
        if copy.is_newer:
            copy.host[...] = copy.device.download()
        copy.is_valid = copy.is_newer = False


def _meet(a: Array, b: Array) -> bool:
    """True if two contiguous arrays overlap in memory."""
    begin, other = a.ctypes.data, b.ctypes.data
    return begin < other + b.nbytes and other < begin + a.nbytes
