"""Compiler of CUDA text to cubins, cached by content, in separate processes that can be killed."""

from __future__ import annotations

import hashlib
import os
import select
import shlex
import subprocess
import sys
import threading
import time
import weakref
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..api.outcome import Failure
from ..files import opened_own, read_own, write_own
from ..worker.messages import write_message
from . import nvrtc
from ._compile import CompileRequest
from .nvrtc import Compilation, KernelReport

if TYPE_CHECKING:
    from ...codegen.text.source import Source

_START_S = 30.0  # that a process may need on top of its first compilation


@dataclass(frozen=True)
class Cubin:
    """A compiled CUDA text: the cubin file, the resources of its kernels, and the compiler's warnings."""

    path: Path
    key: str
    reports: tuple[KernelReport, ...]
    log: str
    build_ns: int  # 0 when it was there already


def nvcc_command(source: Source, file: Path, architecture: str) -> str:
    """Returns the shell command that compiles `file` with nvcc, for machines with the CUDA toolkit."""
    cubin = str(file.with_suffix(".cubin"))
    return shlex.join(
        ["nvcc", f"-arch={architecture}", *source.flags, "-cubin", "-o", cubin, str(file)]
    )


class CudaCompiler:
    """Thread-safe compiler with one process per concurrent caller.

    The processes end with this object, or by `close()`.
    """

    def __init__(self, folder: Path, timeout_s: float) -> None:
        self._folder = folder
        self._timeout_s = timeout_s
        self._idle: list[_Process] = []
        self._lock = threading.Lock()
        self.close = weakref.finalize(self, _close, self._idle)

    @cached_property
    def version(self) -> str:
        """Displayed name and version of the compiler, also part of keys. Raises DeviceError without NVRTC."""
        return f"NVRTC {nvrtc.version()}"

    def build(self, text: str, architecture: str, extra: tuple[str, ...] = ()) -> Cubin | Failure:
        """Compiles `text` to `folder/KEY.cubin`, with KEY.cu and KEY.json beside it, unless it exists.

        The key is made of text, flags and compiler version. Safe for concurrent callers in several processes: the cubin appears
        by rename, last. Raises DeviceError without NVRTC.
        """
        parts = (text, self.version, architecture, *nvrtc.OPTIONS, *extra)
        key = hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()
        path = self._folder / f"{key}.cubin"
        notes = path.with_suffix(".json")
        with suppress(OSError), opened_own(path):
            known = msgspec.json.decode(read_own(notes), type=Compilation)
            return Cubin(path, key, known.reports, known.log, 0)
        started_ns = time.monotonic_ns()
        compiled = self._compile(CompileRequest(text, architecture, extra, self._timeout_s))
        if isinstance(compiled, Failure):
            return compiled
        if compiled.cubin is None:
            return Failure("compile", "NVRTC refused the text", compiled.log)
        write_own(path.with_suffix(".cu"), text.encode())
        write_own(notes, msgspec.json.encode(msgspec.structs.replace(compiled, cubin=None)))
        write_own(path, compiled.cubin)
        build_ns = time.monotonic_ns() - started_ns
        return Cubin(path, key, compiled.reports, compiled.log, build_ns)

    def _compile(self, request: CompileRequest) -> Compilation | Failure:
        with self._lock:
            process = self._idle.pop() if self._idle else None
        process = process or _Process()
        try:
            answer = process.ask(msgspec.json.encode(request), request.timeout_s)
        except BaseException:
            process.close()
            raise
        if isinstance(answer, Failure):
            process.close()
            return answer
        with self._lock:
            self._idle.append(process)
        return msgspec.json.decode(answer, type=Compilation)


def _close(idle: list[_Process]) -> None:
    """Ends the compiler processes without work."""
    while idle:
        idle.pop().close()


class _Process:
    """One compiler process (_compile.py)."""

    def __init__(self) -> None:
        command = [sys.executable, "-P", "-m", f"{__package__}._compile"]
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._is_new = True

    def ask(self, request: bytes, timeout_s: float) -> bytes | Failure:
        """Returns the reply to a request, or a Failure that describes how the process ended."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        end = time.monotonic() + timeout_s + (_START_S if self._is_new else 0.0)
        self._is_new = False
        try:
            write_message(self._child.stdin.fileno(), request)
            head = self._read(4, end)
            body = None if head is None else self._read(int.from_bytes(head, "little"), end)
        except BrokenPipeError:
            body = b""
        if body is None:
            return Failure("compile", f"the compiler ran past its {timeout_s:g} s")
        return body or Failure("compile", f"the compiler ended with status {self._child.wait()}")

    def close(self) -> None:
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe is not None
            pipe.close()
        self._child.kill()
        self._child.wait()

    def _read(self, n_bytes: int, end: float) -> bytes | None:
        """Returns exactly `n_bytes` bytes; b"" if the other end was closed, None past the time `end`."""
        assert self._child.stdout is not None
        fd, parts = self._child.stdout.fileno(), b""
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        while len(parts) < n_bytes:
            if not poll.poll(max(0.0, end - time.monotonic()) * 1000):
                return None
            part = os.read(fd, n_bytes - len(parts))
            if not part:
                return b""
            parts += part
        return parts
