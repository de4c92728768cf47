"""`explore resume`: a search that is resumed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from ..exits import exit_of
from ..options import Talk, given_inputs, interrupted, limits, settings_of, talks


@click.command("resume")
@click.argument("directory", type=click.Path(path_type=Path))
@limits
@given_inputs
@talks
def command(talk: Talk, directory: Path, inputs: Path | None, **flags: Any) -> None:
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
    )
    sys.exit(exit_of(found))
