"""Errors of a stored result, or of the machine for it: a program then runs without it."""

from __future__ import annotations

from ...kernels.ir.errors import LanguageError
from ...kernels.tasks.archive import ArchiveError
from ..api.errors import DeviceError
from .record import RecordError
from .replay import StaleError

UNUSABLE = (
    RecordError,
    ArchiveError,
    StaleError,
    DeviceError,
    LanguageError,
    MemoryError,
    OSError,
)


def sentence_of(error: Exception) -> str:
    """Returns one of `UNUSABLE` as a sentence."""
    if isinstance(error, MemoryError):
        return f"there is not enough memory: {error}"
    return str(error.strerror if isinstance(error, OSError) else error)
