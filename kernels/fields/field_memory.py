"""Allocation of fields' memory: zero-initialised, aligned to 64 bytes, on huge pages if large."""

from __future__ import annotations

import itertools
import math
import mmap

import numpy as np
from numpy.typing import NDArray

from ..ir.kernel import DType

LINE = 64  # bytes: one cache line and one full vector
_HUGE = 2 << 20
# Fields that all began at the same place of a page would compete for the same cache sets, and loads would wait for unrelated stores
# whose addresses agree in the low 12 bits: large ones begin a different number of lines behind it.
_STAGGERS = itertools.cycle(range(0, 32 * LINE, LINE))


def zeros(shape: tuple[int, ...], dtype: DType) -> NDArray[np.generic]:
    """Returns an array of zeros in C order. MemoryError if the system has no memory for it.

    Pages that are never written cost no memory.
    """
    n_bytes = math.prod(shape) * dtype.size_bytes
    if n_bytes < _HUGE:
        raw = np.zeros(n_bytes + LINE, np.uint8)
        start = -raw.ctypes.data % LINE
    else:
        try:
            pages = mmap.mmap(-1, n_bytes + 2 * _HUGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError) as error:
            raise MemoryError(f"{n_bytes} bytes: {error}") from None
        if hasattr(mmap, "MADV_HUGEPAGE"):
            pages.madvise(mmap.MADV_HUGEPAGE)
        raw = np.frombuffer(pages, np.uint8)  # keeps the mapping alive
        start = -raw.ctypes.data % _HUGE + next(_STAGGERS)
    return raw[start : start + n_bytes].view(dtype.numpy).reshape(shape)
