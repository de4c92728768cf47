"""`explore resume`: continues an earlier search."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..exits import exit_of
from ..fleet_options import on_a_fleet
from ..options import Talk, given_inputs, interrupted, limits, settings_of, talks

if TYPE_CHECKING:
    from ...runtime.fleet.request import FleetRequest


@click.command("resume")
@click.argument("directory", type=click.Path(path_type=Path))
@limits
@given_inputs
@on_a_fleet
@talks
def command(
    talk: Talk, directory: Path, inputs: Path | None, fleet: FleetRequest | None, **flags: Any
) -> None:
    """Go on with the run in DIRECTORY, from its journal."""
    from ...explorer.entry import resume
    from ..listener import listener

    settings = settings_of(talk, **flags)
    given = settings.origins
    found = resume(
        directory,
        time_limit=settings.time_limit_s if "time_limit" in given else None,
        max_evals=settings.max_evals if "max_evals" in given else None,
        gap=settings.gap if "gap" in given else None,
        compiler=settings.compiler if "compiler" in given else None,
        inputs=inputs,
        on_event=listener(talk, settings),
        on_interrupt=interrupted,
        fleet=fleet,
    )
    sys.exit(exit_of(found))
