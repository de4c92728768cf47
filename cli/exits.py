"""Exit codes of the `explore` command, by error and by result."""

from __future__ import annotations

import errno
import signal
from enum import IntEnum
from typing import Any

from ..runtime.api.outcome import Failure
from .sequence_name import WorkloadError
from .settings import SettingsError


class Exit(IntEnum):
    """Exit codes of the `explore` command."""

    OK = 0  # a verified result, whatever ended the search
    INTERNAL = 1
    USAGE = 2  # also settings, and files that cannot be read
    ENVIRONMENT = 3  # no compiler, no device, no memory
    NOTHING_VALID = 4
    WRONG_ANSWER = 5
    SLOWER = 6  # than the tolerance of a replay
    STALE = 7  # stored decisions that no longer give the stored source
    WRONG_REFERENCE = 8  # the user's NumPy function computes something else
    INTERRUPTED = 130
    TERMINATED = 143


# Of the system, whatever was being written: the device is full or broken.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def explain_error(error: Exception) -> tuple[str, Exit] | None:
    """Returns the message (one sentence) and the exit code for a user's error; None for a bug."""
    if isinstance(error, SettingsError | WorkloadError):
        return str(error), Exit.USAGE
    if isinstance(error, MemoryError):
        said = f": {error}" if str(error) else ""
        return f"there is not enough memory{said}", Exit.ENVIRONMENT
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}", Exit.USAGE
    if isinstance(error, OSError) and error.errno in FULL:
        return f"nothing more can be written: {error.strerror}", Exit.ENVIRONMENT
    for kind, code in _deeper_errors():
        if isinstance(error, kind):
            return str(error), code
    return None


def _deeper_errors() -> tuple[tuple[type[Exception], Exit], ...]:
    """Returns error classes of lower layers with their exit codes.

    They are imported only after an error, so that a successful command need not load these layers.
    """
    from ..explorer.sitting import TooLateError
    from ..explorer.user_reference import FailedReferenceError, WrongReferenceError
    from ..kernels.frontend.errors import LanguageError
    from ..plugins import PluginError
    from ..runtime.api.errors import DeviceError
    from ..runtime.records.record import RecordError
    from ..runtime.records.replay import StaleError
    from ..runtime.worker.forked_inputs import SlowReferenceError
    from ..runtime.worker.inputs import ArgumentsError
    from ..runtime.worker.worker import WorkerError
    from ..space.decisions import DecisionError

    return (
        (LanguageError, Exit.USAGE),
        (DecisionError, Exit.USAGE),
        (ArgumentsError, Exit.USAGE),
        (RecordError, Exit.USAGE),
        (DeviceError, Exit.ENVIRONMENT),
        (PluginError, Exit.ENVIRONMENT),
        (WorkerError, Exit.ENVIRONMENT),
        (SlowReferenceError, Exit.NOTHING_VALID),
        (TooLateError, Exit.NOTHING_VALID),
        (StaleError, Exit.STALE),
        (FailedReferenceError, Exit.USAGE),
        (WrongReferenceError, Exit.WRONG_REFERENCE),
    )


def exit_of(found: Any) -> int:
    """Returns the exit code of a finished run (explorer.entry.Run)."""
    if found.signal == signal.SIGTERM:
        return Exit.TERMINATED
    if found.signal or found.status == "interrupted":
        return Exit.INTERRUPTED
    return Exit.OK if found.best is not None else Exit.NOTHING_VALID


def exit_of_replay(outcome: Any, slower_by: float | None, tolerance: float) -> Exit:
    """Returns the exit code of a replay from its outcome.

    `slower_by`: relative slowdown since the result was stored; above `tolerance` it is an error.
    """
    if isinstance(outcome, Failure):
        return Exit.ENVIRONMENT if outcome.kind == "compile" else Exit.WRONG_ANSWER
    return Exit.SLOWER if slower_by is not None and slower_by > tolerance else Exit.OK
