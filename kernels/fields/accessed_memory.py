"""Memory of fields that Python accesses, and the allocations that it lies in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .caller_location import caller


class AbstractMemory(Protocol):
    """Memory that kernels and Python use: that of a field, or of a tree of sparse fields."""

    @property
    def label(self) -> str:
        """The name in messages."""

    def arrays(self) -> Iterable[NDArray[Any]]:
        """Returns the arrays in the memory."""


@dataclass(frozen=True)
class HostAccess:
    """Access of Python's to some memory; `writes`: Python changes it."""

    memory: AbstractMemory
    writes: bool

    @cached_property
    def regions(self) -> frozenset[int]:
        """The allocations that the memory is in."""
        return frozenset(map(region, self.memory.arrays()))

    @property
    def says(self) -> str:
        """The access in words, with the line of the program."""
        return f"Python {'writes' if self.writes else 'reads'} {self.memory.label}, {caller()}"


def region(array: NDArray[Any]) -> int:
    """Returns the identity of the allocation that an array is in. Arrays of different allocations share no memory."""
    return id(allocation(array))


def allocation(array: NDArray[Any]) -> NDArray[Any]:
    """Returns the array that owns the memory of `array`, which may be a view."""
    base = array.base
    while isinstance(base, np.ndarray):
        array, base = base, base.base
    return array
