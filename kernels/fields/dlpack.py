"""Memory of other libraries as NumPy arrays, by DLPack: tensors of PyTorch on the CPU, arrays of JAX, of CuPy's host."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..ir.errors import ProgramTypeError, ProgramValueError
from .caller_location import fail
from .field import AbstractField
from .ndarray import Ndarray


def hands_out(x: Any) -> bool:
    """True if an object exports its memory by DLPack, and is neither a NumPy array nor a field."""
    known = isinstance(x, np.ndarray | np.generic | Ndarray | AbstractField)
    return not known and hasattr(type(x), "__dlpack__")


def shared_array(source: Any) -> NDArray[Any]:
    """Returns a NumPy array that shares the memory of `source`. LanguageError if that is on another device.

    Before version 1.0 the protocol does not tell if the memory is writable, and NumPy then treats it as read-only. PyTorch tensors
    are therefore converted by a method of their own.
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
    """Returns an ndarray that shares the memory of a tensor of torch or JAX, or of a NumPy array, by DLPack."""
    array = shared_array(source)
    if not array.flags.c_contiguous or not array.flags.writeable:
        fail(
            "from_dlpack takes memory in C order that may be written: pass a copy",
            ProgramValueError,
        )
    return Ndarray.of_array(array)


def way_out(value: object) -> str:
    """Returns the end of a message on a value that is no array: how to make an array of it; "" if unknown."""
    if callable(getattr(value, "to_numpy", None)):
        return ": pass its to_numpy()"
    return ": pass np.array of it" if isinstance(value, (list, tuple, range)) else ""
