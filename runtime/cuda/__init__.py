"""The CUDA backend: NVRTC compiles, PyCUDA loads, launches and times."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..api.backend import AbstractDevice
    from ..device import DeviceOptions, Requirement


def open_backend(options: DeviceOptions) -> AbstractDevice:
    """Returns the first GPU; without a GPU, a device that builds for the architecture of a data sheet.

    Raises DeviceError if there is no such data sheet.
    """
    from .device import CudaDevice

    return CudaDevice(options)


def requirements() -> list[Requirement]:
    """Returns the requirements: NVRTC, which also `--build-only` needs, and PyCUDA and a GPU, which only runs need."""
    from ..api.errors import DeviceError
    from ..device import Requirement
    from . import driver, nvrtc

    try:
        compiler = f"NVRTC {nvrtc.version()}, for {', '.join(nvrtc.supported())}"
    except DeviceError:
        compiler = None
    pycuda = "installed" if driver.has_pycuda() else None
    try:
        device = str(driver.gpu().name())
        missing = ""
    except DeviceError as e:
        device, missing = None, str(e)
    return [
        Requirement("nvrtc", compiler, nvrtc.advice()),
        Requirement("pycuda", pycuda, driver.pycuda_advice()),
        Requirement("gpu", device, missing),
    ]
