"""Files named by content: arrays and libraries sent between machines, under names that are hashes of their bytes."""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..api.artifact import Artifact
from ..files import LIBRARY_BYTES, read_own, write_own
from ..scratch import Scratch
from ..worker import messages
from ..worker.memory_files import AbstractFiles

Array = NDArray[Any]
PROBE = "probe"  # the library of a site that measures its machine
CHUNK_BYTES = 8 << 20  # of one message
_NAME = re.compile(r"[0-9a-f]{32}\.[a-z]{1,8}")
_ZEROS = re.compile(r"zeros-([a-z][0-9]{1,2})-((?:\d+x)*\d+|scalar)\.npy")
_MOST_LIBRARIES = 512  # of a site; those that are used no more go first
_PREFIX = "kernelscape-site-"
_IN_MEMORY = Path("/dev/shm")


def name_of(content: bytes, suffix: str) -> str:
    """Returns the name of a file with this content; `suffix` is its file name extension."""
    return hashlib.blake2b(content, digest_size=16).hexdigest() + suffix


class Contents:
    """Files received by the sites of a process: arrays in memory, libraries in a temporary folder.

    Libraries are on disk since memory-backed files may not be executable. A missing file is requested again, so any file may be
    removed at any time.
    """

    def __init__(self) -> None:
        with ExitStack() as opened:
            in_memory = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None
            self._arrays = opened.enter_context(Scratch(_PREFIX, in_memory))
            self._libraries = opened.enter_context(Scratch(_PREFIX))
            self._opened = opened.pop_all()

    def close(self) -> None:
        self._opened.close()

    def clear(self) -> None:
        """Removes all files, when no session needs them."""
        for folder in (self._arrays, self._libraries):
            _remove(folder, 0)

    @property
    def folders(self) -> tuple[Path, Path]:
        """The folder of arrays and the folder of libraries."""
        return self._arrays, self._libraries


class SiteFiles:
    """Received files in the two folders of `Contents`."""

    def __init__(self, arrays: Path, libraries: Path) -> None:
        self._arrays, self._libraries = arrays, libraries
        self._part = f"{os.getpid()}-{id(self)}.part"  # of a name that is not complete yet

    def path(self, name: str) -> Path:
        """Returns the path of the file called `name`. Raises ValueError for an invalid name."""
        if _NAME.fullmatch(name) is None and _ZEROS.fullmatch(name) is None:
            raise ValueError(f"{name!r:.80} names no content")
        return (self._arrays if name.endswith(".npy") else self._libraries) / name

    def has(self, name: str) -> bool:
        """True if the file exists; arrays of zeros are created from their name."""
        path, zeros = self.path(name), _ZEROS.fullmatch(name)
        if zeros is not None and not path.exists():
            _write_zeros(path, zeros[1], zeros[2])
        with suppress(OSError):
            os.utime(path)
            return True
        return False

    def put(self, name: str, at: int, n_bytes: int, chunk: bytes) -> None:
        """Adds a chunk of a file at position `at` of `n_bytes`.

        Raises ValueError if the whole does not match its name.
        """
        path = self.path(name)
        part = path.with_name(f"{name}.{self._part}")
        with open(part, "wb" if at == 0 else "r+b") as file:
            file.seek(at)
            file.write(chunk)
        if at + len(chunk) < n_bytes:
            return
        content = read_own(part, n_bytes)
        part.unlink()
        if name_of(content, path.suffix) != name:
            raise ValueError(f"the content of {name} is not what its name says")
        write_own(path, content)
        if path.parent == self._libraries:
            path.chmod(0o755)
            _remove(self._libraries, _MOST_LIBRARIES)


def _remove(folder: Path, n_left: int) -> None:
    """Removes the least recently used files until `n_left` remain."""
    files = []
    for p in folder.glob("*.*"):
        with suppress(FileNotFoundError):  # of another site, which has just ended it
            files.append((p.stat().st_mtime_ns, p))
    for _, path in sorted(files)[: max(0, len(files) - n_left)]:
        path.unlink(missing_ok=True)


def _write_zeros(path: Path, dtype: str, shape: str) -> None:
    extents = () if shape == "scalar" else tuple(map(int, shape.split("x")))
    new = path.with_name(f"{path.name}.{os.getpid()}.part")
    kind = np.dtype(dtype)
    with open(new, "wb") as f:
        form = {"descr": kind.str, "fortran_order": False, "shape": extents}
        np.lib.format.write_array_header_1_0(f, form)
        f.truncate(f.tell() + int(np.prod(extents, dtype=np.int64)) * kind.itemsize)
    os.replace(new, path)


class SentFiles(AbstractFiles):
    """Files of a driver, sent to sites on request by name. Workers of one search share them."""

    def __init__(self, libraries: Path) -> None:
        """`libraries` is the folder of built libraries."""
        self._arrays: dict[str, bytes] = {}
        self._folder = libraries

    def write(self, name: str, array: Array) -> str:
        file = io.BytesIO()
        np.save(file, array, allow_pickle=False)
        content = file.getvalue()
        known_as = name_of(content, ".npy")
        self._arrays[known_as] = content
        return known_as

    def reserve(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
        return f"zeros-{dtype.str[1:]}-{'x'.join(map(str, shape)) or 'scalar'}.npy"

    def close(self) -> None:
        """No effect: other workers may be prepared with the same arrays."""

    def keep_library(self, name: str, content: bytes) -> Path:
        """Writes a built library and returns its path. Raises ValueError if its bytes do not match its name."""
        path = self._folder / name
        if _NAME.fullmatch(name) is None or name_of(content, path.suffix) != name:
            raise ValueError(f"the content of {name!r:.80} is not what its name says")
        if not path.exists():
            write_own(path, content)
            path.chmod(0o755)
        return path

    def read(self, name: str) -> bytes:
        """Returns the content that a site requests by name. Raises OSError if it was removed."""
        found = self._arrays.get(name)
        return read_own(self._folder / name, LIBRARY_BYTES) if found is None else found


# --- names in requests ---------------------------------------------------------------------------

Rename = Callable[[str], str]


def renamed(request: messages.Request, rename: Rename) -> messages.Request:
    """Returns the request with file names mapped by `rename`; the machine's probe library becomes `PROBE`."""
    match request:
        case messages.Prepare():
            sets = [_renamed_set(s, rename) for s in request.sets]
            return msgspec.structs.replace(request, sets=sets)
        case messages.Evaluate():
            control = None if request.control is None else of_artifact(request.control, rename)
            artifact = of_artifact(request.artifact, rename)
            return msgspec.structs.replace(request, artifact=artifact, control=control)
        case messages.Interleave():
            artifacts = [of_artifact(a, rename) for a in request.artifacts]
            beside = request.beside
            if beside is not None:
                size = beside.read_bytes, beside.written_bytes
                beside = messages.MemoryProbe(rename(PROBE), *size)
            return msgspec.structs.replace(request, artifacts=artifacts, beside=beside)
        case messages.Probe():
            return messages.Probe(rename(PROBE), request.whole)
        case messages.Calibrate():
            return messages.Calibrate(tuple(rename(PROBE) for _ in request.libraries[:1]))
        case messages.TimeFunction():
            return request


def of_artifact(artifact: Artifact, rename: Rename) -> Artifact:
    """Returns the artifact with file names mapped by `rename`; without files it is unchanged."""
    units = tuple(replace(unit, path=rename(unit.path)) for unit in artifact.units)
    path = rename(artifact.path) if artifact.path else ""
    return replace(artifact, path=path, units=units)


def _renamed_set(s: messages.SetFiles, rename: Rename) -> messages.SetFiles:
    arrays = {name: rename(path) for name, path in s.arrays.items()}
    expected = {name: _renamed_expected(e, rename) for name, e in s.expected.items()}
    return messages.SetFiles(arrays, s.scalars, expected)


def _renamed_expected(e: messages.ExpectedFiles, rename: Rename) -> messages.ExpectedFiles:
    branches = e.branches
    if branches is not None:
        b = branches
        branches = messages.BranchFiles(
            rename(b.at), rename(b.values), rename(b.reach), b.n_allowed
        )
    magnitude = rename(e.magnitude) if isinstance(e.magnitude, str) else e.magnitude
    return messages.ExpectedFiles(rename(e.want), e.factor, magnitude, branches)
