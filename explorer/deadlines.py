"""Time limit of a session: its division among preparation, search and final re-measurement; interruption of overdue work."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..runtime.cutting import stopped_when
from ..runtime.forked import over_after
from ..search.budget import Interrupt

_LEAST_SEARCH_SHARE = 0.3  # of the time limit, whatever the preparation took
_FINAL_SHARE = 0.15  # of the time limit, for timing the best candidates again
_FINAL_S = 4.0  # and at most so long
_OTHERS_SHARE = 0.48  # of that, for what other compilers make of them
_LEAST_REFERENCE_SHARE = 0.5  # of the time limit, whatever other preparation took
_NUMPY_SHARE = 0.25  # of the time limit, for the user's NumPy function
_LATE_S = 2.0  # beyond the limit, for what is being prepared and a first batch
_LAST_S = 3.5  # beyond the limit, for all waiting; then the results so far are stored
_END_S = 4.2  # from the end of a search, for all waiting
_LEAST_SEARCH_S = 0.5
_PATIENCE_S = 1.0  # for a running evaluation once the user has interrupted


class Deadlines:
    """The deadlines of one session, in seconds. `limit_s` is None where there is no limit."""

    def __init__(self, limit_s: float | None, interrupt: Interrupt) -> None:
        self.limit_s = limit_s
        self._interrupt = interrupt
        self.during = (
            ""  # the phase that the session is in or was in last: "the time limit passed while ..."
        )
        self._search_ends_s = math.inf
        self._end_s = math.inf  # when the work after a search is given up
        self._is_shielded = False
        self._excluded_s = 0.0
        self._stands_at_s: float | None = None
        self._started_s = self.clock()

    def clock(self) -> float:
        """Seconds on a clock that stands still while work is `excluded`."""
        now_s = time.monotonic() if self._stands_at_s is None else self._stands_at_s
        return now_s - self._excluded_s

    @property
    def elapsed_s(self) -> float:
        return self.clock() - self._started_s

    @contextmanager
    def excluded(self) -> Iterator[None]:
        """Context of work whose time is no part of the session's."""
        self._stands_at_s = began_s = time.monotonic()
        try:
            yield
        finally:
            self._excluded_s += time.monotonic() - began_s
            self._stands_at_s = None

    @contextmanager
    def phase(self, during: str) -> Iterator[None]:
        """Context of work whose interruption loses nothing. Raises Stopped in it at a signal, or when the time for preparing has
        passed.
        """
        self.during = during
        with self._interrupt.immediate(), stopped_when(lambda: self._is_beyond(_LATE_S)):
            yield

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Context that raises Stopped once waiting is of no use any more (`is_past_waiting`), except in `shielded` work."""
        with stopped_when(lambda: not self._is_shielded and self.is_past_waiting()):
            yield

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """Context of work that must be done completely or not at all."""
        self._is_shielded = True
        try:
            yield
        finally:
            self._is_shielded = False

    def _is_beyond(self, late_s: float) -> bool:
        return self.limit_s is not None and self.elapsed_s > self.limit_s + late_s

    def begin_search(self) -> float | None:
        """Records the begin of the search. Returns the seconds that it may take; None without a limit."""
        if self.limit_s is None:
            return None
        left_s = self.limit_s - self.elapsed_s
        search_s = max(left_s - self.final_s, _LEAST_SEARCH_SHARE * self.limit_s)
        search_s = max(min(search_s, left_s + _LATE_S), _LEAST_SEARCH_S)
        self._search_ends_s = self.clock() + search_s
        return search_s

    def begin_end(self) -> None:
        """Records that the search has finished."""
        self._end_s = self.clock() + _END_S

    def is_search_over(self) -> bool:
        return self.clock() > self._search_ends_s

    def is_past_waiting(self) -> bool:
        """True if no result of a worker or a compiler is of use any more."""
        is_late = self._is_beyond(_LAST_S) or self.clock() > self._end_s
        return is_late or self._interrupt.since_s > _PATIENCE_S

    @property
    def final_s(self) -> float:
        """Seconds for timing the best again, by other compilers, too."""
        return _FINAL_S if self.limit_s is None else min(_FINAL_S, _FINAL_SHARE * self.limit_s)

    @property
    def again_s(self) -> float:
        return (1 - _OTHERS_SHARE) * self.final_s

    @property
    def others_s(self) -> float:
        """Seconds for other compilers' builds of the best, as far as time is left."""
        share_s = _OTHERS_SHARE * self.final_s
        return share_s if self.limit_s is None else min(share_s, self.limit_s - self.elapsed_s)

    @property
    def is_late(self) -> bool:
        return self.limit_s is not None and self.elapsed_s > self.limit_s - self.final_s

    @property
    def user_reference_s(self) -> float:
        return _NUMPY_SHARE * (self.limit_s or math.inf)

    def of_reference(self) -> tuple[Callable[[], bool], Callable[[], bool]]:
        """Returns two stop conditions: the first ends the reference, the second ends the making of input sets.

        They hold after the rest of the time limit, and after half of that; an interrupt ends the reference, too. Where other
        preparation took more than half, half of the limit is for the reference all the same, as far as preparing may exceed the
        limit.
        """
        if self.limit_s is None:
            return (lambda: self._interrupt.is_set), (lambda: False)
        left_s = self.limit_s - self.elapsed_s
        left_s = min(max(left_s, _LEAST_REFERENCE_SHARE * self.limit_s), left_s + _LATE_S)
        is_late, is_half_late = over_after(left_s), over_after(left_s / 2)
        return (lambda: self._interrupt.is_set or is_late()), is_half_late
