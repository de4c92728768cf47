"""`explore fleet`: starts, shows and stops a scheduler for workers on several machines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ..fleet_options import needs_dask
from ..options import Talk, put_json, talks
from ..speaking import say

_CERTIFICATE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group("fleet")
def command() -> None:
    """One search on several devices or machines: start, look at or stop a fleet."""


def _file(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.argument("file", type=click.Path(path_type=Path))(function)


@command.command("start")
@_file
@click.option(
    "--host",
    default="127.0.0.1",
    help="Address to listen at; another than of this machine needs TLS.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="0: any that is free.")
@click.option("--tls-ca", type=_CERTIFICATE, help="Certificate of the authority.")
@click.option(
    "--tls-cert",
    type=_CERTIFICATE,
    help="Certificate of scheduler, workers and drivers.",
)
@click.option("--tls-key", type=_CERTIFICATE, help="Its key.")
@talks
def start(
    talk: Talk,
    file: Path,
    host: str,
    port: int,
    tls_ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
) -> None:
    """Start a scheduler and write its address to FILE. Workers and drivers take that file."""
    needs_dask()
    from ...runtime.fleet.dask_fleet import start_scheduler
    from ...runtime.fleet.fleet_file import TlsFiles

    given = [x for x in (tls_ca, tls_cert, tls_key) if x is not None]
    if len(given) not in (0, 3):
        raise click.UsageError("--tls-ca, --tls-cert and --tls-key belong together")
    tls = TlsFiles(*(str(x.absolute()) for x in given)) if given else None
    fleet = start_scheduler(file, host, port, tls)
    if talk.is_json:
        put_json(
            {
                "event": "fleet",
                "file": str(file),
                "address": fleet.address,
                "workers": 0,
                "slots": [],
            }
        )
    elif talk.verbosity:
        say(f"{file}  {fleet.address}, process {fleet.pid}")
        say(f"on each machine: explore worker --fleet {file}")


@command.command("status")
@_file
@talks
def status(talk: Talk, file: Path) -> None:
    """Show the workers of a fleet, their slots and compilers."""
    needs_dask()
    from ...runtime.fleet.dask_fleet import join_fleet

    fleet = join_fleet(file)
    try:
        slots, workers = [s.facts for s in fleet.slots()], fleet.workers()
        if talk.is_json:
            shown = [
                {"name": f.name, "backend": f.backend, "key": f.key, "arch": f.arch} for f in slots
            ]
            put_json(
                {
                    "event": "fleet",
                    "file": str(file),
                    "address": fleet.address,
                    "workers": len(workers),
                    "slots": shown,
                }
            )
            return
        say(f"{fleet.address}  {len(workers)} workers")
        for f in slots:
            say(f"  {f.name:<24} {f.backend:<6} {f.key}  {f.conditions.compiler or 'no compiler'}")
        for name, version in fleet.others.items():
            say(f"  {name:<24} has version {version} and is not used: install one")
        for arch in dict.fromkeys(f.arch for f in slots):
            say(f"  {fleet.n_builders(arch)} compilers for {arch}")
    finally:
        fleet.close()


@command.command("stop")
@_file
@talks
def stop(talk: Talk, file: Path) -> None:
    """End the scheduler of FILE and its workers."""
    needs_dask()
    from ...runtime.fleet.dask_fleet import stop_fleet

    n = stop_fleet(file)
    if talk.is_json:
        put_json({"event": "fleet", "file": str(file), "address": "", "workers": n, "slots": []})
    elif talk.verbosity:
        say(f"{file}  stopped, with {n} workers")
