"""A GPU as a device: built by NVRTC, driven by PyCUDA. Where there is none, it still builds, for a data sheet."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..building.artifact import Artifact, BuildReport
from ..device import (
    AbstractArray,
    AbstractDevice,
    AbstractModule,
    CallArguments,
    DeviceError,
    DeviceOptions,
    RunError,
)
from ..measure.timing import Sampler, interleave
from ..signature import fitting_array
from ..worker.outcome import Failure, FailureKind, Measurement, Protocol
from ..worker.verify import has_extremes
from .compiler import Cubin, CudaCompiler, nvcc_command
from .dialect import CUDA
from .driver import driver, enter_context, explain, gpu
from .graph import Graph, GraphError
from .memory import CudaArray
from .profiles import Profile, find_profile, target_of
from .resources import build_report, refusal

if TYPE_CHECKING:
    from ...codegen.c.dialect import Dialect
    from ...codegen.c.source import Argument, KernelLaunch, Source
    from ...space.targets.target import Target
    from ..measure.calibration import Calibration

Array = NDArray[Any]

_FORMATS = {"float32": "f", "float64": "d", "int32": "i", "int64": "q", "bool": "?"}
_SHARED_BYTES = 48 << 10  # dynamic shared memory beyond this has to be asked for
_LAUNCHES_A_GRAPH = 32


class CudaModule(AbstractModule):
    """A loaded cubin. Its workspace, where it needs one and is given none, is its own and is reused."""

    def __init__(self, artifact: Artifact, functions: dict[str, Any], stream: Any) -> None:
        self._artifact = artifact
        self._functions = functions
        self.stream = stream
        self._workspace: CudaArray | None = None

    @property
    def artifact(self) -> Artifact:
        return self._artifact

    def run(self, values: Sequence[AbstractArray | Array | int | float | bool]) -> None:
        arguments = self._with_workspace(values)
        moved = [(v, _on_gpu(a, v)) for a, v in zip(self._arguments, arguments, strict=True)]
        cuda = driver()
        for launch, go in self.bind([m for _, m in moved]):
            try:
                go()
                self.stream.synchronize()
            except cuda.Error as e:
                failure, is_lost = explain(e, launch.kernel)
                raise RunError(failure, is_lost=is_lost) from e
        for given, array in moved:
            if isinstance(given, np.ndarray) and isinstance(array, CudaArray):
                if given.flags.writeable:
                    given[...] = array.download()
                array.free()

    def bind(
        self, values: Sequence[AbstractArray | Array | int | float | bool]
    ) -> list[tuple[KernelLaunch, Callable[[], None]]]:
        """Each launch with the function that launches it, arguments packed; `values` hold no NumPy arrays."""
        packed = []
        for a, v in zip(self._arguments, self._with_workspace(values), strict=True):
            if a.kind == "scalar":
                packed.append((_FORMATS[a.dtype], np.array(v, a.dtype).item()))
            else:
                array = _on_gpu(a, v)
                assert isinstance(array, CudaArray)
                packed.append(("P", array.address))
        return [(launch, self._launcher(launch, packed)) for launch in self._artifact.launches]

    def close(self) -> None:
        self._functions = {}
        if self._workspace is not None:
            self._workspace.free()
            self._workspace = None

    @property
    def _arguments(self) -> tuple[Argument, ...]:
        return self._artifact.arguments

    def _with_workspace(
        self, values: Sequence[AbstractArray | Array | int | float | bool]
    ) -> Sequence[AbstractArray | Array | int | float | bool]:
        arguments = self._arguments
        if len(values) == len(arguments) - 1 and arguments[-1].kind == "workspace":
            if self._workspace is None:
                self._workspace = CudaArray(arguments[-1].shape, np.dtype(np.uint8))
            return [*values, self._workspace]
        if len(values) != len(arguments):
            names = ", ".join(a.name for a in arguments)
            raise TypeError(f"{len(arguments)} arguments are needed ({names}), {len(values)} given")
        return values

    def _launcher(self, launch: KernelLaunch, packed: list[tuple[str, Any]]) -> Callable[[], None]:
        # struct aligns as CUDA does: each parameter to its own size.
        chosen = [packed[k] for k in launch.arguments]
        buffer = struct.pack("".join(f for f, _ in chosen), *(v for _, v in chosen))
        go = self._functions[launch.kernel]._launch_kernel
        grid, block, n_bytes, stream = launch.grid, launch.block, launch.shared_bytes, self.stream
        return lambda: go(grid, block, buffer, n_bytes, stream)


def _on_gpu(
    argument: Argument, value: AbstractArray | Array | int | float | bool
) -> CudaArray | int | float | bool:
    """The value on the GPU. Raises TypeError naming the argument that does not fit."""
    if argument.kind == "scalar":
        assert not isinstance(value, AbstractArray | np.ndarray)
        return value
    if not isinstance(value, CudaArray | np.ndarray):
        raise TypeError(
            f"argument {argument.name} must be a NumPy array or one on the GPU,"
            f" not {type(value).__name__}"
        )
    dtype = np.dtype(argument.dtype)
    if isinstance(value, np.ndarray):
        value = fitting_array(argument.name, dtype, argument.shape, value)
    elif value.dtype != dtype or value.shape != argument.shape:
        raise TypeError(
            f"argument {argument.name} must be {dtype} of shape {argument.shape},"
            f" not {value.dtype} of shape {value.shape}"
        )
    if isinstance(value, CudaArray):
        return value
    array = CudaArray(value.shape, dtype)
    array.upload(value)
    return array


class CudaDevice(AbstractDevice):
    """The first GPU. Where there is none, `build` compiles for the data sheet of the options, and what needs a GPU
    raises DeviceError.
    """

    name = "cuda"
    calibrated_by = "explore calibrate --target cuda"
    limits_memory = False  # the driver maps far more than it uses
    reports = True

    def __init__(self, options: DeviceOptions) -> None:
        self._options = options
        self._sheet = find_profile(options.profile)
        self.compiler = CudaCompiler(options.build_folder, options.compile_timeout_s)

    @cached_property
    def has_gpu(self) -> bool:
        """Whether there is a GPU that can be driven."""
        try:
            gpu()
        except DeviceError:
            return False
        return True

    @cached_property
    def profile(self) -> Profile:
        """The data sheet of the GPU, or of the options where there is none."""
        return _profile_of(gpu()) if self.has_gpu else self._sheet

    def check(self) -> None:
        gpu()

    def accelerator(self) -> str:
        return self.profile.name

    def compiler_version(self) -> str:
        return self.compiler.version

    def dialect(self) -> Dialect:
        return CUDA

    def facts(self) -> Target:
        from .probe import load_target

        return (load_target(self) if self.has_gpu else None) or target_of(self.profile, self.name)

    def calibrate(self) -> Calibration:
        from .probe import calibrate

        self.check()
        return calibrate(self)

    def take_samples(self, library: Path | None, n_threads: int) -> dict[str, list[float]]:
        from .probe import take_samples

        return take_samples(self)

    def build(self, source: Source) -> Artifact | Failure:
        built = self.compile(source)
        if isinstance(built, Failure):
            return built
        report = build_report(source, built, self.profile)
        if isinstance(report, Failure):
            return report
        return refusal(report, self.profile.name) or Artifact.of(
            source, built.key, built.path, built.build_ns
        )

    def compile(self, source: Source) -> Cubin | Failure:
        """The same with what the compiler reports. Raises DeviceError where there is no NVRTC."""
        return self.compiler.build(source.text, self.profile.architecture, source.flags)

    def command_line(self, source: Source, file: Path, compiler: str) -> str:
        return nvcc_command(source, file, self.profile.architecture)

    def report(self, source: Source) -> BuildReport | Failure:
        cubin = self.compile(source)
        if isinstance(cubin, Failure):
            return cubin
        return build_report(source, cubin, self.profile)

    def load(self, artifact: Artifact) -> CudaModule | Failure:
        enter_context()
        cuda = driver()
        try:
            module = cuda.module_from_buffer(Path(artifact.path).read_bytes())
        except cuda.Error as e:
            failure, is_lost = explain(e, "loading")
            if is_lost:
                raise RunError(failure, is_lost=True) from e
            kind: FailureKind = "memory" if failure.kind == "memory" else "launch"
            return Failure(kind, "the built module cannot be loaded", str(e))
        functions = {}
        for launch in artifact.launches:
            try:
                functions[launch.kernel] = function = module.get_function(launch.kernel)
            except cuda.Error:
                return Failure("launch", f"the built module does not export {launch.kernel}")
            if launch.shared_bytes > _SHARED_BYTES:
                most = cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
                try:
                    function.set_attribute(most, launch.shared_bytes)
                except cuda.Error as e:
                    advice = f"{launch.kernel}: {launch.shared_bytes} bytes of shared memory are too many"
                    return Failure("launch", advice, str(e))
        return CudaModule(artifact, functions, cuda.Stream())

    def allocate(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], *, as_numpy: bool = False
    ) -> CudaArray:
        return CudaArray(shape, dtype)

    def time(
        self,
        calls: Sequence[tuple[AbstractModule, CallArguments]],
        protocol: Protocol,
        beside: Callable[[], None] | None = None,
    ) -> list[Measurement]:
        runs = []
        for module, args in calls:
            assert isinstance(module, CudaModule)
            runs.append(TimedCalls(module, args))
        try:
            return interleave([r.sampler() for r in runs], protocol)
        finally:
            for r in runs:
                r.close()


class TimedCalls:
    """Calls of one module between two events; many of them as graphs, so that the host does not set the pace."""

    def __init__(self, module: CudaModule, args: CallArguments) -> None:
        self._cuda = driver()
        self._module = module
        self._restored = args.restore
        bound = module.bind(args.values)
        self._launches = [go for _, go in bound]
        self._calls_a_graph = max(1, _LAUNCHES_A_GRAPH // max(1, len(self._launches)))
        self._name = ", ".join(dict.fromkeys(launch.kernel for launch, _ in bound))
        self._start, self._end = self._cuda.Event(), self._cuda.Event()
        self._graph: Graph | None = None
        self._has_graphs = True

    def sampler(self) -> Sampler:
        """What the rules of timing need."""
        if not self._restored:
            return Sampler(self.run)
        return Sampler(self.run, self._restore, self._drifted)

    def close(self) -> None:
        """Free the graph."""
        if self._graph is not None:
            self._graph.close()

    def run(self, n: int) -> float:
        """Nanoseconds of n calls on the GPU."""
        try:
            n_graphs = n // self._calls_a_graph if self._may_use_graph(n) else 0
            n_timed = n_graphs * self._calls_a_graph or n
            self._start.record(self._module.stream)
            for _ in range(n_graphs):
                assert self._graph is not None
                self._graph.launch()
            if not n_graphs:
                self._call(n)
            self._end.record(self._module.stream)
            self._end.synchronize()
            return float(self._start.time_till(self._end)) * 1e6 * n / n_timed
        except self._cuda.Error as e:
            failure, is_lost = explain(e, self._name)
            raise RunError(failure, is_lost=is_lost) from e
        except GraphError as e:
            failure, _ = explain(e, self._name)
            raise RunError(failure, is_lost=True) from e

    def _may_use_graph(self, n: int) -> bool:
        if n < self._calls_a_graph or not self._has_graphs:
            return False
        if self._graph is None:
            try:
                self._graph = Graph(self._module.stream, lambda: self._call(self._calls_a_graph))
            except GraphError:
                self._has_graphs = False
        return self._graph is not None

    def _call(self, n: int) -> None:
        for _ in range(n):
            for go in self._launches:
                go()

    def _restore(self) -> None:
        for array, contents in self._restored:
            array.upload(contents)
        self.run(1)

    def _drifted(self) -> bool:
        return any(has_extremes(array.download()) for array, _ in self._restored)


_SHEETS = {"H200": "h200", "A100": "a100", "RTX 4090": "rtx4090"}
# Lanes for float32 a multiprocessor, and how many of them a float64 takes, by major and minor number of the architecture.
_LANES = {(7, 5): (64, 32), (8, 0): (64, 2), (9, 0): (128, 2), (10, 0): (128, 2)}
_OTHER_LANES = (128, 2)  # no chip has more


def _profile_of(device: Any) -> Profile:
    """The data sheet of a known GPU, else the same facts from what the driver tells."""
    name = str(device.name())
    for words, key in _SHEETS.items():
        if words in name:
            return find_profile(key)
    attribute, ask = driver().device_attribute, device.get_attribute
    major, minor = device.compute_capability()
    lanes, per_double = _LANES.get((major, minor), _OTHER_LANES)
    cores = ask(attribute.MULTIPROCESSOR_COUNT)
    ghz = ask(attribute.CLOCK_RATE) * 1e-6
    flops = 2.0 * lanes * cores * ghz
    memory_ghz = 2 * ask(attribute.MEMORY_CLOCK_RATE) * 1e-6  # two transfers a clock
    return Profile(
        name=name,
        source="the driver",
        architecture=f"sm_{major}{minor}",
        multiprocessors=cores,
        clock_ghz=ghz,
        memory_bytes=device.total_memory(),
        memory_bytes_per_ns=memory_ghz * ask(attribute.GLOBAL_MEMORY_BUS_WIDTH) / 8,
        f32_flops_per_ns=flops,
        f64_flops_per_ns=flops / per_double,
        l1_bytes=256 << 10,
        l2_bytes=ask(attribute.L2_CACHE_SIZE),
        shared_bytes_per_core=ask(attribute.MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
        shared_bytes_per_block_most=ask(attribute.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        threads_per_core=ask(attribute.MAX_THREADS_PER_MULTIPROCESSOR),
        blocks_per_core=32,
    )
