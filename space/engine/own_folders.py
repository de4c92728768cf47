"""Security of folders with loadable code: nobody but the folder's owner may have written their contents.

Compiled code is stored in folders and loaded later, with all rights of the user who loads it. So
such a folder must belong to this user, only its owner may write to it, and nobody may replace it by
another. If the user's cache is not like that, a folder of the process is used instead.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import os
import shutil
import stat
import tempfile
import threading
import warnings
from contextlib import suppress
from pathlib import Path

LOCK = "owner"  # a file in a folder for a moment, locked while its owner lives
PRIVATE_PREFIX = "kernelscape-cache-"
# Names the folder of a process to those that it starts: they look at it as at any other. It is no setting of the user's.
_PRIVATE = "_KERNELSCAPE_PRIVATE_CACHE"
_MOST_LINKS = 40  # as many as Linux follows
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_making = threading.RLock()  # a finalizer that Python runs in this thread may call kernels


class NotOursError(OSError):
    """Raised for a file or folder that another user may have written.

    `strerror`: the reason, as the end of a sentence.
    """

    def __init__(self, why: str) -> None:
        super().__init__(errno.EPERM, why)


def why_not_ours(folder: Path) -> str | None:
    """Returns the reason that another user may have written the contents of a folder; None if nobody can have.

    The reason is the end of a sentence. Raises OSError if the folder does not exist.
    """
    folder = folder.absolute()
    found = os.stat(folder)
    if not stat.S_ISDIR(found.st_mode):
        return f"{folder} is no folder"
    return _why_written(folder, found) or _why_replaced(folder, _MOST_LINKS)


def why_no_file_of_ours(file: object, found: os.stat_result) -> str | None:
    """Returns the reason why another user may have written a file, as the end of a sentence.

    It returns None if nobody can have.
    `found`: the status of the open file, or of its path without following links.
    """
    if not stat.S_ISREG(found.st_mode):
        return f"{file} is no regular file"
    return _why_written(file, found)


def _why_written(path: object, found: os.stat_result) -> str | None:
    if found.st_uid != os.getuid():
        return f"{path} belongs to another user"
    if found.st_mode & _OTHERS_WRITE:
        return f"others may write to {path} (chmod -R go-w changes that)"
    return None


def _why_replaced(folder: Path, n_links: int) -> str | None:
    """Returns the reason why another user may replace a folder by another: he may change some step of its path.

    It returns None if nobody may.
    """
    for part in (folder, *folder.parents):
        if part != folder and (why := _why_renamed(part)):
            return why
        found = os.lstat(part)
        if stat.S_ISLNK(found.st_mode):
            if found.st_uid not in (0, os.getuid()):
                return f"{part} is a link of another user"
            if not n_links:
                return f"{part} is one of too many links"
            if why := _why_replaced(part.parent / os.readlink(part), n_links - 1):
                return why
    return None


def _why_renamed(parent: Path) -> str | None:
    """Returns the reason why another user may rename entries of a folder; None if nobody may."""
    found = os.stat(parent)
    if found.st_uid not in (0, os.getuid()):
        return f"{parent} belongs to another user"
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        return f"anyone may rename what is in {parent} (chmod o-w or +t changes that)"
    return None


def make_own_folder(folder: Path) -> None:
    """Makes a folder, and missing folders above it, that no other user may enter.

    Raises OSError; NotOursError if the folder exists and others may have written to it.
    """
    for missing in reversed([p for p in (folder, *folder.parents) if not p.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    if why := why_not_ours(folder):
        raise NotOursError(why)


def user_cache(name: str = "", *, is_written: bool = False) -> Path:
    """Returns the user's cache folder for files that can be made again, or the folder `name` in it.

    It is in the system's temporary folder if it cannot be made in the home directory, or cannot be
    written although `is_written`. If others may have written to it, a folder of this process
    replaces it, with one warning. Raises OSError if neither is possible.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "kernelscape")
    spare = Path(tempfile.gettempdir(), f"kernelscape-{os.getuid()}")
    why = "it cannot be written"
    for folder in (home, spare):
        try:
            make_own_folder(folder)
            make_own_folder(folder / name)
        except NotOursError as e:
            why = str(e.strerror)
            break
        except OSError:
            continue
        if not is_written or os.access(folder / name, os.W_OK):
            return folder / name
    private = private_folder(home / name, why) / name
    private.mkdir(mode=0o700, exist_ok=True)
    return private


def private_folder(instead_of: Path, why: str) -> Path:
    """Returns a temporary folder of this process and its child processes, which is removed when the process ends.

    At its first use a warning gives the reason `why` it replaces folder `instead_of`.
    """
    with _making:
        handed = os.environ.get(_PRIVATE)
        if handed:
            with suppress(OSError):
                if why_not_ours(Path(handed)) is None:
                    return Path(handed)
        made = _new_private_folder()
        os.environ[_PRIVATE] = str(made)
    message = (
        f"what is compiled is kept for this process only: {instead_of} is not used, since {why}"
    )
    warnings.warn(message, RuntimeWarning, stacklevel=3)
    return made


def _new_private_folder() -> Path:
    why = ""
    for parent in dict.fromkeys((tempfile.gettempdir(), "/var/tmp", "/dev/shm", str(Path.home()))):
        try:
            made = Path(tempfile.mkdtemp(prefix=PRIVATE_PREFIX, dir=parent))
        except OSError as e:
            why = why or f"{parent}: {e.strerror}"
            continue
        refused = why_not_ours(made)
        if refused is None:
            fd = os.open(made / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(fd, fcntl.LOCK_EX)
            atexit.register(_remove, made, os.getpid())
            return made
        made.rmdir()
        why = why or refused
    raise NotOursError(f"there is no folder that compiled code could be kept in: {why}")


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a child of fork() leaves it to its parent
        shutil.rmtree(folder, ignore_errors=True)
