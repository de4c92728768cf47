"""Memory of other libraries as arrays of NumPy, by DLPack: tensors of PyTorch on the CPU, arrays of JAX or CuPy's host memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..ir.errors import ProgramTypeError, ProgramValueError
from .caller_location import fail
from .field import AbstractField
from .ndarray import Ndarray


def hands_out(x: Any) -> bool:
    """Whether an argument is memory of another library: not of NumPy, and no field."""
    known = isinstance(x, np.ndarray | np.generic | Ndarray | AbstractField)
    return not known and hasattr(type(x), "__dlpack__")


def shared_array(source: Any) -> NDArray[Any]:
    """The memory that an object hands out. LanguageError where that is none of this machine's.

    Before version 1.0 the protocol does not say whether it may be written, and NumPy then takes it for read-only: tensors of
    PyTorch have a way of their own.
    """
    try:
        if type(source).__module__.partition(".")[0] == "torch":
            shared: NDArray[Any] = source.detach().numpy()
            return shared
        return np.from_dlpack(source)
    except (AttributeError, BufferError, TypeError, RuntimeError, ValueError) as error:
        return fail(
            f"{type(source).__name__} hands out no memory of this machine by DLPack: {error}",
            ProgramTypeError,
        )


def from_dlpack(source: Any) -> Ndarray:
    """An ndarray that shares the memory of what hands it out by DLPack: a tensor of torch or JAX, an array of NumPy."""
    array = shared_array(source)
    if not array.flags.c_contiguous or not array.flags.writeable:
        fail(
            "from_dlpack takes memory in C order that may be written: pass a copy",
            ProgramValueError,
        )
    return Ndarray.of_array(array)
