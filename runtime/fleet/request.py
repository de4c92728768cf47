"""Request for a fleet: devices of this machine, or workers of a scheduler."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..api.errors import DeviceError
from .devices import parse_devices
from .fleet import AbstractFleet, LocalFleet
from .host import open_host


@dataclass(frozen=True, kw_only=True)
class FleetRequest:
    """Names of `devices` of this machine, or the fleet `file` of a scheduler.

    `on` is the device key of the slots to use; None: that of the first slot.
    A search with a `slot` uses that one alone: others are of searches beside it.
    """

    devices: tuple[str, ...] = ()
    file: Path | None = None
    on: str | None = None
    slot: str | None = None

    def join(self) -> AbstractFleet:
        """Returns the fleet; the caller closes it. Raises DeviceError, one sentence."""
        if self.file is not None and self.devices:
            raise DeviceError("devices of this machine join a fleet by explore worker: name either")
        if self.file is not None:
            from .dask_fleet import join_fleet

            return join_fleet(self.file)
        try:
            return LocalFleet(open_host(parse_devices(self.devices), only=self.slot))
        except ValueError as e:
            raise DeviceError(str(e)) from e
