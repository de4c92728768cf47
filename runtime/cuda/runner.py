"""Runner of a GPU: PyCUDA loads and launches, CUDA events time."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...kernels.ir.kernel import DType
from ..api.arguments import fitting_array
from ..api.artifact import Artifact
from ..api.backend import AbstractArray, AbstractModule, AbstractRunner, CallArguments, RunError
from ..api.outcome import Failure, FailureKind, Measurement, Protocol
from ..files import read_own
from ..measure.timing import Sampler, interleave
from .driver import driver, enter_context, explain, gpu
from .graph import CudaGraph, GraphError
from .memory import CudaArray

if TYPE_CHECKING:
    from ...codegen.text.source import Argument, KernelLaunch

Array = NDArray[Any]

# Of `struct`. A truth value is an int, as the text has it (SCALAR_TYPES of codegen/bodies/vectors.py).
_FORMATS = {
    DType.f16: "e", DType.f32: "f", DType.f64: "d", DType.bool_: "i",
    DType.i8: "b", DType.i16: "h", DType.i32: "i", DType.i64: "q",
    DType.u8: "B", DType.u16: "H", DType.u32: "I", DType.u64: "Q",
}  # fmt: skip
_SHARED_BYTES = 48 << 10  # more dynamic shared memory has to be requested
_LAUNCHES_A_GRAPH = 32


class CudaModule(AbstractModule):
    """A loaded cubin. If it needs a workspace and gets none, it allocates one and reuses it."""

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
        """Returns each launch with a function that executes it, arguments packed; `values` contain no NumPy arrays."""
        packed = []
        for a, v in zip(self._arguments, self._with_workspace(values), strict=True):
            if a.kind == "scalar":
                packed.append(packed_scalar(a.dtype, v))
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
        chosen += [packed_scalar(DType.i64.value, step) for step in launch.steps]
        buffer = struct.pack("".join(f for f, _ in chosen), *(v for _, v in chosen))
        go = self._functions[launch.kernel]._launch_kernel
        grid, block, n_bytes, stream = launch.grid, launch.block, launch.shared_bytes, self.stream
        return lambda: go(grid, block, buffer, n_bytes, stream)


def packed_scalar(dtype: str, value: Any) -> tuple[str, Any]:
    """Returns the `struct` format character of a scalar argument, and its value as a number."""
    return _FORMATS[DType(dtype)], np.array(value, dtype).item()


def _on_gpu(
    argument: Argument, value: AbstractArray | Array | int | float | bool
) -> CudaArray | int | float | bool:
    """Returns the argument's value on the GPU. Raises TypeError naming the argument if it does not fit."""
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


class CudaRunner(AbstractRunner):
    """Runner of the first GPU. Raises DeviceError without a GPU."""

    limits_memory = False  # the driver maps far more than it uses

    def check(self) -> None:
        gpu()

    def load(self, artifact: Artifact) -> CudaModule | Failure:
        enter_context()
        cuda = driver()
        try:
            module = cuda.module_from_buffer(read_own(Path(artifact.path)))
        except OSError as e:
            return Failure(
                "launch", "the built module cannot be loaded", f"{artifact.path}: {e.strerror}"
            )
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
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        *,
        as_numpy: bool = False,
        border: int | None = None,
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
    """Times calls of one module between two CUDA events.

    Many calls run as graphs, so that the host does not limit them.
    """

    def __init__(self, module: CudaModule, args: CallArguments) -> None:
        self._cuda = driver()
        self._module = module
        self._args = args  # launches hold addresses only
        self._restored, self._drifted = args.restore, args.drifted
        bound = module.bind(args.values)
        self._launches = [go for _, go in bound]
        self._calls_a_graph = max(1, _LAUNCHES_A_GRAPH // max(1, len(self._launches)))
        self._name = ", ".join(dict.fromkeys(launch.kernel for launch, _ in bound))
        self._start, self._end = self._cuda.Event(), self._cuda.Event()
        self._graph: CudaGraph | None = None
        self._has_graphs = True

    def sampler(self) -> Sampler:
        """Returns the sampler for the timing protocol; it restores arrays that the calls update in place."""
        if not self._restored:
            return Sampler(self.run)
        return Sampler(self.run, self._restore, self._drifted)

    def close(self) -> None:
        """Frees the graph."""
        if self._graph is not None:
            self._graph.close()

    def run(self, n: int) -> float:
        """Runs n calls on the GPU and returns their nanoseconds."""
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
                self._graph = CudaGraph(
                    self._module.stream, lambda: self._call(self._calls_a_graph)
                )
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
