"""Options of commands that search on a fleet or on several devices of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..runtime.fleet.request import FleetRequest


def on_a_fleet(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: adds the options that name a fleet or devices, passed to the command as one `fleet` argument."""

    def call(
        *, fleet_file: Path | None, devices: tuple[str, ...], on: str | None, **rest: Any
    ) -> Any:
        return function(fleet=_request(fleet_file, devices, on), **rest)

    call.__name__, call.__doc__ = function.__name__, function.__doc__
    call.__dict__.update(function.__dict__)
    for option in (
        click.option(
            "--on",
            help="Key of the devices to use, from `explore fleet status`; the first if left out.",
        ),
        click.option(
            "--device",
            "devices",
            multiple=True,
            help="cpu:0-3 or cuda:0: measure on these at once; repeatable.",
        ),
        click.option(
            "--fleet",
            "fleet_file",
            type=click.Path(path_type=Path),
            help="File of `explore fleet start`.",
        ),
    ):
        call = option(call)
    return call


def _request(file: Path | None, devices: tuple[str, ...], on: str | None) -> FleetRequest | None:
    """Returns the request for a fleet from option values; None without such options. Raises UsageError."""
    if file is None and not devices:
        if on is not None:
            raise click.UsageError("--on is a device of a fleet: name it by --fleet")
        return None
    if file is not None and devices:
        raise click.UsageError(
            "--device of this machine joins a fleet by explore worker: give --fleet or --device"
        )
    if file is not None:
        needs_dask()
    from ..runtime.fleet.devices import parse_devices
    from ..runtime.fleet.request import FleetRequest

    try:
        parse_devices(devices)
    except ValueError as e:
        raise click.UsageError(f"--device: {e}") from e
    return FleetRequest(devices=devices, file=file, on=on)


def each_key(fleet: FleetRequest | None, backend: str | None) -> Iterator[tuple[FleetRequest, str]]:
    """Yields one request per device key of a fleet, with its backend: of `backend`, or of all.

    Raises UsageError without a fleet, and DeviceError.
    """
    from dataclasses import replace

    from ..runtime.fleet.fleet import chosen, kinds_of

    if fleet is None or fleet.on is not None:
        raise click.UsageError("--each-key is of a fleet, and goes without --on")
    opened = fleet.join()
    try:
        if backend is not None:
            chosen(opened, backend)
        kinds = [(of, key) for of, key in kinds_of(opened) if backend in (None, of)]
    finally:
        opened.close()
    for of, key in kinds:
        yield replace(fleet.of_kind(of), on=key), of


def needs_dask() -> None:
    """Raises UsageError if Dask (the extra `fleet`) is not installed."""
    if find_spec("distributed") is None:
        raise click.UsageError("fleets need Dask: pip install 'kernelscape[fleet]'")
