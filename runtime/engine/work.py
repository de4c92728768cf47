"""Background work of an engine, safe from asynchronous exceptions: KeyboardInterrupt at any instruction leaves no lock locked.

`concurrent.futures` is not: an interrupt in the middle of `Condition.__enter__`, which is Python code, leaves the lock of a future
locked, and whoever uses this future next waits for ever: its thread, and the program at its end.
"""

from __future__ import annotations

import _thread
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_LOOK_S = 0.05  # between two looks at a gate that an interrupt has left locked
_STEP_S = 0.002


class Work(Generic[T]):
    """The result of a function that runs in another thread.

    A finalizer that Python runs in that thread may need the result. It would wait for itself: it calls the function once more.
    """

    def __init__(self) -> None:
        self._is_done = False
        self._running: tuple[int, Callable[[], T]] | None = None  # the thread, and the function
        self._result: Any = None
        self._error: BaseException | None = None
        self._then: list[Callable[[Work[T]], object]] = []
        self._gate = threading.Lock()  # unlocked when the work is done
        self._gate.acquire()

    @classmethod
    def of(cls, result: T) -> Work[T]:
        """Returns work that is done."""
        work = cls()
        work.run(lambda: result)
        return work

    def run(self, function: Callable[[], T]) -> None:
        """Runs the function, and keeps its result or its exception."""
        self._running = threading.get_ident(), function
        self._keep(function)
        self._running = None

    def _keep(self, function: Callable[[], T]) -> None:
        result, error = None, None
        try:
            result = function()
        except BaseException as e:
            error = e
        if self._is_done:  # by a finalizer in this thread
            return
        self._result, self._error = result, error
        self._is_done = True
        self._gate.release()
        for call in self._then:
            call(self)

    def done(self) -> bool:
        """True if there is a result or an exception."""
        return self._is_done

    def result(self) -> T:
        """Waits for the result and returns it, or raises the exception."""
        error = self.exception()
        if error is None:
            found: T = self._result
            return found
        try:
            raise error
        finally:
            del error  # else its traceback refers to itself

    def exception(self) -> BaseException | None:
        """Waits for the end of the work. Returns its exception; None if there is a result."""
        running = self._running
        if running is not None and running[0] == threading.get_ident() and not self._is_done:
            self._keep(running[1])
        while not self._is_done:
            if self._gate.acquire(timeout=_LOOK_S):
                self._gate.release()
        return self._error

    def wait(self, timeout_s: float) -> None:
        """Waits until the work is done, or for `timeout_s` seconds."""
        if not self._is_done and self._gate.acquire(timeout=timeout_s):
            self._gate.release()

    def add_done_callback(self, call: Callable[[Work[T]], object]) -> None:
        """Calls `call(self)` when the work is done: at once if it is, perhaps twice if that happens now."""
        self._then.append(call)
        if self._is_done:
            call(self)


class Workers:
    """At most `n` threads that run works, in their order; threads without work end. `begin` is called at the start of each."""

    def __init__(self, n: int, begin: Callable[[], object]) -> None:
        self._begin = begin
        self._waiting = deque[Callable[[], None]]()
        self._n = n
        self._free = SimpleQueue[None]()  # an item for each thread that might be started
        for _ in range(n):
            self._free.put(None)

    def submit(self, function: Callable[..., T], *arguments: Any) -> Work[T]:
        """Starts work in the background. Raises RuntimeError if no thread can be started."""
        work = Work[T]()
        job = partial(work.run, partial(function, *arguments))
        self._waiting.append(job)
        try:
            # One step, unlike `Thread.start`. It ends at once where enough threads are running.
            _thread.start_new_thread(self._thread, ())
        except RuntimeError:
            if self._is_taken_back(job):
                raise
        return work

    def _is_taken_back(self, job: Callable[[], None]) -> bool:
        """Removes a job; False if a thread has begun it."""
        try:
            self._waiting.remove(job)
        except ValueError:
            return False
        return True

    @property
    def n_busy(self) -> int:
        """Number of works that run or wait for a thread."""
        return len(self._waiting) + self._n - self._free.qsize()

    def wait(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Waits until all works are done; calls `meanwhile` again and again."""
        while self.n_busy:
            meanwhile()
            self._run_waiting()  # what an interrupt has left without a thread
            time.sleep(_STEP_S)

    def _thread(self) -> None:
        self._begin()
        self._run_waiting()

    def _run_waiting(self) -> None:
        while self._waiting:
            try:
                self._free.get_nowait()
            except Empty:
                return
            try:
                while self._waiting:
                    try:
                        job = self._waiting.popleft()
                    except IndexError:
                        break
                    job()
                    del job  # with the code that it made
            finally:
                self._free.put(None)
