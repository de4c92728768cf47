"""Names of sequences on a command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class WorkloadError(Exception):
    """There is no such sequence, or it cannot be called; one sentence."""


@dataclass(frozen=True)
class Named:
    """A sequence as a command names it: of the library, or FILE.py:function.

    Functions of the file run `before` it. `unseen` are names of arrays that nobody reads after it.
    """

    text: str
    before: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()

    @property
    def file(self) -> Path | None:
        """The file of its own; None for one of the library."""
        path = self.text.partition(":")[0]
        return Path(path) if ":" in self.text or path.endswith(".py") else None


def is_program(text: str) -> bool:
    """True for the name of a file in the place of a sequence."""
    return text.endswith(".py") and ":" not in text
