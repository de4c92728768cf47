"""Arguments of a kernel call in the form that executors accept: arrays and numbers by parameter name."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..fields.compound import MatrixType
from ..fields.conversion import wrapped
from ..fields.ndarray import Ndarray
from ..fields.program import current_program
from ..ir.kernel import DType, Location
from .complex_numbers import Pairs
from .instance import Instance, KernelCall
from .layout import ViewLayout
from .random import GOLDEN, SEED
from .signature import (
    ArrayArgument,
    CompoundArgument,
    ScalarArgument,
    Signature,
    flattened,
    members_of,
)
from .truth_arrays import with_bytes

_numbers = itertools.count()  # of calls that draw random numbers without a program


def passed(
    signature: Signature, values: Mapping[str, Any], kernel: str, where: Location
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the arrays, and the numbers, that a call passes, each by parameter name.

    `values`: the arguments by name. Vectors and structs become one number for each component, large vectors arrays. LanguageError
    if their members do not fit.
    """
    arrays: dict[str, Any] = {}
    scalars: dict[str, Any] = {}
    for name, argument in signature:
        value = values[name]
        match argument:
            case ArrayArgument(layout=ViewLayout(memory=memory)):
                arrays[memory] = (value.array if isinstance(value, Pairs) else value).memory
            case ArrayArgument(is_complex=True):
                arrays[name] = value.array
            case ArrayArgument():
                arrays[name] = value.array if isinstance(value, Ndarray) else value
            case ScalarArgument(dtype=dtype):
                is_bool = isinstance(value, bool | np.bool_) and dtype is not DType.bool_
                scalars[name] = _fitting(int(value) if is_bool else value, dtype)
            case CompoundArgument(kind=kind):
                label = f"the argument {name} of the kernel {kernel}"
                numbers = flattened(kind, value, label, where)
                if isinstance(kind, MatrixType) and argument.is_array:
                    arrays[name] = np.array(numbers, kind.dtype.numpy).reshape(kind.shape)
                    continue
                scalars.update(zip((n for n, _ in members_of(kind, name)), numbers, strict=True))
    return arrays, scalars


def _fitting(value: Any, dtype: DType | None) -> Any:
    """Returns a number with the bits of its type, as C converts it: 255 is -1 as an i8."""
    if dtype is None or not dtype.is_integer or not isinstance(value, int | np.integer):
        return value
    return value if dtype.holds(int(value)) else wrapped(int(value), dtype)


def completed(
    instance: Instance, arrays: dict[str, Any], scalars: dict[str, Any], where: Location
) -> KernelCall:
    """Returns the call of an instance, with all parameters: the arguments given, and the hidden ones.

    Hidden parameters are fields of the program, arrays for results, gradients of arguments, the seed of random numbers, and
    addresses of arrays.
    """
    gradients = instance.hidden.bound_gradients(arrays, where)
    arrays = {name: with_bytes(x) for name, x in arrays.items()} | gradients
    arrays.update((name, field.storage) for name, field in instance.fields)
    arrays.update(instance.views)
    if instance.results is not None:
        arrays.update(instance.results.allocated())
    if instance.hidden.draws:
        scalars[SEED] = _next_seed()
    scalars.update(instance.hidden.bound())
    return KernelCall(instance, arrays, scalars, where)


def _next_seed() -> int:
    """Returns a seed, from the program's seed and the number of earlier calls that draw random numbers."""
    program = current_program()
    start = 0 if program is None else program.config.random_seed
    return (start * GOLDEN + next(_numbers if program is None else program.draws)) & ((1 << 64) - 1)
