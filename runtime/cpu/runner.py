"""Runner of the CPU: loads libraries with ctypes and times them by a compiled loop."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...kernels.ir.errors import KernelRuntimeIndexError
from ..api.artifact import Artifact
from ..api.backend import (
    AbstractArray,
    AbstractCaller,
    AbstractModule,
    AbstractRunner,
    CallArguments,
    CallSignature,
)
from ..api.errors import DeviceError
from ..api.outcome import Failure, Measurement, Protocol
from ..library import LoadedLibrary, load_for_all, load_library
from ..measure.timing import Sampler, interleave, waited_ns
from .calling import load_extension, make_caller, rows_of
from .guarded_arrays import CpuArray, address_of
from .host_arguments import host_arguments
from .unit_tables import UnitModule

if TYPE_CHECKING:
    from ...codegen.bodies.index_checks import IndexChecks
    from .builder import CpuBuilder
    from .index_check import IndexCheck

Array = NDArray[Any]


class CpuModule(AbstractModule):
    """A loaded shared library. Each run has its own workspace, so that several threads may run it at once."""

    def __init__(
        self, artifact: Artifact, library: LoadedLibrary, builder: CpuBuilder | None = None
    ) -> None:
        """`builder` compiles index checks for the module."""
        self._artifact = artifact
        self.library = library
        self._builder = builder
        self.index_check: IndexCheck | None = None
        self.entry = getattr(library, artifact.entry)
        self.entry.restype = None
        self.entry.argtypes = [ctypes.POINTER(ctypes.c_void_p)]
        self.pool: list[Array] = []  # workspaces that no run uses now

    @property
    def artifact(self) -> Artifact:
        return self._artifact

    @property
    def workspace_bytes(self) -> int:
        return self._artifact.workspace_bytes

    def run(self, values: Sequence[AbstractArray | Array | int | float | bool]) -> None:
        with self.bound(values) as pointers:
            wrong = None if self.index_check is None else self.index_check.wrong(pointers)
            if wrong is not None:
                raise KernelRuntimeIndexError(wrong)
            self.entry(pointers)

    @contextmanager
    def bound(
        self, values: Sequence[AbstractArray | Array | int | float | bool]
    ) -> Iterator[ctypes.Array[ctypes.c_void_p]]:
        """Context with the argument vector of one run; a workspace is taken from the pool if needed and not given."""
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
        """Context with the workspace of one run, from the pool; () if none is needed."""
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
        """Returns the argument vector of the entry, and the arrays that must live as long as it."""
        kept = host_arguments(self._artifact.arguments, values)
        return (ctypes.c_void_p * len(kept))(*map(address_of, kept)), kept

    def pointer(self) -> Any:
        return self.entry

    def check_indices(self, checks: IndexChecks) -> Failure | None:
        assert self._builder is not None
        built = self._builder.build_check(checks)
        if isinstance(built, Failure):
            return built
        self.index_check = built
        return None

    def close(self) -> None:
        self.library.close()

    def make_workspace(self) -> Array:
        """Returns a new workspace of the size that the entry needs."""
        return CpuArray((self._artifact.workspace_bytes,), np.dtype(np.uint8), stagger=23).host


class CpuRunner(AbstractRunner):
    """Runs code on this machine's cores. `builder` builds the runner's own C libraries."""

    times_functions = True
    placement_counts = True

    def __init__(self, builder: CpuBuilder) -> None:
        self._builder = builder
        self._n_allocated = 0

    def load(self, artifact: Artifact) -> CpuModule | UnitModule | Failure:
        with suppress(DeviceError):  # a library that was built alone has a team of its own
            _ = self.harness  # has the one of the process
        try:
            if artifact.table is not None:
                return UnitModule(artifact, self.harness)
            # ctypes resolves every symbol now, so that a missing one cannot end a run later.
            module = CpuModule(artifact, load_library(artifact.path), self._builder)
        except OSError as e:
            return Failure("launch", "the built library cannot be loaded", str(e))
        except AttributeError:
            return Failure("launch", f"the built library does not export {artifact.entry}")
        return module

    def caller(self, module: AbstractModule, signature: CallSignature) -> AbstractCaller:
        assert isinstance(module, CpuModule)
        try:
            extension = load_extension(self._builder.compiler, self._builder.options)
        except DeviceError:  # of an adopted library nothing needs a compiler but quicker calls
            extension = None
        workspaces = module if module.workspace_bytes else None
        return make_caller(extension, module, rows_of(signature), workspaces)

    def allocate(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        *,
        as_numpy: bool = False,
        border: int | None = None,
        grows: bool = False,
    ) -> CpuArray:
        self._n_allocated += 1
        stagger = 17 * self._n_allocated
        return CpuArray(shape, dtype, stagger=stagger, as_numpy=as_numpy, border=border)

    def time(
        self,
        calls: Sequence[tuple[AbstractModule, CallArguments]],
        protocol: Protocol,
        beside: Callable[[], None] | None = None,
    ) -> list[Measurement]:
        return interleave([self._sampler(m, a) for m, a in calls], protocol, beside)

    @cached_property
    def harness(self) -> ctypes.CDLL:
        """The library with the timing loop and the thread team."""
        return load_harness(self._builder.build_harness())

    def child_library(self) -> Path:
        return self._builder.build_harness()

    def enter_child(self, library: Path, reply_fd: int, n_threads: int) -> None:
        self.harness = load_harness(library)  # no compiler is looked for
        self.harness.ks_report_faults(ctypes.c_int(reply_fd))
        self.harness.ks_start_team(ctypes.c_int(n_threads))

    def _sampler(self, module: AbstractModule, args: CallArguments) -> Sampler:
        assert isinstance(module, CpuModule | UnitModule)
        pointers: Any
        pointers, kept = module.bind(args.values)
        return make_sampler(partial(self._run, module.entry, pointers, kept), args)

    def _run(self, entry: Any, pointers: Any, _kept: list[Any], n: int) -> float:
        return float(self.harness.ks_run(entry, pointers, n))


def make_sampler(run: Callable[[int], float], args: CallArguments) -> Sampler:
    """Returns a sampler for the timing protocol; `run(n)` gives the nanoseconds of n calls.

    The sampler restores arrays that the calls update in place.
    """
    if not args.restore:
        return Sampler(run, waited_ns=waited_ns)

    def restore() -> None:
        for array, contents in args.restore:
            array.upload(contents)
        run(1)

    return Sampler(run, restore, args.drifted, waited_ns)


def load_harness(path: Path) -> ctypes.CDLL:
    """Loads the timing loop with declared types.

    All libraries loaded later find the thread team in it, so that a process has one team.
    """
    harness = load_for_all(path)
    harness.ks_run.restype = ctypes.c_double
    harness.ks_run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    harness.ks_report_faults.argtypes = [ctypes.c_int]
    harness.ks_start_team.argtypes = [ctypes.c_int]
    return harness
