"""Register model of GPU threads: predicts the registers of the next kernel from the space's counts and compilers' reports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from ...space.families.block_memory import REGISTER_BYTES
from ...space.values import REGISTER_ROOMS


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled kernel.

    `counted`: registers that the space counts; the other fields are the compiler's report, per
    thread.
    """

    counted: int  # registers of its sums, as the space counts them; 0: it sums nothing up
    registers: int
    spill_bytes: int  # stored where registers did not suffice

    @property
    def needed(self) -> int:
        """Registers per thread that would avoid spilling, if each spilled value is stored once."""
        return self.registers + -(-self.spill_bytes // REGISTER_BYTES)


class RegisterModel:
    """Regression of needed registers over counted registers, learned from a run's compiled kernels.

    Equal reports in any order give equal predictions. Kernels without accumulators are ignored: the
    space does not count their registers. Without reports a prediction equals the count.
    """

    def __init__(self) -> None:
        self._needed: dict[int, list[int]] = {}
        # The least share of the registers counted with which a kernel got along without spilling.
        self.least_ratio = 1.0
        self._line: tuple[float, float] | None = None
        self.n_reports = 0

    def note(self, kernels: Iterable[Compiled]) -> None:
        """Adds the reports of compiled kernels to the model."""
        for k in kernels:
            if k.counted <= 0:
                continue
            self.n_reports += 1
            self._needed.setdefault(k.counted, []).append(k.needed)
            if k.spill_bytes == 0:
                self.least_ratio = min(self.least_ratio, k.registers / k.counted)
            self._line = None

    @property
    def room(self) -> int:
        """Factor for the limit on counted registers with which no kernel is excluded that the compiler may fit.

        The reports give 1 / `least_ratio`, rounded up to a power of two, because each change begins
        another tree.
        """
        wanted = 1 / self.least_ratio
        return next((room for room in REGISTER_ROOMS if room >= wanted), REGISTER_ROOMS[-1])

    @property
    def line(self) -> tuple[float, float]:
        """(base, slope) of needed registers over counted ones; (0, 1) without reports.

        Theil's line through the medians of equal counts, which a share of outliers does not move.
        """
        if self._line is None:
            self._line = self._fit()
        return self._line

    def expected(self, counted: int) -> float:
        """Returns the expected number of registers of a thread, at least one."""
        base, slope = self.line
        return max(1.0, base + slope * counted)

    def _fit(self) -> tuple[float, float]:
        points = sorted((counted, median(needed)) for counted, needed in self._needed.items())
        if not points:
            return 0.0, 1.0
        slopes = [(v - u) / (b - a) for (a, u), (b, v) in combinations(points, 2)]
        slope = max(0.0, median(slopes)) if slopes else 1.0
        return median(u - slope * a for a, u in points), slope
