"""`explore taichi`: programs that were written with Taichi, as they are."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import click

from ..kernels.ir.errors import LanguageError
from .exits import explain_error
from .options import Talk, put_json, talks
from .speaking import say
from .user_file import WorkloadError


@click.command(context_settings={"ignore_unknown_options": True})
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
def taichi(
    talk: Talk, path: Path, arguments: tuple[str, ...], frames: int, output: Path | None
) -> None:
    """Run PATH, a program that imports taichi, unchanged and without a screen. ARGUMENTS are its own; put -- before those that
    look like ours.
    """
    from ..compat.display.frames import Reel
    from ..compat.program import read_program, run_program

    if not path.is_file():
        raise WorkloadError(f"there is no file {path}")
    try:
        code = read_program(path)
    except SyntaxError as e:
        raise WorkloadError(f"{path}:{e.lineno}: {e.msg}") from e
    reel = Reel(frames, output)
    try:
        ran = run_program(code, path, arguments, reel)
    except LanguageError:
        raise
    except Exception as e:
        if explain_error(e) is not None:
            raise
        _show(e)
        sys.exit(1)
    fields = {"event": "program", "frames": len(reel.shown_s), "is_cut": ran.is_cut}
    if talk.is_json:
        put_json(fields | {"files": [str(f) for f in reel.files], "exit": ran.status})
    elif talk.verbosity:
        end = f"ended after {frames} frames" if ran.is_cut else "ended by itself"
        written = f"; {len(reel.files)} pictures in {output}" if output is not None else ""
        say(f"{path}: {end}{written}", err=True)
    sys.exit(ran.status)


def _show(error: Exception) -> None:
    """What a program raised, as Python shows it: from the program's own line on."""
    stack = error.__traceback__
    while stack is not None and stack.tb_frame.f_globals.get("__name__") != "__main__":
        stack = stack.tb_next
    traceback.print_exception(type(error), error, stack or error.__traceback__)
