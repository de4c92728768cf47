"""Preparation of a search: draws inputs, passes them to the worker, and checks the user's NumPy function."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from ..runtime.fleet.remote import RemoteDevice
from ..runtime.forked import over_after
from ..runtime.free_memory import available_bytes
from ..runtime.worker.forked_inputs import CALL_S, ForkedInputs
from ..runtime.worker.input_sets import InputSets
from ..runtime.worker.worker import AbstractWorker
from . import stages as st
from .deadlines import Deadlines
from .event_handler import Tell
from .session_state import Standing
from .user_reference import UserReference, WrongReferenceError
from .workload import Options, Workload

_SMALL = 1 / 32  # share of available memory: of larger arguments one child at a time has copies


class Preparation:
    """Preparation of one session: a child process computes the reference results, while the session compiles."""

    def __init__(
        self, workload: Workload, options: Options, deadlines: Deadlines, tell: Tell
    ) -> None:
        self._workload = workload
        self._options = options
        self._deadlines = deadlines
        self._tell = tell
        self._begun: ForkedInputs | None = None
        self._is_over: Callable[[], bool] = lambda: False

    @property
    def is_small(self) -> bool:
        """True if memory suffices for several child processes with copies of the arguments."""
        arrays = self._workload.arguments.arrays.values()
        return sum(array.nbytes for array in arrays) <= _SMALL * (available_bytes() or 0)

    def begin(self) -> None:
        """Starts the child process that computes the reference results, unless it runs."""
        if self._begun is not None:
            return
        s, o = self._workload, self._options
        self._is_over, is_enough = self._deadlines.of_reference()
        self._begun = ForkedInputs(
            s.recording,
            s.problem,
            s.arguments,
            np.random.default_rng(o.seed),
            o.input_sets,
            is_enough=is_enough,
            more=s.more,
        )

    def close(self) -> None:
        """Ends the child process that computes the reference results. Safe to call twice."""
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.end()

    def finish(
        self, standing: Standing, worker: AbstractWorker, before_timing: Callable[[], None]
    ) -> None:
        """Waits for the reference results, and passes the input sets to the worker.

        `before_timing` is called before the user's function is timed. Raises WrongReferenceError, FailedReferenceError and
        Stopped.
        """
        with self._deadlines.phase("the reference was computed"):
            input_sets = self._input_sets()
        standing.n_sets = sum(bool(inputs.expected) for inputs in input_sets.sets)
        reference = self._workload.user_reference
        if reference is not None and standing.numpy.ns is None:
            with self._deadlines.phase("first candidates were compiled"):
                before_timing()
            time_ns = self._check_reference(reference, input_sets, standing)
            is_elsewhere = isinstance(standing.device, RemoteDevice)  # where kernels run
            standing.numpy.know(None if is_elsewhere else time_ns)
        started_s = time.monotonic()
        with self._deadlines.phase("the arguments were handed to the process that runs candidates"):
            worker.prepare(input_sets)
        standing.preparing_s = time.monotonic() - started_s
        standing.branches = worker.branches
        worker.on_measured = lambda number: self._tell(
            st.RoundingMeasured(number, worker.branches[number])
        )

    def _input_sets(self) -> InputSets:
        self.begin()
        begun, self._begun = self._begun, None
        assert begun is not None
        o = self._options
        return begun.result(
            is_over=self._is_over,
            call_s=CALL_S if o.time_limit_s is None else math.inf,
            undecided=o.undecided,
        )

    def _check_reference(
        self, reference: UserReference, input_sets: InputSets, standing: Standing
    ) -> float | None:
        """Compares the user's NumPy function with the kernels, and returns its ns; None if it was not timed.

        Raises WrongReferenceError and FailedReferenceError.
        """
        limit_s, parameters = self._deadlines.user_reference_s, self._workload.stored.parameters
        is_over = over_after(limit_s)
        try:
            with self._deadlines.phase("the NumPy reference ran"):
                found = reference.look_at(parameters, input_sets, is_over)
        except WrongReferenceError as e:
            standing.writer.note("reference", str(e))
            raise
        if found.time_ns is None:
            self._tell(st.ReferenceTooSlow(limit_s, found.is_compared))
        return found.time_ns
