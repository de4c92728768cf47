"""Register model of a GPU's threads: relates compilers' reports to the counts of the space, and predicts the next kernel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from ...space.families.block_memory import REGISTER_BYTES
from ...space.values import REGISTER_ROOMS


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled kernel. All fields but `counted` are the compiler's report, per thread."""

    counted: int  # registers of its sums, as the space counts them; 0: it sums nothing up
    registers: int
    spill_bytes: int  # stored where registers did not suffice

    @property
    def needed(self) -> int:
        """The registers without any spill, if each spilled value is stored once."""
        return self.registers + -(-self.spill_bytes // REGISTER_BYTES)


class RegisterModel:
    """Regression of registers needed on registers counted, learned from the kernels of a run.

    Equal reports in any order give equal predictions. Kernels without sums are ignored: the space does not count their registers.
    Without reports a prediction equals the count.
    """

    def __init__(self) -> None:
        self._needed: dict[int, list[int]] = {}
        # The least share of the registers counted with which a kernel got along without spilling.
        self.least_ratio = 1.0
        self._line: tuple[float, float] | None = None
        self.n_reports = 0

    def note(self, kernels: Iterable[Compiled]) -> None:
        """Learns from compiled kernels."""
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
        """The factor by which the available registers may be counted, so that no kernel is cut that the compiler may fit.

        The reports give 1 / `least_ratio`, doubled up from 1, because each step begins another tree.
        """
        wanted = 1 / self.least_ratio
        return next((room for room in REGISTER_ROOMS if room >= wanted), REGISTER_ROOMS[-1])

    @property
    def line(self) -> tuple[float, float]:
        """(base, slope) of registers needed over registers counted; (0, 1) without reports.

        Theil's line through the medians of equal counts, which a share of wild reports does not move.
        """
        if self._line is None:
            self._line = self._fit()
        return self._line

    def expected(self, counted: int) -> float:
        """The expected number of registers of a thread, from the reports; at least one."""
        base, slope = self.line
        return max(1.0, base + slope * counted)

    def _fit(self) -> tuple[float, float]:
        points = sorted((counted, median(needed)) for counted, needed in self._needed.items())
        if not points:
            return 0.0, 1.0
        slopes = [(v - u) / (b - a) for (a, u), (b, v) in combinations(points, 2)]
        slope = max(0.0, median(slopes)) if slopes else 1.0
        return median(u - slope * a for a, u in points), slope
