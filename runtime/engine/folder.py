"""Folder of compiled kernels: libraries named by a key of their inputs. The least recently used are removed.

If the folder cannot be written, a temporary folder of the process replaces it.
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
    """Raised for a kernel that no C compiler accepts: a bug of the code generator."""


class NoFolderError(Exception):
    """Raised if compiled kernels cannot be written to any folder."""


class KernelFolder:
    """A folder of libraries shared by processes: libraries appear complete, and loaded ones may be removed."""

    def __init__(self, path: Path, limit_bytes: int) -> None:
        self.path, self.limit_bytes = path, limit_bytes

    def library(self, key: str) -> Path:
        """Returns the path of the library with this key, which need not exist."""
        return self.path / f"{key}.so"

    def touch(self, library: Path) -> None:
        """Marks a library as recently used."""
        with suppress(OSError):
            if time.time() - library.stat().st_mtime > _LOOKED_AT_S:
                os.utime(library)

    def trim_sometimes(self) -> None:
        """Trims the folder, unless some process did so within the last minute.

        A scan of 10,000 libraries takes as long as compiling one or two kernels.
        """
        marker = self.path / _TRIMMED
        with suppress(OSError):
            if 0 <= time.time() - marker.stat().st_mtime < _TRIMMED_S:
                return
        with suppress(OSError):
            marker.touch()
        self.trim()

    def trim(self) -> None:
        """Removes the least recently used libraries with their texts, until half of the limit is free.

        No effect below the limit.
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
        """Removes incomplete libraries. Returns True if there were any."""
        is_any = False
        for library in self.path.glob("*.so"):
            with suppress(OSError):
                if is_torn(library):
                    library.unlink()
                    is_any = True
        return is_any


class WritableFolder:
    """Folder for compiled code: the stored one (`kept`), or a temporary folder of this process if `kept` is unusable."""

    def __init__(self, kept: KernelFolder) -> None:
        self._folder = kept
        self._spare: Scratch | None = None  # in place of one that cannot be written
        self._lock = threading.RLock()  # finalizers in this thread may call kernels

    @staticmethod
    def of_process(limit_bytes: int) -> WritableFolder:
        """Returns a folder that is removed when this process ends. Raises NoFolderError."""
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
        """Removes temporary files of this process."""
        if self._spare is not None:
            self._spare.close()

    def trim_sometimes(self) -> None:
        """Trims the folder in use, at most once a minute."""
        self._folder.trim_sometimes()

    def use(self, build: Callable[[KernelFolder], T]) -> T:
        """Returns the result of `build` in the folder, or in the temporary one if the first fails.

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
        """Returns a folder to replace `bad`, which failed with `e`.

        Raises an error with the reason if there is none.
        """
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
