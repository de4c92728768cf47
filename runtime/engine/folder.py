"""Folder of compiled kernels: libraries by the key of their inputs. The oldest are removed where there are too many.

Where it cannot be written, a folder of the process replaces it.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from ..files import is_torn
from ..scratch import Scratch

T = TypeVar("T")

_TRIMMED = "trimmed"  # its modification time is that of the last scan for libraries to remove
_TRIMMED_S = 60.0
_LOOKED_AT_S = 3600.0  # a library that was used within so long is not marked again


class CompileError(RuntimeError):
    """Raised for a kernel that no C compiler takes: a bug of the code generator."""


class NoFolderError(Exception):
    """Raised if there is no folder that compiled kernels could be written to."""


class KernelFolder:
    """A folder for several processes: libraries appear complete, and a process can still use one that was removed after loading."""

    def __init__(self, path: Path, limit_bytes: int) -> None:
        self.path, self.limit_bytes = path, limit_bytes

    def library(self, key: str) -> Path:
        """Returns the path of a key's library, which may not exist yet."""
        return self.path / f"{key}.so"

    def touch(self, library: Path) -> None:
        """Marks a library as used now."""
        with suppress(OSError):
            if time.time() - library.stat().st_mtime > _LOOKED_AT_S:
                os.utime(library)

    def trim_sometimes(self) -> None:
        """Trims the folder if no process has for a minute: a scan of 10,000 libraries takes as long as compiling one or two
        kernels.
        """
        marker = self.path / _TRIMMED
        with suppress(OSError):
            if 0 <= time.time() - marker.stat().st_mtime < _TRIMMED_S:
                return
        with suppress(OSError):
            marker.touch()
        self.trim()

    def trim(self) -> None:
        """Removes the libraries that were used longest ago, with their texts, until half of the limit is free. Below the limit it
        does nothing.
        """
        kept: dict[str, os.stat_result] = {}
        with suppress(OSError), os.scandir(self.path) as entries:
            for entry in entries:
                if entry.name.endswith((".so", ".c")):
                    with suppress(OSError):
                        kept[entry.name] = entry.stat()
        found: list[tuple[float, int, Path]] = []
        for name, built in kept.items():
            stem, suffix = os.path.splitext(name)
            if suffix == ".so":
                text = kept.get(f"{stem}.c")
                size = built.st_size + (text.st_size if text is not None else 0)
                found.append((built.st_mtime, size, self.path / name))
        total = sum(size for _, size, _ in found)
        if total <= self.limit_bytes:
            return
        for _, size, library in sorted(found):
            if total <= self.limit_bytes // 2:
                break
            for file in (library, library.with_suffix(".c")):
                with suppress(OSError):
                    file.unlink(missing_ok=True)
            total -= size

    def remove_torn(self) -> bool:
        """Removes libraries whose end is missing. Returns True if there were any."""
        is_any = False
        for library in self.path.glob("*.so"):
            with suppress(OSError):
                if is_torn(library):
                    library.unlink()
                    is_any = True
        return is_any


class WritableFolder:
    """Folder for compiled code: `kept`, or a folder of this process where `kept` cannot be used."""

    def __init__(self, kept: KernelFolder) -> None:
        self._folder = kept
        self._spare: Scratch | None = None  # in place of one that cannot be written
        self._lock = threading.Lock()

    @staticmethod
    def of_process(limit_bytes: int) -> WritableFolder:
        """Returns a folder that ends with this process. Raises NoFolderError."""
        try:
            scratch = Scratch("kernelscape-kernels-")
        except OSError as e:
            raise NoFolderError(e) from e
        made = WritableFolder(KernelFolder(scratch.path, limit_bytes))
        made._keep(scratch)
        return made

    def _keep(self, spare: Scratch) -> None:
        self._spare = spare
        weakref.finalize(self, _close, spare, os.getpid())

    def close(self) -> None:
        """Removes files made for this process only."""
        if self._spare is not None:
            self._spare.close()

    def trim_sometimes(self) -> None:
        """Trims the folder in use, where that is due."""
        self._folder.trim_sometimes()

    def use(self, build: Callable[[KernelFolder], T]) -> T:
        """Returns the result of `build` in the folder, or in the spare one if the first fails.

        Raises NoFolderError, and CompileError for a library that can be loaded from neither.
        """
        folder = self._folder
        while True:
            try:
                return build(folder)
            except OSError as e:
                if e.errno is not None or not folder.remove_torn():
                    folder = self._other(folder, e)

    def _other(self, bad: KernelFolder, e: OSError) -> KernelFolder:
        """Returns a folder in place of one that failed. Raises an error with the reason where there is none."""
        with self._lock:
            if self._folder is not bad:  # another thread was here
                return self._folder
            if self._spare is not None:
                if e.errno is None:
                    raise CompileError(f"what was compiled cannot be loaded: {e}") from e
                raise NoFolderError(e) from e
            try:
                spare = Scratch("kernelscape-kernels-")
            except OSError as worse:
                raise NoFolderError(worse) from worse
            self._keep(spare)
            self._folder = KernelFolder(spare.path, bad.limit_bytes)
            warnings.warn(
                f"compiled kernels are kept for this process only: {bad.path} cannot be used ({e.strerror or e})",
                RuntimeWarning,
                stacklevel=2,
            )
            return self._folder


def _close(spare: Scratch, owner: int) -> None:
    if os.getpid() == owner:  # a child of fork() leaves it to its parent
        spare.close()
