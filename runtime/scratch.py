"""Temporary folders: removed by their owner, or by a later process if the owner was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from ..space.engine.own_folders import LOCK

_NEW_S = 60.0  # a folder without the file may be in the making for so long

_swept: set[tuple[Path, str]] = set()


class Scratch:
    """A new folder with this prefix in `parent` (default: the system's temporary folder), removed by `close`.

    The first one of a process with this parent and prefix also removes folders of processes that were killed.
    """

    def __init__(self, prefix: str, parent: Path | None = None) -> None:
        parent = Path(tempfile.gettempdir()) if parent is None else parent
        sweep_once(parent, prefix)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            try:
                self._fd: int | None = os.open(self.path / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
            except FileNotFoundError:  # another process has swept it away
                continue
            # Who sweeps may have held the lock in between, and have removed the folder with it.
            if _lock(self._fd) and os.fstat(self._fd).st_nlink > 0:
                break
            os.close(self._fd)

    def close(self) -> None:
        """Removes the folder. Safe to call twice."""
        if self._fd is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> Path:
        return self.path

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, t: TracebackType | None
    ) -> None:
        self.close()


def sweep_once(parent: Path, prefix: str) -> None:
    """Calls `sweep` with these arguments, once per process."""
    if (parent, prefix) not in _swept:
        _swept.add((parent, prefix))
        sweep(parent, prefix)


def sweep(parent: Path, prefix: str) -> None:
    """Removes this user's folders with this parent and prefix whose owner process has ended."""
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(prefix) and entry.is_dir(follow_symlinks=False):
                with suppress(OSError):
                    _remove_left(Path(entry.path))


def _remove_left(folder: Path) -> None:
    found = folder.stat()
    if found.st_uid != os.getuid():
        return
    try:
        fd = os.open(folder / LOCK, os.O_RDWR)
    except FileNotFoundError:
        if time.time() - found.st_mtime > _NEW_S:
            shutil.rmtree(folder, ignore_errors=True)
        return
    try:
        if _lock(fd):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(fd)


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
