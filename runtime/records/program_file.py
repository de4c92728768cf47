"""program.json: the windows (repeated sequences of calls) of a program, and the runs that searched them.

The runs are folders beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from ..files import is_there
from .folder import BEST, check_named
from .loading import load_record
from .record import Count, PositiveNs, RecordError, Share

PROGRAM = "program.json"

Name = Annotated[str, msgspec.Meta(pattern=r"\Awindow[0-9]{1,4}\Z")]


class WindowRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A window of a program. `time_ns`: median of its runs in the program, kernel by kernel.

    `share`: part of the time of all searched windows. `ends`: number of runs by reason of their end. `best_ns`, `default_ns`:
    times of the best and the default, measured alternately. `why`: reason why there is no best. `assumed`: names of the trees whose
    lists and active cells its implementations take as the run before has left them.
    `prologue`: calls of a program before the first run of a rotated window; 0 of others.
    """

    name: Name  # of the folder of its run, too
    kernels: str
    runs: Count
    time_ns: PositiveNs
    share: Share
    ends: dict[str, Count]
    best_ns: PositiveNs | None = None
    default_ns: PositiveNs | None = None
    why: str = ""
    assumed: tuple[str, ...] = ()
    prologue: Count = 0


class ProgramFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Content of program.json.

    `program`: name of the program's file; `watched_s`: seconds for which it was watched.
    """

    schema: int
    program: str
    watched_s: Share
    windows: tuple[WindowRow, ...]


def program_folder(place: Path) -> Path | None:
    """Returns the folder of a program.json; `place` is that folder or the file. None for anything else."""
    if place.name == PROGRAM and place.is_file():
        return place.parent
    return place if place.is_dir() and is_there(place / PROGRAM) else None


def load_program(folder: Path) -> ProgramFile:
    """Returns the content of program.json in `folder`. Raises RecordError."""
    return load_record(folder / PROGRAM, ProgramFile)


def bests_of(place: Path) -> list[Path]:
    """Returns the best.json of each window of a program; `place` itself if it is no program. Raises RecordError."""
    folder = program_folder(place)
    if folder is None:
        return [place]
    found = [folder / w.name / BEST for w in load_program(folder).windows if w.best_ns is not None]
    if not found:
        raise RecordError(f"{folder / PROGRAM} has no window for which something was found")
    for path in found:
        check_named(path)
    return found
