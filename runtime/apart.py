"""Work in a forked child, which the user or the clock can end at any moment, whatever it is about.

The child has what its parent has, at no cost; it gives back one value that can be pickled, and may write to arrays of
`shared_empty`. It must use no threads that the parent had.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import pickle
import select
import signal
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

import numpy as np

T = TypeVar("T")
_LOOK_S = 0.05  # how often the parent looks whether the child is to end
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)


class Stopped(KeyboardInterrupt):
    """The user, by the signal that is its argument, or the clock ended what was going on."""


def run_apart(work: Callable[[], T], is_over: Callable[[], bool] = lambda: False) -> T:
    """What `work` returns or raises in a child. Raises Stopped once `is_over`, MemoryError where the system ended the child."""
    return cast(T, _wait(*_begin(work), is_over))


def _begin(work: Callable[[], Any]) -> tuple[int, int]:
    """A child that works: its process and the pipe of its answer."""
    read_fd, write_fd = os.pipe()
    with warnings.catch_warnings():
        # Python warns of threads of the parent: what runs here takes none of their locks.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        _answer(work, write_fd)
    os.close(write_fd)
    return pid, read_fd


def _wait(pid: int, read_fd: int, is_over: Callable[[], bool]) -> Any:
    """The answer of a child, which is gone then."""
    try:
        content = _read(read_fd, is_over)
    except BaseException:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        raise
    finally:
        os.close(read_fd)
        status = os.waitpid(pid, 0)[1]
    if not content:
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            raise MemoryError("the system ended the process that computed the reference")
        raise RuntimeError(f"a child of this process ended with status {status} and no answer")
    is_well, value = pickle.loads(content)
    if not is_well:
        raise value
    return value


def shared_empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """An array of zeros that a forked child writes and its parent reads."""
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    return np.frombuffer(mmap.mmap(-1, max(1, n_bytes)), dtype, math.prod(shape)).reshape(shape)


def _answer(work: Callable[[], Any], fd: int) -> None:
    """In the child: work, answer, end."""
    try:
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the parent decides
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            content = pickle.dumps((True, work()))
        except BaseException as e:
            content = pickle.dumps((False, e))
        with open(fd, "wb") as pipe:
            pipe.write(content)
    finally:
        os._exit(0)


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
    """Whether so many seconds from now have passed."""
    end_s = time.monotonic() + limit_s
    return lambda: time.monotonic() > end_s
