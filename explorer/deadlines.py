"""How the time limit of a session is shared out: preparing, searching, timing the best again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from ..runtime.apart import over_after
from ..search.budget import Interrupt

_LEAST_SEARCH_SHARE = 0.3  # of the time limit, whatever the preparation took
_FINAL_SHARE = 0.15  # of the time limit, for timing the best candidates again
_FINAL_S = 12.0  # and at most so long
_OTHERS_SHARE = 0.33  # of that, for what other compilers make of them
_LEAST_REFERENCE_SHARE = 0.5  # of the time limit, whatever other preparation took
_NUMPY_SHARE = 0.25  # of the time limit, for the user's NumPy function
_LATE_SHARE = 0.25  # of the time limit: what the last evaluation may take beyond it
_PATIENCE_S = 1.0  # what a running evaluation is given once the user has interrupted


class Deadlines:
    """Those of one session, in seconds; `limit_s` is None where there is none."""

    def __init__(self, limit_s: float | None, interrupt: Interrupt) -> None:
        self.limit_s = limit_s
        self._interrupt = interrupt
        self._search_ends_s = math.inf
        self._last_s = math.inf  # when even what is running is given up
        self.begin()

    def begin(self) -> None:
        """The session's time begins now."""
        self._started_s = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started_s

    def begin_search(self) -> float | None:
        """What a search that begins now may take; a batch of slow candidates must not carry it far beyond that."""
        if self.limit_s is None:
            return None
        left_s = self.limit_s - self.elapsed_s - self.final_s
        search_s = max(left_s, _LEAST_SEARCH_SHARE * self.limit_s)
        self._search_ends_s = time.monotonic() + search_s
        late_s = self.final_s + _LATE_SHARE * self.limit_s + _PATIENCE_S
        self._last_s = self._search_ends_s + late_s
        return search_s

    def is_search_over(self) -> bool:
        return time.monotonic() > self._search_ends_s

    def is_past_waiting(self) -> bool:
        """Whether no answer of a worker is of use any more."""
        return time.monotonic() > self._last_s or self._interrupt.since_s > _PATIENCE_S

    @property
    def final_s(self) -> float:
        """For timing the best again, by other compilers, too."""
        return _FINAL_S if self.limit_s is None else min(_FINAL_S, _FINAL_SHARE * self.limit_s)

    @property
    def again_s(self) -> float:
        return (1 - _OTHERS_SHARE) * self.final_s

    @property
    def others_s(self) -> float:
        """For what other compilers make of the best, as far as it is left."""
        share_s = _OTHERS_SHARE * self.final_s
        return share_s if self.limit_s is None else min(share_s, self.limit_s - self.elapsed_s)

    @property
    def is_late(self) -> bool:
        return self.limit_s is not None and self.elapsed_s > self.limit_s - self.final_s

    @property
    def user_reference_s(self) -> float:
        return _NUMPY_SHARE * (self.limit_s or math.inf)

    def of_reference(self) -> tuple[Callable[[], bool], Callable[[], bool]]:
        """Whether the reference is to end, and whether no more input sets are to be made: after what is left of the time limit, and
        half of that. Where other preparation took more than half, half of the limit is for the reference all the same.
        """
        if self.limit_s is None:
            return (lambda: self._interrupt.is_set), (lambda: False)
        left_s = max(self.limit_s - self.elapsed_s, _LEAST_REFERENCE_SHARE * self.limit_s)
        is_late, is_half_late = over_after(left_s), over_after(left_s / 2)
        return (lambda: self._interrupt.is_set or is_late()), is_half_late
