"""Engine for standalone kernels: compiles at the first call, caches by content, and runs at the cost of a C call.

Code that this machine compiled before is loaded in some milliseconds, without importing the code generator.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import shutil
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from errno import ENOSPC
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import NDArray

from ...kernels.fields.program import current_program
from ...kernels.ir.errors import KernelRuntimeIndexError
from ...kernels.ir.kernel import KernelIR
from ...kernels.ir.spelling import spelled_by_position
from ...space.engine.own_folders import NotOursError
from ..api.backend import AbstractCaller
from ..api.errors import DeviceError
from ..api.outcome import Failure
from ..cpu.calling import load_extension
from ..cpu.compiler import Compiler
from ..cpu.guarded_arrays import in_memory
from ..device import DeviceOptions, cache_folder
from ..files import is_torn
from ..library import function_for_all, load_for_all
from .ahead import Ahead
from .code_version import code_version
from .folder import CompileError, KernelFolder, NoFolderError, WritableFolder
from .known import Called, KnownKernels, Wanted
from .loaded import LoadedKernel, caller_of, rows_of_kernel
from .toolchain import engine_compiler, is_remembered
from .work import Work, Workers

Array = NDArray[Any]
T = TypeVar("T")
Team = Work[ctypes.CDLL]
_TEAM_FLAGS = (
    "-O1",
    "-std=gnu11",
)  # half the time of -O3 to compile; the team's code is bound by memory
_compiling = threading.local()  # `is_here` in the threads that compile
_LEAST_BYTES = 1 << 20  # with less free, a build that fails is one for which there was no room


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Options of an engine.

    `checks_indices`: a call checks indices read from arrays and scalars before it writes anything.
    """

    folder: Path = field(default_factory=lambda: cache_folder("kernels"))
    compiler: str | None = None  # name or path; None: the first that works
    compile_timeout_s: float = 120.0
    cores: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    checks_indices: bool = True
    limit_bytes: int = 256 << 20  # of what is kept in the folder


class Engine:
    """Runs kernels as compiled code; one engine per process suffices. Thread-safe."""

    def __init__(self, options: EngineOptions | None = None) -> None:
        self.options = options or EngineOptions()
        self._kept = KernelFolder(self.options.folder, self.options.limit_bytes)
        self._kernels = KnownKernels()
        self._toolchain: tuple[Compiler | None, str] | None = None
        self._team: Team | None = None
        self.n_compiled = 0  # kernels
        self._begin()
        _engines.add(self)

    def _begin(self) -> None:
        """Initialises the state that depends on threads of this process."""
        self._lock = threading.RLock()
        begin = partial(setattr, _compiling, "is_here", True)
        self._pool = pool = Workers(max(2, self.options.cores), begin)
        self.ahead = Ahead(self.options.cores, self._lock, lambda: pool.n_busy, begin)
        self._extension: Work[Any] | None = None
        self._finding: Work[tuple[Compiler, str]] | None = None
        if self._team is not None and not self._team.done():
            self._team = None
        self._folder = WritableFolder(self._kept)  # of code compiled from now on
        self._unkept: WritableFolder | None = None  # of programs without an offline cache
        atexit.register(_wait_for_work, weakref.ref(self))

    def close(self) -> None:
        """Waits for running compilations, and removes temporary files of this process. Loaded kernels still run.

        Compilations ahead of first calls are stopped.
        """
        self._end_ahead()
        self._pool.wait()
        self._folder.close()
        if self._unkept is not None:
            self._unkept.close()

    def go_on_in_child(self) -> None:
        """Resets the engine in a child of fork(), which has neither the other threads nor their work and locks."""
        self._begin()
        self._kernels.go_on_in_child()

    def start(self) -> None:
        """Starts preparing what all kernels need, the compiler and the thread team, in the background.

        If no compiler was ever searched on this machine, the code generator is also imported, since the first kernel will need
        it. Errors are reported at the first call.
        """
        with self._lock:
            if self._toolchain is not None or self._finding is not None:
                return
            found = self._finding = self._pool.submit(self._find)
            if self._team is None:
                self._team = self._pool.submit(self._first_team, found)
        if not is_remembered(self.options.folder):
            from . import building  # noqa: F401

    # --- calls

    def prepare(self, kernels: Iterable[KernelIR]) -> bool:
        """Starts to compile kernels that will be called, several in parallel; returns at once.

        True if all of them are compiled already.
        """
        missing = [ir for ir in kernels if self._kernels.called(ir) is None]
        if not missing or self._compiler is None:
            return True
        try:
            wanted = [self._load(ir) for ir in missing]
            return all(kernel.code.done() for kernel in wanted)
        except NoFolderError as e:
            self._do_without(e)
            return True

    def submit(self, work: Callable[[], T]) -> Work[T]:
        """Runs `work` in the background, in a thread of the compilers."""
        return self._pool.submit(work)

    def prepared(self, ir: KernelIR) -> AbstractCaller | None:
        """Returns the caller of a kernel; its arguments are `ir.arrays` and then `ir.scalars`, by position.

        The caller returns False without effect if the arguments do not match exactly; `run` then converts them or reports the
        error. None if there is no compiler.
        """
        called = self._kernels.called(ir)
        if called is not None and (called.is_quick or self._quick is None):
            return called.caller
        if self._compiler is None:
            return None
        try:
            wanted = self._load(ir)
            kernel = self._awaited(ir, wanted)
        except NoFolderError as e:
            self._do_without(e)
            return None
        quick = self._quick
        wanted.called = Called(kernel, caller_of(quick, kernel, ir), quick is not None)
        return wanted.called.caller

    def quick(self, ir: KernelIR) -> AbstractCaller | None:
        """Returns the caller of a kernel that has run; None if its calls do not use the extension call.c."""
        called = self._kernels.called(ir)
        return called.caller if called is not None and called.is_quick else None

    def run(self, ir: KernelIR, arrays: Sequence[Any], scalars: Sequence[Any]) -> None:
        """Runs a kernel once, in place. Raises IndexError for an index out of range, before anything is written."""
        caller = self.prepared(ir)
        if caller is None:
            self._interpret(ir, arrays, scalars)
        elif not caller(*arrays, *scalars):
            self._run_slowly(ir, arrays, scalars)

    def _run_slowly(self, ir: KernelIR, arrays: Sequence[Any], scalars: Sequence[Any]) -> None:
        """Runs a call whose arguments the fast caller refused: converts them, or raises the error about them."""
        from ..api.arguments import fitting_array
        from ..records.signature import number

        known = self._kernels.called(ir)
        assert known is not None
        rows = rows_of_kernel(ir)[: len(ir.arrays)]
        plain = []
        for p, row, array in zip(ir.arrays, rows, arrays, strict=True):
            fitting = fitting_array(p.name, p.dtype.numpy, p.shape, array)
            if row.is_written and not fitting.flags.writeable:
                raise ValueError(
                    f"the array {p.name} of the kernel {ir.name} is read-only and written"
                )
            plain.append(fitting)
        numbers = [number(p, x) for p, x in zip(ir.scalars, scalars, strict=True)]
        if known.caller(*plain, *numbers):
            return
        kept = [in_memory(p.dtype, x) for p, x in zip(ir.scalars, numbers, strict=True)]
        places = [a.ctypes.data for a in (*plain, *kept)]
        pointers = (ctypes.c_void_p * len(places))(*places)
        check = known.kernel.index_check
        found = None if check is None else check.first_wrong(pointers)
        if found is None:
            raise ValueError(
                f"arrays of the kernel {ir.name} that it writes share memory with others"
            )
        from .building import index_sites

        site, value = found
        raise KernelRuntimeIndexError(index_sites(ir)[1][site].sentence(value))

    def _interpret(self, ir: KernelIR, arrays: Sequence[Any], scalars: Sequence[Any]) -> None:
        from ...kernels.interpret.kernel import run_kernel

        run_kernel(
            ir,
            dict(zip((p.name for p in ir.arrays), arrays, strict=True)),
            dict(zip((p.name for p in ir.scalars), scalars, strict=True)),
        )

    # --- code

    def _load(self, ir: KernelIR) -> Wanted:
        """Returns a kernel with its code, loaded or being compiled; starts the compilation if necessary."""
        wanted = self._kernels.get(ir)
        if wanted is None:
            key = self._key(ir)
            wanted = self._kernels.add(ir, key, self._code(ir, key))
        return wanted

    def _awaited(self, ir: KernelIR, wanted: Wanted) -> LoadedKernel:
        """Waits for the code of a kernel and returns it.

        A thread that compiles, in which a finalizer may call kernels, would wait for itself: it compiles the kernel once more.
        """
        if wanted.code.done() or not getattr(_compiling, "is_here", False):
            self._compile_ahead(ir.where.file, wanted.code)
            return wanted.result()
        with self._lock:
            folder = self._folder_of_program()
        return self._build(ir, self._key(ir), self._cores, self._begun_team(), folder)

    def _compile_ahead(self, file: str, code: Work[LoadedKernel]) -> None:
        """Until `code` is done, starts to compile kernels of a file ahead of their first calls, on cores that are idle."""
        for ir in self.ahead.candidates(file, code):
            key, codes = self._key(ir), self._kernels.codes
            with self._lock, suppress(NoFolderError, RuntimeError):  # the call has its own
                if key not in codes and not (_keeps() and self._kept.library(key).exists()):
                    folder = self._folder_of_program()
                    team = self._begun_team()
                    build = partial(self._build, ir, key, self._cores, team, folder)
                    codes[key] = begun = self.ahead.begin(key, build)
                    begun.add_done_callback(partial(self._kernels.forget_failed, key))

    def _end_ahead(self) -> None:
        self.ahead.end(lambda key: self._kernels.codes.pop(key, None))

    def _begun_code(self, key: str) -> Work[LoadedKernel] | None:
        """Returns code that is loaded or being compiled, which a call needs from now on. The caller has the lock."""
        found = self._kernels.codes.get(key)
        if found is not None:
            self.ahead.claim(key)
        return found

    def _code(self, ir: KernelIR, key: str) -> Work[LoadedKernel]:
        codes = self._kernels.codes
        with self._lock:
            found = self._begun_code(key)
        if found is not None:
            return found
        team, library = self._begun_team(), self._kept.library(key)
        is_kept = _keeps() and library.exists()
        if is_kept:
            team.result()  # not with the lock, which it may need
        with self._lock:
            found = self._begun_code(key)
            if found is not None:
                return found
            kept = self._kept_code(library, team) if is_kept else None
            if kept is not None:
                found = codes[key] = Work.of(kept)
                return found
            folder, cores = self._folder_of_program(), self._cores
            for stopped in self.ahead.make_room():
                codes.pop(stopped, None)
            found = self._pool.submit(self._build, ir, key, cores, team, folder)
            codes[key] = found
            return found

    def _kept_code(self, path: Path, team: Team) -> LoadedKernel | None:
        """Returns the code that an earlier process compiled to `path`; None if missing or no longer usable."""
        try:
            if not is_torn(path):
                loaded = self._loaded(path, team)
                self._kept.touch(path)
                return loaded
        except (FileNotFoundError, NotOursError):  # another takes the place of the latter
            return None
        except OSError:  # it needs what is not there any more, or cannot be read
            pass
        with suppress(OSError):
            path.unlink()
        return None

    def _folder_of_program(self) -> WritableFolder:
        """Returns the folder for newly compiled code. The caller holds the lock. Raises NoFolderError."""
        if _keeps():
            return self._folder
        if self._unkept is None:
            self._unkept = WritableFolder.of_process(self.options.limit_bytes)
        return self._unkept

    def _build(
        self,
        ir: KernelIR,
        key: str,
        cores: int,
        team: Team,
        folder: WritableFolder,
        begins: Callable[[], None] = lambda: None,
    ) -> LoadedKernel:
        """Compiles a kernel and loads its code. `begins` is called before the compiler starts, and may raise."""
        from ...kernels.tasks.bounds_check import first_outside

        outside = first_outside(ir) if self.options.checks_indices else None
        if outside is not None:
            raise KernelRuntimeIndexError(f"{outside}; nothing was written")
        loaded = folder.use(lambda kept: self._built(ir, kept.library(key), cores, team, begins))
        folder.trim_sometimes()
        return loaded

    def _built(
        self, ir: KernelIR, path: Path, cores: int, team: Team, begins: Callable[[], None]
    ) -> LoadedKernel:
        from .building import build_kernel, kernel_text

        compiler, o = self._compiler, self.options
        assert compiler is not None
        text = kernel_text(ir, cores, o.checks_indices)
        begins()
        failed = build_kernel(ir, text, compiler, path, o.compile_timeout_s)
        if failed is None:
            with self._lock:
                self.n_compiled += 1
            return self._loaded(path, team)
        if shutil.disk_usage(path.parent).free < _LEAST_BYTES:
            raise OSError(ENOSPC, os.strerror(ENOSPC))
        raise CompileError(
            f"the kernel {ir.name} cannot be compiled: {failed.advice}\n{failed.log}"
        )

    def _do_without(self, why: Exception) -> None:
        """Makes kernels that are not loaded run in the interpreter from now on, with one warning."""
        with self._lock:
            if self._toolchain is None or self._toolchain[0] is not None:
                self._toolchain = None, ""
                warnings.warn(
                    f"kernels run in the interpreter, slowly: {why}", RuntimeWarning, stacklevel=2
                )

    def _loaded(self, path: Path, team: Team) -> LoadedKernel:
        team.result()
        return LoadedKernel(path)

    def _begun_team(self) -> Team:
        """Returns the thread team of the process, being loaded; kernels are loaded after it, since they link to it."""
        with self._lock:
            team = self._team
            if team is None or (team.done() and team.exception() is not None):
                team = self._team = self._pool.submit(self._folder.use, self._built_team)
            return team

    def _first_team(self, found: Work[tuple[Compiler, str]]) -> ctypes.CDLL:
        found.result()  # where there is no compiler, the first call says so
        return self._folder.use(self._built_team)

    def _built_team(self, folder: KernelFolder) -> ctypes.CDLL:
        from ..cpu.compiler import build_library
        from ..cpu.dialect import C_TEAM

        compiler = self._compiler
        assert compiler is not None
        quickly = replace(compiler, flags=_TEAM_FLAGS, native="")
        seconds = self.options.compile_timeout_s
        built = build_library(quickly, C_TEAM.team, (), folder.path, seconds)
        if isinstance(built, Failure):
            raise CompileError(f"the team of threads cannot be compiled: {built.log}")
        return load_for_all(built.path)

    @property
    def _cores(self) -> int:
        """Number of threads for kernels: that of the options, or fewer if the program sets a limit."""
        program = current_program()
        most = 0 if program is None else program.config.cpu_max_num_threads
        return min(self.options.cores, most) if most else self.options.cores

    def _key(self, ir: KernelIR) -> str:
        o = self.options
        parts = (spelled_by_position(ir), self._found()[1], str(self._cores), str(o.checks_indices))
        return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()

    @property
    def _compiler(self) -> Compiler | None:
        """The compiler; without one None, with one warning."""
        return self._found()[0]

    def _found(self) -> tuple[Compiler | None, str]:
        """Returns the compiler, and a text of everything besides the kernel that determines compiled code."""
        begun = self._finding
        if self._toolchain is None and begun is not None:
            begun.exception()  # without the lock: a finalizer in the thread of the search may need it
        with self._lock:
            if self._toolchain is None:
                try:
                    begun = self._finding
                    self._toolchain = self._find() if begun is None else begun.result()
                except (DeviceError, OSError) as e:
                    self._do_without(e)
            assert self._toolchain is not None
            return self._toolchain

    def _find(self) -> tuple[Compiler, str]:
        c = engine_compiler(self.options.folder, self.options.compiler)
        return c, "\0".join((code_version(), c.version, c.native, *c.flags, *c.linked))

    @property
    def _quick(self) -> Any | None:
        """The extension module for fast calls; None while it is being built, or if it cannot be."""
        if self._extension is None:
            with self._lock:
                if self._extension is None:
                    self._extension = self._pool.submit(self._load_extension)
        found = self._extension
        return found.result() if found.done() else None

    def _load_extension(self) -> Any | None:
        try:
            return self._folder.use(self._built_extension)
        except (NoFolderError, CompileError):  # calls are as right without it
            return None

    @property
    def n_wakes(self) -> int:
        """The number of sleeping threads that launches of this process have woken."""
        n_wakes = function_for_all("ks_team_wakes", ctypes.c_uint64)
        return 0 if n_wakes is None else int(n_wakes())

    def _built_extension(self, folder: KernelFolder) -> Any | None:
        compiler, seconds = self._compiler, self.options.compile_timeout_s
        assert compiler is not None
        options = DeviceOptions(build_folder=folder.path, compile_timeout_s=seconds)
        try:
            return load_extension(compiler, options)
        except ImportError as e:
            raise OSError(str(e)) from e


def _wait_for_work(of: weakref.ref[Engine]) -> None:
    """Waits, when the program ends, for an engine's compilations, before their folders are removed.

    Those ahead of first calls are stopped.
    """
    engine = of()
    if engine is not None:
        engine._end_ahead()
        engine._pool.wait()


def _keeps() -> bool:
    """True if compiled kernels are stored for later processes, and those of earlier ones are used."""
    program = current_program()
    return program is None or program.config.offline_cache


_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def _go_on_in_child() -> None:
    for engine in tuple(_engines):
        engine.go_on_in_child()


os.register_at_fork(after_in_child=_go_on_in_child)
