"""Log of a run as JSON lines: its events that are lines (search/line.py), with the schema of cli/schema.py."""

from __future__ import annotations

from collections.abc import Callable

from ..search.line import AbstractLine, line_text
from .log import Event


class JsonLog:
    """Listener that prints one JSON object per line, the last one `{"event": "result", ...}`."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def __call__(self, event: Event) -> None:
        if isinstance(event, AbstractLine):
            self._write(line_text(event))
