"""Source files of a recorded sequence: detects changes since the recording without running the files."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ...kernels.frontend.recorder import Recording
from ..files import read_regular

_OWN = Path(__file__).resolve().parent.parent.parent
_MOST_BYTES = 4 << 20


class SourceFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A user's file with a hash of its syntax tree. Comments and blank lines do not count."""

    path: str
    syntax: str


def source_files(recording: Recording) -> tuple[SourceFile, ...]:
    """Returns the user's files that contain the kernels and calls of a recording, with their current hashes."""
    named = dict.fromkeys(x.file for c in recording.calls for x in (c.ir.where, c.where))
    found = []
    for name in named:
        path = Path(name).absolute()
        syntax = None if _OWN in path.resolve().parents else _syntax(path)
        if syntax is not None:
            found.append(SourceFile(str(path), syntax))
    return tuple(found)


def changes(files: Iterable[SourceFile]) -> tuple[str, ...]:
    """Returns a sentence for each file whose syntax tree no longer has the stored hash."""
    notes = []
    for file in files:
        now = _syntax(Path(file.path))
        if now is None:
            notes.append(f"{file.path} is not here: this is the sequence as it was recorded")
        elif now != file.syntax:
            notes.append(f"{file.path} has changed since: this is the sequence as it was recorded")
    return tuple(notes)


def _syntax(path: Path) -> str | None:
    """Returns a hash of a file's syntax tree; None if there is no such Python file."""
    try:
        if path.suffix != ".py":
            return None
        text = read_regular(path, _MOST_BYTES, follow=True)
    except (OSError, ValueError):
        return None
    try:
        shown = ast.dump(ast.parse(text)).encode()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        shown = text
    return hashlib.blake2b(shown, digest_size=12).hexdigest()
