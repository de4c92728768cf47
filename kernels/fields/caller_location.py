"""Location of the line of the user's program that calls into this package, for messages and names."""

from __future__ import annotations

import linecache
import re
import sys
from functools import cache
from pathlib import Path
from typing import NoReturn

import numpy as np

from ..ir.errors import LanguageError
from ..ir.kernel import Location

_PACKAGE = Path(__file__).parents[2]
# Frames of these folders are ours, or NumPy's between two of ours; an import of ours stands in frames of Python's.
_OURS = (
    str(_PACKAGE / "kernels"),
    str(_PACKAGE / "program"),
    str(_PACKAGE / "compat"),
    str(_PACKAGE / "runtime"),
    str(Path(np.__file__).parent),
    "<frozen importlib",
)
_ASSIGNED = re.compile(r"\s*(?:self\.)?(\w+)\s*(?::[^=]+)?=[^=]")


def caller() -> Location:
    """Returns the location of the innermost line on the call stack that is outside of this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return Location(frame.f_code.co_filename, frame.f_lineno)


@cache
def _is_ours(file: str) -> bool:
    return file.startswith(_OURS)


def fail(sentence: str, kind: type[LanguageError] = LanguageError) -> NoReturn:
    """Raises LanguageError, or the subclass `kind` of it, at the line of the program that called."""
    raise kind(sentence, caller())


def assigned_name(where: Location) -> str:
    """Returns the name that the line at `where` assigns; "" unless it assigns exactly one name."""
    line = linecache.getline(where.file, where.line)
    found = _ASSIGNED.match(line)
    return found[1] if found and ";" not in line else ""
