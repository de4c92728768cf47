"""Loaded code of a kernel, and its callers."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path
from typing import Any

from ...codegen.text.source import ENTRY, MESSAGE, MESSAGE_BYTES
from ...kernels.ir.errors import OF_ASSERTIONS, failed_assertion
from ...kernels.ir.kernel import KernelIR, Print
from ...kernels.ir.walk import nested_statements, written_in
from ..api.backend import AbstractCaller
from ..cpu.calling import CallerParameter, PrintingCaller, make_caller
from ..cpu.index_check import IndexCheck
from ..library import load_library


class LoadedKernel:
    """The code of one kernel in this process; several threads may call it.

    It is unloaded with its last caller. No thread runs in it then: a launch ends when all threads have left its parts
    (`ks_team_run` of runtime/cpu/team.c).
    """

    def __init__(self, path: Path) -> None:
        self.library = load_library(path)
        self.entry = getattr(self.library, ENTRY)
        self.entry.restype = None
        self.entry.argtypes = [ctypes.POINTER(ctypes.c_void_p)]
        self.may_fail = hasattr(self.library, MESSAGE)
        self.index_check = IndexCheck.of(self.library)
        self.lock = threading.Lock()  # around a call and `failed`: the message is the library's

    @property
    def asserting(self) -> tuple[object, ...]:
        """The address of its message, itself, and the classes of errors if it has assertions; () if it has none."""
        if not self.may_fail:
            return ()
        return ctypes.addressof(self._message), self, OF_ASSERTIONS

    def failed(self) -> str:
        """Returns the message of the assertion that failed in the last call; "" if none did."""
        return str(self._message.value.decode(errors="replace"))

    @property
    def _message(self) -> Any:
        return (ctypes.c_char * MESSAGE_BYTES).in_dll(self.library, MESSAGE)


class _AssertingCaller(AbstractCaller):
    """Caller of code with assertions, without the extension; raises AssertionError if one fails."""

    def __init__(self, caller: AbstractCaller, kernel: LoadedKernel) -> None:
        self._caller, self._kernel = caller, kernel

    def __call__(self, *args: Any, **named: Any) -> bool:
        with self._kernel.lock:
            was_run = self._caller(*args, **named)
            message = self._kernel.failed() if was_run else ""
        if message:
            raise failed_assertion(message)
        return was_run

    def accept(self, k: int, value: Any) -> None:
        self._caller.accept(k, value)


def caller_of(extension: Any | None, kernel: LoadedKernel, ir: KernelIR) -> AbstractCaller:
    """Returns the caller of a kernel's code, through the extension module if there is one."""
    caller = make_caller(extension, kernel, rows_of_kernel(ir), asserting=kernel.asserting)
    if kernel.may_fail and extension is None:
        caller = _AssertingCaller(caller, kernel)
    if any(isinstance(s, Print) for s in nested_statements(ir.body)):
        caller = PrintingCaller(caller)
    return caller


def rows_of_kernel(ir: KernelIR) -> tuple[CallerParameter, ...]:
    """Returns the parameters of a kernel's code: first its arrays, then its scalars."""
    written = written_in(ir.body)
    names = {id(p): k for k, p in enumerate((*ir.arrays, *ir.scalars))}
    arrays = [
        CallerParameter(p.name, "array", names[id(p)], p.dtype, p.shape, p.name in written)
        for p in ir.arrays
    ]
    scalars = [CallerParameter(p.name, "scalar", names[id(p)], p.dtype) for p in ir.scalars]
    return (*arrays, *scalars)
