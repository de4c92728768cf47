"""Stored runs of the reference: results by content in the user's cache, so that a later session need not compute them.

A file is named by two digests: of the kernels with all that decides how they are computed, and of the arguments.
Arguments are hashed only if a run of the same kernels is stored. A file holds the bytes of arrays, with a digest of them.
A torn, changed or foreign file is ignored, and replaced. The least recently used files are removed.
"""

from __future__ import annotations

import hashlib
import math
import os
import platform
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.frontend.recorder import Recording
from ..kernels.interpret.reference import written_by
from ..kernels.ir.spelling import spelled
from ..space.engine.own_folders import user_cache
from .files import read_own, write_in
from .host import cpu_key

Array = NDArray[Any]

FOLDER = "references"  # in the user's cache
LEAST_S = 0.5  # shorter runs are not stored; infinite: none is stored or read
BYTES_PER_S = 5e8  # of arguments and results: faster runs are repeated sooner than hashed and read
MOST_BYTES = 1 << 30  # of all files
_MOST_FILE_BYTES = MOST_BYTES // 4
_MAGIC = b"kernelscape reference 1\n"
_DIGEST_BYTES = 16
_LEFT_OVER_S = 3600.0  # an unfinished file of this age has no writer
# Libraries of matrix products read these; the sum of a product depends on threads and instructions.
_BLAS = ("OMP_", "OPENBLAS_", "MKL_", "BLIS_", "GOTO_", "VECLIB_", "NPY_")
_SOURCES = ("kernels/**/*.py", "runtime/reference.py", "runtime/llvm.py", "runtime/stored_runs.py")


class StoredRuns:
    """Stored runs of one recording, in the types in which it runs."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._written = {name for call in recording.calls for name in written_by(call)}
        self._written |= {p.name for p in recording.temps}
        self._kernels = ""

    def load(
        self,
        found: Mapping[str, Array],
        arrays: Mapping[str, Array],
        scalars: Mapping[str, Any],
        seed: int | None,
    ) -> bool:
        """Fills the arrays `found`, those before the first call, with stored results. False if none is stored.

        `arrays`: the arguments as given. `seed`: of perturbed rounding; None without.
        """
        if math.isinf(LEAST_S):
            return False
        with suppress(OSError):
            folder = user_cache(FOLDER)
            names = os.listdir(folder)
            if names and any(name.startswith(f"{self._kernels_key()}-") for name in names):
                return self._fill(folder / self._name(arrays, scalars, seed), found)
        return False

    def store(
        self,
        found: Mapping[str, Array],
        arrays: Mapping[str, Array],
        scalars: Mapping[str, Any],
        seed: int | None,
        took_s: float,
    ) -> None:
        """Stores the results `found` of a run that took `took_s` seconds with compilation, if it is worth it.

        A full disk or memory is no error.
        """
        n_bytes = sum(found[name].nbytes for name in self._written)
        moved_bytes = n_bytes + sum(arrays[p.name].nbytes for p in self._recording.arrays)
        if took_s < max(LEAST_S, moved_bytes / BYTES_PER_S) or n_bytes > _MOST_FILE_BYTES:
            return
        with suppress(OSError, MemoryError):
            folder = user_cache(FOLDER, is_written=True)
            name = self._name(arrays, scalars, seed)
            parts: list[bytes | memoryview] = [_MAGIC, name.encode()]
            parts += [_bytes_of(found[n]) for n in sorted(self._written)]
            write_in(folder, name, b"".join((*parts, _digest(*parts))))
            trim(folder)

    def _fill(self, path: Path, found: Mapping[str, Array]) -> bool:
        """Fills the written arrays from a file. False, with the arrays as they were, unless the file is whole and its own."""
        names = sorted(self._written)
        head = _MAGIC + path.name.encode()
        n_bytes = len(head) + sum(found[n].nbytes for n in names) + _DIGEST_BYTES
        content = memoryview(read_own(path, n_bytes))
        if len(content) != n_bytes or content[: len(head)] != head:
            return False
        if _digest(content[:-_DIGEST_BYTES]) != content[-_DIGEST_BYTES:]:
            return False
        at = len(head)
        for n in names:
            array = found[n]
            part = content[at : at + array.nbytes]
            array[...] = np.frombuffer(part, array.dtype).reshape(array.shape)
            at += array.nbytes
        with suppress(OSError):  # the least recently used are removed
            os.utime(path)
        return True

    def _kernels_key(self) -> str:
        """Returns the digest of all that decides how results follow from arguments."""
        if not self._kernels:
            self._kernels = _hex(_computed_by(), *_spelled(self._recording))
        return self._kernels

    def _name(
        self, arrays: Mapping[str, Array], scalars: Mapping[str, Any], seed: int | None
    ) -> str:
        """Returns the name of the file of a run."""
        digest = hashlib.blake2b(repr(seed).encode(), digest_size=_DIGEST_BYTES)
        for p in self._recording.scalars:
            kept = np.asarray(scalars[p.name])
            digest.update(f"{p.name} {kept.dtype} ".encode() + kept.tobytes())
        for q in self._recording.arrays:
            _hash_array(digest, q.name, arrays[q.name])
        return f"{self._kernels_key()}-{digest.hexdigest()}"


def trim(folder: Path) -> None:
    """Removes the least recently used files until at most `MOST_BYTES` are left, and unfinished files without a writer."""
    files: list[tuple[float, int, str]] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                found = entry.stat(follow_symlinks=False)
                files.append((found.st_mtime, found.st_size, entry.path))
    left = sum(n for _, n, _ in files)
    for mtime, n, path in sorted(files):
        is_left_over = path.endswith(".new") and time.time() - mtime > _LEFT_OVER_S
        if left > MOST_BYTES or is_left_over:
            with suppress(OSError):
                os.unlink(path)
                left -= n


def _spelled(recording: Recording) -> list[str]:
    """Returns the texts of a recording's parts, each kernel once, without places, and the order of calls."""
    kernels: dict[int, int] = {}
    texts: list[str] = []
    order: list[str] = []
    for call in recording.calls:
        number = kernels.setdefault(id(call.ir), len(kernels))
        if number == len(texts):
            texts.append(spelled(call.ir, has_places=False))
        order.append(f"{number} {call.arrays} {spelled(call.scalars, has_places=False)}")
    given = (recording.arrays, recording.temps, recording.scalars, recording.repeats)
    return [*texts, "\n".join(order), spelled(given, has_places=False)]


@cache
def _computed_by() -> str:
    """Returns a digest of the reference's sources, of libraries with their versions, and of the processor."""
    root = Path(__file__).parent.parent
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for pattern in _SOURCES:
        for file in sorted(root.glob(pattern)):
            digest.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes())
    blas = {k: v for k, v in sorted(os.environ.items()) if k.startswith(_BLAS)}
    built: Any = getattr(np, "__config__", None)
    libraries = getattr(built, "CONFIG", {}).get("Build Dependencies")
    parts = (
        sys.version,
        np.__version__,
        version("llvmlite"),
        platform.libc_ver(),
        cpu_key(),
        libraries,
        blas,
        len(os.sched_getaffinity(0)),
    )
    digest.update(repr(parts).encode())
    return digest.hexdigest()


def _hash_array(digest: Any, name: str, array: Array) -> None:
    is_one = array.size > 0 and not any(array.strides)  # one element seen everywhere
    digest.update(f"{name} {array.dtype} {array.shape} {is_one} ".encode())
    content = array[(slice(0, 1),) * array.ndim] if is_one else array
    digest.update(_bytes_of(content))


def _hex(*parts: str) -> str:
    text = "\0".join(parts).encode()
    return hashlib.blake2b(text, digest_size=_DIGEST_BYTES).hexdigest()


def _bytes_of(array: Array) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _digest(*parts: bytes | memoryview) -> bytes:
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        digest.update(part)
    return digest.digest()
