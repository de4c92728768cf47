"""Arrays of truth values, which are arrays of bytes (0 and 1) in the IR."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def is_truth_array(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype == np.bool_


def with_bytes(x: Any) -> Any:
    """Returns an array of truth values as a view of bytes; any other value unchanged."""
    return x.view(np.uint8) if is_truth_array(x) else x


def truths_of(x: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Returns an array of bytes as a view of truth values."""
    return x.view(np.bool_)
