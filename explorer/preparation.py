"""Before a search: inputs are drawn and handed to the worker, and a NumPy function of the user's is compared with the kernels."""

from __future__ import annotations

import time

import numpy as np

from ..runtime.apart import Stopped, over_after
from ..runtime.reference import Reference
from ..runtime.worker.input_sets import InputSets
from ..runtime.worker.inputs import make_input_sets
from ..runtime.worker.worker import AbstractWorker
from ..search.budget import Interrupt
from . import stages as st
from .deadlines import Deadlines
from .listening import Tell
from .standing import Standing
from .user_reference import UserReference, WrongReferenceError, stopped_when
from .workload import Options, Workload


class Preparation:
    """That of one session."""

    def __init__(
        self,
        workload: Workload,
        options: Options,
        standing: Standing,
        deadlines: Deadlines,
        interrupt: Interrupt,
        tell: Tell,
    ) -> None:
        self._workload = workload
        self._options = options
        self._standing = standing
        self._deadlines = deadlines
        self._interrupt = interrupt
        self._tell = tell

    def run(self, worker: AbstractWorker) -> None:
        """Hand the inputs to the worker. Raises WrongReferenceError, FailedReferenceError, and Stopped."""
        s, o, standing = self._workload, self._options, self._standing
        rng = np.random.default_rng(o.seed)
        is_over, is_enough = self._deadlines.of_reference()
        with self._interrupt.immediate():
            input_sets = make_input_sets(
                s.recording,
                s.problem,
                s.arguments,
                rng,
                o.input_sets,
                Reference(is_over),
                is_enough,
                s.more,
                o.undecided,
            )
        standing.n_sets = sum(bool(inputs.expected) for inputs in input_sets.sets)
        if s.user_reference is not None and standing.numpy.ns is None:
            standing.numpy.know(self._check_reference(s.user_reference, input_sets))
        started_s = time.monotonic()
        with self._interrupt.immediate():
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
        limit_s = self._deadlines.user_reference_s
        took_s: float | None = None
        try:
            with self._interrupt.immediate(), stopped_when(over_after(limit_s)):
                took_s = reference.compare(self._workload.stored.parameters, input_sets)
                return reference.time_ns(took_s)
        except Stopped:
            if self._interrupt.is_set:
                raise
            self._tell(st.ReferenceTooSlow(limit_s, took_s is not None))
            return None
        except WrongReferenceError as e:
            self._standing.writer.note("reference", str(e))
            raise
