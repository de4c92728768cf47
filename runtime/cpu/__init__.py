"""The CPU backend: builds with the system's C compiler, runs a team of threads, calls through ctypes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..api.backend import AbstractDevice
    from ..device import DeviceOptions


def open_backend(options: DeviceOptions) -> AbstractDevice:
    """Returns the device of this machine's CPU. Raises DeviceError if no C compiler is found."""
    from .device import CpuDevice

    return CpuDevice(options)
