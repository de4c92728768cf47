"""Interface of executors that defer calls of a program, until code is compiled or a sequence is whole."""

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


class AbstractFollower(Protocol):
    """Executor of a program's calls as fields use it.

    `waits`: it holds deferred calls. `ks.init` creates it.
    """

    @property
    def waits(self) -> bool: ...

    def outdate(self) -> None:
        """Drops the sequence that ran last: its fields may be freed, or shared with other libraries."""

    def release(self) -> None:
        """Runs the deferred calls in order."""

    def release_for(self, access: HostAccess) -> None:
        """Runs deferred calls in order, until `access` conflicts with none that is left."""

    def end(self) -> None:
        """Completes the deferred calls at the end of the program.

        It warns of explored sequences that never occurred.
        """
