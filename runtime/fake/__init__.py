"""A device that runs nothing: deterministic times and scripted failures, for tests of search and
records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..api.backend import AbstractDevice
    from ..device import DeviceOptions


def open_backend(options: DeviceOptions) -> AbstractDevice:
    """Returns a fake device whose times follow from the text of the source."""
    from .device import FakeDevice

    return FakeDevice()
