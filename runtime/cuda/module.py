"""Loaded cubins of PyCUDA, and their launches with packed arguments."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...kernels.ir.kernel import DType
from ..api.arguments import fitting_array
from ..api.artifact import Artifact
from ..api.backend import AbstractArray, AbstractModule, RunError
from .cooperative import CooperativeModule
from .driver import driver, explain
from .memory import AbstractGpuArray, CudaArray

if TYPE_CHECKING:
    from ...codegen.text.source import Argument, KernelLaunch

Array = NDArray[Any]

# Of `struct`. A truth value is an int, as the text has it (SCALAR_TYPES of codegen/bodies/vectors.py).
_FORMATS = {
    DType.f16: "e", DType.f32: "f", DType.f64: "d", DType.bool_: "i",
    DType.i8: "b", DType.i16: "h", DType.i32: "i", DType.i64: "q",
    DType.u8: "B", DType.u16: "H", DType.u32: "I", DType.u64: "Q",
}  # fmt: skip


@dataclass(frozen=True)
class PreparedLaunch:
    """A launch with packed arguments. Equal launches have the same effect on the same memory."""

    function: Any
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    packed: bytes
    shared_bytes: int

    def __call__(self, stream: Any) -> None:
        go = self.function._launch_kernel
        go(self.grid, self.block, self.packed, self.shared_bytes, stream)


class CudaModule(AbstractModule):
    """A loaded cubin. If it needs a workspace and gets none, it allocates one and reuses it."""

    def __init__(
        self,
        artifact: Artifact,
        functions: dict[str, Any],
        stream: Any,
        cooperative: CooperativeModule | None = None,
    ) -> None:
        """`cooperative`: holds the functions of launches that stay, if there are any."""
        self._artifact = artifact
        self._functions = functions
        self.stream = stream
        self._cooperative = cooperative
        self._workspace: AbstractGpuArray | None = None

    @property
    def artifact(self) -> Artifact:
        return self._artifact

    def run(self, values: Sequence[AbstractArray | Array | int | float | bool]) -> None:
        arguments = self._with_workspace(values)
        moved = [(v, _on_gpu(a, v)) for a, v in zip(self._arguments, arguments, strict=True)]
        cuda = driver()
        for launch in self.prepared([m for _, m in moved]):
            try:
                launch(self.stream)
                self.stream.synchronize()
            except cuda.Error as e:
                failure, is_lost = explain(e, launch.kernel)
                raise RunError(failure, is_lost=is_lost) from e
        for given, array in moved:
            if isinstance(given, np.ndarray) and isinstance(array, AbstractGpuArray):
                if given.flags.writeable:
                    given[...] = array.download()
                array.free()

    def prepared(
        self, values: Sequence[AbstractArray | Array | int | float | bool]
    ) -> list[PreparedLaunch]:
        """Returns the launches of a call, arguments packed; `values` contain no NumPy arrays."""
        packed = []
        for a, v in zip(self._arguments, self._with_workspace(values), strict=True):
            if a.kind == "scalar":
                packed.append(packed_scalar(a.dtype, v))
            else:
                array = _on_gpu(a, v)
                assert isinstance(array, AbstractGpuArray)
                packed.append(("P", array.address))
        return [self._prepared(launch, packed) for launch in self._artifact.launches]

    def close(self) -> None:
        self._functions = {}
        if self._cooperative is not None:
            self._cooperative.close()
            self._cooperative = None
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

    def _prepared(self, launch: KernelLaunch, packed: list[tuple[str, Any]]) -> PreparedLaunch:
        # struct aligns as CUDA does: each parameter to its own size.
        chosen = [packed[k] for k in launch.arguments]
        chosen += [packed_scalar(DType.i64.value, step) for step in launch.steps]
        buffer = struct.pack("".join(f for f, _ in chosen), *(v for _, v in chosen))
        function = self._functions[launch.kernel]
        return PreparedLaunch(
            function, launch.kernel, launch.grid, launch.block, buffer, launch.shared_bytes
        )


def parameter_offsets(artifact: Artifact, launch: KernelLaunch) -> list[int]:
    """Returns the offset of each parameter of a launch in its packed arguments, in bytes."""
    given = (artifact.arguments[k] for k in launch.arguments)
    formats = [_FORMATS[DType(a.dtype)] if a.kind == "scalar" else "P" for a in given]
    formats += [_FORMATS[DType.i64]] * len(launch.steps)
    # Of none of the last type: only the gap before it.
    return [struct.calcsize("".join(formats[:k]) + f"0{x}") for k, x in enumerate(formats)]


def packed_scalar(dtype: str, value: Any) -> tuple[str, Any]:
    """Returns the `struct` format character of a scalar argument, and its value as a number."""
    return _FORMATS[DType(dtype)], np.array(value, dtype).item()


def _on_gpu(
    argument: Argument, value: AbstractArray | Array | int | float | bool
) -> AbstractGpuArray | int | float | bool:
    """Returns the argument's value on the GPU. Raises TypeError naming the argument if it does not fit."""
    if argument.kind == "scalar":
        assert not isinstance(value, AbstractArray | np.ndarray)
        return value
    if not isinstance(value, AbstractGpuArray | np.ndarray):
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
    if isinstance(value, AbstractGpuArray):
        return value
    array = CudaArray(value.shape, dtype)
    array.upload(value)
    return array
