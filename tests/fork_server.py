"""Processes of `python -m kernelscape...`, forked from a server that has imported what they need: a start costs a tenth of it.

`Popen` stands for `subprocess.Popen` while tests run (`conftest.py`). A server is a process of its own, which has no thread and no
team of OpenMP, and has run nothing but imports. Commands that it cannot stand for are started as always: other programs, and those
whose environment says something to Python or to a library that the server has loaded.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

WORKER = "kernelscape.runtime.worker.child"
# Imported by each server before it forks. What is run itself is not among them: it is executed as `python -m` does it.
LIGHT = ("kernelscape.runtime.cpu.device", "kernelscape.runtime.worker.evaluator")
FULL = ("kernelscape.cli.commands", "kernelscape.explorer.entry", "kernelscape.cli.log", *LIGHT)
# Variables that Python and libraries read when they are loaded; workers are started without those of teams.
_OF_TEAMS = ("OPENBLAS_", "OMP_", "GOMP_", "KMP_", "MKL_")
_LOADING = (*_OF_TEAMS, "PYTHON", "NUMBA", "LD_", "HOME")
_OF_CACHES = ("NUMBA_CACHE_DIR",)  # what a server has loaded is not looked for again
_Popen = subprocess.Popen


class Server:
    """The process that forks, as seen by those who ask it to."""

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        self._environment = said_to_loaders(environment)
        self._lock = threading.Lock()
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            number = theirs.fileno()
            self._process = _Popen(
                [sys.executable, "-P", __file__, str(number), *modules],
                stdin=subprocess.DEVNULL,
                pass_fds=(number,),
                env=dict(environment),
                start_new_session=True,
            )

    def fits(self, environment: Mapping[str, str]) -> bool:
        """True if a process with this environment may be forked."""
        return said_to_loaders(environment) == self._environment

    def fork(self, command: Mapping[str, Any], fds: Mapping[int, int]) -> tuple[int, int]:
        """Returns the numbers of a new process and of a socket that tells how it ended. `fds`: its files by their numbers there.

        A number, since sockets that are found in a circle warn before what holds them can close them.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        asked = json.dumps({**command, "fds": list(fds)}).encode()
        with ours:
            with self._lock, theirs:
                socket.send_fds(self._ours, [asked], [theirs.fileno(), *fds.values()])
            told = ours.recv(100)
            if not told:
                raise OSError("the server of forked processes has ended")
            return int(told), ours.detach()

    def close(self) -> None:
        self._ours.close()
        self._process.wait()


def said_to_loaders(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that is read when Python and libraries are loaded."""
    read = (k for k in environment if k.startswith(_LOADING) and k not in _OF_CACHES)
    return {k: environment[k] for k in read}


class Servers:
    """A server for workers, which load little, and one for commands; each is started when it is first needed."""

    def __init__(self) -> None:
        self.environment = dict(os.environ)  # before any test changes it
        self._found: dict[tuple[str, ...], Server] = {}
        self._lock = threading.Lock()

    def of(self, module: str, environment: Mapping[str, str]) -> Server | None:
        """The server that forks `python -m module`; None if it must be started."""
        modules = LIGHT if module == WORKER else FULL
        with self._lock:
            if modules not in self._found:
                self._found[modules] = Server(modules, self.environment_of(module))
            server = self._found[modules]
        return server if server.fits(environment) else None

    def environment_of(self, module: str) -> dict[str, str]:
        """The environment of the server that forks `python -m module`."""
        left_out = _OF_TEAMS if module == WORKER else ()
        return {k: v for k, v in self.environment.items() if not k.startswith(left_out)}

    def close(self) -> None:
        for server in self._found.values():
            server.close()
        self._found.clear()


SERVERS = Servers()


class Popen(_Popen):
    """`subprocess.Popen`, which forks a process of `python -m kernelscape...` where it may."""

    reaped_s = 0.0  # CPU seconds of all forked processes that were waited for
    _ending: int | None = None  # a socket, which tells how a forked process ended; closed: -1

    def _execute_child(self, args: Any, *given: Any) -> None:
        pass_fds, cwd, env = given[3:6]
        environment = os.environ if env is None else env
        module = module_of(args)
        server = SERVERS.of(module, environment) if module else None
        if server is None:
            super()._execute_child(args, *given)
            return
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite = given[9:15]
        own = (0, 1, 2) if p2cread < 0 or c2pwrite < 0 or errwrite < 0 else ()
        fds = {number: number for number in (*own, *pass_fds)}
        fds |= {n: fd for n, fd in ((0, p2cread), (1, c2pwrite), (2, errwrite)) if fd >= 0}
        folder = os.fspath(os.getcwd() if cwd is None else cwd)
        command = {"args": [str(x) for x in args], "cwd": folder, "env": dict(environment)}
        try:
            self.pid, self._ending = server.fork(command, fds)
            self._child_created = True
        finally:
            self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)

    def __del__(self, *given: Any) -> None:
        self._close_ending()  # a process that outlives this one is waited for by nobody
        super().__del__(*given)

    def _close_ending(self) -> None:
        if self._ending is not None and self._ending >= 0:
            number, self._ending = self._ending, -1
            os.close(number)

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._ending is None:
            return super()._try_wait(wait_flags)
        with socket.socket(fileno=os.dup(self._ending)) as ending:
            try:
                told = ending.recv(100, socket.MSG_DONTWAIT if wait_flags & os.WNOHANG else 0)
            except BlockingIOError:
                return 0, 0
        status, used_s = told.split() if told else (b"0", b"0")
        self._close_ending()
        Popen.reaped_s += float(used_s)
        return self.pid, int(status)

    def _internal_poll(self, *given: Any, **more: Any) -> int | None:
        if self._ending is None:
            return super()._internal_poll(*given, **more)
        if self.returncode is None and self._waitpid_lock.acquire(False):
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid == self.pid:
                    self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


def module_of(args: Any) -> str:
    """The module of ours that a command runs by `python -m`; "" for any other command."""
    words = [args] if isinstance(args, str | bytes | os.PathLike) else [str(x) for x in args]
    options = words[1:3] if words[1:2] != ["-P"] else words[2:4]
    is_ours = len(options) == 2 and options[0] == "-m" and options[1].startswith("kernelscape.")
    return options[1] if words[0] == sys.executable and is_ours else ""


# --- in the server -------------------------------------------------------------------------------


def serve(asked: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Forks until nobody asks any more. Returns, in each forked process, its command and its files."""
    signal.signal(
        signal.SIGCHLD, signal.SIG_IGN
    )  # those that wait for a process are reaped by nobody
    while True:
        message, fds, _, _ = socket.recv_fds(asked, 1 << 20, 16)
        if not message:
            os._exit(0)
        if os.fork():
            for fd in fds:
                os.close(fd)
            continue
        asked.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with socket.socket(fileno=fds[0]) as ending:
            pid = os.fork()
            if pid:
                for fd in fds[1:]:
                    os.close(fd)
                report(pid, ending)
            os.setsid()  # before anybody knows its number: its group may be killed at once
            ending.send(str(os.getpid()).encode())
        return json.loads(message), fds[1:]


def report(pid: int, ending: socket.socket) -> None:
    """Tells, when a process ends, its status and CPU seconds. Ends this process."""
    _, status, used = os.wait4(pid, 0)
    with suppress(BrokenPipeError):
        ending.send(f"{status} {used.ru_utime + used.ru_stime}".encode())
    os._exit(0)


def become(command: dict[str, Any], fds: Sequence[int]) -> None:
    """Makes of this process the one that was asked for, and runs its module."""
    first = (
        max(command["fds"], default=0) + 1
    )  # a copy that had the number of another would be replaced
    above = [fcntl.fcntl(fd, fcntl.F_DUPFD, first) for fd in fds]
    for fd in fds:
        os.close(fd)
    for number, fd in zip(command["fds"], above, strict=True):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environ.update(command["env"])
    os.chdir(command["cwd"])
    tempfile.tempdir = None
    words = command["args"][1:]
    if words[0] == "-P":
        words = words[1:]
    else:
        sys.path.insert(0, command["cwd"])
    sys.argv = words[1:]
    runpy.run_module(words[1], run_name="__main__", alter_sys=True)


def main() -> None:
    """The server: `fork_server.py FD MODULE...`."""
    asked = socket.socket(fileno=int(sys.argv[1]))
    for name in sys.argv[2:]:
        import_module(name)
    gc.collect()
    gc.freeze()
    command, fds = serve(asked)
    become(command, fds)


if __name__ == "__main__":
    main()
