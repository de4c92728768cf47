"""The emulator: CUDA text compiled for the CPU, with a check of every memory access of every thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..api.backend import AbstractDevice
    from ..device import DeviceOptions, Requirement


def open_backend(options: DeviceOptions) -> AbstractDevice:
    """Returns the device of a GPU that this machine's CPU emulates."""
    from .device import EmulatorDevice

    return EmulatorDevice(options)


def requirements() -> list[Requirement]:
    """Returns the emulator's only requirement: a C++ compiler."""
    from ..api.errors import DeviceError
    from ..device import Requirement
    from .device import find_compiler

    try:
        compiler = find_compiler()
    except DeviceError as e:
        return [Requirement("emulator", None, str(e))]
    return [Requirement("emulator", f"{compiler.path}: {compiler.version}")]
