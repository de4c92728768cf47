"""The folder of compiled kernels: libraries by the key of what they were made of; the oldest go where there are too many."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from ..files import is_torn

_LOOKED_AT_S = 3600.0  # a library that was used within so long is not marked again


class KernelFolder:
    """Safe for several processes: libraries appear complete, and who has loaded one that goes keeps it."""

    def __init__(self, path: Path, limit_bytes: int) -> None:
        self.path, self._limit_bytes = path, limit_bytes

    def library(self, key: str) -> Path:
        """Where the library of a key is or will be."""
        return self.path / f"{key}.so"

    def touch(self, library: Path) -> None:
        """Marks it as used now."""
        with suppress(OSError):
            if time.time() - library.stat().st_mtime > _LOOKED_AT_S:
                os.utime(library)

    def trim(self) -> None:
        """Removes the libraries that were used longest ago, with their texts, until half of the limit is left free."""
        found: list[tuple[float, int, Path]] = []
        for library in self.path.glob("*.so"):
            with suppress(OSError):
                kept = library.stat()
                text = library.with_suffix(".c")
                size = kept.st_size + (text.stat().st_size if text.exists() else 0)
                found.append((kept.st_mtime, size, library))
        total = sum(size for _, size, _ in found)
        if total <= self._limit_bytes:
            return
        for _, size, library in sorted(found):
            if total <= self._limit_bytes // 2:
                break
            for file in (library, library.with_suffix(".c")):
                with suppress(OSError):
                    file.unlink(missing_ok=True)
            total -= size

    def remove_torn(self) -> bool:
        """Removes libraries whose end is missing; whether there were any."""
        is_any = False
        for library in self.path.glob("*.so"):
            with suppress(OSError):
                if is_torn(library):
                    library.unlink()
                    is_any = True
        return is_any
