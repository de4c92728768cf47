"""`explore taichi`: programs that were written with Taichi, as they are."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from ..options import Talk, put_json, talks
from ..program_file import read, show
from ..sequence_name import WorkloadError
from ..speaking import say


@click.command("taichi", context_settings={"ignore_unknown_options": True})
@click.argument("path", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--frames",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="End a program that shows more.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Folder for its pictures.")
@talks
def command(
    talk: Talk, path: Path, arguments: tuple[str, ...], frames: int, output: Path | None
) -> None:
    """Run PATH, a program that imports taichi, unchanged and without a screen. ARGUMENTS are its own; put -- before those that
    look like ours.
    """
    from ...compat.display.frames import Reel
    from ...compat.program import run_program
    from ...kernels.ir.errors import LanguageError

    code = read(path)
    if output is not None:
        _prepare(output)
    reel = Reel(frames, output)
    try:
        ran = run_program(code, path, arguments, reel)
    except LanguageError:
        raise
    except Exception as e:
        if e is reel.unwritten:
            raise
        show(e, path, is_whole=talk.verbosity > 1)
        sys.exit(1)
    fields = {"event": "program", "frames": len(reel.shown_s), "is_cut": ran.is_cut}
    if talk.is_json:
        not_run = [[lines[0], lines[-1]] for lines in ran.not_run]
        files = [str(f) for f in reel.files]
        put_json(fields | {"files": files, "not_run": not_run, "exit": ran.status})
    elif talk.verbosity:
        end = f"ended after {frames} frames" if ran.is_cut else "ended by itself"
        written = f"; {len(reel.files)} pictures in {output}" if output is not None else ""
        left = f"; not run: {_shown(ran.not_run)}" if ran.not_run else ""
        say(f"{path}: {end}{written}{left}", err=True)
    sys.exit(ran.status)


def _shown(parts: Sequence[range]) -> str:
    """Lines of a program in words."""
    words = [f"{lines[0]}-{lines[-1]}" if len(lines) > 1 else f"{lines[0]}" for lines in parts]
    is_one = len(parts) == 1 and len(parts[0]) == 1
    return f"line{'' if is_one else 's'} {', '.join(words)}"


def _prepare(folder: Path) -> None:
    """Makes the folder of the pictures. One that cannot be written is reported before the program runs."""
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise WorkloadError(f"{folder} cannot be written: give another folder for the pictures")
