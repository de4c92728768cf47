"""Prebuilt shared library next to a best.json: a replay on an equal CPU needs no compiler.

A library is code, and a best.json may come from anybody. So it is loaded only if exactly its bytes were built by this user from
exactly this source. Their hash is then in a registry in the user's data folder, which only a build writes. It is also loaded if
the user trusts it explicitly. All others are built again, and one sentence gives the reason.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from pathlib import Path

import msgspec

from .. import files
from ..device import cache_folder
from ..host import cpu_key
from .record import BestFile, LibraryRecord
from .store import default_store

SUFFIX = ".so"


class _Built(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Registry entry of a library: the source key and the CPU for which it was built."""

    source_key: str
    cpu: str


def library_beside(best: Path) -> Path:
    """Returns the path of the library of a best.json: always beside it, so that the file cannot name another one."""
    return best.with_suffix(SUFFIX)


def keep_library(built: Path, source_key: str, best: Path) -> LibraryRecord:
    """Copies a library built here next to `best`, and registers its hash. Returns its record for best.json."""
    content = files.read_own(built)
    record = LibraryRecord(hash=_hash(content), source_key=source_key, cpu=cpu_key())
    place = registry() / f"{record.hash}.json"
    with suppress(OSError):  # it is built again then
        files.write_own(place, msgspec.json.encode(_Built(source_key, record.cpu)))
    files.write_atomically(library_beside(best), content)
    return record


def usable_library(file: BestFile, best: Path, *, trust: bool = False) -> tuple[Path | None, str]:
    """Returns a copy of the library next to `best` in the user's own cache, else None with the reason.

    The reason is "" if there is no library. The file is read only once, so that it cannot change between the check and its use.
    """
    record = file.library
    place = library_beside(best)
    if isinstance(record, msgspec.UnsetType) or not files.is_there(place):
        return None, ""
    try:
        content = files.read_regular(place, files.LIBRARY_BYTES)
    except OSError as e:
        return None, f"{place} is not read, since {e.strerror}: it is built again"
    if record.source_key != file.source_key or _hash(content) != record.hash:
        return None, f"{place} is not the library that {best.name} names: it is built again"
    if record.cpu != cpu_key():
        return None, f"{place} was built for a CPU with other instructions: it is built again"
    if not trust and not _is_ours(record):
        return None, f"{place} was not built here: it is built again, unless you trust it"
    kept = cache_folder("build") / f"beside-{record.hash}{SUFFIX}"
    with suppress(OSError):
        if _hash(files.read_own(kept)) == record.hash:
            return kept, ""
    files.write_own(kept, content)
    return kept, ""


def registry() -> Path:
    """Returns the folder of the registry of own builds: one file per hash."""
    return default_store().parent / "libraries"


def _is_ours(record: LibraryRecord) -> bool:
    if not re.fullmatch(r"[0-9a-f]{64}", record.hash):
        return False
    try:
        noted = files.read_own(registry() / f"{record.hash}.json", files.NOTE_BYTES)
        built = msgspec.json.decode(noted, type=_Built)
    except (OSError, msgspec.DecodeError):
        return False
    return built == _Built(record.source_key, record.cpu)


def _hash(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=32).hexdigest()
