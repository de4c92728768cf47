"""Progress of a search from Python: one line, rewritten in place on a terminal or in a notebook."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import Any

from ..search import events as ev
from . import stages as st
from .result_text import TimeUnit
from .session import Tell

_EVERY_S = 0.2

Write = Callable[[str, bool], None]  # a line, and True if it is the last


class Progress:
    """Listener that prints the best time, its bound and gap, and the number of measurements in one line."""

    def __init__(self, write: Write, every_s: float = _EVERY_S) -> None:
        self._write = write
        self._every_s = every_s
        self._told_s = 0.0
        self._name = ""
        self._unit = TimeUnit(1e6)

    def __call__(self, event: st.Stage | ev.Event) -> None:
        if isinstance(event, st.Compiling):
            self._write(event.text, False)
        elif isinstance(event, st.Opened):
            self._name = event.problem
        elif isinstance(event, st.Rooted):
            self._unit = TimeUnit(event.bound_ns)
        elif isinstance(event, ev.Row):
            self._row(event)
        elif isinstance(event, st.Ended):
            text = self._line(event.elapsed_s, event.best_ns, event.bound_ns, event.gap)
            self._write(f"{text} | {event.status} | {event.run_dir}", True)

    def _row(self, row: ev.Row) -> None:
        now_s = time.monotonic()
        if row.new_best or now_s - self._told_s >= self._every_s:
            self._told_s = now_s
            text = self._line(row.elapsed_s, row.best_ns, row.bound_ns, row.gap)
            self._write(f"{text} | {row.ok} measured", False)

    def _line(
        self, elapsed_s: float, best_ns: float | None, bound_ns: float | None, gap: float | None
    ) -> str:
        best, bound = self._unit.text(best_ns), self._unit.text(bound_ns)
        parts = [f"{self._name} {elapsed_s:.1f} s", f"best {best}", f"bound {bound}"]
        return " | ".join(parts if gap is None else [*parts, f"gap {ev.gap_text(gap)}"])


def shown(progress: bool | None, on_event: Tell | None) -> Tell | None:
    """Returns a listener that shows the progress and then calls `on_event`; without display, `on_event` itself.

    `progress` None: shown on terminals and in notebooks only.
    """
    write = None if progress is False else _writer(is_wanted=progress is True)
    if write is None:
        return on_event
    rows = Progress(write)
    if on_event is None:
        return rows
    own = on_event

    def both(event: Any) -> None:
        rows(event)
        own(event)

    return both


def _writer(is_wanted: bool) -> Write | None:
    """Returns a function that rewrites a line: for notebooks, terminals, or (if `is_wanted`) line by line; else None."""
    if (display := _notebook_display()) is not None:
        return _in_notebook(display)
    if sys.stderr is not None and sys.stderr.isatty():
        return _on_terminal
    return _line_by_line if is_wanted else None


def _on_terminal(line: str, is_last: bool) -> None:
    width = shutil.get_terminal_size().columns - 1
    sys.stderr.write(f"\r{line[:width]:<{width}}" + ("\n" if is_last else ""))
    sys.stderr.flush()


def _line_by_line(line: str, is_last: bool) -> None:
    print(line, file=sys.stderr, flush=True)


def _notebook_display() -> Callable[..., Any] | None:
    """Returns IPython's display function if this process is the kernel of a notebook; else None."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None or type(shell).__name__ != "ZMQInteractiveShell":
        return None
    from IPython.display import display

    found: Callable[..., Any] = display
    return found


def _in_notebook(display: Callable[..., Any]) -> Write:
    """Returns a function that writes a line to one output of a notebook cell, replacing the line before."""
    handles: list[Any] = []

    def write(line: str, is_last: bool) -> None:
        shown = {"text/plain": line}
        if handles:
            handles[0].update(shown, raw=True)
        else:
            handles.append(display(shown, raw=True, display_id=True))

    return write
