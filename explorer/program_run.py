"""Search of a running program: explores its most expensive windows (repeated calls), each in its own run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from ..kernels.frontend.errors import LanguageError
from ..kernels.ir.errors import KernelRuntimeError
from ..runtime.records.folder import make_run_folder, run_name
from ..runtime.records.loading import write_record
from ..runtime.records.program_file import PROGRAM, ProgramFile, WindowRow
from ..runtime.records.record import SCHEMA, RecordError
from ..runtime.worker.forked_inputs import SlowReferenceError
from ..runtime.worker.inputs import ArgumentsError
from .entry import Run, explore_workload
from .program_windows import ProgramWindow
from .session import Tell
from .workload import Options

_LEAST_SHARE = 0.02  # of the time of the windows that come again
_MOST_WINDOWS = 8
_LEAST_RUNS = 2  # the first one waits for compilers
_LEAST_S = 2.0  # of a search
# Errors of one window, which keep no other from being searched.
_OF_ONE = (
    LanguageError,
    ArgumentsError,
    SlowReferenceError,
    MemoryError,
    KernelRuntimeError,
)


@dataclass(frozen=True)
class SearchedProgram:
    """Result of searching a program: its windows' implementations, listed in program.json in `folder`.

    `is_interrupted`: a signal ended the search.
    """

    folder: Path
    file: ProgramFile
    is_interrupted: bool

    @property
    def has_found(self) -> bool:
        """True if an implementation was found for at least one window."""
        return any(w.best_ns is not None for w in self.file.windows)


def chosen(windows: Sequence[ProgramWindow]) -> list[ProgramWindow]:
    """Returns the windows to search, most expensive first: only repeated ones, if there are any."""
    again = [w for w in windows if len(w.times_s) >= _LEAST_RUNS] or list(windows)
    total_s = sum(w.cost_s for w in again)
    return [w for w in again if w.cost_s >= _LEAST_SHARE * total_s][:_MOST_WINDOWS]


def check_folder(folder: Path) -> None:
    """Raises RecordError if the folder already contains the run of a program."""
    if (folder / PROGRAM).exists():
        raise RecordError(f"{folder} holds a program's run already: name another folder")


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
) -> SearchedProgram:
    """Searches the windows of a program on the current contents of its fields.

    A window that follows itself is rotated where loops of two of its runs become one. `watched_s`: seconds for which the program
    was watched. `tell` receives the row of each window before its search.
    The time limit is divided among the windows by cost; other limits apply to each. However the search ends, program.json lists
    all that was found before. Raises RecordError.
    """
    folder = directory or make_run_folder(runs, run_name(program.stem, options.target, {}))
    check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    windows = [w.rotated() for w in windows]
    rows = _rows(windows)

    def written() -> ProgramFile:
        made = ProgramFile(
            schema=SCHEMA, program=program.name, watched_s=watched_s, windows=tuple(rows)
        )
        write_record(folder / PROGRAM, made)
        return made

    file, begin_s = written(), time.monotonic()
    for k, window in enumerate(windows):
        tell(rows[k])
        own = options
        if options.time_limit_s is not None:
            left_s = options.time_limit_s - (time.monotonic() - begin_s)
            share = window.cost_s / sum(w.cost_s for w in windows[k:])
            own = replace(options, time_limit_s=max(_LEAST_S, left_s * share))
        name = rows[k].name
        found: Run | str = window.why_fixed
        assumed: tuple[str, ...] = ()
        if not found:
            try:
                with window.workload(f"{program.stem}:{name}", name) as workload:
                    assumed = workload.recording.assumed
                    found = explore_workload(
                        workload,
                        own,
                        directory=folder / name,
                        on_event=on_event,
                        on_interrupt=on_interrupt,
                    )
            except _OF_ONE as e:
                found = str(e)
        rows[k] = msgspec.structs.replace(_searched(rows[k], found), assumed=assumed)
        file = written()
        if isinstance(found, Run) and found.signal:
            return SearchedProgram(folder, file, True)
    return SearchedProgram(folder, file, False)


def _rows(windows: Sequence[ProgramWindow]) -> list[WindowRow]:
    """Table rows of windows before their search."""
    total_s = sum(w.cost_s for w in windows)
    return [
        WindowRow(
            name=f"window{k}",
            kernels=w.kernels,
            runs=len(w.times_s),
            time_ns=w.time_s * 1e9,
            share=w.cost_s / total_s,
            ends=dict(w.ends.most_common()),
            prologue=len(w.prologue),
        )
        for k, w in enumerate(windows, 1)
    ]


def _searched(row: WindowRow, found: Run | str) -> WindowRow:
    """Returns the table row of a window after its search; `found` is its run, or the reason why there is none."""
    if isinstance(found, str):
        return msgspec.structs.replace(row, why=found)
    if found.best is None:
        return msgspec.structs.replace(row, why=f"nothing valid was found ({found.status})")
    best_ns, default_ns = found.best.time_ns, found.ended.baseline_ns
    return msgspec.structs.replace(row, best_ns=best_ns, default_ns=default_ns)
