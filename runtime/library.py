"""Loading of libraries and extension modules: loads exactly the checked file, if only this user can write it.

The number of memory mappings of a process is limited, and a library takes two or more. So it is closed when unreferenced.
"""

from __future__ import annotations

import _ctypes
import ctypes
import gc
import itertools
import math
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from .api.errors import DeviceError
from .files import opened_own

T = TypeVar("T")
_DESCRIPTORS = Path("/proc/self/fd")
_MAPPINGS = Path("/proc/self/maps")
_MOST_MAPPINGS = Path("/proc/sys/vm/max_map_count")
_OF_ONE = 16  # mappings that loading one library takes, at most
_numbers = itertools.count(1)


class LoadedLibrary(ctypes.CDLL):
    """A library that stays loaded while the object, one of its functions, or its `handle` is referenced.

    Code that keeps raw addresses must keep `handle`.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        # An array, since the garbage collector takes none for a part of a cycle: of what it frees at a time, weak references are
        # called back first, then finalizers, which may call kernels; this goes when nothing is left that holds it.
        self.handle = np.empty(0)
        self._closing = weakref.finalize(self.handle, _ctypes.dlclose, self._handle)
        self._closing.atexit = False  # threads may still run in it then

    def close(self) -> None:
        """Closes the library now. No function of it may be called afterwards."""
        self._closing()


def load_library(path: str | Path) -> LoadedLibrary:
    """Loads a shared library that only this user can have written.

    Raises OSError, NotOursError if others may have written it, and DeviceError if the process has no memory mappings left.
    """
    with _looked_at(Path(path)) as name:
        return _opened(LoadedLibrary, name, path)


def load_for_all(path: str | Path) -> ctypes.CDLL:
    """Loads a library whose symbols later libraries use. It is never closed."""
    with _looked_at(Path(path)) as name:
        return _opened(partial(ctypes.CDLL, mode=ctypes.RTLD_GLOBAL), name, path)


def function_for_all(name: str, restype: Any) -> Callable[..., Any] | None:
    """Returns a function that libraries find by its name; None if no library loaded by `load_for_all` has it."""
    found = getattr(ctypes.CDLL(None), name, None)
    if found is not None:
        found.restype = restype
    return found


def _opened(load: Callable[[str], T], name: str, path: str | Path) -> T:
    try:
        return load(name)
    except OSError as e:
        wrong = OSError(str(e).replace(name, str(path)))
    used, most = _mappings()
    if used + _OF_ONE < most:
        raise wrong
    gc.collect()  # closes the libraries that only cycles hold
    try:
        return load(name)
    except OSError:
        raise DeviceError(
            f"{path} cannot be loaded: the process has {used} mappings of memory, the system allows {most}, and a kernel takes "
            f"two; hold fewer kernels at a time, or allow more: sysctl -w vm.max_map_count={4 * most}"
        ) from None


def _mappings() -> tuple[int, float]:
    """Returns the number of memory mappings of this process, and its limit."""
    try:
        with _MAPPINGS.open("rb") as lines:
            return sum(1 for _ in lines), int(_MOST_MAPPINGS.read_text())
    except OSError:  # no Linux
        return 0, math.inf


def load_module(name: str, path: Path) -> ModuleType:
    """Loads an extension module of Python. Raises ImportError, and OSError as `load_library`.

    The module's `__file__` is the file, not the descriptor, which this process reuses later: tools that read the sources of all
    modules, as debuggers do, would block on a pipe there.
    """
    with _looked_at(path) as opened:
        loader = ExtensionFileLoader(name, opened)
        spec = spec_from_file_location(name, opened, loader=loader)
        assert spec is not None
        module = module_from_spec(spec)
        loader.exec_module(module)
    loader.path = spec.origin = module.__file__ = str(path)
    return module


@contextmanager
def _looked_at(path: Path) -> Iterator[str]:
    """Context manager with a path to the checked, open file, so that nobody can exchange it before loading.

    On systems without descriptor paths it is the file's own path, in a folder that only this user can write to.
    """
    with opened_own(path) as fd:
        yield _name_of(fd) if _DESCRIPTORS.is_dir() else str(path)


def _name_of(fd: int) -> str:
    """Returns a path of a descriptor that was never used before.

    The loader takes equal paths for one library, and descriptor numbers are reused. "/./" and "//" are neutral in a path, so they
    encode a counter.
    """
    steps = ("./" if bit == "1" else "/" for bit in f"{next(_numbers):b}")
    return f"{_DESCRIPTORS}/{''.join(steps)}{fd}"
