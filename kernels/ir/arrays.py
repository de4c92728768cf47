"""Arrays of a sequence."""

from __future__ import annotations

from dataclasses import dataclass

from .kernel import DType


@dataclass(frozen=True)
class ArrayInfo:
    """An array of the sequence. `role` says what outlives the sequence: temporaries do not."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    role: str  # "input" (only read), "output" (written before any read), "inout", "temp"

    @property
    def size_bytes(self) -> int:
        n = 1
        for extent in self.shape:
            n *= extent
        return n * self.dtype.size_bytes
