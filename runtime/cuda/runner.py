"""Runner of a GPU: PyCUDA loads and launches, CUDA events time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..api.artifact import Artifact
from ..api.backend import AbstractModule, AbstractRunner, CallArguments, RunError
from ..api.outcome import Failure, FailureKind, Measurement, Protocol
from ..files import read_own
from ..measure.timing import Sampler, interleave
from .cooperative import CooperativeKernel, CooperativeModule
from .driver import driver, enter_context, explain, gpu
from .graph import CudaGraph, GraphError
from .growing import GrowingArray, has_virtual_memory
from .memory import AbstractGpuArray, CudaArray
from .module import CudaModule, parameter_offsets
from .resources import too_many_blocks
from .windows import CudaWindows

if TYPE_CHECKING:
    from ...codegen.text.source import KernelLaunch

Array = NDArray[Any]

_SHARED_BYTES = 48 << 10  # more dynamic shared memory has to be requested
_LAUNCHES_A_GRAPH = 32
_GROWING_BYTES = 8 << 20  # smaller arrays have all their memory at once: a page has 2 MiB


class CudaRunner(AbstractRunner):
    """Runner of the first GPU. Raises DeviceError without a GPU."""

    limits_memory = False  # the driver maps far more than it uses

    def check(self) -> None:
        gpu()

    def load(self, artifact: Artifact) -> CudaModule | Failure:
        enter_context()
        cuda = driver()
        cooperative = None
        try:
            cubin = read_own(Path(artifact.path))
            module = cuda.module_from_buffer(cubin)
            if any(launch.stays for launch in artifact.launches):
                cooperative = CooperativeModule(cubin)
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
        with ExitStack() as opened:
            if cooperative is not None:
                opened.callback(cooperative.close)
            functions = _functions(artifact, module, cooperative)
            if isinstance(functions, Failure):
                return functions
            opened.pop_all()
        return CudaModule(artifact, functions, cuda.Stream(), cooperative)

    def allocate(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        *,
        as_numpy: bool = False,
        border: int | None = None,
        grows: bool = False,
    ) -> AbstractGpuArray:
        if grows and prod(shape) * dtype.itemsize >= _GROWING_BYTES and has_virtual_memory():
            return GrowingArray(shape, dtype)
        array = CudaArray(shape, dtype)
        if grows:
            array.clear()
        return array

    def windows(self) -> CudaWindows:
        return CudaWindows()

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


def _functions(
    artifact: Artifact, module: Any, cooperative: CooperativeModule | None
) -> dict[str, Any] | Failure:
    """Returns the kernels of a loaded module by name; a Failure if one is missing, or the GPU has not what it needs."""
    cuda = driver()
    functions: dict[str, Any] = {}
    for launch in artifact.launches:
        if cooperative is not None and launch.stays:
            found = _staying(cooperative, artifact, launch)
            if isinstance(found, Failure):
                return found
            functions[launch.kernel] = found
            continue
        try:
            functions[launch.kernel] = function = module.get_function(launch.kernel)
        except cuda.Error:
            return Failure("launch", f"the built module does not export {launch.kernel}")
        if launch.shared_bytes > _SHARED_BYTES:
            most = cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
            try:
                function.set_attribute(most, launch.shared_bytes)
            except cuda.Error as e:
                advice = (
                    f"{launch.kernel}: {launch.shared_bytes} bytes of shared memory are too many"
                )
                return Failure("launch", advice, str(e))
    return functions


def _staying(
    module: CooperativeModule, artifact: Artifact, launch: KernelLaunch
) -> CooperativeKernel | Failure:
    """Returns the kernel of a launch whose blocks wait for each other; a Failure if the GPU does not hold all at once."""
    try:
        kernel = module.kernel(launch.kernel, parameter_offsets(artifact, launch))
        if launch.shared_bytes > _SHARED_BYTES:
            kernel.allow_shared_bytes(launch.shared_bytes)
        most = kernel.most_blocks(launch.block, launch.shared_bytes)
    except driver().Error as e:
        return Failure(
            "launch", f"{launch.kernel} cannot be launched with a grid that stays", str(e)
        )
    return too_many_blocks(launch, most, gpu().name()) or kernel


class TimedCalls:
    """Times calls of one module between two CUDA events.

    Many calls run as graphs, so that the host does not limit them.
    """

    def __init__(self, module: CudaModule, args: CallArguments) -> None:
        self._cuda = driver()
        self._module = module
        self._args = args  # launches hold addresses only
        self._restored, self._drifted = args.restore, args.drifted
        self._launches = module.prepared(args.values)
        self._calls_a_graph = max(1, _LAUNCHES_A_GRAPH // max(1, len(self._launches)))
        self._name = ", ".join(dict.fromkeys(x.kernel for x in self._launches))
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
            except (GraphError, self._cuda.Error):  # it may not record what it launches
                self._has_graphs = False
        return self._graph is not None

    def _call(self, n: int) -> None:
        for _ in range(n):
            for launch in self._launches:
                launch(self._module.stream)

    def _restore(self) -> None:
        for array, contents in self._restored:
            array.upload(contents)
        self.run(1)
