"""Run directories: one per run, created atomically, so that concurrent runs never conflict."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ..files import check_regular, is_there
from .record import RecordError

HEADER, JOURNAL, BEST = "run.json", "journal.jsonl", "best.json"
TREE = "tree.jsonl"  # may be deleted
SOURCE = "kernel"  # with the suffix of its language
FAILED = "failed"  # a folder of sources
_FILES = (HEADER, JOURNAL, BEST, TREE, "best.so", f"{SOURCE}.c", f"{SOURCE}.cu")


def make_run_folder(runs: Path, name: str) -> Path:
    """Creates a new folder `runs/NAME-NNN`; concurrent processes get different ones. Raises OSError."""
    runs.mkdir(parents=True, exist_ok=True)
    number = 1 + max((_number(p, name) for p in runs.glob(f"{name}-*")), default=0)
    while True:
        folder = runs / f"{name}-{number:03d}"
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            return folder


def run_folder(named: Path) -> Path:
    """Returns the run directory of a path: the directory itself, or that of a file in it.

    Raises RecordError if there is no run.
    """
    check_named(named)
    folder = named.parent if named.is_file() else named
    if not is_there(folder / HEADER):
        where = "it has" if folder == named else "beside it there is"
        raise RecordError(f"{named} holds no run: {where} no {HEADER}")
    return folder


def check_named(path: Path) -> None:
    """Raises RecordError if the path of a result does not exist, or is a Python program."""
    wanted = "give the directory of a run, such as runs/NAME-001, or a best.json"
    if "\0" in str(path):
        raise RecordError(f"{str(path)!r} cannot be the name of a file: {wanted}")
    if not path.exists():
        raise RecordError(f"there is no {path}: {wanted}")
    if path.suffix in (".py", ".c", ".cu", ".ipynb"):
        raise RecordError(f"{path} is a program: {wanted}")


def check_run_folder(folder: Path) -> None:
    """Raises RecordError if a file or subfolder that a session uses is a link or of the wrong type.

    The creator of the folder may have put links there.
    """
    for place in (folder / name for name in _FILES):
        if is_there(place):
            try:
                check_regular(place)
            except OSError as e:
                raise RecordError(f"{place} cannot be used: {e.strerror}") from e
    failed = folder / FAILED
    if is_there(failed) and (failed.is_symlink() or not failed.is_dir()):
        raise RecordError(f"{failed} cannot be used: it is no folder of the run's own")


def forget_run_folder(folder: Path) -> None:
    """Removes the folder of a run that did not begin: it is empty, or has an empty journal.

    Only the process that created the folder may call this.
    """
    journal = folder / JOURNAL
    with suppress(OSError):
        with suppress(FileNotFoundError):
            if not is_there(folder / HEADER) and journal.lstat().st_size == 0:
                journal.unlink()
        folder.rmdir()  # unless something is in it


def run_name(sequence: str, target: str, sizes: Mapping[str, int]) -> str:
    """Returns PROBLEM-TARGET-SHAPE, safe for file names."""
    shape = "-".join(f"{name}{extent}" for name, extent in sizes.items())
    parts = (re.sub(r"[^A-Za-z0-9_.]+", "_", part) for part in (sequence, target, shape) if part)
    return "-".join(parts)


def _number(path: Path, name: str) -> int:
    digits = path.name[len(name) + 1 :]
    return int(digits) if digits.isdigit() else 0
