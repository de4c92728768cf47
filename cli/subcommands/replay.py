"""`explore replay`: a stored implementation, built and timed again."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ..exits import exit_of_replay
from ..options import Talk, given_inputs, put_json, settings_of, talks
from ..speaking import say


@click.command("replay")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--tolerance", help="How much slower is still well: 25%.")
@click.option("--trust-library", is_flag=True, help="Without a compiler: run what lies beside it.")
@given_inputs
@talks
def command(
    talk: Talk, path: Path, tolerance: str | None, trust_library: bool, inputs: Path | None
) -> None:
    """Rebuild the stored implementation of PATH (run directory or best.json), verify, time it."""
    from ...explorer.results import replay_again
    from ..views import replay_fields, replay_lines

    settings = settings_of(talk, tolerance=tolerance)
    again = replay_again(
        path, settings.input_sets, settings.tolerance, trust_library=trust_library, inputs=inputs
    )
    code = exit_of_replay(again.outcome, again.slower_by, settings.tolerance)
    if talk.is_json:
        put_json(replay_fields(again) | {"exit": int(code)})
    else:
        for line in replay_lines(again, settings.tolerance):
            say(line)
    sys.exit(code)
