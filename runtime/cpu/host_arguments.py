"""Arguments of a run on the CPU as NumPy arrays of this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...codegen.text.source import Argument
from ...kernels.ir.kernel import DType
from ..api.arguments import fitting_array
from ..api.backend import AbstractArray
from .guarded_arrays import CpuArray, in_memory

Array = NDArray[Any]


def host_arguments(
    arguments: Sequence[Argument],
    values: Sequence[AbstractArray | Array | int | float | bool],
) -> list[Array]:
    """Returns the values as NumPy arrays, in the order of the arguments. Raises TypeError if one does not fit."""
    if len(values) != len(arguments):
        names = ", ".join(a.name for a in arguments)
        raise TypeError(f"{len(arguments)} arguments are needed ({names}), {len(values)} given")
    return [_as_host(a, v) for a, v in zip(arguments, values, strict=True)]


def _as_host(argument: Argument, value: AbstractArray | Array | int | float | bool) -> Array:
    if argument.kind == "scalar":
        return in_memory(DType(argument.dtype), value)
    array = value.host if isinstance(value, CpuArray) else value
    return fitting_array(argument.name, np.dtype(argument.dtype), argument.shape, array)
