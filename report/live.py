"""The page of a run as a file in its directory, rewritten while the search is running."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..runtime.files import write_atomically
from ..runtime.records.folder import JOURNAL
from .page import page_html
from .rebuilt import rebuilt
from .run_data import RunData, Source, load_run
from .still import summary

NAME = "report.html"
LIVE_EVERY_S = 3.0


class Page(NamedTuple):
    """A written page: its file, the number of its evaluations, and a one-line summary of the run."""

    file: Path
    n_evaluations: int
    summary: str


def pages(run: Source, path: Path | None = None, every_s: float = 0.0) -> Iterator[Page]:
    """Writes the page of a run to `path`, by default into its directory, and yields each written page.

    With `every_s` it is rewritten after that many seconds, until no process searches any more. Browsers reload these pages,
    except the last one.

    Raises RecordError and OSError.
    """
    found = load_run(run)
    path = path or found.folder / NAME
    space = rebuilt(found)
    is_live = every_s > 0
    try:
        while is_live and is_written(found):
            write_atomically(path, page_html(found, space, every_s).encode())
            yield Page(path, len(found.evaluations), summary(found))
            time.sleep(every_s)
            found = load_run(run)
    finally:
        # Also after Ctrl-C: a page that nobody writes any more must not ask to be read again.
        found = load_run(run) if is_live else found
        write_atomically(path, page_html(found, space).encode())
    yield Page(path, len(found.evaluations), summary(found))


def is_written(run: RunData) -> bool:
    """True if a process holds the journal of the run (Linux); elsewhere if its last session has not ended."""
    try:
        inode = f":{(run.folder / JOURNAL).lstat().st_ino} "
        locks = Path("/proc/locks").read_text()
    except OSError:
        return not run.is_ended
    return any("FLOCK" in line and inode in line for line in locks.splitlines())
