"""Errors of devices."""

from __future__ import annotations


class DeviceError(Exception):
    """A device cannot be opened; the message is one sentence that says what is missing and how to
    get it.
    """
