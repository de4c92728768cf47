"""Timing of the NumPy function: after the first candidates, and at the end again if other work disturbed it."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..runtime.api.backend import AbstractDevice
from ..runtime.forked import over_after
from ..runtime.worker.worker import AbstractWorker
from . import stages as st
from .machine import time_reference
from .run_writer import RunWriter
from .workload import Workload

_SHARE = 0.3  # of the time limit, that it may take
_NOTE = "numpy_ns"


class NumpyTiming:
    """Time of the NumPy function to compare a result with; `ns` is None without a function or before it is timed."""

    def __init__(self, workload: Workload, writer: RunWriter, time_limit_s: float | None) -> None:
        noted = writer.notes(_NOTE)
        self.ns = float(noted[-1]) if noted else None
        self.is_disturbed = False
        self._reference = None if noted else workload.reference
        self._writer = writer
        self._limit_s = time_limit_s

    def know(self, time_ns: float | None) -> None:
        """Stores a time that was measured elsewhere: that of the user's own function."""
        if time_ns is not None:
            self.ns = time_ns
            self._writer.note(_NOTE, repr(time_ns))

    @property
    def is_due(self) -> bool:
        """True if there is a function to time, and no time of it that other work did not disturb."""
        return self._reference is not None and (self.ns is None or self.is_disturbed)

    def take(
        self, device: AbstractDevice, prepared: AbstractWorker, is_over: Callable[[], bool]
    ) -> st.NumpyTimed | None:
        """Times the function on the inputs of the worker `prepared`; None if it took too long.

        Of two times, the undisturbed one is stored, else the shorter one.
        """
        assert self._reference is not None
        is_late = over_after(math.inf if self._limit_s is None else _SHARE * self._limit_s)
        found = time_reference(device, prepared, self._reference, lambda: is_over() or is_late())
        if found is None:
            self._reference = None
            return None
        if self.ns is not None and found.is_disturbed:
            self.ns = min(self.ns, found.time_ns)
        else:
            self.ns, self.is_disturbed = found.time_ns, found.is_disturbed
        self._writer.note(_NOTE, repr(self.ns))
        return st.NumpyTimed(self.ns, found.spread, found.n_samples, found.disturbed)


def take_numpy(
    numpy: NumpyTiming,
    device: AbstractDevice,
    worker: AbstractWorker,
    is_over: Callable[[], bool],
    tell: Callable[[st.Stage], None],
) -> None:
    """Times the NumPy function and reports the time, unless it took too long or `is_over` became true."""
    told = numpy.take(device, worker, is_over)
    if told is not None:
        tell(told)
