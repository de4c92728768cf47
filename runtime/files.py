"""Safe file access: opens and writes regular files only, since a folder's creator may have put links or pipes there.

All files of runs and caches are accessed by this module. A file written as a whole is complete or absent, even after a crash.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..space.engine.own_folders import (
    NotOursError,
    make_own_folder,
    why_no_file_of_ours,
    why_not_ours,
)

# Most that is read of a file, by its kind. More was not written by this program.
RECORD_BYTES = 256 << 20  # run.json, best.json and the like
JOURNAL_BYTES = 4 << 30  # about two million evaluations
LIBRARY_BYTES = 64 << 20
NOTE_BYTES = 16 << 20  # what is noted beside libraries, calibrations, settings

_SAFELY = os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK  # the last: a pipe is not waited for


class OddFileError(OSError):
    """A file that cannot be used. `strerror` is the reason, as the end of a sentence."""

    def __init__(self, why: str) -> None:
        super().__init__(errno.EINVAL, why)


def read_regular(path: Path, limit_bytes: int, *, follow: bool = False) -> bytes:
    """Returns the content of a regular file. With `follow`, links are followed: for paths given by the user.

    Raises OSError, whose `strerror` is the end of a sentence: also for links, pipes, devices, and more than `limit_bytes`.
    """
    with opened_regular(path, follow=follow) as fd:
        return _read(fd, limit_bytes)


@contextmanager
def opened_regular(path: Path, *, follow: bool = False) -> Iterator[int]:
    """Context manager with a descriptor of a regular file. Raises OSError as `read_regular`."""
    fd = _open_regular(path, os.O_RDONLY, follow=follow)
    try:
        yield fd
    finally:
        os.close(fd)


def _read(fd: int, limit_bytes: int) -> bytes:
    if os.fstat(fd).st_size <= limit_bytes:
        with os.fdopen(fd, "rb", closefd=False) as file:
            content = file.read(limit_bytes + 1)
        if len(content) <= limit_bytes:
            return content
    raise OddFileError(f"it has more than {limit_bytes:,} bytes")


def open_to_append(path: Path) -> int:
    """Returns a descriptor of a regular file for reading and writing; creates the file if needed.

    Raises OSError as `read_regular`, also for a file with a second hard link: the write would change that name, too.
    """
    fd = _open_regular(path, os.O_RDWR | os.O_CREAT)
    if os.fstat(fd).st_nlink > 1:
        os.close(fd)
        raise OddFileError("it has a second name (a hard link), whose content would change, too")
    return fd


def check_regular(path: Path) -> None:
    """Raises OSError as `read_regular`, unless `path` is a regular file."""
    with opened_regular(path):
        pass


def append(path: Path, content: bytes) -> None:
    """Appends `content` to a file opened by `open_to_append`. Raises OSError."""
    with os.fdopen(open_to_append(path), "ab") as file:
        file.write(content)


def _open_regular(path: Path, flags: int, *, follow: bool = False) -> int:
    try:
        fd = os.open(path, flags | _SAFELY | (0 if follow else os.O_NOFOLLOW), 0o644)
    except OSError as e:
        if e.errno == errno.ELOOP and not follow:
            raise OddFileError("it is a symbolic link") from e
        if e.errno == errno.ENXIO:  # a socket
            raise OddFileError("it is no regular file") from e
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OddFileError("it is no regular file")
    return fd


def is_there(path: Path) -> bool:
    """True if a file, folder or link called `path` exists, dangling links included."""
    return os.path.lexists(path)


@contextmanager
def opened_own(path: Path) -> Iterator[int]:
    """Context manager with a descriptor of a file whose content is executed, or decides about execution.

    Raises OSError, and NotOursError if others may have written it.
    """
    if why := why_not_ours(path.parent):
        raise NotOursError(why)
    with opened_regular(path) as fd:
        if why := why_no_file_of_ours(path, os.fstat(fd)):
            raise NotOursError(why)
        yield fd


def read_own(path: Path, limit_bytes: int = LIBRARY_BYTES) -> bytes:
    """Returns the content of a file opened by `opened_own`. Raises OSError."""
    with opened_own(path) as fd:
        return _read(fd, limit_bytes)


def write_in(folder: Path, name: str, content: bytes) -> None:
    """Writes a file into a run folder, which is created if needed.

    No link is followed, neither as folder nor as file. The file need not survive a loss of power. Raises OSError.
    """
    with suppress(FileExistsError):
        folder.mkdir()
    try:
        within = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as e:
        if e.errno in (errno.ELOOP, errno.ENOTDIR):
            raise OddFileError(f"{folder} is no folder of its own") from e
        raise
    try:
        new = f"{name}.{os.getpid()}.new"
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFELY, 0o644, dir_fd=within)
        with os.fdopen(fd, "wb") as file:
            file.write(content)
        os.replace(new, name, src_dir_fd=within, dst_dir_fd=within)
    finally:
        os.close(within)


def write_named(path: Path, content: bytes) -> None:
    """Writes a file that the user named: a link is replaced, a terminal or pipe is written to. Raises OSError."""
    if path.exists() and not path.is_file():
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC), "wb") as file:
            file.write(content)
    else:
        write_atomically(path, content)


def write_own(path: Path, content: bytes) -> None:
    """Writes a file as `write_atomically` into a folder that only this user can write to; creates the folder.

    Raises OSError and NotOursError.
    """
    make_own_folder(path.parent)
    write_atomically(path, content)


def write_atomically(path: Path, content: bytes) -> None:
    """Replaces the file by new content in one step; it is on disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(
        dir=path.parent, prefix=path.name, suffix=".new", delete=False
    ) as f:
        try:
            f.write(content)
            f.flush()
            os.fchmod(f.fileno(), 0o644)  # temporary files are private, results are not
            os.fsync(f.fileno())
            os.replace(f.name, path)
        except BaseException:
            # Ctrl-C may come when the file has its new name already.
            Path(f.name).unlink(missing_ok=True)
            raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes a rename or a new file in the folder survive a loss of power."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# Linkers put the table of sections last. What the header says of it: where it begins, how long an entry is, how many there are.
_ELF64 = struct.Struct("<4s36xQ10xHH2x")


def is_torn(library: Path) -> bool:
    """True if the end of a library is missing or zero, as after a loss of power: loading it could end the process.

    Raises OSError if it does not exist, NotOursError if others may have written it.
    """
    with opened_own(library) as fd, os.fdopen(fd, "rb", closefd=False) as file:
        head = file.read(_ELF64.size)
        if len(head) < _ELF64.size:
            return True
        magic, sections_at, entry_bytes, n_entries = _ELF64.unpack(head)
        if magic != b"\x7fELF" or n_entries == 0:
            return True
        file.seek(sections_at + entry_bytes * (n_entries - 1))
        last = file.read(entry_bytes)
    return len(last) < entry_bytes or not any(last)
