"""The log of a run as JSON lines: events that are lines (search/line.py), as cli/schema.py describes them."""

from __future__ import annotations

from collections.abc import Callable

from ..search.line import AbstractLine, line_text
from .log import Event


class JsonLog:
    """One JSON object a line, the last one `{"event": "result", ...}`."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def __call__(self, event: Event) -> None:
        if isinstance(event, AbstractLine):
            self._write(line_text(event))
