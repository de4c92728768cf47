"""Time limit of a session: its division among preparation, search and final re-timing; interruption of late work."""

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
    """The deadlines of one session, in seconds. `limit_s` is None without a time limit."""

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
        """Current time in seconds, on a clock that stops while `excluded` work runs."""
        now_s = time.monotonic() if self._stands_at_s is None else self._stands_at_s
        return now_s - self._excluded_s

    @property
    def elapsed_s(self) -> float:
        return self.clock() - self._started_s

    @contextmanager
    def excluded(self) -> Iterator[None]:
        """Context manager of work whose duration is not counted against the session's time limit."""
        self._stands_at_s = began_s = time.monotonic()
        try:
            yield
        finally:
            self._excluded_s += time.monotonic() - began_s
            self._stands_at_s = None

    @contextmanager
    def phase(self, during: str) -> Iterator[None]:
        """Context manager of work that may be interrupted without loss; `during` describes it in messages.

        Raises Stopped at a signal, or when the time limit has passed by more than preparation may.
        """
        self.during = during
        with self._interrupt.immediate(), stopped_when(lambda: self._is_beyond(_LATE_S)):
            yield

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Context manager that raises Stopped when waiting is useless (`is_past_waiting`), except in `shielded`."""
        with stopped_when(lambda: not self._is_shielded and self.is_past_waiting()):
            yield

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """Context manager of work that `cut` must not interrupt, such as recording one event."""
        self._is_shielded = True
        try:
            yield
        finally:
            self._is_shielded = False

    def _is_beyond(self, late_s: float) -> bool:
        return self.limit_s is not None and self.elapsed_s > self.limit_s + late_s

    def begin_search(self) -> float | None:
        """Starts the time of the search. Returns its limit in seconds; None without a limit."""
        if self.limit_s is None:
            return None
        left_s = self.limit_s - self.elapsed_s
        search_s = max(left_s - self.final_s, _LEAST_SEARCH_SHARE * self.limit_s)
        search_s = max(min(search_s, left_s + _LATE_S), _LEAST_SEARCH_S)
        self._search_ends_s = self.clock() + search_s
        return search_s

    def begin_end(self) -> None:
        """Starts the time of the finalisation, which follows the search."""
        self._end_s = self.clock() + _END_S

    def is_search_over(self) -> bool:
        return self.clock() > self._search_ends_s

    def is_past_waiting(self) -> bool:
        """True if a result of a worker or a compiler would come too late to be used."""
        is_late = self._is_beyond(_LAST_S) or self.clock() > self._end_s
        return is_late or self._interrupt.since_s > _PATIENCE_S

    @property
    def final_s(self) -> float:
        """Seconds reserved for re-timing the best at the end, builds by other compilers included."""
        return _FINAL_S if self.limit_s is None else min(_FINAL_S, _FINAL_SHARE * self.limit_s)

    @property
    def again_s(self) -> float:
        return (1 - _OTHERS_SHARE) * self.final_s

    @property
    def others_s(self) -> float:
        """Seconds left for timing the best as other compilers build them."""
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
