"""Work in a forked child process, which the user or a deadline can end at any moment.

The child shares its parent's memory by copy-on-write. It returns values, whose arrays pass through shared memory
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
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
    return Forked(work, kept=kept).result(is_over)


class Forked(Generic[T]):
    """Works that run in turn in one child process, and have a result each. Several children may run in parallel.

    `result` returns the results in turn. `end` or the last `result` must be called.
    """

    def __init__(self, *works: Callable[[], T], kept: Sequence[np.ndarray[Any, Any]] = ()) -> None:
        self._works = works
        self._kept = kept
        self._n_given = 0  # results
        self._begin()

    def _begin(self) -> None:
        self._n_killed = n_killed_for_memory()
        self._handovers = [Handover(self._kept) for _ in self._works]
        self._pid, self._read_fds = _begin(self._works, self._handovers)
        self._is_there = True

    def result(self, is_over: Callable[[], bool] = lambda: False) -> T:
        """Waits for the next result, and returns it or raises the exception of its work.

        Raises Stopped once `is_over`, MemoryError if memory is too small, and DiedError. All but a result end the child.
        """
        for n_left in reversed(range(_TRIES)):
            try:
                return self._next(is_over)
            except _KilledError:
                if self._n_killed is None or n_killed_for_memory() != self._n_killed:
                    break
            if n_left:
                self._begin()
        raise MemoryError("the system ended the process that computed the reference")

    def _next(self, is_over: Callable[[], bool]) -> T:
        """Returns the first result that was not given: a child that was made again repeats those before."""
        while True:
            k = len(self._works) - len(self._read_fds)
            found = self._received(is_over)
            if k == self._n_given:
                self._n_given += 1
                return found

    def _received(self, is_over: Callable[[], bool]) -> T:
        """Waits for the child's next answer, and returns it or raises it if it is an exception."""
        try:
            content = _read(self._read_fds[0], is_over)
        except BaseException:
            self.end()
            raise
        if not content:
            status = self._reap()
            if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
                raise _KilledError
            raise DiedError(_end_of(status))
        os.close(self._read_fds.pop(0))
        with closing(self._handovers.pop(0)) as handover:
            is_well, value = handover.loads(content)
        if not (is_well and self._read_fds):
            self._reap()
        if not is_well:
            raise value
        return cast(T, value)

    def _reap(self) -> int:
        """Waits until the child has ended, closes all that it was sent by, and returns its status."""
        self._is_there = False
        while self._read_fds:
            os.close(self._read_fds.pop())
        while self._handovers:
            self._handovers.pop().close()
        return os.waitpid(self._pid, 0)[1]

    @property
    def fd(self) -> int:
        """The file that can be read from once the next answer comes."""
        return self._read_fds[0]

    def send(self, number: int) -> None:
        """Sends a signal to the child, whose work may have a handler for it. Safe once it has ended."""
        if self._is_there:
            with suppress(ProcessLookupError):
                os.kill(self._pid, number)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Context manager during which the child stands still."""
        self.send(signal.SIGSTOP)
        try:
            yield
        finally:
            self.send(signal.SIGCONT)

    def end(self) -> None:
        """Ends the child, whose further results are not needed. Safe to call twice."""
        if self._is_there:
            _kill(self._pid)
            self._reap()


class _KilledError(Exception):
    """A child that was ended by SIGKILL, which it never sends itself."""


def _begin(
    works: Sequence[Callable[[], Any]], handovers: Sequence[Handover]
) -> tuple[int, list[int]]:
    """Forks a child that does the works in turn. Returns its process id and the descriptors for its answers."""
    pipes = [os.pipe() for _ in works]
    with warnings.catch_warnings():
        # Python warns of threads of the parent: what runs here takes none of their locks.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        _answer(works, handovers, [write_fd for _, write_fd in pipes])
    for _, write_fd in pipes:
        os.close(write_fd)
    return pid, [read_fd for read_fd, _ in pipes]


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


def _answer(
    works: Sequence[Callable[[], Any]], handovers: Sequence[Handover], fds: Sequence[int]
) -> None:
    """Does the works in the child, sends an answer for each up to the first that failed, and exits."""
    try:
        os.setsid()  # what it starts ends with it; signals of a terminal are for the parent
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # until the process ends
        for work, handover, fd in zip(works, handovers, fds, strict=True):
            is_well = True
            try:
                with within_free_memory():
                    content = handover.dumps((True, work()))
            except BaseException as e:
                is_well, content = False, handover.dumps((False, _sendable(e)))
            with open(fd, "wb") as pipe:
                pipe.write(content)
            if not is_well:
                break
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
