"""Reserved ranges of GPU addresses, whose pages get memory one by one: the virtual memory calls of the driver.

PyCUDA has none of these calls. CUDA Driver API, "Virtual Memory Management".
"""

from __future__ import annotations

import ctypes
from typing import Any

_DEVICE = 1  # CU_MEM_LOCATION_TYPE_DEVICE
_PINNED = 1  # CU_MEM_ALLOCATION_TYPE_PINNED
_READ_WRITE = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE
_MINIMUM = 0  # CU_MEM_ALLOC_GRANULARITY_MINIMUM
_SUPPORTED = 102  # CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED


class _Location(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("number", ctypes.c_int)]


class _Properties(ctypes.Structure):
    """CUmemAllocationProp, which ends with eight bytes of flags."""

    _fields_ = [
        ("kind", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("windows_data", ctypes.c_void_p),
        ("flags", ctypes.c_uint8 * 8),
    ]


class _Access(ctypes.Structure):
    _fields_ = [("location", _Location), ("flags", ctypes.c_int)]


def is_supported(cuda: Any, number: int = 0) -> bool:
    """True if the driver `cuda`, a library, has virtual memory calls for the GPU of this number."""
    found = ctypes.c_int(0)
    try:
        status = cuda.cuDeviceGetAttribute(ctypes.byref(found), _SUPPORTED, number)
    except AttributeError:  # a library without it
        return False
    return status == 0 and found.value != 0


class ReservedMemory:
    """A range of at least `n_bytes` addresses of a GPU. Pages that are mapped stay until `close`.

    Raises MemoryError if the driver has no such range.
    """

    def __init__(self, cuda: Any, n_bytes: int, number: int = 0) -> None:
        self._cuda = cuda
        where = _Location(_DEVICE, number)
        self._properties = _Properties(kind=_PINNED, location=where)
        self._access = _Access(where, _READ_WRITE)
        page = ctypes.c_size_t(0)
        self._check(
            cuda.cuMemGetAllocationGranularity(
                ctypes.byref(page), ctypes.byref(self._properties), _MINIMUM
            ),
            "has no virtual memory",
        )
        self.page_bytes = page.value
        self.n_bytes = -(-max(n_bytes, 1) // self.page_bytes) * self.page_bytes
        self._mapped: dict[int, int] = {}  # end of each mapping, by begin; in bytes from the first
        address = ctypes.c_uint64(0)
        nothing = ctypes.c_uint64(0)
        self._check(
            cuda.cuMemAddressReserve(
                ctypes.byref(address),
                ctypes.c_size_t(self.n_bytes),
                ctypes.c_size_t(0),
                nothing,
                ctypes.c_uint64(0),
            ),
            f"has no {self.n_bytes} addresses left",
        )
        self.address = address.value

    @property
    def mapped_bytes(self) -> int:
        """Bytes of the pages that have memory."""
        return sum(end - begin for begin, end in self._mapped.items())

    def map(self, parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Gives memory to all pages of some parts, each from a byte to another one; returns the parts that are new.

        Raises MemoryError if there is too little; then no part is new.
        """
        new: list[tuple[int, int]] = []
        try:
            for begin, end in parts:
                for gap in self._gaps(begin, end):
                    self._map(*gap)
                    new.append(gap)
        except MemoryError:
            for gap in new:
                self._unmap(*gap)
            raise
        return new

    def close(self) -> None:
        """Frees pages and addresses; they must not be used afterwards."""
        for begin, end in list(self._mapped.items()):
            self._unmap(begin, end)
        self._cuda.cuMemAddressFree(ctypes.c_uint64(self.address), ctypes.c_size_t(self.n_bytes))

    def _gaps(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Returns the ranges of whole pages of a part that have no memory."""
        at = begin // self.page_bytes * self.page_bytes
        last = -(-end // self.page_bytes) * self.page_bytes
        gaps = []
        for first, behind in sorted(self._mapped.items()):
            if behind <= at or first >= last:
                continue
            if at < first:
                gaps.append((at, first))
            at = behind
        if at < last:
            gaps.append((at, last))
        return gaps

    def _map(self, begin: int, end: int) -> None:
        cuda, n_bytes = self._cuda, ctypes.c_size_t(end - begin)
        address, handle = ctypes.c_uint64(self.address + begin), ctypes.c_uint64(0)
        refusal = f"has no {end - begin} bytes left"
        made = cuda.cuMemCreate(
            ctypes.byref(handle), n_bytes, ctypes.byref(self._properties), ctypes.c_uint64(0)
        )
        self._check(made, refusal)
        mapped = cuda.cuMemMap(address, n_bytes, ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
        cuda.cuMemRelease(handle)  # a mapping keeps its memory
        self._check(mapped, refusal)
        self._mapped[begin] = end
        allowed = cuda.cuMemSetAccess(
            address, n_bytes, ctypes.byref(self._access), ctypes.c_size_t(1)
        )
        if allowed != 0:
            self._unmap(begin, end)
        self._check(allowed, refusal)

    def _unmap(self, begin: int, end: int) -> None:
        del self._mapped[begin]
        self._cuda.cuMemUnmap(ctypes.c_uint64(self.address + begin), ctypes.c_size_t(end - begin))

    def _check(self, status: int, refusal: str) -> None:
        if status != 0:
            said = ctypes.c_char_p()
            self._cuda.cuGetErrorString(status, ctypes.byref(said))
            words = (said.value or b"").decode() or f"error {status}"
            raise MemoryError(f"the GPU {refusal}: {words}")
