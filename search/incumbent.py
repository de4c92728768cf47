"""Incumbent of the search: the best measured implementation, its cut and gap, and the validity of the bound."""

from __future__ import annotations

import bisect
import math

from .events import Ranked

# After a measurement below its bound nothing is claimed any more. Bounds still prune, scaled by this factor times the ratio
# of the measurement to its bound.
DOUBTED = 0.5


class BoundScale:
    """Common factor in (0, 1] on every bound.

    Callers lower it if the machine turns out faster than calibrated; a search lowers it after a
    time below its bound. Bounds are stored as computed and multiplied when read, so lowering the
    factor weakens every claim at once.
    """

    def __init__(self, factor: float = 1.0) -> None:
        self._factor = 1.0
        self.lower(factor)

    @property
    def factor(self) -> float:
        return self._factor

    def lower(self, factor: float) -> None:
        """Sets the factor, which never rises. Raises ValueError outside (0, current factor]."""
        if not 0 < factor <= self._factor:
            raise ValueError(f"a bound scale of {factor} is not in (0, {self._factor}]")
        self._factor = factor


class Incumbent:
    """Best outcome so far, and the `n_top` best distinct implementations.

    The cut is the best time, times (1 - `cut_gap`); without `prune` it stays infinite. After an
    alarm the gap is None. Times that are ratios to a control are ranked, but give neither cut nor
    gap.
    """

    def __init__(self, *, cut_gap: float = 0.0, prune: bool = True, n_top: int = 8) -> None:
        self._cut_gap = cut_gap
        self._prune = prune
        self._n_top = n_top
        self._top: list[Ranked] = []
        self._measured_ns = math.inf  # the best that is no ratio
        self._doubted: set[bytes] = set()

    @property
    def best(self) -> Ranked | None:
        return self._top[0] if self._top else None

    @property
    def best_ns(self) -> float | None:
        return self._top[0].time_ns if self._top else None

    @property
    def is_by_ratio(self) -> bool:
        """True if the best time is a ratio to a control, which supports no claim."""
        return bool(self._top) and self._top[0].outcome.is_by_ratio

    @property
    def cut_ns(self) -> float:
        """Pruning threshold in ns: only candidates with a bound below it can improve on the best time."""
        return self._measured_ns * (1.0 - self._cut_gap) if self._prune else math.inf

    @property
    def alarms(self) -> int:
        return len(self._doubted)

    def offer(self, ranked: Ranked) -> bool:
        """Adds a measured implementation to the ranking.

        True if it is the new best; an equal time does not replace the best.
        """
        if any(known.key == ranked.key for known in self._top):
            return False
        if not ranked.outcome.is_by_ratio:
            self._measured_ns = min(ranked.time_ns, self._measured_ns)
        at = bisect.bisect_right(self._top, ranked.time_ns, key=lambda r: r.time_ns)
        if at >= self._n_top:
            return False
        self._top.insert(at, ranked)
        del self._top[self._n_top :]
        return at == 0

    def name_candidate(self, ranked: Ranked) -> None:
        """Adds the candidate to a ranked entry of which only the key was known."""
        for at, known in enumerate(self._top):
            if known.key == ranked.key and known.candidate is None:
                self._top[at] = ranked

    def top(self, k: int) -> tuple[Ranked, ...]:
        """Returns the `k` best distinct implementations, best first."""
        return tuple(self._top[:k])

    def ties(self) -> tuple[Ranked, ...]:
        """Returns the best, and all ranked implementations whose measured intervals overlap with its own."""
        if not self._top:
            return ()
        high_ns = self._top[0].time_ns * (1 + self._top[0].spread)
        return tuple(r for r in self._top if r.time_ns * (1 - r.spread) <= high_ns)

    def alarm(self, key: bytes) -> bool:
        """Records that implementation `key` was faster than its bound; True the first time."""
        if key in self._doubted:
            return False
        self._doubted.add(key)
        return True

    def gap(self, bound_ns: float) -> float | None:
        """Returns (best time - bound) / best time in [0, 1].

        It returns None without a best, after an alarm, and for ratios.
        """
        if not self._top or self._doubted or self.is_by_ratio:
            return None
        best_ns = self._top[0].time_ns
        return max(0.0, (best_ns - bound_ns) / best_ns)
