"""Libraries and extensions in this process: exactly the files that were looked at, which nobody else may have written."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from .files import opened_own

_DESCRIPTORS = Path("/proc/self/fd")
_numbers = itertools.count(1)


def load_library(path: str | Path, mode: int = ctypes.DEFAULT_MODE) -> ctypes.CDLL:
    """A shared library of this user's. Raises OSError, NotOursError where others may have written it."""
    with _looked_at(Path(path)) as name:
        try:
            return ctypes.CDLL(name, mode=mode)
        except OSError as e:
            raise OSError(str(e).replace(name, str(path))) from None


def load_module(name: str, path: Path) -> ModuleType:
    """An extension of Python's in such a file. Raises ImportError, and OSError as `load_library`."""
    with _looked_at(path) as opened:
        loader = ExtensionFileLoader(name, opened)
        spec = spec_from_file_location(name, opened, loader=loader)
        assert spec is not None
        module = module_from_spec(spec)
        loader.exec_module(module)
    return module


@contextmanager
def _looked_at(path: Path) -> Iterator[str]:
    """A name of the very file that was looked at, while it is open; the file's own name where descriptors have none, which is as
    good in a folder that only this user can write to.
    """
    with opened_own(path) as fd:
        yield _name_of(fd) if _DESCRIPTORS.is_dir() else str(path)


def _name_of(fd: int) -> str:
    """A name of a descriptor that no other has had: the loader takes equal names for one library, and numbers come again.

    "/./" and "//" lead nowhere, so that they can spell a number.
    """
    steps = ("./" if bit == "1" else "/" for bit in f"{next(_numbers):b}")
    return f"{_DESCRIPTORS}/{''.join(steps)}{fd}"
