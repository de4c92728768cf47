"""Arrays in GPU memory, and those with guard zones before and behind them."""

from __future__ import annotations

import zlib
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api.backend import AbstractArray
from ..worker.verify import poison_value
from .driver import driver, enter_context

Array = NDArray[Any]

_GUARD_BYTES = 4096  # before and, at least, behind; keeps the alignment of the allocation
_GUARD = 0xA5
_DLPACK = 2, 0  # kDLCUDA, and the number of the GPU that `driver.gpu` opens


class AbstractGpuArray(AbstractArray):
    """A C-contiguous array on the GPU.

    A frozen array is compared with its earlier contents by a checksum on the host.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        enter_context()
        self._cuda = driver()
        self._shape, self._dtype = shape, np.dtype(dtype)
        self._n_bytes = int(np.prod(shape, dtype=np.int64)) * self._dtype.itemsize
        self._checksum: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dtype

    @property
    @abstractmethod
    def address(self) -> int:
        """GPU address of the first element; a multiple of 256."""

    @abstractmethod
    def free(self) -> None:
        """Frees the GPU memory immediately."""

    @property
    def lendable(self) -> tuple[int, tuple[int, int]]:
        return self.address, _DLPACK

    def upload(self, values: Array) -> None:
        assert values.shape == self._shape
        assert values.dtype == self._dtype
        self._checksum = None
        if self._n_bytes:
            self._cuda.memcpy_htod(self.address, np.ascontiguousarray(values))

    def upload_first(self, values: Array, n_first: int) -> None:
        self._checksum = None
        for address, row in self._rows(values):
            self._cuda.memcpy_htod(address, row[:n_first])

    def download_first(self, host: Array, n_first: int) -> None:
        for address, row in self._rows(host):
            self._cuda.memcpy_dtoh(row[:n_first], address)

    def download(self) -> Array:
        host = np.empty(self._shape, self._dtype)
        if self._n_bytes:
            self._cuda.memcpy_dtoh(host, self.address)
        return host

    def poison(self) -> None:
        self._checksum = None
        value = np.array(poison_value(self._dtype), self._dtype)
        if self._n_bytes == 0:
            return
        if self._dtype.itemsize == 1:
            self._cuda.memset_d8(self.address, int(value.view(np.uint8)), self._n_bytes)
        elif self._dtype.itemsize == 4:
            self._cuda.memset_d32(self.address, int(value.view(np.uint32)), self._n_bytes // 4)
        elif self._dtype.kind == "f":
            self._cuda.memset_d8(self.address, 0xFF, self._n_bytes)  # all ones is NaN
        else:
            self._cuda.memcpy_htod(self.address, np.full(self._shape, value))

    def freeze(self) -> None:
        self._checksum = self._sum()

    def trespass(self) -> str | None:
        is_changed = self._checksum is not None and self._sum() != self._checksum
        return "inside a read-only input" if is_changed else None

    def _rows(self, host: Array) -> Iterator[tuple[int, Array]]:
        """Yields the address of each row, and that row of a contiguous array on the host."""
        assert host.shape == self._shape
        assert host.dtype == self._dtype
        assert host.flags.c_contiguous  # else `reshape` copies
        for k, row in enumerate(host.reshape(-1, self._shape[-1])):
            yield self.address + k * row.nbytes, row

    def _sum(self) -> int:
        return zlib.crc32(self.download().data)


class CudaArray(AbstractGpuArray):
    """An array in GPU memory of its own, between guard zones. Raises MemoryError if it does not fit."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        super().__init__(shape, dtype)
        self._behind_bytes = _GUARD_BYTES + -self._n_bytes % 256
        try:
            self._memory = self._cuda.mem_alloc(_GUARD_BYTES + self._n_bytes + self._behind_bytes)
        except self._cuda.MemoryError as e:
            raise MemoryError(f"the GPU has no {self._n_bytes} bytes left") from e
        self._set_guards()

    @property
    def address(self) -> int:
        return int(self._memory) + _GUARD_BYTES

    def clear(self) -> None:
        """Sets all elements to zero."""
        self._checksum = None
        if self._n_bytes:
            self._cuda.memset_d8(self.address, 0, self._n_bytes)

    def poison(self) -> None:
        self._set_guards()
        super().poison()

    def trespass(self) -> str | None:
        if not self._is_guard(int(self._memory), _GUARD_BYTES):
            return "before it"
        if not self._is_guard(self.address + self._n_bytes, self._behind_bytes):
            return "behind it"
        return super().trespass()

    def free(self) -> None:
        self._memory.free()

    def _set_guards(self) -> None:
        self._cuda.memset_d8(int(self._memory), _GUARD, _GUARD_BYTES)
        self._cuda.memset_d8(self.address + self._n_bytes, _GUARD, self._behind_bytes)

    def _is_guard(self, address: int, n_bytes: int) -> bool:
        zone = np.empty(n_bytes, np.uint8)
        self._cuda.memcpy_dtoh(zone, address)
        return bool((zone == _GUARD).all())
