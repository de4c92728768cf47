"""Compilation ahead of the first call: while a call waits for its code, idle cores compile other kernels of the same file.

The thread that waits traces them (kernels/frontend/ahead.py), and one compiler each runs beside. The first call of such a kernel
traces it again, and uses what was compiled only if it has the same key: the kernel is the same. Other calls never wait for it:
where cores are too few, their compilers take the place of those that run ahead. Errors are left to the call.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...kernels.fields.program import Program, current_program
from ...kernels.frontend.lowering import lowered
from ...kernels.ir.kernel import KernelIR
from ..cpu.compiler import end_compilers
from .loaded import LoadedKernel
from .work import Work, Workers

if TYPE_CHECKING:  # the frontend is imported while the engine looks for its compiler
    from ...kernels.frontend.kernel import Kernel

_LOOK_S = 0.02  # between two looks for an idle core

Build = Callable[[], LoadedKernel]


@dataclass(eq=False)
class _Job:
    """Compilation of a kernel ahead of its first call; `thread` is the one that does it, 0 before."""

    code: Work[LoadedKernel]
    thread: int = 0
    is_stopped: bool = False


class Ahead:
    """Kernels that an engine compiles ahead of their first calls, by the key of their code.

    `cores`: cores that compilers may use; with one nothing is compiled ahead. `lock`: that of the engine. `n_needed`: returns the
    number of works that calls wait for. `n_begun` kernels were compiled ahead, or are; `n_used` of them have been called.
    """

    def __init__(
        self, cores: int, lock: Any, n_needed: Callable[[], int], begin: Callable[[], object]
    ) -> None:
        self._cores, self._lock, self._n_needed = cores, lock, n_needed
        self._pool = Workers(max(1, cores - 1), begin)
        self._jobs: dict[str, _Job] = {}
        self._running = set[_Job]()  # changed by one step of Python at a time
        self._tried: weakref.WeakSet[Kernel] = weakref.WeakSet()
        self._program: Callable[[], Program | None] = lambda: None
        # Never waited for: an interrupt that leaves it locked ends the compilation ahead and nothing else.
        self._tracing = threading.Lock()
        self._is_over = False
        self.n_begun = self.n_used = 0

    def candidates(self, file: str, code: Work[Any]) -> Iterator[KernelIR]:
        """Yields kernels of a file that no call has asked for, lowered, as long as `code` is not done and a core is idle.

        Nothing is yielded in a second thread at the same time, and by a finalizer that calls a kernel within this.
        """
        program = current_program()
        if self._cores < 2 or program is None or not program.config.arch.is_cpu:
            return
        if not self._tracing.acquire(blocking=False):
            return
        try:
            for kernel in self._untried(program, file):
                if not self._has_core(code):
                    return
                ir = self._traced(kernel, code)
                if ir is not None:
                    yield ir
        finally:
            self._tracing.release()

    def _untried(self, program: Program, file: str) -> list[Kernel]:
        from ...kernels.frontend.kernel import kernels_of

        if self._program() is not program:
            self._program = weakref.ref(program)
            self._tried.clear()
            with self._lock:  # code of programs that have ended
                self._jobs = {k: job for k, job in self._jobs.items() if not job.code.done()}
        return [kernel for kernel in kernels_of(file) if kernel not in self._tried]

    def _has_core(self, code: Work[Any]) -> bool:
        """Waits for a core that nothing uses. False if `code` is done first, or if the program ends."""
        while not code.done() and not self._is_over:
            if self._n_needed() + self._pool.n_busy < self._cores and has_idle_core():
                return True
            code.wait(_LOOK_S)
        return False

    def _traced(self, kernel: Kernel, code: Work[Any]) -> KernelIR | None:
        """Returns a kernel lowered; None if only its call can say what it is, or what is wrong with it."""
        try:
            instance = kernel.ahead(lambda: not code.done())
            if instance is None or code.done():
                return None
            ir = lowered(instance).ir
        except Exception:
            if not code.done():  # else there was no time
                self._tried.add(kernel)
            return None
        self._tried.add(kernel)
        return ir

    def begin(self, key: str, build: Build) -> Work[LoadedKernel]:
        """Starts to compile a kernel. Returns its code; the caller has the lock."""
        code = Work[LoadedKernel]()
        job = self._jobs[key] = _Job(code)
        self.n_begun += 1
        self._pool.submit(self._run, job, build)
        return code

    def _run(self, job: _Job, build: Build) -> None:
        if job.is_stopped or self._is_over:
            return
        job.thread = threading.get_ident()
        self._running.add(job)
        job.code.run(build)
        self._running.discard(job)

    def claim(self, key: str) -> None:
        """Notes that a call needs this code, which is not stopped any more. The caller has the lock."""
        if self._jobs.pop(key, None) is not None:
            self.n_used += 1

    def make_room(self) -> list[str]:
        """Stops as many compilers as there are too many, one more than now. Returns the keys of their code.

        The caller has the lock, and forgets this code.
        """
        running = [k for k, job in self._jobs.items() if not job.code.done()]
        n_most = max(0, self._cores - self._n_needed() - 1)
        stopped = running[n_most:]
        for key in stopped:
            self._stop(self._jobs.pop(key))
        return stopped

    def _stop(self, job: _Job) -> None:
        job.is_stopped = True
        if job in self._running:
            end_compilers(job.thread)

    def end(self) -> None:
        """Stops all compilers, and waits until they have ended. Nothing is compiled ahead any more."""
        self._is_over = True
        self._pool.wait(self._stop_all)

    def _stop_all(self) -> None:
        for job in tuple(self._running):
            self._stop(job)


def has_idle_core() -> bool:
    """True if fewer processes run on this machine than it has cores; True as well where that is not known."""
    with suppress(OSError, ValueError, IndexError):
        n_running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
        return n_running - 1 < (os.cpu_count() or 1)  # without the thread that asks
    return True
