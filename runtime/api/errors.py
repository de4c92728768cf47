"""Error of devices that cannot be used."""

from __future__ import annotations


class DeviceError(Exception):
    """Raised if a device cannot be opened. The message names the missing part and the way to get it."""
