"""Kernels of an engine, each with its code while its IR is alive. Code is unloaded with its last kernel."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from functools import partial

from ...kernels.ir.kernel import KernelIR
from ..api.backend import AbstractCaller
from ..by_identity import ByIdentity
from .loaded import LoadedKernel
from .work import Work


@dataclass(frozen=True)
class Called:
    """A kernel whose code is loaded, with its caller."""

    kernel: LoadedKernel
    caller: AbstractCaller
    is_quick: bool  # calls go through the extension


@dataclass
class Wanted:
    """Code of a kernel, loaded or being compiled, and from the first call on its caller. No reference to the IR."""

    code: Work[LoadedKernel]
    called: Called | None = None

    def result(self) -> LoadedKernel:
        """Waits for the code and returns it."""
        return self.code.result() if self.called is None else self.called.kernel


class KnownKernels:
    """Kernels by identity of their IR. `codes` has the loaded or loading code of these kernels by key."""

    def __init__(self) -> None:
        self._wanted = ByIdentity[KernelIR, Wanted]()
        self.codes = weakref.WeakValueDictionary[str, Work[LoadedKernel]]()

    def get(self, ir: KernelIR) -> Wanted | None:
        """Returns the added kernel of this IR; None if it was not added."""
        return self._wanted.get(ir)

    def called(self, ir: KernelIR) -> Called | None:
        """Returns the kernel of this IR if it has been called; else None."""
        wanted = self._wanted.get(ir)
        return None if wanted is None else wanted.called

    def add(self, ir: KernelIR, key: str, code: Work[LoadedKernel]) -> Wanted:
        """Adds a kernel with its code; it is removed if loading fails, so that the next call tries again."""
        wanted = self._wanted.setdefault(ir, Wanted(code))
        wanted.code.add_done_callback(partial(self._forget_failed, key, weakref.ref(ir)))
        return wanted

    def _forget_failed(self, key: str, of: weakref.ref[KernelIR], done: Work[LoadedKernel]) -> None:
        if done.exception() is None:
            return
        self.forget_failed(key, done)
        ir = of()
        if ir is not None and (wanted := self._wanted.get(ir)) and wanted.code is done:
            self._wanted.remove(ir)

    def forget_failed(self, key: str, done: Work[LoadedKernel]) -> None:
        """Removes code that could not be compiled or loaded, so that the next call that needs it tries again."""
        if done.exception() is not None and self.codes.get(key) is done:
            self.codes.pop(key, None)

    def go_on_in_child(self) -> None:
        """Resets the kernels in a child of fork(): drops loads by other threads, and frees locks."""
        self.codes.clear()
        for ir, wanted in self._wanted.items():
            if wanted.called is None:
                self._wanted.remove(ir)
            else:
                wanted.called.kernel.lock = threading.Lock()
