"""Arrays of a kernel sequence: names, types, shapes and roles."""

from __future__ import annotations

from dataclasses import dataclass

from .kernel import DType


@dataclass(frozen=True)
class ArrayInfo:
    """Array of a kernel sequence: name, element type, shape, and role.

    `role` determines whether the contents outlive the sequence: those of temporaries do not.
    """

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
