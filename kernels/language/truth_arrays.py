"""Arrays of truth values, which are bytes to the IR: 0 and 1."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def is_truth_array(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype == np.bool_


def with_bytes(x: Any) -> Any:
    """The same memory as bytes, of an array of truth values; anything else as it is."""
    return x.view(np.uint8) if is_truth_array(x) else x


def truths_of(x: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """The same memory as truth values."""
    return x.view(np.bool_)
