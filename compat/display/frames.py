"""Frames that a program shows: counts them, writes them to a folder, ends the program after the last one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .picture import Picture


class LastFrame(BaseException):
    """Ends a program that draws in an endless loop.

    It is no `Exception`, so that programs do not catch it by mistake.
    """


@dataclass
class Reel:
    """Frames of one run of a program, at most `limit` (None: no limit).

    They are written as PNG files to `folder` (None: not written).
    `shown_s`: time (perf_counter) at which each frame was shown. `files`: written files. `unwritten`: error of a file that could
    not be written.
    `at_end`: called in the last frame, before the program ends.
    """

    limit: int | None = None
    folder: Path | None = None
    shown_s: list[float] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    unwritten: OSError | None = None
    at_end: Callable[[], None] | None = None

    def show(self, picture: Picture) -> None:
        """Adds a picture as the next frame. Raises LastFrame after the last one."""
        self.shown_s.append(time.perf_counter())
        if self.folder is not None:
            file = self.folder / f"{len(self.shown_s):06d}.png"
            try:
                picture.write(file)
            except OSError as e:
                self.unwritten = e
                raise
            self.files.append(file)
        if self.limit is not None and len(self.shown_s) >= self.limit:
            if self.at_end is not None:
                self.at_end()
            raise LastFrame


_current = Reel()


def reel() -> Reel:
    """Returns the reel that receives frames; outside of a `recorded` block it only counts them."""
    return _current


@contextmanager
def recorded(new: Reel) -> Iterator[Reel]:
    """Makes `new` the reel that receives frames within the block."""
    global _current
    before, _current = _current, new
    try:
        yield new
    finally:
        _current = before
