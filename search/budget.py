"""Stopping criteria of a search: composable rules, a clock that callers pass in, and an interrupt flag.

The first rule that is hit ends the search.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """State of a search that the stopping rules read."""

    elapsed_s: float
    evaluations: int  # measured in this search
    best_ns: float | None
    gap: float | None  # None: no incumbent, or withdrawn


class AbstractRule(ABC):
    """A rule that stops a search."""

    @property
    @abstractmethod
    def status(self) -> str:
        """Final status of a search that this rule stopped."""

    @abstractmethod
    def is_hit(self, progress: SearchProgress) -> bool: ...


@dataclass(frozen=True)
class Seconds(AbstractRule):
    """Stops a search `limit_s` seconds after its start."""

    limit_s: float

    @property
    def status(self) -> str:
        return "time_limit"

    def is_hit(self, progress: SearchProgress) -> bool:
        return progress.elapsed_s >= self.limit_s


@dataclass(frozen=True)
class Evaluations(AbstractRule):
    """Stops a search after `limit` measured candidates; batches are cut so that there are never more."""

    limit: int

    @property
    def status(self) -> str:
        return "eval_limit"

    def is_hit(self, progress: SearchProgress) -> bool:
        return progress.evaluations >= self.limit


@dataclass(frozen=True)
class Gap(AbstractRule):
    """Stops a search once the gap is at most `share`: (best time - bound) / best time."""

    share: float

    @property
    def status(self) -> str:
        return "gap_limit"

    def is_hit(self, progress: SearchProgress) -> bool:
        # A gap of zero is the business of the search, which then reports a proof.
        return self.share > 0 and progress.gap is not None and progress.gap <= self.share


class Interrupt:
    """A flag that ends a search at its next step; signal handlers and other threads may set it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._set_s = math.inf
        self.is_set = False
        self.is_immediate = False
        """True if the setter should raise as well, since nothing would be lost."""

    def set(self) -> None:
        self.is_set, self._set_s = True, min(self._set_s, self._clock())

    @property
    def since_s(self) -> float:
        """Returns the seconds since the flag was first set; negative if it is not set."""
        return self._clock() - self._set_s

    @contextmanager
    def immediate(self) -> Iterator[None]:
        """Context whose block may be aborted at any moment without loss."""
        self.is_immediate = True
        try:
            yield
        finally:
            self.is_immediate = False


class Budget:
    """Stopping rules in order of precedence, with the clock (monotonic, in seconds) that measures them."""

    def __init__(
        self,
        *rules: AbstractRule,
        clock: Callable[[], float] = time.monotonic,
        interrupt: Interrupt | None = None,
    ) -> None:
        self.rules = rules
        self.clock = clock
        self.interrupt = interrupt or Interrupt()

    def stop_status(self, progress: SearchProgress) -> str | None:
        """Returns the status of the first rule that is met (an interrupt precedes all); None to continue."""
        if self.interrupt.is_set:
            return "interrupted"
        for rule in self.rules:
            if rule.is_hit(progress):
                return rule.status
        return None

    def remaining_evaluations(self, evaluations: int) -> int | None:
        """Returns the number of candidates that may still be measured; None without a limit."""
        limits = [rule.limit for rule in self.rules if isinstance(rule, Evaluations)]
        return max(0, min(limits) - evaluations) if limits else None

    def remaining_s(self, elapsed_s: float) -> float:
        """Returns the seconds that are left; inf without a time limit."""
        limits = (rule.limit_s for rule in self.rules if isinstance(rule, Seconds))
        return min(limits, default=math.inf) - elapsed_s

    @property
    def gap_share(self) -> float:
        """Largest gap, as a share of the best time, that satisfies a rule; 0 without such a rule."""
        return max((rule.share for rule in self.rules if isinstance(rule, Gap)), default=0.0)
