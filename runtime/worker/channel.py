"""Channel to a worker's child process: starts it, sends requests with a deadline, kills it, classifies its end.

Requests and replies pass through two pipes.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ..forked import Stopped
from ..free_memory import n_killed_for_memory
from . import messages
from .child import ChildOptions

_START_S = 60.0
# Signals that no candidate sends itself. SIGKILL is the system's, too, where memory runs out.
_FOREIGN = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGKILL)
_LOOK_S = 0.1  # polling interval of `is_over` during a request
# Variables that would distort measurements: a wrong OPENBLAS_CORETYPE halves the speed of OpenBLAS.
_REMOVED_PREFIXES = ("OPENBLAS_", "OMP_", "GOMP_", "KMP_", "MKL_")


@dataclass(frozen=True)
class Death:
    """Unexpected end of a child during a request."""

    what: str  # for people
    log: str  # the end of what it printed
    signal: int = 0  # that ended it and was not ours
    timed_out: bool = False
    deadline_s: float = 0.0
    used_bytes: int = 0  # private memory just before it was killed
    fault: messages.Fault | None = None
    is_foreign: bool = False  # another process ended it, independent of its work


Answer = messages.Ready | messages.Outcomes | messages.Rates | Death


def available_cores() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


class AbstractChannel(ABC):
    """Connection to the process that runs the requests of one worker."""

    library: Path | None = None  # that the process loads when it starts; None: none is given

    def __init__(self) -> None:
        self.is_over: Callable[[], bool] = lambda: False
        """Once true, nobody needs the answer of a request any more."""

    @property
    @abstractmethod
    def is_alive(self) -> bool:
        """True if the process runs and still has the arrays that it was prepared with."""

    @abstractmethod
    def ask(self, request: messages.Request, deadline_s: float) -> Answer:
        """Sends a request; returns the answer, or the death of the process.

        Raises RuntimeError if the process reports a bug of its own, and Stopped once `is_over`.
        """

    @abstractmethod
    def kill(self) -> None:
        """Ends the process and everything that it started; the next request starts another."""

    @abstractmethod
    def start(self) -> None:
        """Starts the process in the background, unless it runs."""


class Channel(AbstractChannel):
    """A child process of `kernelscape.runtime.worker.child`, started by the first request and after each death."""

    def __init__(
        self,
        device: str,
        library: Path | None,
        scratch: Path,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._device = device
        self.library = library
        self._scratch = scratch
        self._given = dict(environment or {})
        self._child: subprocess.Popen[bytes] | None = None
        self._request_fd = self._reply_fd = -1
        self._is_ready = False
        self._n_killed_before: int | None = None  # for memory, in the whole system

    @property
    def is_alive(self) -> bool:
        return self._child is not None

    def ask(self, request: messages.Request, deadline_s: float) -> Answer:
        try:
            self.start()
            died = self._await_start()
            if died is not None:
                return died
            messages.write_all(self._request_fd, messages.encode_request(request))
            return self._receive(deadline_s)
        except BrokenPipeError:
            return self._bury(deadline_s, None)
        except BaseException:
            # Whatever interrupted this, the next request must not read this one's answer.
            self.kill()
            raise

    def kill(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        try:
            child.wait()
        finally:
            os.close(self._request_fd)
            os.close(self._reply_fd)

    def start(self) -> None:
        if self._child is not None:
            return
        self._is_ready = False
        self._n_killed_before = n_killed_for_memory()
        child_in, self._request_fd = os.pipe()
        self._reply_fd, child_out = os.pipe()
        path = None if self.library is None else os.fspath(self.library)
        options = msgspec.json.encode(ChildOptions(self._device, path, available_cores())).decode()
        module = f"{__package__}.child"
        command = [sys.executable, "-P", "-m", module, str(child_in), str(child_out), options]
        try:
            with open(self._scratch / "child.log", "wb") as log:
                self._child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self._environment(),
                    cwd=self._scratch,
                    pass_fds=(child_in, child_out),
                    start_new_session=True,
                )
        finally:
            os.close(child_in)
            os.close(child_out)

    def _await_start(self) -> Death | None:
        """Waits until the child has started. Returns its death if another process killed it.

        Raises RuntimeError if it fails to start by itself.
        """
        if self._is_ready:
            return None
        answer = self._receive(_START_S)
        if isinstance(answer, Death) and answer.is_foreign:
            return answer
        if not isinstance(answer, messages.Ready):
            log_end = answer.log if isinstance(answer, Death) else ""
            raise RuntimeError(f"the worker's child did not start: {log_end}")
        self._is_ready = True
        return None

    def _environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(_REMOVED_PREFIXES)}
        return kept | self._given

    def _receive(self, deadline_s: float) -> Answer:
        end = time.monotonic() + deadline_s
        head = self._read(4, end)
        body = self._read(int.from_bytes(head, "little"), end) if isinstance(head, bytes) else head
        if not isinstance(body, bytes):
            return self._bury(deadline_s, None, timed_out=body)
        try:
            reply: messages.Reply = messages.decode_reply(body)
        except msgspec.DecodeError:
            return self._bury(deadline_s, None)
        if isinstance(reply, messages.Fault):
            return self._bury(deadline_s, reply)
        if isinstance(reply, messages.Broken):
            raise RuntimeError(f"bug in the worker's child:\n{reply.traceback}")
        if isinstance(reply, messages.Refused):
            self.kill()
            return Death(reply.why, "")
        if isinstance(reply, messages.Outcomes) and reply.is_last:
            self.kill()
        return reply

    def _read(self, n_bytes: int, end: float) -> bytes | bool:
        """Returns `n_bytes` bytes; True after the deadline `end`; False if the other end of the pipe was closed."""
        parts = b""
        poll = select.poll()
        poll.register(self._reply_fd, select.POLLIN)
        while len(parts) < n_bytes:
            left_s = max(0.0, end - time.monotonic())
            if not poll.poll(min(left_s, _LOOK_S) * 1000):
                if self.is_over():
                    raise Stopped
                if left_s <= _LOOK_S:
                    return True
                continue
            part = os.read(self._reply_fd, n_bytes - len(parts))
            if not part:
                return False
            parts += part
        return parts

    def _bury(
        self, deadline_s: float, fault: messages.Fault | None, timed_out: bool = False
    ) -> Death:
        child = self._child
        assert child is not None
        used_bytes = _data_bytes(child.pid) if timed_out else 0
        code = None
        if not timed_out:
            try:
                code = child.wait(10.0)
            except subprocess.TimeoutExpired:
                timed_out = True
        self.kill()
        if timed_out:
            what = f"it was killed after {deadline_s:.1f} s without an answer"
        elif code is not None and code < 0:
            what = f"it ended by {_signal_name(-code)}"
        else:
            what = f"it ended the process with status {code}"
        died_by = -code if code is not None and code < 0 else 0
        return Death(
            what,
            self._log_end(),
            died_by,
            timed_out,
            deadline_s,
            used_bytes,
            fault,
            self._is_foreign(died_by),
        )

    def _is_foreign(self, died_by: int) -> bool:
        """True if another process sent the signal that ended the child."""
        if died_by == signal.SIGKILL:
            before = self._n_killed_before
            return before is not None and n_killed_for_memory() == before
        return died_by in _FOREIGN

    def _log_end(self) -> str:
        try:
            return (self._scratch / "child.log").read_bytes()[-2000:].decode(errors="replace")
        except OSError:
            return ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _data_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[5]) * os.sysconf("SC_PAGESIZE")
    except (OSError, IndexError, ValueError):
        return 0
