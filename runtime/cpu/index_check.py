"""Compiled index checks (codegen/bodies/index_checks.py), which run before each call of a tuned function."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...codegen.text.source import CHECK, FIND
from ..api.outcome import Failure
from ..device import DeviceOptions
from ..library import LoadedLibrary, load_library
from .compiler import Compiler, build_library

if TYPE_CHECKING:
    from ...codegen.bodies.index_checks import IndexChecks, IndexSite

# Unlike tuned code, checks are vectorised by the compiler. Indices that are far out of range may wrap around.
_FLAGS = ("-O3", "-ftree-vectorize", "-fwrapv", "-fno-openmp", "-w")


class IndexCheck:
    """Loaded index checks.

    `address` is a C function of the argument vector that returns 0 if all indices are in range. `sites` are the checked
    accesses, for the messages of `wrong`.
    """

    def __init__(self, library: LoadedLibrary, sites: Sequence[IndexSite] = ()) -> None:
        self.library, self._sites = library, sites
        self._check, self._find = getattr(library, CHECK), getattr(library, FIND)
        for function in (self._check, self._find):
            function.restype = ctypes.c_int64
        self.address = ctypes.cast(self._check, ctypes.c_void_p).value or 0

    @classmethod
    def of(cls, library: LoadedLibrary) -> IndexCheck | None:
        """Returns the index checks that `library` contains; None if it has none."""
        return cls(library) if hasattr(library, CHECK) else None

    def passes(self, pointers: Any) -> bool:
        """True if all checked indices in the arguments behind `pointers` are in range."""
        return bool(self._check(pointers) == 0)

    def first_wrong(self, pointers: Any) -> tuple[int, int] | None:
        """Returns (access number from 0, index) of the first index out of range; None if all are in range."""
        value = ctypes.c_int64()
        found = self._find(pointers, ctypes.byref(value))
        return (int(found) - 1, value.value) if found else None

    def wrong(self, pointers: Any) -> str | None:
        """Returns a sentence on the first index out of range; None if all are in range."""
        found = self.first_wrong(pointers)
        return None if found is None else self._sites[found[0]].sentence(found[1])


def build_check(
    checks: IndexChecks, compiler: Compiler, options: DeviceOptions
) -> IndexCheck | Failure:
    """Builds the index checks unless they exist, and loads them."""
    built = build_library(
        compiler.unspared(), checks.text, _FLAGS, options.build_folder, options.compile_timeout_s
    )
    if isinstance(built, Failure):
        return built
    return IndexCheck(load_library(built.path), checks.sites)
