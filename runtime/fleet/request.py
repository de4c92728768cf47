"""Request for a fleet: devices of this machine, or workers of a scheduler."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ..api.errors import DeviceError
from .devices import NamedDevice, parse_devices
from .fleet import AbstractFleet, LocalFleet
from .host import open_host


@dataclass(frozen=True, kw_only=True)
class FleetRequest:
    """Names of `devices` of this machine, or the fleet `file` of a scheduler.

    `on` is the device key of the slots to use; None: that of the first slot.
    A search with a `slot` uses that one alone: others are of searches beside it. `joined` is a fleet that is there already.
    """

    devices: tuple[str, ...] = ()
    file: Path | None = None
    on: str | None = None
    slot: str | None = None
    joined: AbstractFleet | None = None

    def of_kind(self, backend: str) -> FleetRequest:
        """Returns the request with the devices of one kind."""
        names = tuple(d.name for d in self._parsed() if d.backend == backend)
        return replace(self, devices=names)

    def check(self, backend: str) -> None:
        """Raises DeviceError for a device of this machine that no search on this backend could use."""
        others = [d.name for d in self._parsed() if d.backend != backend]
        if others:
            raise DeviceError(
                f"{others[0]} is no device of --target {backend}, and a search is of one kind: search each kind by itself"
                " (explore run --each-key does so)"
            )

    def join(self) -> AbstractFleet:
        """Returns the fleet; the caller closes it. Raises DeviceError, one sentence."""
        if self.joined is not None:
            return self.joined
        if self.file is not None and self.devices:
            raise DeviceError("devices of this machine join a fleet by explore worker: name either")
        if self.file is not None:
            from .dask_fleet import join_fleet

            return join_fleet(self.file)
        return LocalFleet(open_host(self._parsed(), only=self.slot))

    def _parsed(self) -> tuple[NamedDevice, ...]:
        try:
            return parse_devices(self.devices)
        except ValueError as e:
            raise DeviceError(str(e)) from e
