"""The kernels that an engine knows, each with its code as long as its IR lives: code goes with the last kernel that it is of."""

from __future__ import annotations

import threading
import weakref
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from ...kernels.ir.kernel import KernelIR
from ..api.backend import AbstractCaller
from ..by_identity import ByIdentity
from .loaded import LoadedKernel


@dataclass(frozen=True)
class Called:
    """A kernel that can be called."""

    kernel: LoadedKernel
    caller: AbstractCaller
    is_quick: bool  # calls go through the extension


@dataclass
class Wanted:
    """A kernel that was called or will be. Nothing in it holds the IR."""

    code: Future[LoadedKernel]
    called: Called | None = None

    def result(self) -> LoadedKernel:
        """Its code, when that is loaded."""
        return self.code.result() if self.called is None else self.called.kernel


class KnownKernels:
    """By the identity of their IR. `codes`: those that are being loaded or are of such a kernel, by key."""

    def __init__(self) -> None:
        self._wanted = ByIdentity[KernelIR, Wanted]()
        self.codes = weakref.WeakValueDictionary[str, Future[LoadedKernel]]()

    def get(self, ir: KernelIR) -> Wanted | None:
        """A kernel that is known."""
        return self._wanted.get(ir)

    def called(self, ir: KernelIR) -> Called | None:
        """A kernel that has been called."""
        wanted = self._wanted.get(ir)
        return None if wanted is None else wanted.called

    def add(self, ir: KernelIR, key: str, code: Future[LoadedKernel]) -> Wanted:
        """Makes a kernel known; it is forgotten where its code cannot be had, so that the next call tries again."""
        wanted = self._wanted.setdefault(ir, Wanted(code))
        wanted.code.add_done_callback(partial(self._forget_failed, key, weakref.ref(ir)))
        return wanted

    def _forget_failed(
        self, key: str, of: weakref.ref[KernelIR], done: Future[LoadedKernel]
    ) -> None:
        if done.exception() is None:
            return
        if self.codes.get(key) is done:
            self.codes.pop(key, None)
        ir = of()
        if ir is not None and (wanted := self._wanted.get(ir)) and wanted.code is done:
            self._wanted.remove(ir)

    def go_on_in_child(self) -> None:
        """In a child of fork(): what other threads were loading is not known, and nobody holds a lock."""
        self.codes.clear()
        for ir, wanted in self._wanted.items():
            if wanted.called is None:
                self._wanted.remove(ir)
            else:
                wanted.called.kernel.lock = threading.Lock()
