"""Arguments of tuned functions: checks that NumPy arrays have the required dtype, shape and memory layout."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels.fields.dlpack import way_out

Array = NDArray[Any]


def fitting_array(
    name: str,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    value: object,
    *,
    takes_views: bool = False,
) -> Array:
    """Returns the argument `name` as a plain NumPy array.

    Raises TypeError unless it has the given dtype and shape, is aligned, and is C-contiguous (or `takes_views`).
    """
    if not isinstance(value, np.ndarray):
        kind = type(value).__name__
        raise TypeError(f"argument {name} must be a NumPy array, not {kind}{way_out(value)}")
    if type(value) is not np.ndarray:
        if not isinstance(value, np.memmap):
            # A mask or a unit would be lost without a word.
            raise TypeError(
                f"argument {name} is a {type(value).__name__}, of which only the data would be used:"
                f" pass np.asarray({name})"
            )
        value = value.view(np.ndarray)
    if value.dtype != dtype or value.shape != shape:
        raise TypeError(
            f"argument {name} must be {dtype} of shape {shape},"
            f" not {value.dtype} of shape {value.shape}"
        )
    if not takes_views and not value.flags.c_contiguous:
        raise TypeError(f"argument {name} must be C-contiguous")
    if not value.flags.aligned:
        raise TypeError(
            f"argument {name} must begin at a multiple of the {dtype.itemsize} bytes of an element:"
            " pass a copy"
        )
    return value
