"""Listener for the events of a session: prints rows for people, JSON lines, or both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import __version__
from .json_log import JsonLog
from .log import TextLog
from .options import Talk
from .settings import Settings
from .speaking import say


def listener(talk: Talk, settings: Settings) -> Callable[[Any], None]:
    """Returns a listener that prints the events of a session.

    JSON lines go to stdout; rows for people then go to stderr.
    """

    def write(line: str) -> None:
        say(line, err=talk.is_json)

    rows = TextLog(
        write,
        version=__version__,
        every_s=settings.log_every_s,
        verbosity=talk.verbosity,
    )
    if not talk.is_json:
        return rows
    lines = JsonLog(say)
    is_silent = talk.verbosity == 0

    def both(event: Any) -> None:
        lines(event)
        if not is_silent:
            rows(event)

    return both
