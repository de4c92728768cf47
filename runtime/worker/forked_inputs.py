"""Input sets created in a child process, since a reference run may take arbitrarily long or never end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import numpy as np

from ...kernels.frontend.recorder import Recording
from ...kernels.ir.task import Problem
from ..api.outcome import UNDECIDED
from ..forked import Forked, Stopped, shared_empty
from ..reference import Reference
from .input_sets import InputSets
from .inputs import Arguments, unrounded_input_sets, with_rounding

CALL_S = 60.0  # that a call of a reference may take where nobody gave a limit


class SlowReferenceError(Exception):
    """One call of the reference takes too long. The message is one sentence."""


class ForkedInputs:
    """Input sets being created in a child process. `result` or `end` must be called once."""

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
        began_s = self._began_s = shared_empty((1,), np.float64)
        began_s[0] = math.inf

        def begin() -> None:
            began_s[0] = time.monotonic()

        def make() -> InputSets:
            reference = Reference(begin)
            return unrounded_input_sets(
                recording, problem, first, rng, n_sets, reference, is_enough, more
            )

        kept = [array for given in (first, *more) for array in given.arrays.values()]
        self._forked = Forked(make, kept)

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

        def is_slow() -> bool:
            return time.monotonic() - float(self._began_s[0]) > call_s

        recording = self._recording
        try:
            made = self._forked.result(lambda: is_over() or is_slow())
        except Stopped as e:
            if is_over() or not is_slow():
                raise
            raise SlowReferenceError(
                f"a call of the reference of {recording.name} takes longer than {call_s:g} s on these arguments: a loop may never"
                " end; give other arguments, or smaller sizes"
            ) from e
        return with_rounding(recording, made, Reference(), undecided, is_over)

    def end(self) -> None:
        """Ends the child, whose result is not needed."""
        self._forked.end()
