"""`explore worker`: adds the devices of this machine to a fleet."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import click

from ..fleet_options import needs_dask
from ..options import Talk, talks
from ..speaking import say


@click.command("worker")
@click.option(
    "--fleet",
    "file",
    type=click.Path(path_type=Path),
    required=True,
    help="File of `explore fleet start`.",
)
@click.option(
    "--device",
    "devices",
    multiple=True,
    help="cpu, cpu:0-3 or cuda:0; repeatable, a slot each. The CPU if left out.",
)
@click.option(
    "--builders", type=click.IntRange(0), help="Compilers at once; a core each that no device has."
)
@click.option(
    "--name", help="Name in the journal; that of the machine and the process if left out."
)
@talks
def command(
    talk: Talk, file: Path, devices: tuple[str, ...], builders: int | None, name: str | None
) -> None:
    """Run and build programs for the fleet of FILE until its scheduler ends. Whoever reaches the scheduler may use this machine."""
    needs_dask()
    from ...runtime.fleet.dask_worker import work
    from ...runtime.fleet.devices import parse_devices
    from ...runtime.fleet.host import Host

    def tell(host: Host) -> None:
        if talk.verbosity:
            for facts in host.facts:
                say(f"{facts.name}  {facts.key}", err=True)
            say(f"{host.n_builders} compilers; ends with the fleet, or by Ctrl-C", err=True)

    try:
        named = parse_devices(devices or ("cpu",))
    except ValueError as e:
        raise click.UsageError(f"--device: {e}") from e
    work(file, named, name or f"{platform.node()}-{os.getpid()}", builders, tell)
