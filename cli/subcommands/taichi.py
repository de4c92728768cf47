"""`explore taichi`: runs programs written for Taichi unchanged."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
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
@click.option("--target", help="Run it on cpu, cuda or emulator, whatever its ti.init asks for.")
@talks
def command(
    talk: Talk,
    path: Path,
    arguments: tuple[str, ...],
    frames: int,
    output: Path | None,
    target: str | None,
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
    reel, there = Reel(frames, output), _on(target)
    try:
        with there:
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


def _on(target: str | None) -> AbstractContextManager[None]:
    """Returns a context manager in which programs run on a target. Raises DeviceError if they cannot."""
    from ...kernels.fields.program import Arch, cpu
    from ...kernels.frontend import dispatch
    from ...kernels.frontend.init import forced_arch
    from ...runtime.api.errors import DeviceError

    if target is None:
        return nullcontext()
    if target == "cpu":
        return forced_arch(cpu)
    made = dispatch.on_device(target)
    if isinstance(made, str) or target not in (a.value for a in Arch if a.is_device):
        why = made if isinstance(made, str) else "it is for sequences only"
        raise DeviceError(f"programs cannot run on {target} here: {why}")
    return forced_arch(Arch(target))


def _shown(parts: Sequence[range]) -> str:
    """Returns a phrase that names ranges of a program's lines."""
    words = [f"{lines[0]}-{lines[-1]}" if len(lines) > 1 else f"{lines[0]}" for lines in parts]
    is_one = len(parts) == 1 and len(parts[0]) == 1
    return f"line{'' if is_one else 's'} {', '.join(words)}"


def _prepare(folder: Path) -> None:
    """Creates the folder for pictures, so that an error is reported before the program runs."""
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise WorkloadError(f"{folder} cannot be written: give another folder for the pictures")
