"""Reading and writing of run files that are replaced as a whole: run.json and best.json.

Loading is strict. A missing, unknown or wrongly typed field, an unknown status or an impossible time is a `RecordError` of one
sentence.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ..files import RECORD_BYTES, read_regular, write_atomically
from .record import READ, BestFile, Decisions, RecordError, RunHeader, repeated

# A pair of texts over several lines; people read these files, a decision a line. Within a text quotes
# are escaped and lines are not broken, so nothing else matches.
_PAIR = re.compile(rb'\[\n\s+("(?:[^"\\]|\\.)*"),\n\s+("(?:[^"\\]|\\.)*")\n\s+\]')

T = TypeVar("T", bound=msgspec.Struct)


def write_record(path: Path, record: msgspec.Struct) -> None:
    """Writes a JSON file in one step: it is complete or absent, even after a crash."""
    text = msgspec.json.format(msgspec.json.encode(record), indent=2)
    write_atomically(path, _PAIR.sub(rb"[\1, \2]", text) + b"\n")


def load_best(path: Path, *, follow: bool = False) -> BestFile:
    """Returns the content of a best.json. `follow`: follow links, for paths given by the user.

    Raises RecordError.
    """
    best = load_record(path, BestFile, follow=follow)
    check_best(path, best)
    return best


def check_best(path: Path | str, best: BestFile) -> None:
    """Raises RecordError if a well-formed best.json contradicts itself; `path`: its place, for the sentence."""
    gap = (best.time_ns - best.bound_ns) / best.time_ns
    if not math.isclose(gap, best.gap, abs_tol=1e-6):
        raise RecordError(
            f"{path} was changed by hand: its gap does not follow from its time and bound"
        )
    _check_decisions(path, best.decisions)


def load_header(path: Path) -> RunHeader:
    """Returns the content of a run.json. Raises RecordError."""
    return load_record(path, RunHeader)


def read_json(path: Path, *, follow: bool = False) -> Any:
    """Returns the decoded content of a JSON file. `follow`: follow links. Raises RecordError."""
    try:
        content = read_regular(path, RECORD_BYTES, follow=follow)
    except OSError as e:
        raise RecordError(f"{path} cannot be read: {e.strerror}") from e
    except ValueError as e:
        raise RecordError(f"{str(path)!r} cannot be the name of a file: {e}") from e
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise RecordError(f"{path} is torn or is no JSON: {e}") from e


def load_record(path: Path, kind: type[T], *, follow: bool = False) -> T:
    """Returns the content of a JSON file as an object of class `kind`. Raises RecordError."""
    found = read_json(path, follow=follow)
    schema = found.get("schema") if isinstance(found, dict) else None
    if schema not in READ:
        known = " and ".join(map(str, READ))
        raise RecordError(f"{path} has schema {schema!r}, and this version reads schemas {known}")
    strange = _strange_text(found)
    if strange is not None:
        raise RecordError(f"{path} was changed by hand: {strange!r:.60} is no text of one line")
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as e:
        raise RecordError(f"{path} does not hold what it should: {e}") from e


def _strange_text(found: Any) -> str | None:
    """Returns a text with unprintable characters in a nested value; None if there is none.

    Such characters could control a terminal, or end a comment's line.
    """
    waiting = [found]
    while waiting:
        x = waiting.pop()
        if isinstance(x, dict):
            waiting += (*x, *x.values())
        elif isinstance(x, list):
            waiting += x
        elif isinstance(x, str) and not x.isprintable():
            return x
    return None


def _check_decisions(path: Path | str, decisions: Decisions) -> None:
    problem = repeated(decisions)
    if problem is not None:
        raise RecordError(f"{path} was changed by hand: {problem}")
