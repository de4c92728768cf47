"""The emulated GPU as a device: a C++ compiler builds the text, which runs in three thread orders."""

from __future__ import annotations

import ctypes
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from ..api import backend
from ..api.artifact import Artifact
from ..api.errors import DeviceError
from ..api.outcome import Failure, Measurement, Protocol
from ..cpu.builder import CpuBuilder
from ..cpu.compiler import Compiler, Library, build_library, first_line
from ..cpu.guarded_arrays import CpuArray
from ..cpu.runner import CpuModule, CpuRunner, make_sampler
from ..device import DeviceOptions, ThreadOrder
from ..library import LoadedLibrary, load_library
from ..measure.timing import Sampler, interleave
from .adapted_text import emulated_text, emulated_together

if TYPE_CHECKING:
    from ...codegen.text.dialect import Dialect
    from ...codegen.text.source import Source
    from ...space.targets.target import Target
    from ..cuda.profiles import DataSheet

Array = NDArray[Any]

# The instrumentation calls functions of the header: -nostdlib keeps the sanitizers' own libraries out. -nostdinc++ finds
# C's <math.h>, which has all that texts name and is a fraction of the C++ library's.
# Nothing is optimised: every access of a text is checked, and building takes a third less time.
COMPILE_FLAGS: tuple[str, ...] = ("-x", "c++", "-std=gnu++17", "-O0", "-ffp-contract=off", "-w")
COMPILE_FLAGS += ("-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics", "-nostdinc++")
COMPILE_FLAGS += ("-fno-strict-aliasing",)  # vectors are read from arrays of their elements
COMPILE_FLAGS += ("-fsanitize=thread", "-fsanitize=bounds", "-fsanitize=alignment")
_FLAGS = (*COMPILE_FLAGS, "-nostdlib")
# The last has the bit count of 64-bit words, which not every processor has as an instruction.
_LINKED = ("-lm", "-pthread", "-lgcc")
_ORDERS: tuple[ThreadOrder, ...] = ("forward", "backward", "random")


class EmulatorModule(backend.AbstractModule):
    """A loaded program. `order` is the thread order of its runs; every order must give the same results."""

    def __init__(self, bound: CpuModule, library: LoadedLibrary, order: ThreadOrder) -> None:
        self._bound = bound
        self._library = library
        library.emulator_error.restype = ctypes.c_char_p
        library.emulator_set_order.argtypes = [ctypes.c_int, ctypes.c_uint64]
        library.emulator_component_ns.restype = ctypes.c_int64
        launches = bound.artifact.launches
        self._n_components = 1 + max((x.component for x in launches), default=-1)
        library.emulator_keep.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
        self._order = order
        self._n_runs = 0
        self._one_run = threading.Lock()  # at a time: the emulator's state is one

    @property
    def artifact(self) -> Artifact:
        return self._bound.artifact

    @property
    def component_ns(self) -> tuple[float, ...]:
        found = [self._library.emulator_component_ns(k) for k in range(self._n_components)]
        return () if -1 in found else tuple(float(max(x, 1)) for x in found)

    def run(
        self,
        values: Sequence[backend.AbstractArray | Array | int | float | bool],
        order: ThreadOrder | None = None,
        seed: int | None = None,
    ) -> None:
        """Runs the program as `AbstractModule.run` does; `order` and its `seed` apply to this run only."""
        with self._bound.bound(values) as pointers, self._one_run:
            order = order or self._order
            if order == "in turn":
                order = _ORDERS[self._n_runs % len(_ORDERS)]
            self._n_runs += 1
            seed = self._n_runs if seed is None else seed
            self._library.emulator_set_order(_ORDERS.index(order), seed)
            self._keep(values)
            self._bound.entry(pointers)
            self._raise_error(f"random order {seed}" if order == "random" else f"{order} order")

    def _keep(self, values: Sequence[object]) -> None:
        """Registers the protected rows of arrays; the emulator checks every write to them."""
        self._library.emulator_keep(None, 0, 0)
        for v in values:
            if isinstance(v, CpuArray) and v.kept_bytes:
                self._library.emulator_keep(v.span[0], v.row_bytes, v.kept_bytes)

    def make_sampler(self, harness: ctypes.CDLL, args: backend.CallArguments) -> Sampler:
        """Returns a sampler that times runs with threads in forward order."""
        pointers, kept = self._bound.bind(args.values)

        def run(_kept: list[Array], n: int) -> float:
            elapsed_ns = float(harness.ks_run(self._bound.entry, pointers, n))
            self._raise_error("forward order")
            return elapsed_ns

        self._library.emulator_set_order(0, 0)
        return make_sampler(partial(run, kept), args)

    def close(self) -> None:
        self._bound.close()

    def _raise_error(self, order: str) -> None:
        error = self._library.emulator_error()
        if error is not None:
            what = error.decode(errors="replace")
            raise backend.RunError(Failure("crash", f"{what} (threads in {order})"))


class EmulatorMachine(backend.AbstractMachine):
    """Facts of a data sheet's GPU. Measured times do not count, since the emulator is slower."""

    times_count = False

    def __init__(self, options: DeviceOptions) -> None:
        self._options = options

    def facts(self) -> Target:
        from ..cuda.profiles import profile_target

        return profile_target(self._options.profile, backend="emulator")


class EmulatorBuilder(backend.AbstractBuilder):
    """Builds with a C++ compiler. Raises DeviceError on the first build if none works."""

    def __init__(self, options: DeviceOptions) -> None:
        self._options = options

    @cached_property
    def compiler(self) -> Compiler:
        """The C++ compiler, searched on first use."""
        return find_compiler(self._options.compiler)

    @property
    def _sheet(self) -> DataSheet:
        from ..cuda.profiles import find_profile

        return find_profile(self._options.profile)

    def dialect(self) -> Dialect:
        from ..cuda.dialect import CUDA

        return CUDA

    def build(self, source: Source) -> Artifact | Failure:
        text = emulated_text(source, self._sheet)
        o = self._options
        # The flags of the source are for the compiler of the GPU.
        built = build_library(self.compiler, text, (), o.build_folder, o.compile_timeout_s)
        if isinstance(built, Failure):
            return built
        return Artifact.of(source, built.key, built.path, built.build_ns)

    def build_in_one(
        self, sources: Mapping[str, Source], flags: tuple[str, ...], folder: Path
    ) -> Library | Failure:
        """Builds one library of several texts; `sources` by name of their entry in it."""
        text, limit_s = emulated_together(sources, self._sheet), self._options.compile_timeout_s
        return build_library(self.compiler, text, flags, folder, limit_s * len(sources))


class EmulatorRunner(backend.AbstractRunner):
    """Runs the threads of a GPU one after the other on one core. Arrays and clock are those of the CPU."""

    def __init__(self, options: DeviceOptions) -> None:
        self._thread_order = options.thread_order
        self._cpu = CpuRunner(CpuBuilder(options))
        self._compiler = options.compiler

    def check(self) -> None:
        find_compiler(self._compiler)

    def child_library(self) -> Path:
        return self._cpu.child_library()

    def enter_child(self, library: Path, reply_fd: int, n_threads: int) -> None:
        self._cpu.enter_child(library, reply_fd, 1)

    def load(self, artifact: Artifact) -> EmulatorModule | Failure:
        try:
            library = load_library(artifact.path)
            return EmulatorModule(CpuModule(artifact, library), library, self._thread_order)
        except OSError as e:
            return Failure("launch", "the built program cannot be loaded", str(e))
        except AttributeError:
            return Failure("launch", f"the built program does not export {artifact.entry}")

    def allocate(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        *,
        as_numpy: bool = False,
        border: int | None = None,
        grows: bool = False,
    ) -> CpuArray:
        return self._cpu.allocate(shape, dtype)

    def time(
        self,
        calls: Sequence[tuple[backend.AbstractModule, backend.CallArguments]],
        protocol: Protocol,
        beside: Callable[[], None] | None = None,
    ) -> list[Measurement]:
        samplers = []
        for module, args in calls:
            assert isinstance(module, EmulatorModule)
            samplers.append(module.make_sampler(self._cpu.harness, args))
        return interleave(samplers, protocol)


class EmulatorReporter(backend.AbstractReporter):
    """Reports of the compiler that would build the text for a real GPU."""

    def __init__(self, machine: EmulatorMachine) -> None:
        self._machine = machine

    def command_line(self, source: Source, file: Path, compiler: str) -> str:
        from ..cuda.compiler import nvcc_command

        return nvcc_command(source, file, self._machine.facts().architecture)


class EmulatorDevice(backend.AbstractDevice):
    """A GPU emulated on the CPU."""

    name = "emulator"

    def __init__(self, options: DeviceOptions) -> None:
        if options.thread_order not in get_args(ThreadOrder):
            raise DeviceError(f"there is no thread order {options.thread_order!r}")
        self.machine = EmulatorMachine(options)
        self.builder = EmulatorBuilder(options)
        self.runner = EmulatorRunner(options)
        self.reporter = EmulatorReporter(self.machine)


def find_compiler(wanted: str | None = None) -> Compiler:
    """Returns the C++ compiler with the name or path `wanted`, else the first of g++, clang++, c++.

    Raises DeviceError with a sentence.
    """
    for name in (wanted,) if wanted else ("g++", "clang++", "c++"):
        path = shutil.which(name)
        version = None if path is None else first_line([path, "--version"])
        if path is not None and version is not None:
            return Compiler(path, version, _FLAGS, linked=_LINKED)
    what = f"no C++ compiler {wanted}" if wanted else "no C++ compiler"
    raise DeviceError(f"{what} was found; install g++ (Debian: apt install g++)")
