"""Commands that end in time, with all that they have started."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import killpg
from pathlib import Path


@dataclass(frozen=True)
class Ended:
    """End of a command: its exit status, None where it was killed after its time, and what it printed."""

    status: int | None
    output: str
    errors: str


def run_whole(command: Sequence[str], limit_s: float, folder: Path | None = None) -> Ended:
    """Runs a command in a session of its own; after `limit_s` it is killed with all processes that it has started."""
    with subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        try:
            output, errors = child.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                killpg(child.pid, signal.SIGKILL)
            output, errors = child.communicate()
            return Ended(None, output, errors)
    return Ended(child.returncode, output, errors)
