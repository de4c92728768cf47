"""Search of a running program: the windows that cost most are explored, each in a run of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from ..kernels.frontend.errors import LanguageError
from ..runtime.records.folder import make_run_folder, run_name
from ..runtime.records.loading import write_record
from ..runtime.records.program_file import PROGRAM, ProgramFile, WindowRow
from ..runtime.records.record import SCHEMA, RecordError
from .entry import Run, explore_workload
from .program_windows import ProgramWindow
from .session import Tell
from .workload import Options

_LEAST_SHARE = 0.02  # of the time of all windows
_MOST_WINDOWS = 8
_LEAST_RUNS = 2  # the first one waits for compilers
_LEAST_S = 2.0  # of a search


@dataclass(frozen=True)
class ProgramRun:
    """What was found for a program: its program.json in `folder`, and the runs of the windows that were searched."""

    folder: Path
    file: ProgramFile
    runs: tuple[Run, ...]

    @property
    def is_interrupted(self) -> bool:
        """True if a signal ended it."""
        return any(r.signal for r in self.runs)

    @property
    def has_found(self) -> bool:
        """True if there is an implementation of a window."""
        return any(w.best_ns is not None for w in self.file.windows)


def chosen(windows: Sequence[ProgramWindow]) -> list[ProgramWindow]:
    """Returns the windows to search, those that cost most first: those that come again, if there are any."""
    again = [w for w in windows if len(w.times_s) >= _LEAST_RUNS] or list(windows)
    total_s = sum(w.cost_s for w in again)
    return [w for w in again if w.cost_s >= _LEAST_SHARE * total_s][:_MOST_WINDOWS]


def explore_windows(
    windows: Sequence[ProgramWindow],
    program: Path,
    watched_s: float,
    options: Options,
    *,
    directory: Path | None = None,
    runs: Path = Path("runs"),
    tell: Callable[[WindowRow], None] = lambda row: None,
    on_event: Tell | None = None,
    on_interrupt: Callable[[], None] | None = None,
) -> ProgramRun:
    """Searches windows on what their fields hold now. `tell` is told of each before its search.

    The time limit is for all of them, shared out by cost; other limits are for each. Whatever ends it, program.json has what was
    found until then.
    """
    folder = directory or make_run_folder(runs, run_name(program.stem, options.target, {}))
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / PROGRAM).exists():
        raise RecordError(f"{folder} holds a program's run already: name another folder")
    total_s = sum(w.cost_s for w in windows)
    rows = [
        WindowRow(
            name=f"window{k}",
            kernels=w.kernels,
            runs=len(w.times_s),
            time_ns=w.time_s * 1e9,
            share=w.cost_s / total_s,
            ends=dict(w.ends.most_common()),
        )
        for k, w in enumerate(windows, 1)
    ]
    searched: list[Run] = []

    def written() -> ProgramFile:
        file = ProgramFile(
            schema=SCHEMA, program=program.name, watched_s=watched_s, windows=tuple(rows)
        )
        write_record(folder / PROGRAM, file)
        return file

    begin_s = time.monotonic()
    for k, window in enumerate(windows):
        row, found = rows[k], None
        tell(row)
        own = options
        if options.time_limit_s is not None:
            left_s = options.time_limit_s - (time.monotonic() - begin_s)
            left_cost_s = sum(w.cost_s for w in windows[k:])
            own = replace(options, time_limit_s=max(_LEAST_S, left_s * window.cost_s / left_cost_s))
        why = window.why_fixed
        if not why:
            try:
                workload = window.workload(f"{program.stem}:{row.name}", row.name)
            except LanguageError as e:
                why = str(e)
            else:
                found = explore_workload(
                    workload,
                    own,
                    directory=folder / row.name,
                    on_event=on_event,
                    on_interrupt=on_interrupt,
                )
                searched.append(found)
        if found is not None and found.best is None:
            why = f"nothing valid was found ({found.status})"
        rows[k] = _searched(row, found, why)
        file = written()
        if found is not None and found.signal:
            break
    return ProgramRun(folder, file if windows else written(), tuple(searched))


def _searched(row: WindowRow, found: Run | None, why: str) -> WindowRow:
    """Returns the row of a window after its search."""
    if found is None or found.best is None:
        return msgspec.structs.replace(row, why=why)
    best_ns, default_ns = found.best.time_ns, found.ended.baseline_ns
    return msgspec.structs.replace(row, best_ns=best_ns, default_ns=default_ns)
