"""Names of sequences on a command line: library names and FILE.py:function."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class WorkloadError(Exception):
    """A named sequence does not exist or cannot be called; the message is one sentence."""


@dataclass(frozen=True)
class Named:
    """A sequence named on a command line: a library name, or FILE.py:function.

    `before`: functions of the file that run before it. `unseen`: names of arrays that nobody reads after it. `without`: names of
    derived rewrites that are not made.
    """

    text: str
    before: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    @property
    def file(self) -> Path | None:
        """Path of the file that contains the sequence; None for a library sequence."""
        path = self.text.partition(":")[0]
        return Path(path) if ":" in self.text or path.endswith(".py") else None


def is_program(text: str) -> bool:
    """True if the text, in the place of a sequence, names a Python file alone."""
    return text.endswith(".py") and ":" not in text
