"""The CPU as a device: build with the system compiler, load with ctypes, time with a compiled
loop.
"""

from __future__ import annotations

import _ctypes
import ctypes
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..building.artifact import Artifact
from ..device import (
    AbstractArray,
    AbstractCaller,
    AbstractDevice,
    AbstractModule,
    CallArguments,
    DeviceError,
    DeviceOptions,
)
from ..measure.timing import Sampler, interleave, waited_ns
from ..signature import Signature, fitting_array
from ..worker.outcome import Failure, Measurement, Protocol
from ..worker.verify import has_extremes
from .calling import load_extension, make_caller
from .compiler import (
    Compiler,
    build_library,
    compiler_named,
    end_compilers,
    find_compiler,
    other_compilers,
)
from .machine import cpu_key
from .memory import CpuArray, address_of
from .together import build_together, entry_of

if TYPE_CHECKING:
    from ...codegen.c.source import Argument, Source
    from ...codegen.index_checks import IndexChecks
    from ...space.targets.target import Target
    from ..measure.calibration import Calibration
    from .index_check import IndexCheck

Array = NDArray[Any]


class CpuModule(AbstractModule):
    """A loaded shared library. Each run has a workspace of its own, so that several threads may run it at once."""

    def __init__(
        self, artifact: Artifact, library: ctypes.CDLL, device: CpuDevice | None = None
    ) -> None:
        """`device`, which loads it, can build more C for it."""
        self._artifact = artifact
        self._library = library
        self._device = device
        self.index_check: IndexCheck | None = None
        self.entry = getattr(library, artifact.entry)
        self.entry.restype = None
        self.entry.argtypes = [ctypes.POINTER(ctypes.c_void_p)]
        self.pool: list[Array] = []  # workspaces that no run uses now

    @property
    def artifact(self) -> Artifact:
        return self._artifact

    def run(self, values: Sequence[AbstractArray | Array | int | float | bool]) -> None:
        with self.bound(values) as pointers:
            wrong = None if self.index_check is None else self.index_check.wrong(pointers)
            if wrong is not None:
                raise IndexError(wrong)
            self.entry(pointers)

    @contextmanager
    def bound(
        self, values: Sequence[AbstractArray | Array | int | float | bool]
    ) -> Iterator[ctypes.Array[ctypes.c_void_p]]:
        """The argument vector of one run, with a workspace from the pool where one is needed and not given."""
        arguments = self._artifact.arguments
        if len(values) == len(arguments) - 1 and arguments[-1].kind == "workspace":
            with self.lent() as workspace:
                pointers, _kept = self.bind([*values, *workspace])
                yield pointers
        else:
            pointers, _kept = self.bind(values)
            yield pointers

    @contextmanager
    def lent(self) -> Iterator[tuple[Array, ...]]:
        """The workspace of one run, from the pool; () where none is needed."""
        if not self._artifact.workspace_bytes:
            yield ()
            return
        try:
            workspace = self.pool.pop()  # at one stroke: no lock is needed
        except IndexError:
            workspace = self.make_workspace()
        try:
            yield (workspace,)
        finally:
            self.pool.append(workspace)

    def bind(
        self, values: Sequence[AbstractArray | Array | int | float | bool]
    ) -> tuple[ctypes.Array[ctypes.c_void_p], list[Array]]:
        """The argument vector of the entry, and the arrays that must outlive its use."""
        arguments = self._artifact.arguments
        if len(values) != len(arguments):
            names = ", ".join(a.name for a in arguments)
            raise TypeError(f"{len(arguments)} arguments are needed ({names}), {len(values)} given")
        kept = [_as_host(a, v) for a, v in zip(arguments, values, strict=True)]
        return (ctypes.c_void_p * len(kept))(*map(address_of, kept)), kept

    def pointer(self) -> Any:
        return self.entry

    def check_indices(self, checks: IndexChecks) -> Failure | None:
        assert self._device is not None
        built = self._device.build_check(checks)
        if isinstance(built, Failure):
            return built
        self.index_check = built
        return None

    def close(self) -> None:
        _ctypes.dlclose(self._library._handle)

    def make_workspace(self) -> Array:
        """One more, of the size that the entry takes."""
        return CpuArray((self._artifact.workspace_bytes,), np.dtype(np.uint8), stagger=23).host


def _as_host(argument: Argument, value: AbstractArray | Array | int | float | bool) -> Array:
    if argument.kind == "scalar":
        return np.array(value, argument.dtype)
    array = value.host if isinstance(value, CpuArray) else value
    return fitting_array(argument.name, np.dtype(argument.dtype), argument.shape, array)


class CpuDevice(AbstractDevice):
    """This machine's CPU. Raises DeviceError on first use of a compiler where none works."""

    name = "cpu"
    calibrated_by = "explore calibrate"
    most_together = 8  # more take longer to come back than starting compilers would
    placement_counts = True

    def __init__(self, options: DeviceOptions) -> None:
        self._options = options
        self._n_allocated = 0
        self._adopted: dict[str, Path] = {}

    @cached_property
    def compiler(self) -> Compiler:
        """The compiler; looked for on first use, so that a process that only loads artifacts does
        not look.
        """
        return find_compiler(self._options.compiler)

    def facts(self) -> Target:
        from .probe import guess_target, load_target

        return load_target() or guess_target()

    def compiler_version(self) -> str:
        return self.compiler.version

    def others(self) -> list[AbstractDevice]:
        o = self._options
        found = [] if o.compiler is not None else other_compilers(self.compiler)
        return [CpuDevice(replace(o, compiler=c.path)) for c in found]

    @property
    def can_build(self) -> bool:
        try:
            return bool(self.compiler.path)
        except DeviceError:
            return False

    def adopt(self, source_key: str, library: Path) -> bool:
        try:
            ctypes.CDLL(str(library))
        except OSError:  # what it was linked with is not here
            return False
        self._adopted[source_key] = library
        return True

    def build(self, source: Source) -> Artifact | Failure:
        o = self._options
        library = self._adopted.get(source.key)
        if library is not None:
            return Artifact.of(source, library.stem, library, 0)
        # Alone it has a team of its own, for processes without the timing loop: libraries are kept and sent to others.
        compiler = self.compiler.linking_all() if source.team else self.compiler
        built = build_library(
            compiler, source.file_text, source.flags, o.build_folder, o.compile_timeout_s
        )
        if isinstance(built, Failure):
            return built
        return Artifact.of(source, built.key, built.path, built.build_ns)

    def end_builds(self) -> None:
        end_compilers()

    def build_together(self, sources: Sequence[Source]) -> list[Artifact | Failure]:
        o, compiler = self._options, self.compiler
        alike = [s for s in sources if s.names and s.flags == sources[0].flags]
        if len(alike) < len(sources) or len(sources) == 1:
            return [self.build(s) for s in sources]
        built = build_together(compiler, sources, o.build_folder, o.compile_timeout_s)
        if isinstance(built, Failure):  # of one of them: each says so for itself
            return [self.build(s) for s in sources]
        build_ns = built.build_ns // len(sources)
        return [
            Artifact.of(s, built.key, built.path, build_ns, entry_of(s, k))
            for k, s in enumerate(sources)
        ]

    def command_line(self, source: Source, file: Path, compiler: str) -> str:
        found = find_compiler(compiler_named(compiler))
        return found.command_line(file, file.with_suffix(".so"), source.flags)

    def load(self, artifact: Artifact) -> CpuModule | Failure:
        with suppress(DeviceError):  # a library that was built alone has a team of its own
            _ = self.harness  # has the one of the process
        try:
            # ctypes resolves every symbol now, so that a missing one cannot end a run later.
            module = CpuModule(artifact, ctypes.CDLL(artifact.path), self)
        except OSError as e:
            return Failure("launch", "the built library cannot be loaded", str(e))
        except AttributeError:
            return Failure("launch", f"the built library does not export {artifact.entry}")
        return module

    def build_check(self, checks: IndexChecks) -> IndexCheck | Failure:
        """Build and load checks of indices; a Failure where no compiler is here, though it may be of an adopted library."""
        if not self.can_build:
            advice = "without a C compiler its indices cannot be looked at: compile(check_indices=False) does not"
            return Failure("compile", advice)
        from .index_check import build_check  # brings code generation and numba, see `Worker`

        return build_check(checks, self.compiler, self._options)

    def caller(self, module: AbstractModule, signature: Signature) -> AbstractCaller:
        assert isinstance(module, CpuModule)
        try:
            extension = load_extension(self.compiler, self._options)
        except DeviceError:  # of an adopted library nothing needs a compiler but quicker calls
            extension = None
        return make_caller(extension, module, signature)

    def allocate(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], *, as_numpy: bool = False
    ) -> CpuArray:
        self._n_allocated += 1
        return CpuArray(shape, dtype, stagger=17 * self._n_allocated, as_numpy=as_numpy)

    def time(
        self,
        calls: Sequence[tuple[AbstractModule, CallArguments]],
        protocol: Protocol,
        beside: Callable[[], None] | None = None,
    ) -> list[Measurement]:
        return interleave([self._sampler(m, a) for m, a in calls], protocol, beside)

    @cached_property
    def harness(self) -> ctypes.CDLL:
        """The compiled timing loop, and the team of threads."""
        return load_harness(self.build_harness())

    def build_harness(self) -> Path:
        """Build the timing loop and the team of threads, once per compiler; the child of a worker is given its path."""
        return self.build_own("timer.c", "team.c")

    def build_own(self, *names: str) -> Path:
        """Build some of this folder's C files."""
        text = "\n".join((Path(__file__).parent / name).read_text() for name in names)
        o = self._options
        last = o.build_folder / own_library_name(names[0], text)
        try:
            compiler = self.compiler.unspared()
        except DeviceError:
            if last.exists():  # built when there was a compiler, for these instructions
                return last
            raise
        built = build_library(compiler, text, (), o.build_folder, o.compile_timeout_s)
        if isinstance(built, Failure):
            raise DeviceError(f"{self.compiler.path} cannot build {names[0]}: {built.log.strip()}")
        with suppress(OSError):  # it is only for a day without a compiler
            if not last.exists():
                os.link(built.path, last)
        return built.path

    def child_library(self) -> Path:
        return self.build_harness()

    def enter_child(self, library: Path, reply_fd: int, n_threads: int) -> None:
        self.harness = load_harness(library)  # no compiler is looked for
        self.harness.ks_report_faults(ctypes.c_int(reply_fd))
        self.harness.ks_start_team(ctypes.c_int(n_threads))

    def probe_library(self) -> Path:
        return self.build_own("probe.c")

    def calibrate(self) -> Calibration:
        from .probe import calibrate

        return calibrate(self)

    def take_samples(self, library: Path | None, n_threads: int) -> dict[str, list[float]]:
        from .probe import run_probe

        assert library is not None
        return run_probe(library, n_threads)

    def _sampler(self, module: AbstractModule, args: CallArguments) -> Sampler:
        assert isinstance(module, CpuModule)
        pointers, kept = module.bind(args.values)
        return make_sampler(partial(self._run, module.entry, pointers, kept), args)

    def _run(
        self, entry: Any, pointers: ctypes.Array[ctypes.c_void_p], _kept: list[Array], n: int
    ) -> float:
        return float(self.harness.ks_run(entry, pointers, n))


def own_library_name(name: str, text: str) -> str:
    """What the library of one of this folder's C files is called whatever compiler built it."""
    digest = hashlib.blake2b(f"{text}\0{cpu_key()}".encode(), digest_size=8).hexdigest()
    return f"own-{Path(name).stem}-{digest}.so"


def make_sampler(run: Callable[[int], float], args: CallArguments) -> Sampler:
    """A sampler of `run(n)`, the nanoseconds of n calls, that restores what the calls update in place."""
    if not args.restore:
        return Sampler(run, waited_ns=waited_ns)

    def restore() -> None:
        for array, contents in args.restore:
            array.upload(contents)
        run(1)

    def drifted() -> bool:
        return any(has_extremes(array.download()) for array, _ in args.restore)

    return Sampler(run, restore, drifted, waited_ns)


def load_harness(path: Path) -> ctypes.CDLL:
    """The timing loop with its types declared. The team beside it is found by all libraries that are loaded afterwards, so that a
    process has one.
    """
    harness = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    harness.ks_run.restype = ctypes.c_double
    harness.ks_run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    harness.ks_report_faults.argtypes = [ctypes.c_int]
    harness.ks_start_team.argtypes = [ctypes.c_int]
    return harness
