"""Session state: times to compare with, and the best implementation so far, stored on disk as soon as it is found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from ..codegen.text.source import Source
from ..runtime.api.backend import AbstractDevice
from ..runtime.api.outcome import Failure
from ..runtime.forked import Stopped
from ..runtime.records.record import BestFile
from ..runtime.worker.rounding import branch_notes
from ..search.events import Outcome
from ..space.candidate import Candidate
from .bound_validity import Claims
from .compiler_comparison import CompiledBest
from .evaluation import Entry, SearchEvaluator
from .numpy_timing import NumpyTiming
from .run_writer import Result, RunWriter


class Standing:
    """State of a session besides its journal: the default, its time, input sets, bound and NumPy time."""

    def __init__(
        self, writer: RunWriter, device: AbstractDevice, claims: Claims, numpy: NumpyTiming
    ) -> None:
        self.writer = writer
        self.device = device
        self.claims = claims
        self.numpy = numpy
        self.default: Entry | None = None
        self.default_ns: float | None = None  # as it was timed last
        self.n_sets = 0  # of inputs, on which the best is verified
        self.branches: Mapping[int, tuple[str, ...]] = {}  # as of the worker
        self.preparing_s = 0.0  # what a worker takes to take over the arguments
        self.compiler = device.reporter.version()
        self.fault_as_one_text = ""  # the kind of failure of the best, which ran in units

    def meet_default(self, outcome: Outcome, candidate: Candidate) -> None:
        self.default, self.default_ns = (outcome, candidate), outcome.time_ns

    def keep(self, evaluator: SearchEvaluator, outcome: Outcome, candidate: Candidate) -> BestFile:
        """Stores a new incumbent (the best implementation so far) on disk."""
        source = evaluator.source(candidate)  # nobody waits for one text of all components
        return self.writer.keep(self._result((outcome, candidate), "running", source))

    def keep_last(
        self,
        evaluator: SearchEvaluator,
        best: Entry,
        status: str,
        other: CompiledBest | None,
        cut: Callable[[], AbstractContextManager[None]],
    ) -> BestFile:
        """Stores the final best with its library; `other` is its build by another compiler.

        `cut` makes a context that limits the time of lowering all components as one text; a replay repeats this if it was cut.
        """
        source, library = evaluator.source(best[1]), None
        is_in_units = isinstance(source, Source) and bool(source.units)
        with suppress(Stopped), cut() if is_in_units else nullcontext():
            source = evaluator.whole(best[1])
            library = self._library(evaluator, best[1], other) if status != "interrupted" else None
        result = self._result(best, status, source, library, self.claims.now_ns, other)
        return self.writer.keep(result)

    def _result(
        self,
        entry: Entry,
        status: str,
        source: Source | Failure,
        library: Path | None = None,
        bound_now_ns: float | None = None,
        other: CompiledBest | None = None,
    ) -> Result:
        outcome, candidate = entry
        assert isinstance(source, Source)
        assert outcome.time_ns is not None
        return Result(
            candidate=candidate,
            source=source,
            time_ns=outcome.time_ns,
            spread=outcome.spread,
            bound_ns=None if outcome.is_by_ratio else self.claims.bound_ns,
            status=status,
            baseline_ns=self.default_ns,
            numpy_ns=self.numpy.ns,
            n_input_sets=self.n_sets,
            conditions=None if other is None else other.conditions,
            library=library,
            bound_now_ns=bound_now_ns,
            branches=branch_notes(self.branches),
        )

    def _library(
        self, evaluator: SearchEvaluator, candidate: Candidate, other: CompiledBest | None
    ) -> Path | None:
        """Returns the shared library of a candidate built as one text; None if none is made."""
        if not self.device.builder.makes_libraries:
            return None
        if other is not None:
            return _if_there(Path(other.library))
        built = evaluator.verified_alone(candidate)
        source = evaluator.source(candidate)
        if isinstance(built, Failure) and isinstance(source, Source) and source.units:
            self.fault_as_one_text = built.kind
        return None if isinstance(built, Failure) else _if_there(Path(built.path))


def _if_there(library: Path) -> Path | None:
    """Returns the path of the library; None if its folder was removed, since a replay can rebuild it."""
    return library if library.exists() else None
