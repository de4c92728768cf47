"""The files that a sequence was recorded from: whether they have changed since is asked without running them."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ...kernels.language.record import Recording
from ..files import read_regular

_OWN = Path(__file__).resolve().parent.parent.parent
_MOST_BYTES = 4 << 20


class SourceFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of the user's with a hash of its syntax: comments and blank lines are not in it."""

    path: str
    syntax: str


def source_files(recording: Recording) -> tuple[SourceFile, ...]:
    """The user's files that have the kernels of a recording and its calls, as they are now."""
    named = dict.fromkeys(x.file for c in recording.calls for x in (c.ir.where, c.where))
    found = []
    for name in named:
        path = Path(name).absolute()
        syntax = None if _OWN in path.resolve().parents else _syntax(path)
        if syntax is not None:
            found.append(SourceFile(str(path), syntax))
    return tuple(found)


def changes(files: Iterable[SourceFile]) -> tuple[str, ...]:
    """A sentence for each file that is not what it was."""
    notes = []
    for file in files:
        now = _syntax(Path(file.path))
        if now is None:
            notes.append(f"{file.path} is not here: this is the sequence as it was recorded")
        elif now != file.syntax:
            notes.append(f"{file.path} has changed since: this is the sequence as it was recorded")
    return tuple(notes)


def _syntax(path: Path) -> str | None:
    """A hash of a file's syntax; None where there is no such Python file."""
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
