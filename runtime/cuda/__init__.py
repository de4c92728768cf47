"""The CUDA backend: NVRTC compiles, PyCUDA loads, runs and times."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..device import AbstractDevice, DeviceOptions


def open_backend(options: DeviceOptions) -> AbstractDevice:
    """The first GPU, or, where there is none, a device that builds for the architecture of a data sheet.

    Raises DeviceError when there is no such data sheet.
    """
    from .device import CudaDevice

    return CudaDevice(options)
