"""Compilation ahead of the first call: while a call waits for its code, idle cores compile kernels that the program will call next.

These are calls that the functions which are running come to (kernels/frontend/coming_calls.py), and then other kernels of the same
file. The thread that waits traces them (kernels/frontend/ahead.py), and one compiler each runs beside. The first call of such a
kernel traces it again, and uses what was compiled only if it has the same key: the kernel is the same. Other calls never wait for
it: where cores are too few, their compilers take the place of those that run ahead. Errors are left to the call.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...kernels.fields.program import Program, current_program
from ...kernels.frontend.lowering import lowered
from ...kernels.ir.kernel import KernelIR
from ..cpu.compiler import end_compilers, is_compiling
from .loaded import LoadedKernel
from .work import Work, Workers

if TYPE_CHECKING:  # the frontend is imported while the engine looks for its compiler
    from ...kernels.frontend.coming_calls import ComingCall

_LOOK_S = 0.02  # between two looks for an idle core
_STEP_S = 0.002
_MOST_UNUSED = 16  # kernels that were compiled and have not been called: further guesses wait
_MOST_TRIES = 3  # of a call that could not be traced

Begins = Callable[[], None]
Build = Callable[[Begins], LoadedKernel]


class StoppedAheadError(Exception):
    """Raised in place of a compilation that was stopped before a call needed it."""


@dataclass(eq=False)
class _Job:
    """Compilation of a kernel ahead of its first call; `thread` is the one that does it, 0 before.

    A call waits for one that `is_claimed`: it is never stopped. One that `compiles` has reached the compiler.
    """

    code: Work[LoadedKernel]
    thread: int = 0
    compiles: bool = False
    is_claimed: bool = False
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
        self._jobs: dict[str, _Job] = {}  # that no call has claimed
        self._unfinished = set[_Job]()  # changed by one step of Python at a time
        self._tries = Counter[tuple[Any, ...]]()
        self._program: Callable[[], Program | None] = lambda: None
        # Never waited for: an interrupt that leaves it locked ends the compilation ahead and nothing else.
        self._tracing = threading.Lock()
        self._is_over = False
        self.n_begun = self.n_used = 0

    def candidates(self, file: str, code: Work[Any]) -> Iterator[KernelIR]:
        """Yields kernels that may be called next, lowered, as long as `code` is not done and a core is idle.

        `file`: that of the kernel with this code. Nothing is yielded in a second thread at the same time, and by a finalizer that
        calls a kernel within this.
        """
        program = current_program()
        if self._cores < 2 or program is None or not program.config.arch.is_cpu or code.done():
            return
        if not self._tracing.acquire(blocking=False):
            return
        try:
            self._begin(program)
            if not self._has_core(code):
                return
            for call in self._guesses(file, code):
                if self._tries[call.key] >= _MOST_TRIES:
                    continue
                if not self._has_core(code):
                    return
                ir = self._traced(call, code)
                if ir is not None:
                    yield ir
        finally:
            self._tracing.release()

    def _begin(self, program: Program) -> None:
        if self._program() is not program:
            self._program = weakref.ref(program)
            self._tries.clear()
            with self._lock:  # code of programs that have ended
                self._jobs = {k: job for k, job in self._jobs.items() if not job.code.done()}

    def _guesses(self, file: str, code: Work[Any]) -> Iterator[ComingCall]:
        from ...kernels.frontend.coming_calls import UNKNOWN, ComingCall, coming_calls
        from ...kernels.frontend.kernel import kernels_of

        with suppress(
            Exception
        ):  # of very deep text, for example: a guess is never an error of the program
            yield from coming_calls(sys._getframe(), lambda: not code.done())
        for kernel in kernels_of(file):
            yield ComingCall(kernel, (UNKNOWN,) * len(kernel.signature.parameters))

    def _has_core(self, code: Work[Any]) -> bool:
        """Waits for a core that nothing uses. False if `code` is done first, if the program ends, or if too many guesses failed."""
        while not code.done() and not self._is_over and len(self._jobs) < _MOST_UNUSED:
            if self._n_needed() + self._pool.n_busy < self._cores and has_idle_core():
                return True
            code.wait(_LOOK_S)
        return False

    def _traced(self, call: ComingCall, code: Work[Any]) -> KernelIR | None:
        """Returns the kernel of a call lowered; None if only the call can say what it is, or what is wrong with it."""
        self._tries[call.key] += 1
        try:
            signature = call.kernel.coming_signature(call.args, call.kwargs)
            if signature is None or code.done():
                return None
            instance = call.kernel.traced_ahead(signature, lambda: not code.done())
            ir = lowered(instance).ir
        except Exception:  # its call says what is wrong
            if code.done():  # there was no time
                self._tries[call.key] -= 1
            return None
        self._tries[call.key] = _MOST_TRIES
        return ir

    def begin(self, key: str, build: Build) -> Work[LoadedKernel]:
        """Starts to compile a kernel. Returns its code; the caller has the lock. RuntimeError if no thread can be started.

        `build` calls what it is given before it starts the compiler.
        """
        job = self._jobs[key] = _Job(Work[LoadedKernel]())
        self._unfinished.add(job)
        try:
            self._pool.submit(self._run, key, job, build)
        except RuntimeError:
            del self._jobs[key]
            self._unfinished.discard(job)
            raise
        self.n_begun += 1
        return job.code

    def _run(self, key: str, job: _Job, build: Build) -> None:
        def begins() -> None:
            job.compiles = True  # before it looks: who stops it looks in the other order
            if not self._goes_on(job):
                raise StoppedAheadError

        def built() -> LoadedKernel:
            if not self._goes_on(job):
                raise StoppedAheadError
            return build(begins)

        job.thread = threading.get_ident()
        job.code.run(built)  # also where it is stopped: nobody waits for it in vain
        self._unfinished.discard(job)
        if job.code.exception() is not None:
            with self._lock:
                if self._jobs.get(key) is job:
                    del self._jobs[key]

    def _goes_on(self, job: _Job) -> bool:
        return job.is_claimed or not (job.is_stopped or self._is_over)

    def claim(self, key: str) -> None:
        """Notes that a call needs this code, which is not stopped any more. The caller has the lock."""
        job = self._jobs.pop(key, None)
        if job is not None:
            job.is_claimed = True
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
        if job.compiles and not job.code.done():
            end_compilers(job.thread)

    def end(self, forget: Callable[[str], object]) -> None:
        """Stops what no call has claimed, and waits until no compiler is running. Nothing is compiled ahead any more.

        Calls `forget` with the key of each code that is stopped, with the lock: no call may find it. Threads that have not reached
        the compiler are not waited for: they stop there.
        """
        self._is_over = True
        while True:
            with self._lock:
                for key, job in tuple(self._jobs.items()):
                    if not job.code.done():
                        forget(key)
                        del self._jobs[key]
                        job.is_stopped = True
            left = [job for job in tuple(self._unfinished) if job.compiles or job.is_claimed]
            if not left:
                return
            for job in left:
                if not job.is_claimed:
                    self._stop(job)
            time.sleep(_STEP_S)


def has_idle_core() -> bool:
    """True if a compiler is running, and fewer processes than this machine has cores; true as well where that is not known.

    Without a compiler, Python writes the text for one, and a second thread would only slow it down.
    """
    if not is_compiling():
        return False
    with suppress(OSError, ValueError, IndexError):
        n_running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
        return n_running - 1 < (os.cpu_count() or 1)  # without the thread that asks
    return True
