"""Frames of a program: counted, written where a folder is given; the last one ends the program."""

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
    """Ends a program that would draw on for ever. No `Exception`, so that no program catches it by mistake."""


@dataclass
class Reel:
    """The frames of one run: `limit` of them (None: no end), as PNG files in `folder` where there is one.

    `shown_s` has the time (perf_counter) at which each was shown, `files` what was written, `unwritten` why one was not.
    `at_end` is called while the program still stands in its last frame.
    """

    limit: int | None = None
    folder: Path | None = None
    shown_s: list[float] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    unwritten: OSError | None = None
    at_end: Callable[[], None] | None = None

    def show(self, picture: Picture) -> None:
        """Records the end of a frame. Raises LastFrame after the last."""
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
    """Returns the reel that receives frames; outside of `recorded` they are counted only."""
    return _current


@contextmanager
def recorded(new: Reel) -> Iterator[Reel]:
    """Sends the frames of the block to `new`."""
    global _current
    before, _current = _current, new
    try:
        yield new
    finally:
        _current = before
