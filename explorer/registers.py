"""Register counts that compilers report: recorded with every candidate, and used in bounds, expected times and cuts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ..codegen.text.source import Source
from ..runtime.api.artifact import BuildReport
from ..runtime.api.backend import AbstractReporter
from ..runtime.records.record import EvaluationRecord, LaunchRecord
from ..search.bound.bounder import Bounder
from ..search.learn.neighbourhood import Neighbourhood
from ..search.learn.registers import Compiled, RegisterModel
from ..space.build import widened
from ..space.candidate import Candidate, DeadEnd, Space
from .evaluation import Reported

Launches = tuple[LaunchRecord, ...]


def registers_of_tasks(launches: Launches, n_tasks: int) -> list[float]:
    """Returns [n_tasks] registers per thread in the GPU kernel of each task; 0 if they were not reported."""
    known = [0.0] * n_tasks
    for x in launches:
        for t in x.tasks:
            known[t] = float(x.registers)
    return known


class Registers:
    """Compiler reports of a run, and the register model fitted to them; empty if the device reports nothing.

    The model is computed from the launches in the journal alone, so a resumed session restores the model of the last one.
    """

    def __init__(self, reporter: AbstractReporter, space: Space, bounder: Bounder) -> None:
        self._reporter = reporter
        self._space = space
        self._bounder = bounder
        self._neighbour = Neighbourhood(space)
        self._room = 1
        self.model = RegisterModel()

    def note(self, launches: Launches) -> None:
        """Adds the reported launches of one candidate to the register model."""
        known = (x for x in launches if x.tasks)
        self.model.note(Compiled(x.counted, x.registers, x.spill_bytes) for x in known)

    def launches(self, candidate: Candidate, source: Source, report: BuildReport) -> Launches:
        """Returns a record of every launch of a compiled candidate: reported registers, and registers counted.

        `counted` is the space's estimate, the largest over the launch's tasks. Tasks that convert trees to a layout are not in
        the space and are left out.
        """
        counted = self._bounder.registers(candidate)
        tasks = [tuple(t for t in x.tasks if t < len(counted)) for x in source.launches]
        return tuple(
            LaunchRecord(
                kernel=x.kernel,
                tasks=known,
                threads=x.block[0] * x.block[1] * x.block[2],
                counted=max((counted[t] for t in known), default=0),
                registers=x.registers,
                spill_bytes=x.spill_bytes,
                shared_bytes=x.shared_bytes,
            )
            for known, x in zip(tasks, report.launches, strict=True)
        )

    def recall(self, records: Iterable[EvaluationRecord]) -> None:
        """Adds the launches that earlier sessions recorded to the register model."""
        for r in records:
            if isinstance(r.launches, tuple):
                self.note(r.launches)

    def reports(self, candidate: Candidate, source: Source) -> Reported:
        """Returns the compiler's report on the launches of a built candidate, and adds it to the register model."""
        report = self._reporter.report(source) if self._reporter.reports else None
        if not isinstance(report, BuildReport):
            return Reported()
        launches = self.launches(candidate, source, report)
        self.note(launches)
        return Reported(launches, self.bound_ns(candidate, launches))

    def bound_ns(self, candidate: Candidate, launches: Launches) -> float:
        """Returns the candidate's lower bound in ns, with the resident blocks that its reported registers allow."""
        known = registers_of_tasks(launches, len(self._space.problem.tasks))
        return self._bounder.ns(candidate, registers=known)

    def expected_ns(self, candidate: Candidate) -> float:
        """Returns the bound in ns with the registers that the model predicts; 0 before the first report."""
        if not self.model.n_reports:
            return 0.0
        return self._bounder.expected_ns(candidate, *self.model.line)

    def neighbour(self, centre: Candidate, rng: np.random.Generator) -> Candidate | DeadEnd | None:
        """Returns a random neighbour of `centre` in the space at its current width."""
        return self._neighbour(centre, rng)

    def widened(self) -> Candidate | None:
        """Returns the root of a wider space if reports show that the register limit was too strict; else None."""
        if self.model.room <= self._room:
            return None
        self._room = self.model.room
        wider = widened(self._space, self._room)
        self._neighbour = Neighbourhood(wider)
        root = wider.root()
        return root if isinstance(root, Candidate) else None


def reported_launches(records: Sequence[object], source_key: str) -> Launches:
    """Returns the launches that the journal records for a source key; () if none."""
    evaluations = (r for r in records if isinstance(r, EvaluationRecord))
    own = [r.launches for r in evaluations if r.source_key == source_key]
    return next((launches for launches in own if isinstance(launches, tuple)), ())
