"""The one door to numba: a cached `jit` whose cache folder cannot outlive the source that filled it."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import config

_Function = TypeVar("_Function", bound=Callable[..., Any])
_PACKAGE = Path(__file__).resolve().parent.parent


def _package_version() -> str:
    try:
        return version("kernelscape")
    except PackageNotFoundError:  # run from a folder that was never installed
        return "0"


@cache
def source_hash() -> str:
    """Hash of every source file of space/ and search/: the code that is compiled, and the constants it freezes."""
    digest = hashlib.blake2b(digest_size=8)
    for folder in ("space", "search"):
        for path in sorted((_PACKAGE / folder).glob("*.py")):
            digest.update(f"{folder}/{path.name}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def cache_folder() -> Path:
    """Folder of the compiled code: under numba's own cache folder if one is set, else the user's cache, else a temporary one.

    numba keys an entry by the file of the function alone, so that a caller would survive a change of a callee in another
    file; the hash in the folder name forbids that.
    """
    name = f"{_package_version()}-numba{numba.__version__}-{source_hash()}"
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    base = Path(config.CACHE_DIR) if config.CACHE_DIR else Path(home, "kernelscape", "numba")
    for folder in (base / name, Path(tempfile.gettempdir(), f"kernelscape-{os.getuid()}", name)):
        if _is_writable(folder):
            return folder
    return Path(tempfile.mkdtemp(prefix="kernelscape-"))


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Cached code is executed: a folder that somebody else made in a shared place is not ours to load from.
        if folder.stat().st_uid != os.getuid():
            return False
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def jit(function: _Function) -> _Function:
    """Compile `function` with numba, without Python objects, kept on disk; with NUMBA_DISABLE_JIT=1 the function itself."""
    if config.DISABLE_JIT:
        return function
    before = config.CACHE_DIR
    folder = str(cache_folder())
    config.CACHE_DIR = folder  # read by numba while it decorates
    try:
        compiled: _Function = numba.njit(cache=True, error_model="numpy")(function)
    finally:
        config.CACHE_DIR = before
    return compiled
