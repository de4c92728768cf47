"""Memory that deferred calls use: an access of Python's that meets none of it need not run them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...kernels.fields.accessed_memory import HostAccess, region
from ...kernels.ir.kernel import KernelIR
from ...kernels.ir.walk import written_in

_Call = tuple[Any, tuple[Any, ...]]  # a kernel, and its arrays, which numbers may follow


class HeldMemory:
    """Allocations that deferred calls of a window use: of the first calls, as many as `conflicts` has met."""

    def __init__(self) -> None:
        self.n_calls = 0
        self._used: set[int] = set()
        self._written: set[int] = set()

    def clear(self) -> None:
        """Forgets all calls, since they do not begin the deferred ones any more."""
        self.n_calls = 0
        self._used.clear()
        self._written.clear()

    def conflicts(self, held: Sequence[_Call], access: HostAccess) -> bool:
        """True if `access` conflicts with one of the deferred calls `held`."""
        for kernel, _ in held[self.n_calls :]:
            self._used.update(kernel.used)
            self._written.update(kernel.written)
        self.n_calls = len(held)
        return not access.regions.isdisjoint(self._used if access.writes else self._written)


def written_arrays(ir: KernelIR) -> tuple[int, ...]:
    """Returns the positions of the arrays that a kernel writes."""
    names = written_in(ir.body)
    return tuple(k for k, p in enumerate(ir.arrays) if p.name in names)


def conflicts(ir: KernelIR, arrays: Sequence[Any], access: HostAccess) -> bool:
    """True if `access` conflicts with a call of `ir` on `arrays`."""
    met = arrays if access.writes else [arrays[k] for k in written_arrays(ir)]
    return not access.regions.isdisjoint(map(region, met))
