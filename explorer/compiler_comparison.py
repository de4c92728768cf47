"""Compiler comparison: builds the best implementations of a search with other compilers, and times them.

Each compiler gets its own worker process, whose timing loop and thread pool that compiler has built as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from ..runtime.api.artifact import Artifact
from ..runtime.api.backend import AbstractDevice
from ..runtime.api.outcome import FINAL, Failure, Measurement, Protocol
from ..runtime.measure.conditions import Conditions
from ..runtime.measure.timing import spread
from ..runtime.worker.worker import AbstractWorker, WorkerError
from ..search.events import Outcome
from ..space.candidate import Candidate
from .evaluation import Entry, SearchEvaluator
from .machine import conditions_of, open_worker

N_COMPARED = 32  # of the best implementations, at most, that each other compiler builds: its best is seldom the best of all
_BATCH = 8
_FASTER = 0.98  # of the time: for less than that a run does not change its compiler
_ROUNDS = 5
_FEW = Protocol(min_samples=5, max_samples=5)
LEAST_S = 0.9  # in less a worker that has its arguments and a compiler have hardly begun


@dataclass(frozen=True, slots=True)
class CompiledBest:
    """The best implementation as another compiler builds it, timed alternately with the search's best.

    `ratio` is its time divided by the time of the search's best, median over rounds. `default_ns` is the time of the default
    built by the same compiler, None if it was not timed.
    """

    outcome: Outcome
    candidate: Candidate
    compiler: str
    conditions: Conditions
    ratio: float
    default_ns: float | None
    library: str  # that was timed

    @property
    def wins(self) -> bool:
        return self.ratio < _FASTER


class CompilerComparison:
    """Compares builds by other compilers with the search's build of `entries[0]`, which `worker` times."""

    def __init__(
        self,
        entries: Sequence[Entry],
        default: Candidate | None,
        evaluator: SearchEvaluator,
        worker: AbstractWorker,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_over`: once it returns True, waiting for a compiler or a worker raises Stopped."""
        self._is_over = is_over
        self._entries = entries
        self._default = default
        self._evaluator = evaluator
        self._worker = worker

    def run(
        self, others: Sequence[AbstractDevice], limit_s: float, preparing_s: float
    ) -> Iterator[CompiledBest]:
        """Yields a result for each of `others` (devices with another compiler) that gives a right build in time.

        `limit_s`: seconds for all devices. `preparing_s`: seconds that a new worker needs to receive the arguments.
        Each candidate is verified on every input set again, since its machine code is new.
        """
        ends_s = time.monotonic() + limit_s
        for k, device in enumerate(others):
            left_s = (ends_s - time.monotonic()) / (len(others) - k)
            if left_s < LEAST_S + preparing_s:
                return
            try:
                with open_worker(device) as worker:
                    worker.end_when(self._is_over)
                    worker.prepare_as(self._worker)
                    found = self._meet(device, worker, left_s)
            except WorkerError:
                continue  # there is no room for a second worker: what the search found stands
            if found is not None:
                yield found

    def _meet(
        self, device: AbstractDevice, worker: AbstractWorker, limit_s: float
    ) -> CompiledBest | None:
        found = self._best(device, worker, time.monotonic() + 0.6 * limit_s)
        own = self._evaluator.alone(self._entries[0][1])
        if found is None or isinstance(own, Failure):
            return None
        outcome, candidate = found
        # Like what is replayed: built alone.
        artifact = self._evaluator.alone(candidate, device.builder)
        if isinstance(artifact, Failure) or isinstance(worker.evaluate(artifact, _FEW), Failure):
            return None
        times = self._rounds(own, artifact, worker, 0.3e9 * limit_s)
        if times is None:
            return None
        mine, theirs = times
        ratio = median(t / m for m, t in zip(mine, theirs, strict=True))
        new = replace(outcome, time_ns=median(theirs), spread=spread(theirs), is_by_ratio=False)
        default_ns = self._default_ns(device, worker) if ratio < _FASTER else None
        compiler = device.reporter.version()
        conditions = conditions_of(device, worker)
        return CompiledBest(new, candidate, compiler, conditions, ratio, default_ns, artifact.path)

    def _best(self, device: AbstractDevice, worker: AbstractWorker, ends_s: float) -> Entry | None:
        """Returns the fastest of the entries as `device` builds them, right on every input set; None if none runs.

        Entries are tried until the clock reaches `ends_s`.
        """
        few = _FEW.with_cut(self._entries[0][0].time_ns)
        best: tuple[float, Entry] | None = None
        for k in range(0, len(self._entries), _BATCH):
            batch = self._entries[k : k + _BATCH]
            for entry, built in zip(
                batch, self._evaluator.built_by(device.builder, batch), strict=True
            ):
                if best is not None and time.monotonic() > ends_s:
                    return best[1]
                found = built if isinstance(built, Failure) else worker.evaluate(built, few)
                if isinstance(found, Measurement) and (best is None or found.time_ns < best[0]):
                    best = found.time_ns, entry
        return None if best is None else best[1]

    def _rounds(
        self, own: Artifact, artifact: Artifact, worker: AbstractWorker, budget_ns: float
    ) -> tuple[list[float], list[float]] | None:
        """Times both builds alternately, so that a change of the machine affects both. None if one fails to run.

        Returns the ns of `own` and of `artifact`, one of each per round. `budget_ns`: time for all rounds.
        """
        protocol = replace(FINAL, budget_ns=budget_ns / (2 * _ROUNDS))
        mine, theirs = [], []
        for _ in range(_ROUNDS):
            a = self._worker.evaluate(own, protocol, verify=False)
            b = worker.evaluate(artifact, protocol, verify=False)
            if isinstance(a, Failure) or isinstance(b, Failure):
                return None
            mine.append(a.time_ns)
            theirs.append(b.time_ns)
        return mine, theirs

    def _default_ns(self, device: AbstractDevice, worker: AbstractWorker) -> float | None:
        if self._default is None:
            return None
        built = self._evaluator.alone(self._default, device.builder)
        found = built if isinstance(built, Failure) else worker.evaluate(built, _FEW)
        return None if isinstance(found, Failure) else found.time_ns
