"""Files that are complete or not there, whatever happens."""

from __future__ import annotations

import os
import struct
import tempfile
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the file by new content in one step, on disk before this returns."""
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
    """Make a rename or a new file in the folder survive a loss of power."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# Linkers put the table of sections last. What the header says of it: where it begins, how long an entry is, how many there are.
_ELF64 = struct.Struct("<4s36xQ10xHH2x")


def is_torn(library: Path) -> bool:
    """Whether the end of a library is missing or empty, as where power or space was lost: to load it could end the process."""
    with library.open("rb") as file:
        head = file.read(_ELF64.size)
        if len(head) < _ELF64.size:
            return True
        magic, sections_at, entry_bytes, n_entries = _ELF64.unpack(head)
        if magic != b"\x7fELF" or n_entries == 0:
            return True
        file.seek(sections_at + entry_bytes * (n_entries - 1))
        last = file.read(entry_bytes)
    return len(last) < entry_bytes or not any(last)
