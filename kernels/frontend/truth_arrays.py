"""Arrays of truth values, which the IR treats as bytes: 0 and 1."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def is_truth_array(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype == np.bool_


def with_bytes(x: Any) -> Any:
    """Returns a view of an array of truth values as bytes; any other value unchanged."""
    return x.view(np.uint8) if is_truth_array(x) else x


def truths_of(x: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Returns a view of the same memory as truth values."""
    return x.view(np.bool_)
