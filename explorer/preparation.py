"""Preparation of a search: draws inputs, passes them to the worker, and compares the user's NumPy function with the kernels."""

from __future__ import annotations

import math
import time

import numpy as np

from ..runtime.forked import over_after
from ..runtime.worker.forked_inputs import CALL_S, input_sets_apart
from ..runtime.worker.input_sets import InputSets
from ..runtime.worker.worker import AbstractWorker
from . import stages as st
from .deadlines import Deadlines
from .event_handler import Tell
from .session_state import Standing
from .user_reference import UserReference, WrongReferenceError
from .workload import Options, Workload


class Preparation:
    """The preparation of one session."""

    def __init__(
        self,
        workload: Workload,
        options: Options,
        standing: Standing,
        deadlines: Deadlines,
        tell: Tell,
    ) -> None:
        self._workload = workload
        self._options = options
        self._standing = standing
        self._deadlines = deadlines
        self._tell = tell

    def run(self, worker: AbstractWorker) -> None:
        """Passes the inputs to the worker. Raises WrongReferenceError, FailedReferenceError, and Stopped."""
        s, o, standing = self._workload, self._options, self._standing
        rng = np.random.default_rng(o.seed)
        is_over, is_enough = self._deadlines.of_reference()
        with self._deadlines.phase("the reference was computed"):
            input_sets = input_sets_apart(
                s.recording,
                s.problem,
                s.arguments,
                rng,
                o.input_sets,
                is_over=is_over,
                is_enough=is_enough,
                call_s=CALL_S if o.time_limit_s is None else math.inf,
                more=s.more,
                undecided=o.undecided,
            )
        standing.n_sets = sum(bool(inputs.expected) for inputs in input_sets.sets)
        if s.user_reference is not None and standing.numpy.ns is None:
            standing.numpy.know(self._check_reference(s.user_reference, input_sets))
        started_s = time.monotonic()
        with self._deadlines.phase("the arguments were handed to the process that runs candidates"):
            worker.prepare(input_sets)
        standing.preparing_s = time.monotonic() - started_s
        standing.branches = worker.branches
        worker.on_measured = lambda number: self._tell(
            st.RoundingMeasured(number, worker.branches[number])
        )

    def _check_reference(self, reference: UserReference, input_sets: InputSets) -> float | None:
        """Compare the user's NumPy function with the kernels and time it; None where that takes too long.

        Raises WrongReferenceError and FailedReferenceError.
        """
        limit_s, parameters = self._deadlines.user_reference_s, self._workload.stored.parameters
        is_over = over_after(limit_s)
        try:
            with self._deadlines.phase("the NumPy reference ran"):
                found = reference.look_at(parameters, input_sets, is_over)
        except WrongReferenceError as e:
            self._standing.writer.note("reference", str(e))
            raise
        if found.time_ns is None:
            self._tell(st.ReferenceTooSlow(limit_s, found.is_compared))
        return found.time_ns
