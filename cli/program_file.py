"""User programs run as by `python FILE.py`: their compilation, their exceptions, and a log of their windows."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, Final

from .sequence_name import WorkloadError

if TYPE_CHECKING:
    from ..compat.display.frames import Reel
    from ..explorer.program_windows import WindowLog
    from ..kernels.frontend.dispatch import AbstractDeferringExecutor
    from .options import Talk

_PACKAGE: Final = f"{Path(__file__).parents[1]}{os.sep}"


class ProgramError(Exception):
    """A user's program has raised the exception `error`."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True)
class Watched:
    """A program that has run: its windows, its seconds, the reason for its end, and its global names.

    The names are stored so that the program's fields stay alive.
    """

    log: WindowLog
    seconds: float
    end: str
    names: dict[str, Any]


def read(path: Path) -> CodeType:
    """Returns the compiled code of a program file. Raises WorkloadError."""
    from ..compat.program import read_program

    if not path.is_file():
        raise WorkloadError(f"there is no file {path}")
    try:
        return read_program(path)
    except SyntaxError as e:
        place = path if e.lineno is None else f"{path}:{e.lineno}"
        raise WorkloadError(f"{place}: {e.msg}") from e


def watch(path: Path, frames: int, seconds: float) -> Watched:
    """Runs a program for at most `frames` frames or `seconds` seconds, and logs its windows (repeated calls).

    Raises WorkloadError, LanguageError and ProgramError.
    """
    from ..compat.display.frames import LastFrame, Reel
    from ..explorer.program_windows import WindowLog, watched_window
    from ..kernels.frontend.init import sync

    def stop() -> None:
        raise LastFrame

    reel = Reel(frames)
    log = WindowLog(seconds, stop)
    is_cut, names = run_with(path, lambda: watched_window(log), reel)
    taken_s = log.seconds
    log.close()
    sync()
    is_last = len(reel.shown_s) >= frames
    end = f"ended after {frames} frames" if is_last else "ended" if is_cut else "ended by itself"
    return Watched(log, taken_s, end, names)


def own_output(talk: Talk) -> AbstractContextManager[Any]:
    """Returns a context in which a program's prints go to stderr if stdout has JSON lines."""
    return redirect_stdout(sys.stderr) if talk.is_json else nullcontext()


def run_with(
    path: Path, make: Callable[[], AbstractDeferringExecutor], reel: Reel
) -> tuple[bool, dict[str, Any]]:
    """Runs a program whose calls of kernels go to the executors that `make` creates.

    `reel` counts the frames that it shows. Returns True if `reel` ended the program, and the program's global names. Raises
    WorkloadError, LanguageError and ProgramError.
    """
    from ..compat.program import run_program
    from ..kernels.frontend.dispatch import watching
    from ..kernels.ir.errors import LanguageError

    code = read(path)
    try:
        with watching(make):
            ran = run_program(code, path, (), reel)
    except LanguageError:
        raise
    except Exception as e:
        raise ProgramError(e) from e
    return ran.is_cut, ran.names


def show(error: BaseException, path: Path, *, is_whole: bool) -> None:
    """Prints an exception of a program as Python does.

    Unless `is_whole`, frames of this package before and after the program's own are left out.
    """
    told = traceback.TracebackException.from_exception(error)
    link: traceback.TracebackException | None = None if is_whole else told
    while link is not None:
        link.stack = _own_frames(link.stack, str(path))
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    print("".join(told.format()), end="", file=sys.stderr)


def _own_frames(stack: traceback.StackSummary, program: str) -> traceback.StackSummary:
    """Returns the stack frames from the program's first up to the frame in which it calls this package last."""
    own = [k for k, frame in enumerate(stack) if frame.filename == program]
    begin, end = (own[0], own[-1] + 1) if own else (0, 0)
    while end < len(stack) and not stack[end].filename.startswith(_PACKAGE):
        end += 1
    return traceback.StackSummary.from_list(stack[begin:end])
