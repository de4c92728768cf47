"""Memory arena of a tree of sparse fields: all its arrays in one reserved range of addresses."""

from __future__ import annotations

import mmap
import platform
import sys
from collections.abc import Collection
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..sparse.layout import Section
from .field_memory import LINE

Array = NDArray[Any]
_PAGE = 4096
_HUGE_PAGE = 1 << 21
# Leaves begin at multiples of their size: pools that all began at one place of a page would compete for the same cache sets, and
# loads would wait for unrelated stores (memory.py). A 7-point stencil on leaves of 8^3, two fields, ns a cell: 0.68 at one place,
# 0.56 a line further on, 0.45 so many lines further on.
_STAGGER = 17 * LINE
# Without it Linux refuses more than there is memory. Python has the name from 3.13 on; the number is that of x86 and ARM.
_NUMBER = 0x4000 if platform.machine() in ("x86_64", "aarch64") and sys.platform == "linux" else 0
_NO_RESERVE: int = getattr(mmap, "MAP_NORESERVE", _NUMBER)


class Arena:
    """Zero-initialised arrays (sections) in one reserved address range; a page gets memory at its first write.

    `dense`: names of sections of pools, which fill up from the front. They are on huge pages where the machine has them, each at
    another offset in its first page.
    """

    def __init__(self, sections: dict[str, Section], dense: Collection[str] = ()) -> None:
        pages, behind, end = {}, dict.fromkeys(sections, 0), 0
        for k, key in enumerate(key for key in sections if key in dense):
            behind[key] = k * _STAGGER % _PAGE
        for key, s in sections.items():
            page = _HUGE_PAGE if key in dense and s.n_bytes >= 2 * _HUGE_PAGE else _PAGE
            pages[key] = end = -(-end // page) * page
            end += -(-max(behind[key] + s.n_bytes, 1) // page) * page
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
        try:
            memory = mmap.mmap(-1, end, flags)
            raw = np.frombuffer(memory, np.uint8)
        except (OSError, OverflowError) as error:
            raise MemoryError(f"{end} bytes: {error}") from None
        for key in dense if hasattr(mmap, "MADV_HUGEPAGE") else ():
            with suppress(OSError):  # a kernel without them
                n_bytes = behind[key] + sections[key].n_bytes
                memory.madvise(mmap.MADV_HUGEPAGE, pages[key], n_bytes)
        self.arrays: dict[str, Array] = {
            key: raw[begin : begin + s.n_bytes].view(s.dtype.numpy).reshape(s.shape)
            for key, s in sections.items()
            for begin in (pages[key] + behind[key],)
        }
