"""Window of a program on a device: deferred calls, which run as a whole before Python uses what they change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.fields.accessed_memory import HostAccess, region
from ..kernels.ir.kernel import KernelIR
from ..runtime.api.backend import (
    AbstractArray,
    AbstractRunner,
    AbstractWindows,
    RunError,
    WindowCall,
)
from ..runtime.by_identity import ByIdentity
from .device_kernels import DeviceKernel

Array = NDArray[Any]


class DeviceWindow:
    """Deferred calls of kernels, whose arrays are on the device; at most `limit`, 0 for none."""

    def __init__(self, runner: AbstractRunner, limit: int) -> None:
        self._runner, self._limit = runner, limit
        self._windows: AbstractWindows = runner.windows()
        self._held: list[tuple[DeviceKernel, WindowCall]] = []
        self._used: set[int] = set()
        self._written: set[int] = set()
        self._forget_failed()

    @property
    def kernels(self) -> list[str]:
        """The names of the kernels of the deferred calls."""
        return [kernel.ir.name for kernel, _ in self._held]

    @property
    def is_empty(self) -> bool:
        return not self._held

    @property
    def defers(self) -> bool:
        """True if any call may be deferred."""
        return self._limit > 0

    @property
    def is_full(self) -> bool:
        """True if no further call may be deferred."""
        return len(self._held) >= self._limit

    def add(
        self,
        kernel: DeviceKernel,
        arrays: Sequence[Array],
        there: Sequence[AbstractArray],
        numbers: Sequence[Any],
    ) -> None:
        """Defers a call; `there`: the arrays on the device."""
        if kernel.module is None:
            return
        values = kernel.values(there, numbers, self._assertions(kernel))
        self._held.append((kernel, WindowCall(kernel.module, values)))
        for p, array in zip(kernel.ir.arrays, arrays, strict=True):
            self._used.add(region(array))
            if p.name in kernel.written:
                self._written.add(region(array))

    def conflicts(self, access: HostAccess) -> bool:
        """True if a deferred call writes what Python accesses, or uses what it writes."""
        return not access.regions.isdisjoint(self._used if access.writes else self._written)

    def run(self) -> None:
        """Runs the deferred calls. Raises RunError, and KernelAssertionError of the first kernel with a failed assertion."""
        held = self._held
        self.drop()
        if not held:
            return
        try:
            self._windows.run([call for _, call in held])
        except RunError:
            self._forget_failed()  # they may be set, and would be told of a later window
            raise
        told = []
        for kernel in dict.fromkeys(kernel for kernel, _ in held):
            device = self._assertions(kernel)
            if device is not None:
                failed = np.array(device.download())
                told.append((kernel, failed))
                if failed.any():
                    device.upload(np.zeros_like(failed))
        for kernel, failed in told:
            kernel.check(failed)

    def drop(self) -> None:
        """Forgets the deferred calls."""
        self._held = []
        self._used.clear()
        self._written.clear()

    def close(self) -> None:
        """Forgets the deferred calls, and frees what was kept for windows that come again."""
        self.drop()
        self._forget_failed()
        self._windows.close()

    def _forget_failed(self) -> None:
        # Of a kernel, for it alone: on the device, all 0 unless an assertion has failed.
        self._failed = ByIdentity[KernelIR, AbstractArray]()

    def _assertions(self, kernel: DeviceKernel) -> AbstractArray | None:
        """Returns the array in which a kernel sets its failed assertions; None if it has no assertions."""
        if not kernel.assertions:
            return None
        made = self._failed.get(kernel.ir)
        if made is None:
            zeros = np.zeros(len(kernel.assertions), np.int32)
            made = self._runner.allocate(zeros.shape, zeros.dtype)
            made.upload(zeros)
            self._failed.setdefault(kernel.ir, made)
        return made
