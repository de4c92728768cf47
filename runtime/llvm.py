"""JIT compilation of kernels in this process by LLVM, from the text of kernels/interpret/llvm.py."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import llvmlite.binding as llvm
import numpy as np
from numpy.typing import NDArray

from ..kernels.interpret.llvm import NAME, AxisCheck, Claim, print_llvm
from ..kernels.ir.kernel import DType, KernelIR

Array = NDArray[Any]
_SPEED = 2  # as -O2


@dataclass(frozen=True)
class CompiledKernel:
    """A compiled kernel, and the failures that its return codes stand for. Forked children may call it, too."""

    ir: KernelIR
    function: Callable[..., int]
    places: tuple[AxisCheck | Claim, ...]

    def run(self, arrays: Sequence[Array], scalars: Mapping[str, Any], seed: int = 0) -> None:
        """Runs the kernel on arrays that are `plain` and of the dtypes for which it was compiled.

        `seed` drives random rounding. Raises IndexError for an index out of range, AssertionError for a failed assertion.
        """
        numbers = (p.dtype.numpy.type(scalars[p.name]).item() for p in self.ir.scalars)
        at = np.full(1, seed, np.int64)
        place = self.function(*(a.ctypes.data for a in arrays), *numbers, at.ctypes.data)
        if place:
            self.places[place - 1].fail(int(at[0]))


def plain(array: Array) -> Array:
    """Returns the array C-contiguous and aligned, copied if needed. Arrays that are written must be so already."""
    found = np.ascontiguousarray(array)
    return found if found.flags.aligned else found.copy()


def held_in(arrays: Iterable[Array]) -> list[DType]:
    """Returns the element type of each array, in order."""
    return [DType(a.dtype.name) for a in arrays]


def compile_kernel(
    ir: KernelIR, held: Sequence[DType], *, is_moved: bool = False
) -> CompiledKernel:
    """Compiles a kernel for arrays of these dtypes; read-only arrays may have narrower dtypes than the kernel's.

    `is_moved`: every rounded result is moved up or down at random by a unit in the last place.
    """
    types = dict(zip((p.name for p in ir.arrays), held, strict=True))
    printed = print_llvm(ir, types, is_moved=is_moved)
    type_of: Any = np.ctypeslib.as_ctypes_type  # its stub wants one type at a time
    numbers = (type_of(p.dtype.stored.numpy) for p in ir.scalars)
    arguments = (*[ctypes.c_void_p] * len(held), *numbers, ctypes.c_void_p)
    return CompiledKernel(ir, _compiled(printed.text, arguments), printed.places)


@cache  # equal kernels have equal texts
def _compiled(text: str, arguments: tuple[Any, ...]) -> Callable[..., int]:
    machine = _machine()
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=_SPEED)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    _ENGINES.append(engine)  # its end would be that of the function
    signature = ctypes.CFUNCTYPE(ctypes.c_int64, *arguments)
    return cast(Callable[..., int], signature(engine.get_function_address(NAME)))


_ENGINES: list[Any] = []


@cache
def _machine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    if library := ctypes.util.find_library("m"):
        llvm.load_library_permanently(library)
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=_SPEED)
