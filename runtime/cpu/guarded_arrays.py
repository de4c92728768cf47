"""Arrays between guard zones, on huge pages if they are large.

Layout of one mapping, addresses rising:

    unreadable | guard bytes | contents | guard bytes | unreadable

A write just outside changes the guard bytes and is found afterwards. One farther away faults at once.
"""

from __future__ import annotations

import ctypes
import math
import os
import weakref
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import count
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels.ir.kernel import DType
from ..api.backend import AbstractArray
from ..worker.verify import poison_value

_PAGE = os.sysconf("SC_PAGESIZE")
_HUGE = 2 << 20
_HUGE_FROM_BYTES = 4 << 20  # below, the rounding to 2 MiB costs more than it gives
_LINE = 64  # bytes: one cache line and one full vector
_GUARD = 0xA5
# NumPy's arrays are those of malloc: behind a header of 16 bytes, from this size on at the beginning of a mapping (glibc's
# M_MMAP_THRESHOLD).
_HEAP_BYTES = 16
_MAPPED_FROM_BYTES = 128 << 10
_PROT_NONE, _PROT_READ, _PROT_READ_WRITE = 0, 1, 3


_MARGIN = 16 << 20  # addresses only, no memory
_MAP_PRIVATE, _MAP_ANONYMOUS, _MAP_NORESERVE = 0x02, 0x20, 0x4000
_MADV_HUGEPAGE = 14


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    sizes = ctypes.c_void_p, ctypes.c_size_t
    libc.mmap.argtypes = [*sizes, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.mmap.restype = ctypes.c_void_p
    libc.munmap.argtypes = [*sizes]
    libc.mprotect.argtypes = [*sizes, ctypes.c_int]
    libc.madvise.argtypes = [*sizes, ctypes.c_int]
    return libc


def _told(name: str, first: int, end: int) -> bool:
    """Calls function `name` of the fault handler (timer.c) on an address range; False if it is missing or refuses."""
    tell = getattr(_libc(), name, None)
    return tell is not None and bool(tell(ctypes.c_void_p(first), ctypes.c_void_p(end)))


def _unmap(outer: int, outer_bytes: int) -> None:
    _told("ks_unforgive", outer, outer + outer_bytes)
    _libc().munmap(outer, outer_bytes)


class CpuArray(AbstractArray):
    """A C-contiguous array of zeros at a 64-byte aligned address of this process, between guard zones.

    A page gets memory at its first use.

    `stagger` shifts the start by that many cache lines. Arrays that all begin at the same offset in a page would compete for the
    same cache sets. Loads would also wait for unrelated stores whose addresses agree in the low 12 bits.

    `as_numpy` uses the placement of NumPy's arrays instead: 16 bytes after the start of a line; large ones all at the same
    offset in a page, whatever the stagger. `border`: number of the element at which a page begins, for `keep`.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        stagger: int = 0,
        as_numpy: bool = False,
        border: int | None = None,
    ) -> None:
        self._shape, self._dtype = shape, np.dtype(dtype)
        n_bytes = int(np.prod(shape, dtype=np.int64)) * self._dtype.itemsize
        alignment = _HUGE if n_bytes >= _HUGE_FROM_BYTES else _PAGE
        front = _PAGE + (stagger * 64) % _PAGE
        if as_numpy:
            front = _HEAP_BYTES + (_PAGE if n_bytes >= _MAPPED_FROM_BYTES else front)
        if border is not None:
            front = _PAGE + -border * self._dtype.itemsize % _PAGE
        self._inner_bytes = _round_up(front + n_bytes + 64, _PAGE)
        outer_bytes = self._inner_bytes + alignment + 2 * _MARGIN
        flags = _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_NORESERVE
        outer = _libc().mmap(None, outer_bytes, _PROT_NONE, flags, -1, 0)
        if outer == ctypes.c_void_p(-1).value:
            raise MemoryError(f"{n_bytes} bytes could not be mapped")
        self._address = _round_up(outer + _MARGIN, alignment)
        raw = (ctypes.c_uint8 * self._inner_bytes).from_address(self._address)
        # NumPy views keep `raw` alive, and the mapping with it.
        weakref.finalize(raw, _unmap, outer, outer_bytes).atexit = False
        self._protect(_PROT_READ_WRITE)
        if alignment == _HUGE:
            # Refused: small pages, slower to touch, nothing else.
            _libc().madvise(self._address, self._inner_bytes, _MADV_HUGEPAGE)
        inner = np.frombuffer(memoryview(raw), np.uint8)
        self._before, self._behind = inner[:front], inner[front + n_bytes :]
        self._contents = inner[front : front + n_bytes]
        self._before[:] = _GUARD
        self._behind[:] = _GUARD
        self.host: NDArray[Any] = self._contents.view(self._dtype).reshape(shape)
        self._is_frozen = False
        self.kept_bytes = 0  # at the beginning of each row

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dtype

    @property
    def span(self) -> tuple[int, int]:
        """Address range of the contents: first address, and last plus one."""
        first = self._contents.ctypes.data
        return first, first + self._contents.nbytes

    def upload(self, values: NDArray[Any]) -> None:
        self._thaw()
        np.copyto(self.host, values, casting="no")

    def upload_first(self, values: NDArray[Any], n_first: int) -> None:
        self._thaw()
        self.host[..., :n_first] = values[..., :n_first]

    def download(self) -> NDArray[Any]:
        return self.host

    def poison(self) -> None:
        self._thaw()
        self.host.fill(poison_value(self._dtype))
        self._before[:] = _GUARD
        self._behind[:] = _GUARD

    def freeze(self) -> None:
        self._protect(_PROT_READ)
        self._is_frozen = True

    def keep(self, n_first: int) -> bool:
        self.kept_bytes = n_first * self._dtype.itemsize
        first, end = self.span
        for begin in range(first, end, self.row_bytes) if self.row_bytes else ():
            page = begin // _PAGE * _PAGE
            border = (begin + self.kept_bytes) // _PAGE * _PAGE
            # The end of the row before may be on a row's first page: a handler of faults gives that up then, or it stays free.
            if first < begin and page < border and not _told("ks_forgive", page, begin):
                page = _round_up(begin, _PAGE)
            n_bytes = border - page
            if n_bytes > 0 and _libc().mprotect(page, n_bytes, _PROT_READ) != 0:
                raise MemoryError(f"{n_bytes} bytes could not be protected")
        return True

    @property
    def row_bytes(self) -> int:
        """Bytes of a row along the last axis."""
        return self._dtype.itemsize * (self._shape[-1] if self._shape else 1)

    def trespass(self) -> str | None:
        if self._is_frozen:
            return None
        if not (self._before == _GUARD).all():
            return "before it"
        return None if (self._behind == _GUARD).all() else "behind it"

    def _thaw(self) -> None:
        if self._is_frozen or self.kept_bytes:
            self._protect(_PROT_READ_WRITE)
            self._is_frozen, self.kept_bytes = False, 0

    def _protect(self, protection: int) -> None:
        if _libc().mprotect(self._address, self._inner_bytes, protection) != 0:
            raise MemoryError(f"{self._inner_bytes} bytes could not be allocated")


_made = count(1)


def empty(shape: int | Sequence[int], dtype: Any = np.float64) -> NDArray[Any]:
    """Returns a NumPy array with arbitrary contents, aligned as tuned code assumes.

    It begins at a multiple of 64 bytes, where `np.empty` promises 16. Large arrays are on huge pages. `dtype` may be one of
    `ks.f32` and so on.

    Raises MemoryError, and ValueError or TypeError as `np.empty` does.
    """
    element = dtype.numpy if isinstance(dtype, DType) else np.dtype(dtype)
    if element.kind not in "biufc":
        raise TypeError(f"ks.empty makes arrays of numbers, not of {element}")
    extents = tuple(map(index, shape if isinstance(shape, Iterable) else (shape,)))
    if min(extents, default=0) < 0:
        raise ValueError(f"ks.empty cannot make an array of shape {extents}")
    n_bytes = math.prod(extents) * element.itemsize
    if n_bytes >= _HUGE_FROM_BYTES:
        return CpuArray(extents, element, stagger=17 * next(_made)).host
    raw = np.empty(n_bytes + _LINE, np.uint8)
    begin = -address_of(raw) % _LINE
    return raw[begin : begin + n_bytes].view(element).reshape(extents)


def in_memory(dtype: DType, value: object) -> NDArray[Any]:
    """Returns a scalar argument as the zero-dimensional array that generated code reads.

    A truth value becomes a C int (SCALAR_TYPES of codegen/text/types.py), a number keeps its own type.
    """
    return np.array(value, np.int32 if dtype is DType.bool_ else dtype.numpy)


def address_of(array: NDArray[Any]) -> int:
    """Returns the address of a contiguous array, for writable ones in a third of the time of `array.ctypes`."""
    if array.size and array.flags.writeable:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type]
    return array.ctypes.data


def _round_up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple
