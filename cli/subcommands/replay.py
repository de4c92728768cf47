"""`explore replay`: builds, verifies and times a stored implementation again."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ..exits import exit_of_replay
from ..options import Talk, given_inputs, put_json, settings_of, talks
from ..settings import Settings
from ..speaking import say


@click.command("replay")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--tolerance", help="How much slower is still well: 25%.")
@click.option("--trust-library", is_flag=True, help="Without a compiler: run what lies beside it.")
@click.option(
    "--program",
    type=click.Path(path_type=Path),
    help="Of a program's PATH: run this file, and compare the first runs of each window.",
)
@given_inputs
@talks
def command(
    talk: Talk,
    path: Path,
    tolerance: str | None,
    trust_library: bool,
    program: Path | None,
    inputs: Path | None,
) -> None:
    """Rebuild the stored implementation of PATH (run directory or best.json), verify, time it.

    Of a program's directory those of all its windows.
    """
    from ...runtime.records.program_file import bests_of, program_folder

    settings = settings_of(talk, tolerance=tolerance)
    folder = program_folder(path)
    if program is not None and folder is None:
        raise click.UsageError(
            f"--program is of what `explore run FILE.py` found: {path} holds no program.json"
        )
    if program is not None:
        from ..program_replay import replay_program

        sys.exit(replay_program(talk, path, program))
    if inputs is not None and folder is not None:
        raise click.UsageError(f"--inputs is of one sequence: name a window of {folder}")
    given = (path,) if folder is None else bests_of(path)
    codes: list[int] = []
    for one in given:
        if folder is not None and not talk.is_json:
            say(f"{one.parent.name}:")
        codes.append(_replay(talk, settings, one, trust_library, inputs))
    sys.exit(max(codes))


def _replay(
    talk: Talk, settings: Settings, path: Path, trust_library: bool, inputs: Path | None
) -> int:
    """Replays one stored implementation and prints the verdict. Returns the exit code."""
    from ...explorer.results import replay_again
    from ..views import replay_fields, replay_lines

    again = replay_again(
        path, settings.input_sets, settings.tolerance, trust_library=trust_library, inputs=inputs
    )
    code = exit_of_replay(again.outcome, again.slower_by, settings.tolerance)
    if talk.is_json:
        put_json(replay_fields(again) | {"exit": int(code)})
    else:
        for line in replay_lines(again, settings.tolerance):
            say(line)
    return code
