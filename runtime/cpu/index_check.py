"""The checks of indices (codegen/c/index_checks.py), built and loaded: run before each call of a tuned function."""

from __future__ import annotations

import ctypes
from typing import Any

from ...codegen.c.index_checks import CHECK, FIND, IndexChecks
from ..device import DeviceOptions
from ..worker.outcome import Failure
from .compiler import Compiler, build_library

# Unlike what is tuned it is for the compiler to put into vectors. Indices that are far off may wrap around.
_FLAGS = ("-O3", "-ftree-vectorize", "-fwrapv", "-fno-openmp", "-w")


class IndexCheck:
    """Loaded checks. `address` is that of a C function of the argument vector: 0 where all indices are in range."""

    def __init__(self, checks: IndexChecks, library: ctypes.CDLL) -> None:
        self._sites = checks.sites
        self._check, self._find = getattr(library, CHECK), getattr(library, FIND)
        for function in (self._check, self._find):
            function.restype = ctypes.c_int64
        self.address = ctypes.cast(self._check, ctypes.c_void_p).value or 0

    def passes(self, pointers: Any) -> bool:
        """Whether the arguments that these pointers lead to hold indices in range only."""
        return bool(self._check(pointers) == 0)

    def wrong(self, pointers: Any) -> str | None:
        """What is wrong with the first index that is out of range, a sentence; None where all are in range."""
        value = ctypes.c_int64()
        found = self._find(pointers, ctypes.byref(value))
        return self._sites[found - 1].sentence(value.value) if found else None


def build_check(
    checks: IndexChecks, compiler: Compiler, options: DeviceOptions
) -> IndexCheck | Failure:
    """Build them, unless they are there, and load them."""
    built = build_library(
        compiler.unspared(), checks.text, _FLAGS, options.build_folder, options.compile_timeout_s
    )
    if isinstance(built, Failure):
        return built
    return IndexCheck(checks, ctypes.CDLL(str(built.path)))
