"""Arrays in GPU memory whose rows fill up from the front: pages get memory when they are needed, the address stays."""

from __future__ import annotations

import weakref
from functools import cache
from typing import Any

import numpy as np

from .driver import enter_context, library
from .memory import AbstractGpuArray, Array
from .reserved import ReservedMemory, is_supported


@cache
def has_virtual_memory() -> bool:
    """True if the first GPU maps pages of reserved addresses."""
    enter_context()
    return is_supported(library())


class GrowingArray(AbstractGpuArray):
    """An array of zeros without guard zones. Raises MemoryError if there are too few addresses.

    Only elements that `hold` was called for may be used.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        super().__init__(shape, dtype)
        self._reserved = ReservedMemory(library(), self._n_bytes)
        # Its calls need no context. Not at the end of the process: the driver may have ended before.
        self._close = weakref.finalize(self, self._reserved.close)
        self._close.atexit = False

    @property
    def address(self) -> int:
        return self._reserved.address

    def hold(self, n_first: int) -> None:
        row_bytes = self._shape[-1] * self._dtype.itemsize
        held_bytes = min(n_first, self._shape[-1]) * self._dtype.itemsize
        if not held_bytes:
            return
        begins = range(0, self._n_bytes, row_bytes)
        for begin, end in self._reserved.map([(k, k + held_bytes) for k in begins]):
            self._cuda.memset_d8(self.address + begin, 0, end - begin)

    def upload(self, values: Array) -> None:
        self.hold(self._shape[-1])
        super().upload(values)

    def download(self) -> Array:
        self.hold(self._shape[-1])
        return super().download()

    def poison(self) -> None:
        self.hold(self._shape[-1])
        super().poison()

    def free(self) -> None:
        self._close()
