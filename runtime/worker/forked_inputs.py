"""Input sets created in a child process, since a reference run may take arbitrarily long or never end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from ...kernels.frontend.recorder import Recording
from ...kernels.ir.task import Problem
from ..api.outcome import UNDECIDED
from ..forked import Forked, Stopped, shared_empty
from ..reference import Reference
from .input_sets import InputSets, LaterSets
from .inputs import Arguments, UnroundedSets, rounding_of

CALL_S = 60.0  # that a call of a reference may take where nobody gave a limit


class SlowReferenceError(Exception):
    """One call of the reference takes too long. The message is one sentence."""


class ForkedInputs:
    """Input sets being created in a child process. `result` or `end` must be called."""

    def __init__(
        self,
        recording: Recording,
        problem: Problem,
        first: Arguments,
        rng: np.random.Generator,
        n_sets: int = 3,
        *,
        is_enough: Callable[[], bool] = lambda: False,
        more: Sequence[Arguments] = (),
    ) -> None:
        self._recording = recording
        self._has_more = n_sets > 1 or bool(more) or bool(recording.trees)
        began_s = self._began_s = shared_empty((1,), np.float64)
        began_s[0] = math.inf

        def begin() -> None:
            began_s[0] = time.monotonic()

        made = UnroundedSets(
            recording, problem, first, rng, n_sets, Reference(begin), is_enough, tuple(more)
        )
        kept = [array for given in (first, *more) for array in given.arrays.values()]
        self._forked = Forked(made.timed, made.others, kept=kept)

    def result(
        self,
        *,
        is_over: Callable[[], bool] = lambda: False,
        call_s: float = CALL_S,
        undecided: float = UNDECIDED,
    ) -> InputSets:
        """Waits, and returns the input sets of `make_input_sets`, with a lazy analysis of rounding.

        Raises Stopped once `is_over`, SlowReferenceError if one call takes longer than `call_s` seconds, and MemoryError.
        """
        return self.timed(is_over=is_over, call_s=call_s, undecided=undecided).whole()

    def timed(
        self,
        *,
        is_over: Callable[[], bool] = lambda: False,
        call_s: float = CALL_S,
        undecided: float = UNDECIDED,
    ) -> InputSets:
        """Waits for the timed input set, and returns it with the others as later sets; all, if it is not verified.

        Raises as `result`, and so does the result of the later sets.
        """
        measurable = rounding_of(self._recording, Reference(), undecided, is_over)

        def sets() -> InputSets:
            made = self._next(is_over, call_s)
            return replace(made, sets=tuple(map(measurable, made.sets)))

        made = replace(sets(), later=LaterSets(lambda: sets().sets, self._paused))
        return made if self._has_more and made.sets[0].expected else made.whole()

    def _next(self, is_over: Callable[[], bool], call_s: float) -> InputSets:
        def is_slow() -> bool:
            return time.monotonic() - float(self._began_s[0]) > call_s

        try:
            return self._forked.result(lambda: is_over() or is_slow())
        except Stopped as e:
            if is_over() or not is_slow():
                raise
            raise SlowReferenceError(
                f"a call of the reference of {self._recording.name} takes longer than {call_s:g} s on these arguments: a loop may"
                " never end; give other arguments, or smaller sizes"
            ) from e

    @contextmanager
    def _paused(self) -> Iterator[None]:
        since_s = time.monotonic()
        with self._forked.paused():
            try:
                yield
            finally:
                self._began_s[0] += time.monotonic() - since_s

    def end(self) -> None:
        """Ends the child, whose further results are not needed. Safe to call twice."""
        self._forked.end()
