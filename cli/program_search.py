"""`explore run FILE.py`: runs a program, and searches its most expensive windows (repeated sequences of calls)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..search.bound.explain import time_text
from .exits import Exit
from .listener import listener
from .options import Talk, interrupted, put_json
from .program_file import ProgramError, own_output, show, watch
from .sequence_name import WorkloadError
from .settings import Settings
from .speaking import say

if TYPE_CHECKING:
    from ..explorer.program_run import SearchedProgram
    from ..explorer.workload import Options
    from ..runtime.records.program_file import ProgramFile, WindowRow

_WATCHED_SHARE = 0.25  # of the time limit
_WATCHED_S = 20.0  # without one


def search_program(
    talk: Talk,
    settings: Settings,
    path: Path,
    options: Options,
    directory: Path | None,
    frames: int,
) -> int:
    """Runs a program, searches its windows, and prints the results. Returns the exit code."""
    from ..explorer.program_run import check_folder, chosen, explore_windows

    if directory is not None:
        check_folder(directory)
    limit_s = options.time_limit_s
    seconds = _WATCHED_S if limit_s is None else limit_s * _WATCHED_SHARE
    try:
        with own_output(talk):
            watched = watch(path, frames, seconds)
    except ProgramError as e:
        show(e.error, path, is_whole=talk.verbosity > 1)
        return Exit.INTERNAL
    windows = chosen(watched.log.windows)
    if not windows:
        raise WorkloadError(
            f"{path} calls no kernels on its fields that could wait (none in debug mode or on a device can):"
            f" name a function, {path}:NAME"
        )
    rows = _Rows(talk)
    rows.say(
        f"{path}: {watched.end} after {watched.seconds:.1f} s; {len(watched.log.windows)} windows of calls,"
        f" {len(windows)} of which are searched"
    )
    if limit_s is not None:
        options = replace(options, time_limit_s=max(1.0, limit_s - watched.seconds))
    found = explore_windows(
        windows,
        path,
        watched.seconds,
        options,
        directory=directory,
        runs=settings.runs,
        tell=rows.begin,
        on_event=listener(talk, settings),
        on_interrupt=interrupted,
    )
    code = _exit_of(found)
    if talk.is_json:
        rows.end(found.file)
        put_json({"event": "program_run", "directory": str(found.folder), "exit": int(code)})
    else:
        say("")
        for line in result_lines(found.file):
            say(line)
        if found.has_found:
            say(f"Use it with ks.init(decisions={str(found.folder)!r})")
    return code


class _Rows:
    """Printer of each window before its search: as text, or as JSON lines."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk

    def say(self, line: str) -> None:
        if self._talk.verbosity:
            say(line, err=self._talk.is_json)

    def begin(self, row: WindowRow) -> None:
        self.say("\n" + "\n".join(window_lines(row)))

    def end(self, file: ProgramFile) -> None:
        for row in file.windows:
            put_json({"event": "window", **msgspec.structs.asdict(row)})


def result_lines(file: ProgramFile) -> list[str]:
    """Returns lines on the windows of a program, each with its search result."""
    lines = [f"{file.program}, watched for {file.watched_s:.1f} s"]
    for row in file.windows:
        lines.append(_window_text(row))
        if row.best_ns is None:
            lines.append(f"  nothing found: {row.why or 'it was not searched'}")
        else:
            default = (
                ""
                if row.default_ns is None
                else f", {row.default_ns / row.best_ns:.2f}x its default"
            )
            lines.append(f"  found {time_text(row.best_ns)} by itself{default}")
            if row.assumed:
                lines.append("  takes lists and active cells over from its run before")
    return lines


def window_lines(row: WindowRow) -> list[str]:
    """Returns lines that describe one window and the reasons why it ended."""
    ends = ", ".join(f"{why} ({n})" for why, n in row.ends.items())
    lines = [_window_text(row), f"  ends: {ends}"]
    if row.prologue:
        calls = "call" if row.prologue == 1 else "calls"
        lines.append(
            f"  begins {row.prologue} {calls} later than a period: loops of two periods may be one"
        )
    return lines


def _window_text(row: WindowRow) -> str:
    return f"{row.name}  {row.share:.0%} of their time: {row.runs} runs of {time_text(row.time_ns)}  {row.kernels}"


def _exit_of(found: SearchedProgram) -> Exit:
    if found.is_interrupted:
        return Exit.INTERRUPTED
    return Exit.OK if found.has_found else Exit.NOTHING_VALID
