"""Interface to numba, the only one: `jit` with an on-disk cache that is valid for the present sources only."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import threading
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

import numba
from numba.core import config as numba_config
from numba.core.options import DefaultOptions
from numba.core.registry import cpu_target

from .compiling import announce_compiling
from .own_folders import make_own_folder, private_folder, user_cache

_Function = TypeVar("_Function", bound=Callable[..., Any])
_CONFIG: Any = numba_config  # its fields are set at run time, unknown to type checkers
# Not documented by numba, so only used where this numba has it; without it, code is just slower.
_WITHOUT_REFERENCE_COUNTS = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}
_WITHOUT_WRAPPER = {"no_cpython_wrapper": True}
_COMPILING = "numba:compile"
_PACKAGE = Path(__file__).resolve().parent.parent.parent
_plain: dict[
    int, Any
] = {}  # Python sources, by the identities of compiled functions, which live as long as the process
_exchanged: list[
    tuple[ModuleType, str, Any]
] = []  # compiled functions in `interpret`, by the module and name that lack them
_n_interpreting = 0
_interpreting = threading.Lock()


def _package_version() -> str:
    try:
        return version("kernelscape")
    except PackageNotFoundError:  # run from a folder that was never installed
        return "0"


@cache
def source_hash() -> str:
    """Returns the hash of the sources of space/ and search/, which contain the compiled functions and their constants."""
    digest = hashlib.blake2b(digest_size=8)
    for path in _sources():
        digest.update(f"{path.relative_to(_PACKAGE)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def copy_hash() -> str:
    """Returns the hash of what numba's cache keys entries of equal sources by: Python, processor, paths, times and sizes.

    numba compiles again for each copy: in another environment or checkout, written anew, or on another processor.
    """
    digest = hashlib.blake2b(repr(_compiled_for()).encode(), digest_size=8)
    for path in _sources():
        found = path.stat()
        digest.update(f"{path}\0{found.st_mtime_ns}\0{found.st_size}\0".encode())
    return digest.hexdigest()


def _compiled_for() -> tuple[str | None, ...]:
    """Returns Python's version, and system, processor and features as numba names them."""
    return sys.implementation.cache_tag, *cpu_target.target_context.codegen().magic_tuple()


def _sources() -> list[Path]:
    folders = ("space", "search")
    return [path for folder in folders for path in sorted((_PACKAGE / folder).rglob("*.py"))]


@cache
def cache_folder() -> Path:
    """Returns the folder of numba's cache: in the user's cache (or NUMBA_CACHE_DIR), else a temporary one.

    No other user can enter it. numba keys an entry only by the function's own file, so a compiled
    caller would survive a change of a callee in another file. The hash of the sources in the
    folder's name prevents that.
    """
    name = f"{_package_version()}-numba{numba.__version__}-{source_hash()}"
    given = _CONFIG.CACHE_DIR
    folder = (Path(given) if given else user_cache("numba", is_written=True)) / name
    if why := _why_unusable(folder):
        folder = private_folder(folder, why) / "numba" / name
        make_own_folder(folder)
    return folder


def _why_unusable(folder: Path) -> str | None:
    """Makes a folder; returns the reason, as the end of a sentence, why numba can store nothing in it, or None."""
    try:
        make_own_folder(folder)
    except OSError as e:
        return e.strerror
    return _why_others_code(folder) if os.access(folder, os.W_OK) else "it cannot be written"


def _why_others_code(folder: Path) -> str | None:
    """Returns the reason why another user may have written code in a folder; None if nobody can have.

    The reason is the end of a sentence. numba loads its files without a check. So all of them are
    checked at once: from then on only this user can enter the folder.
    """
    if os.stat(folder).st_mode & 0o077:
        return f"others may enter {folder} (chmod go-rwx changes that)"
    for place, folders, files in os.walk(folder):
        for path in (os.path.join(place, name) for name in (*folders, *files)):
            found = os.lstat(path)
            if found.st_uid != os.getuid() or stat.S_ISLNK(found.st_mode):
                return f"{path} is of another user, or a link"
    return None


def jit(function: _Function) -> _Function:
    """Compiles `function` with numba and stores it on disk. NUMBA_DISABLE_JIT=1 leaves it unchanged."""
    return _compile(function, {})


def jit_internal(function: _Function) -> _Function:
    """Compiles like `jit`, but without a Python wrapper, for functions that only compiled functions call.

    A wrapper unpacks each array of each NamedTuple: wrappers took a quarter of all compile time.
    """
    return _compile(function, _WITHOUT_WRAPPER)


def jit_flat(function: _Function) -> _Function:
    """Compiles like `jit`, but without reference counts, for functions that only access given arrays.

    They allocate none. numba otherwise counts the references of each array of a NamedTuple
    atomically in every call. That was 7/8 of the time of a descent (5.7 ms against 0.7 ms).
    """
    return _compile(function, _WITHOUT_REFERENCE_COUNTS)


def jit_flat_internal(function: _Function) -> _Function:
    """Compiles like `jit_flat`, without a Python wrapper, for functions that only compiled functions call (`jit_internal`)."""
    return _compile(function, _WITHOUT_REFERENCE_COUNTS | _WITHOUT_WRAPPER)


def compile_for(function: Any, arguments: tuple[Any, ...]) -> None:
    """Compiles a function made by `jit` or `jit_flat` into the cache, for the types of `arguments`."""
    type_of: Any = numba.typeof  # it has no types itself
    function.compile(tuple(type_of(x) for x in arguments))


def _announce_first() -> None:
    """Registers a numba listener that reports, once, that this process compiles an uncached function."""
    try:
        from numba.core import event as events
    except ImportError:  # it is of numba's developers: without it nobody is told
        return

    register: Any = events.register  # these two have no types
    unregister: Any = events.unregister

    class First(events.Listener):
        def on_start(self, event: object) -> None:
            unregister(_COMPILING, self)
            announce_compiling()

        def on_end(self, event: object) -> None:
            pass

    register(_COMPILING, First())


def interpret() -> None:
    """Replaces the compiled functions by their Python sources, until `end_interpreting` has been called as often.

    Only names in modules are exchanged. So no module with compiled functions may be imported in
    between. None of the functions may run at the end: Python values would compile them for other
    types.
    """
    global _n_interpreting
    with _interpreting:
        _n_interpreting += 1
        for module in _modules():
            for name, value in list(vars(module).items()):
                plain = _plain.get(id(value))
                if plain is not None:
                    _exchanged.append((module, name, value))
                    setattr(module, name, plain)


def end_interpreting() -> None:
    """Undoes a call of `interpret`."""
    global _n_interpreting
    with _interpreting:
        _n_interpreting -= 1
        if not _n_interpreting:
            while _exchanged:
                setattr(*_exchanged.pop())


def _modules() -> list[ModuleType]:
    package = __name__.split(".")[0]
    return [module for name, module in list(sys.modules.items()) if name.startswith(f"{package}.")]


def is_compiling() -> bool:
    """True if functions are compiled: NUMBA_DISABLE_JIT is not set."""
    return not _CONFIG.DISABLE_JIT


def _compile(function: _Function, options: dict[str, bool]) -> _Function:
    if _CONFIG.DISABLE_JIT:
        return function
    njit: Any = numba.njit  # its stub does not know every option
    before = _CONFIG.CACHE_DIR
    _CONFIG.CACHE_DIR = str(cache_folder())  # read by numba while it decorates
    try:
        # Nobody takes a pointer to one of these functions: the wrapper for that is not made.
        compiled: Any = njit(cache=True, error_model="numpy", no_cfunc_wrapper=True, **options)(
            function
        )
    finally:
        _CONFIG.CACHE_DIR = before
    _plain[id(compiled)] = function
    return cast(_Function, compiled)


_announce_first()
