"""Work in a forked child process, which the user or a deadline can end at any moment.

The child shares its parent's memory by copy-on-write. It returns one value, whose arrays pass through shared memory
(handover.py). It may write to arrays of `shared_empty`. It must not use threads of the parent. Its output is discarded.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import pickle
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar, cast

import numpy as np

from .free_memory import n_killed_for_memory, within_free_memory
from .handover import Handover

T = TypeVar("T")
_TRIES = 3  # of a child that somebody kills
_LOOK_S = 0.05  # how often the parent looks whether the child is to end
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)


class Stopped(KeyboardInterrupt):
    """Interruption of running work, by the user (argument: the signal's number) or by a deadline."""


class DiedError(RuntimeError):
    """A child that ended without an answer, by a signal or an exit; the argument describes its end."""


def run_apart(
    work: Callable[[], T],
    is_over: Callable[[], bool] = lambda: False,
    kept: Sequence[np.ndarray[Any, Any]] = (),
) -> T:
    """Runs `work` in a child process, and returns its result or raises its exception.

    Arrays of `kept` in the result are the parent's own objects. Raises Stopped once `is_over`, MemoryError if memory is too
    small, and DiedError. A child killed by another process is restarted.
    """
    return Forked(work, kept).result(is_over)


class Forked(Generic[T]):
    """Work running in a child process. Several may run in parallel. `result` or `end` must be called once."""

    def __init__(self, work: Callable[[], T], kept: Sequence[np.ndarray[Any, Any]] = ()) -> None:
        self._work = work
        self._kept = kept
        self._begin()

    def _begin(self) -> None:
        self._n_killed = n_killed_for_memory()
        self._handover = Handover(self._kept)
        self._pid, self._read_fd = _begin(self._work, self._handover)

    def result(self, is_over: Callable[[], bool] = lambda: False) -> T:
        """Waits for the child, and returns the work's result or raises its exception.

        Raises Stopped once `is_over`, MemoryError if memory is too small, and DiedError.
        """
        for n_left in reversed(range(_TRIES)):
            try:
                return cast(T, _wait(self._pid, self._read_fd, self._handover, is_over))
            except _KilledError:
                if self._n_killed is None or n_killed_for_memory() != self._n_killed:
                    break
            finally:
                self._handover.close()
            if n_left:
                self._begin()
        raise MemoryError("the system ended the process that computed the reference")

    @property
    def fd(self) -> int:
        """The file that can be read from once the answer comes."""
        return self._read_fd

    def send(self, number: int) -> None:
        """Sends a signal to the child, whose work may have a handler for it. Safe once it has ended."""
        with suppress(ProcessLookupError):
            os.kill(self._pid, number)

    def end(self) -> None:
        """Ends the child, whose result is not needed."""
        _kill(self._pid)
        os.close(self._read_fd)
        os.waitpid(self._pid, 0)
        self._handover.close()


class _KilledError(Exception):
    """A child that was ended by SIGKILL, which it never sends itself."""


def _begin(work: Callable[[], Any], handover: Handover) -> tuple[int, int]:
    """Forks a child that runs `work`. Returns its process id and the descriptor for its answer."""
    read_fd, write_fd = os.pipe()
    with warnings.catch_warnings():
        # Python warns of threads of the parent: what runs here takes none of their locks.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        _answer(work, handover, write_fd)
    os.close(write_fd)
    return pid, read_fd


def _wait(pid: int, read_fd: int, handover: Handover, is_over: Callable[[], bool]) -> Any:
    """Waits for a child's answer, reaps the child, and returns the answer or raises it if it is an exception."""
    try:
        content = _read(read_fd, is_over)
    except BaseException:
        _kill(pid)
        raise
    finally:
        os.close(read_fd)
        status = os.waitpid(pid, 0)[1]
    if not content:
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            raise _KilledError
        raise DiedError(_end_of(status))
    is_well, value = handover.loads(content)
    if not is_well:
        raise value
    return value


def _kill(pid: int) -> None:
    """Kills a child and the processes that it started, also before it leads its own process group."""
    for end in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            end(pid, signal.SIGKILL)


def _end_of(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"its process ended by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"it ended its process with status {os.WEXITSTATUS(status)}"


def shared_empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """Returns an array of zeros in memory shared with forked children: a child writes it, the parent reads it."""
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    return np.frombuffer(mmap.mmap(-1, max(1, n_bytes)), dtype, math.prod(shape)).reshape(shape)


def _answer(work: Callable[[], Any], handover: Handover, fd: int) -> None:
    """Runs the work in the child, sends the answer, and exits."""
    try:
        os.setsid()  # what it starts ends with it; signals of a terminal are for the parent
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # until the process ends
        try:
            with within_free_memory():
                content = handover.dumps((True, work()))
        except BaseException as e:
            content = handover.dumps((False, _sendable(e)))
        with open(fd, "wb") as pipe:
            pipe.write(content)
    finally:
        os._exit(0)


def _sendable(error: BaseException) -> BaseException:
    """Returns the error with its traceback as text; another exception with that text if it cannot be pickled."""
    lines = "".join(traceback.format_exception(error))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(lines)
    error.add_note(f"in a child of this process:\n{lines}")
    return error


def _read(fd: int, is_over: Callable[[], bool]) -> bytes:
    parts: list[bytes] = []
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while True:
        while not poll.poll(_LOOK_S * 1000):
            if is_over():
                raise Stopped
        part = os.read(fd, 1 << 20)
        if not part:
            return b"".join(parts)
        parts.append(part)


def over_after(limit_s: float) -> Callable[[], bool]:
    """Returns a function that returns True from `limit_s` seconds after now on."""
    end_s = time.monotonic() + limit_s
    return lambda: time.monotonic() > end_s
