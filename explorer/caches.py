"""Caches outside run folders: location, size, rebuildable or not."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..runtime.device import cache_folder
from ..runtime.records.libraries import registry
from ..runtime.records.store import default_store
from ..runtime.stored_runs import FOLDER as REFERENCES
from ..space.engine.jit import cache_folder as jitted_folder

# Names of jit.cache_folder, and of references in older versions: numba's folder may be shared with other programs.
_JITTED = re.compile(r"[\w.+]+-numba[\w.+]+-[0-9a-f]{16}|reference-py\d+-numba[\w.+]+")


@dataclass(frozen=True)
class CacheLocation:
    """Location of a cache on disk: folders, or files with a common name prefix.

    `n_bytes` sums the sizes of files, not the blocks of the disk.
    """

    name: str
    path: Path  # that people are shown
    what: str
    can_be_cleared: bool
    files: tuple[Path, ...]
    n_bytes: int
    folders: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Freed:
    """The cache locations that were cleared, and their total size in bytes."""

    names: tuple[str, ...]
    n_bytes: int


def kept_places() -> tuple[CacheLocation, ...]:
    """Returns all cache locations, including empty ones."""
    cache, jitted = cache_folder(), jitted_folder().parent
    versions = [f for f in jitted.glob("*") if _JITTED.fullmatch(f.name)]
    return (
        _place("builds", cache / "build", "compiled candidates with their sources"),
        _place("kernels", cache / "kernels", "compiled kernels of standalone calls"),
        _place(
            "search-code",
            jitted,
            "what numba compiled: the search itself",
            versions,
        ),
        _place("references", cache / REFERENCES, "results of long runs of references"),
        _place("calibrations", cache / "targets", "measured facts of machines"),
        _store(default_store()),
        _registry(registry()),
    )


def clear_kept(name: str) -> Freed:
    """Deletes the rebuildable cache called `name`, or "all" of them. Raises ValueError for an unknown name."""
    places = kept_places()
    clearable = [p for p in places if p.can_be_cleared]
    chosen = [p for p in clearable if name in (p.name, "all")]
    if not chosen:
        known = ", ".join(p.name for p in clearable)
        if any(p.name == name for p in places):
            raise ValueError(f"{name} cannot be made again: remove it by hand; to clear: {known}")
        raise ValueError(f"there is nothing called {name!r} to clear: there are {known}, all")
    for folder in (f for place in chosen for f in place.folders):
        shutil.rmtree(folder, ignore_errors=True)
    left = {p.name: p.n_bytes for p in kept_places()}
    freed = sum(p.n_bytes - left[p.name] for p in chosen)
    return Freed(tuple(p.name for p in chosen), freed)


def _place(
    name: str, path: Path, what: str, folders: Sequence[Path] | None = None
) -> CacheLocation:
    folders = (path,) if folders is None else tuple(folders)
    files = tuple(_files(folders))
    return CacheLocation(name, path, what, True, files, sum(map(_size, files)), tuple(folders))


def _files(folders: Sequence[Path]) -> Iterator[Path]:
    """Yields all files in folders, also while other processes remove some of them."""
    for folder in folders:
        for inside, _, names in os.walk(folder):  # which leaves out folders that are gone
            yield from (f for name in names if (f := Path(inside) / name).is_file())


def _store(path: Path) -> CacheLocation:
    files = tuple(f for f in path.parent.glob(f"{path.name}*") if f.is_file())
    what = "the fastest implementations of all searches"
    return CacheLocation("store", path, what, False, files, sum(map(_size, files)))


def _registry(path: Path) -> CacheLocation:
    files = tuple(path.glob("*.json"))
    what = "which shared libraries were built here, and so may be run"
    return CacheLocation("libraries", path, what, False, files, sum(map(_size, files)))


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # another process has just removed it
        return 0
