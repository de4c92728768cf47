"""Evaluation: builds and measures complete candidates. Every outcome is in the journal before the search receives it."""

from __future__ import annotations

import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from ..codegen.lower import lower, print_source
from ..codegen.plan.candidates import plan_of
from ..codegen.text.source import Source
from ..runtime.api.artifact import Artifact
from ..runtime.api.backend import AbstractBuilder
from ..runtime.api.outcome import Failure, Measurement, Protocol
from ..runtime.building.queue import BuildQueue, build_each, build_many
from ..runtime.files import write_in
from ..runtime.records.journal import AbstractJournal
from ..runtime.records.record import (
    Decisions,
    EvaluationRecord,
    LaunchRecord,
    Origin,
    Place,
    RatioRecord,
    Timing,
    standing_evaluations,
)
from ..runtime.worker.channel import available_cores
from ..runtime.worker.worker import AbstractWorker
from ..search.budget import Interrupt
from ..search.events import Outcome, Provenance
from ..space.candidate import Candidate, DeadEnd
from ..space.decisions import to_names
from .alike import Alike
from .contenders import Contenders, Entry, Timed
from .control import Control

_PATIENCE_S = 0.5  # for compilers once the user has interrupted
_KEPT_SOURCES = 512
_ONCE = Protocol(
    sample_ns=1.0, min_samples=1, max_samples=1
)  # where only its results matter, not its time
# Compilers at once, before and never while times are taken; more than a batch has groups for are of no use.
_JOBS = min(max(2, available_cores()), 8)
JOBS_AHEAD = available_cores() - 1  # of them, while the search still has a core
BATCH = 8  # candidates measured in a row, at first
FIRST_BATCH = 4  # before anything is shown: three warm starts and the default
_DETAIL_CHARACTERS = 2000


@dataclass(frozen=True, slots=True)
class Reported:
    """A compiler's report on a candidate's launches, and the lower bound that follows; empty where no compiler reports."""

    launches: tuple[LaunchRecord, ...] = ()
    bound_ns: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Hooks:
    """Callbacks of an evaluator.

    `doubt` is called when a time is below its bound times `scale`, before the search receives it: the machine may have become
    faster than it was calibrated. `on_change` is called when one program takes so many times as long as it did before. `reports`
    is called for every candidate that compiled. `place` returns for the journal the place where a worker process, by its number,
    has measured.
    """

    doubt: Callable[[], None] = lambda: None
    scale: Callable[[], float] = lambda: 1.0
    on_change: Callable[[float], None] = lambda ratio: None
    reports: Callable[[Candidate, Source], Reported] = lambda candidate, source: Reported()
    place: Callable[[int], Place | None] = lambda worker: None


def largest_batch(builder: AbstractBuilder) -> int:
    """Returns the size of the largest batch: the candidates of two runs of the compiler, and at least `BATCH`."""
    return max(BATCH, 2 * builder.most_together)


class Evaluator:
    """Evaluates batches: all are lowered and compiled first, some while the search still looks for others, then measured one
    after the other on an otherwise idle machine.
    """

    def __init__(
        self,
        builder: AbstractBuilder,
        worker: AbstractWorker,
        journal: AbstractJournal,
        *,
        at_s: Callable[[], float],
        bound: Callable[[Candidate], float],
        interrupt: Interrupt,
        failed_folder: Path | None,
        is_given_up: Callable[[], bool] = lambda: False,
        hooks: Hooks | None = None,
    ) -> None:
        """Once `is_given_up` is true, or some time after the interrupt, waiting for a compiler raises Stopped."""
        hooks = hooks or Hooks()
        self._builder = builder
        self._worker = worker
        self._journal = journal
        self._dialect = builder.dialect()
        self._bound = bound
        self._at_s = at_s
        self._epoch_s = at_s() - time.monotonic()  # of the run's clock
        self._interrupt = interrupt
        self._failed_folder = failed_folder
        self._doubt = hooks.doubt
        self._scale = hooks.scale
        self._sources: OrderedDict[bytes, Source | Failure] = OrderedDict()
        self._is_given_up = lambda: is_given_up() or interrupt.since_s > _PATIENCE_S
        self._builds = BuildQueue(builder, _JOBS, JOBS_AHEAD, self._is_given_up)
        self._reports = hooks.reports
        self._place = hooks.place
        self._provenances: dict[bytes, Provenance] = {}  # of what is to be measured
        self.is_over: Callable[[], bool] = lambda: False
        self.before_measuring: Callable[[], None] = lambda: None
        """Called for every batch once its compilers are done: what is timed then is alone."""
        self.alike = Alike()
        self.n_disturbed = 0  # measurements that other work disturbed, more or less
        self.contenders = Contenders()
        self.control = Control(worker, self.contenders, hooks.on_change)

    def source(self, candidate: Candidate) -> Source | Failure:
        """Returns the candidate's text. A candidate that cannot be lowered is a failure like any other."""
        key = candidate.key
        found = self._sources.get(key)
        if found is None:
            try:
                found = print_source(lower(plan_of(candidate)), self._dialect)
            except Exception:
                text = traceback.format_exc()
                found = Failure("compile", "it could not be lowered", text)
            self._sources[key] = found
            if len(self._sources) > _KEPT_SOURCES:
                self._sources.popitem(last=False)
        return found

    def implementation_key(self, candidate: Candidate) -> bytes | None:
        """Returns a key that is equal for candidates of equal text; None where there is no text."""
        source = self.source(candidate)
        return source.key.encode() if isinstance(source, Source) else None

    def ahead(self, candidate: Candidate, n_to_come: int) -> None:
        """Announces a candidate of the next batch, with at most `n_to_come` more: compilers may begin."""
        source = self.source(candidate)
        if isinstance(source, Source) and not self._is_to_end():
            self._builds.put(source, n_to_come)

    def announce(self, candidate: Candidate, provenance: Provenance) -> None:
        """Records the provenance of a candidate that is to be measured."""
        self._provenances[candidate.key] = provenance

    def leave(self) -> None:
        """Drops the candidates that were to be measured. No compiler runs any more."""
        self._builds.forget()

    def __call__(self, candidates: Sequence[Candidate]) -> list[Outcome]:
        """Returns one outcome a candidate.

        Raises KeyboardInterrupt between two candidates when the interrupt is set, time `is_over` and anything was measured, or
        enough were wrong alike. Outcomes until then are in the journal and among the `contenders`.
        """
        if self._is_to_end():
            raise KeyboardInterrupt
        sources = [self.source(c) for c in candidates]
        artifacts = iter(self._builds.take([s for s in sources if isinstance(s, Source)]))
        if self._is_to_end():
            raise KeyboardInterrupt
        self.before_measuring()
        self.control.look()
        outcomes = []
        for candidate, source in zip(candidates, sources, strict=True):
            built = next(artifacts) if isinstance(source, Source) else source
            assert not isinstance(built, Source)
            if self._is_to_end():
                raise KeyboardInterrupt
            outcomes.append(self._measure(candidate, source, built))
        self._provenances.clear()  # candidates that the cut has overtaken need theirs no more
        return outcomes

    def _is_to_end(self) -> bool:
        # A run whose set-up took its time still has something to show for it.
        if self._interrupt.is_set or self.alike.are_enough:
            return True
        return bool(self.contenders.n) and self.is_over()

    def artifacts(
        self, candidates: Sequence[Candidate], builder: AbstractBuilder | None = None
    ) -> list[Artifact | Failure]:
        """Builds each candidate alone, as a replay does; by another builder of the same dialect where one is given. Raises
        Stopped.
        """
        by = self._builder if builder is None else builder
        return self._built(
            candidates, lambda sources: build_each(by, sources, _JOBS, self._is_given_up)
        )

    def built_by(
        self, builder: AbstractBuilder, entries: Sequence[Entry]
    ) -> list[Artifact | Failure]:
        """Builds each entry by another builder of the same dialect, several in one run of its compiler. Raises Stopped."""
        return self._built(
            [candidate for _, candidate in entries],
            lambda sources: build_many(builder, sources, _JOBS, self._is_given_up),
        )

    def _built(
        self,
        candidates: Sequence[Candidate],
        build: Callable[[Sequence[Source]], list[Artifact | Failure]],
    ) -> list[Artifact | Failure]:
        sources = [self.source(c) for c in candidates]
        built = iter(build([s for s in sources if isinstance(s, Source)]))
        return [s if isinstance(s, Failure) else next(built) for s in sources]

    def _measure(
        self, candidate: Candidate, source: Source | Failure, built: Artifact | Failure
    ) -> Outcome:
        found: Measurement | Failure
        started_s = time.monotonic()
        if isinstance(built, Failure):
            found = built
        else:
            built, found = self._run(source, built)
        if isinstance(found, Measurement):
            self.control.see(found)
        spent_s = time.monotonic() - started_s
        self.alike.see(found)
        self.n_disturbed += isinstance(found, Measurement) and found.is_disturbed
        key = source.key if isinstance(source, Source) else ""
        reported = Reported()
        # A source that did not compile is not compiled again for a report. One that needs too much for a launch was compiled.
        if isinstance(source, Source) and (isinstance(built, Artifact) or built.kind == "launch"):
            reported = self._reports(candidate, source)
        outcome = replace(
            _as_outcome(found, key),
            bound_ns=reported.bound_ns,
            spent_s=spent_s,
            slowness=self.control.slowness,
        )
        bound_ns = max(self._bound(candidate), reported.bound_ns)
        is_sure = outcome.time_ns is not None and not outcome.is_by_ratio
        if is_sure and (outcome.time_ns or 0.0) < bound_ns * self._scale():
            self._doubt()
        if outcome.time_ns is None and isinstance(source, Source):
            self._keep_failed(source, outcome)
        self._journal.append(
            EvaluationRecord(
                at_s=self._at_s(),
                decisions=open_decisions(candidate),
                source_key=key,
                status=outcome.status,  # type: ignore[arg-type]
                time_ns=outcome.time_ns,
                spread=outcome.spread,
                min_ns=found.min_ns if isinstance(found, Measurement) else None,
                bound_ns=bound_ns * self._scale(),
                detail=outcome.detail,
                stopped_early=isinstance(found, Measurement) and found.stopped_early,
                is_partly_verified=isinstance(found, Measurement) and found.is_partly_verified,
                slowness=self.control.slowness,
                launches=reported.launches or msgspec.UNSET,
                ratio=self._ratio_record(found),
                origin=self._origin(candidate),
                place=self._place(self._worker.n_restarts),
                timing=_timing(built, found, spent_s, self._epoch_s),
            )
        )
        if isinstance(found, Measurement) and isinstance(built, Artifact):
            entry, state = (outcome, candidate), self.control.state
            self.contenders.note(
                Timed(entry, found.time_ns, state, built),
                self.control.ratio(found.time_ns),
                is_partly_verified=found.is_partly_verified,
            )
        return outcome

    def _ratio_record(self, found: Measurement | Failure) -> RatioRecord | msgspec.UnsetType:
        if isinstance(found, Failure) or found.ratio is None:
            return msgspec.UNSET
        control = self.control
        return RatioRecord(ratio=found.ratio, control=control.key, control_ns=control.ns)

    def is_right(self, entry: Entry, artifact: Artifact) -> bool:
        """True if a candidate is right on all input sets.

        A candidate that was slow when it was first timed is verified on the other sets now. A wrong one is recorded as such, and
        is no contender any more.
        """
        outcome, candidate = entry
        if not self.contenders.is_partly_verified(outcome.key):
            return True
        found = self._worker.evaluate(artifact, _ONCE)
        if isinstance(found, Measurement):
            self.contenders.confirm(outcome.key)
            return True
        self.contenders.forget(outcome.key)
        wrong = _as_outcome(found, outcome.key)
        source = self.source(candidate)
        assert isinstance(source, Source), "it was built"
        self._keep_failed(source, wrong)
        earlier = standing_evaluations(self._journal.records())
        before = next(r for r in reversed(earlier) if r.source_key == outcome.key)
        self._journal.append(
            msgspec.structs.replace(
                before,
                at_s=self._at_s(),
                status=found.kind,
                time_ns=None,
                spread=0.0,
                min_ns=None,
                bound_ns=0.0,
                detail=wrong.detail,
                is_partly_verified=False,
                ratio=msgspec.UNSET,
                place=self._place(self._worker.n_restarts),
                timing=None,
            )
        )
        return False

    def _run(
        self, source: Source | Failure, built: Artifact
    ) -> tuple[Artifact | Failure, Measurement | Failure]:
        """Returns the artifact that was run, and its outcome. A library is built again where its folder was removed."""
        found = self._time(built)
        is_gone = self._builder.makes_libraries and not Path(built.path).exists()
        if isinstance(found, Failure) and is_gone and isinstance(source, Source):
            again = self._builder.build(source)
            return again, again if isinstance(again, Failure) else self._time(again)
        return built, found

    def _time(self, artifact: Artifact) -> Measurement | Failure:
        """Verifies and times a build. On a machine that does other work it is timed as a ratio to the control in turn, since few
        of the times would be of use.

        A candidate that would be the best is timed alone as well. That time counts unless it was disturbed.
        """
        control, claims_below_ns = self.control, self.contenders.claims_below_ns
        if control.is_disturbed:
            control.choose()
        protocol = Protocol(claims_below_ns=claims_below_ns, cut_ns=control.cut_ns())
        if not control.is_disturbed or control.artifact is None:
            return self._worker.evaluate(artifact, protocol)
        found = self._worker.evaluate_beside(
            artifact, control.artifact, replace(protocol, control_ns=control.ns)
        )
        if isinstance(found, Failure) or found.time_ns >= claims_below_ns:
            return found
        alone = self._worker.evaluate(artifact, protocol, verify=False)
        return found if isinstance(alone, Failure) or alone.is_disturbed else alone

    def _origin(self, candidate: Candidate) -> Origin | None:
        p = self._provenances.get(candidate.key)
        if p is None:
            return None
        return Origin(tag=p.tag, node=p.node, parent=p.parent.decode())

    def _keep_failed(self, source: Source, outcome: Outcome) -> None:
        """Writes the source of a failed candidate: it is a bug report on the generator, the compiler or the machine."""
        if self._failed_folder is None:
            return
        reason = outcome.detail.replace("*/", "* /")
        text = f"/* {outcome.status}: {reason} */\n{source.file_text}"
        name = f"{outcome.status}-{source.key}{source.suffix}"
        write_in(self._failed_folder, name, text.encode())


def _timing(
    built: Artifact | Failure, found: Measurement | Failure, run_s: float, epoch_s: float
) -> Timing:
    build_s, compiling_s = 0.0, None
    if isinstance(built, Artifact):
        build_s, compiling_s = 1e-9 * built.build_ns, built.compiling_s
    began, ended = (max(0.0, t + epoch_s) for t in compiling_s or (0.0, 0.0))
    timing = Timing(
        build_s=build_s,
        run_s=run_s,
        compiling_s=msgspec.UNSET if compiling_s is None else (began, ended),
    )
    if isinstance(found, Failure):
        return timing
    return msgspec.structs.replace(
        timing,
        n_samples=found.n_samples,
        n_disturbed=found.disturbed,
        quantiles_ns=found.quantiles_ns,
    )


def outcome_of(record: EvaluationRecord) -> Outcome:
    """Returns the outcome that an earlier session recorded."""
    r = record
    is_by_ratio = r.ratio is not msgspec.UNSET
    return Outcome(r.status, r.time_ns, r.spread, r.detail, r.source_key, is_by_ratio=is_by_ratio)


def open_decisions(candidate: Candidate) -> Decisions:
    """Returns the decisions of a candidate on choices that are open in the whole space, including decisions fixed before the
    search.
    """
    space = candidate.space
    root = (space.whole or space).open_root()
    assert not isinstance(root, DeadEnd)
    is_open = {space.choices[int(v)].name for v in root.open_choices()}
    return tuple((name, value) for name, value in to_names(candidate) if name in is_open)


def _as_outcome(found: Measurement | Failure, key: str) -> Outcome:
    if isinstance(found, Measurement):
        is_by_ratio = found.ratio is not None
        return Outcome("ok", found.time_ns, found.spread, "", key, is_by_ratio=is_by_ratio)
    detail = f"{found.advice}\n{found.log}".strip()[:_DETAIL_CHARACTERS]
    return Outcome(found.kind, None, 0.0, detail, key)
