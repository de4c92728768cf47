"""What the GPU table asks of a library: its BLAS, its arrays in the GPU's memory, and time by events on its stream."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from .blas_calls import AbstractBlas

CALLS_A_GRAPH = 32  # as in runtime/cuda: the host cannot launch kernels of microseconds one by one


class AbstractGpuLibrary(AbstractBlas):
    """One library on the first GPU."""

    @abstractmethod
    def place(self, values: np.ndarray[Any, Any]) -> Any:
        """A copy in the GPU's memory."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until everything is done."""

    @abstractmethod
    def clock(self, call: Callable[[], None]) -> Callable[[int], float]:
        """A function that makes n calls, or as many as fill whole graphs, and gives the nanoseconds of n on the GPU, by events."""
