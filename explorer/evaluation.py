"""Evaluation of candidates: a pool of workers runs their text, and a journal records the outcomes.

The journal has every outcome on disk before the search sees it.
"""

from __future__ import annotations

import time
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from ..codegen.by_component import EvaluatedSources
from ..codegen.text.source import Source
from ..runtime.api.artifact import Artifact
from ..runtime.api.backend import AbstractBuilder
from ..runtime.api.outcome import Failure, Measurement
from ..runtime.files import write_in
from ..runtime.records.journal import AbstractJournal
from ..runtime.records.record import (
    Decisions,
    EvaluationRecord,
    LaunchRecord,
    MeasurementOrigin,
    Origin,
    RatioRecord,
    Timing,
    standing_evaluations,
)
from ..runtime.worker.control import Control
from ..runtime.worker.messages import Done, Ticket, Work
from ..runtime.worker.pool import AbstractPool
from ..search.asking import Ask, Tell, Trial
from ..search.budget import Interrupt
from ..search.events import Outcome
from ..space.candidate import Candidate, DeadEnd
from ..space.decisions import to_names
from .alike import EqualFailures
from .component_rows import ComponentRows

_KEPT_SOURCES = 512
_LONG_TEXTS = 100_000  # characters: a second of a compiler, or more
_KEPT_ENTRIES = 2048
BATCH = 8  # candidates measured in a row, at first
FIRST_BATCH = 4  # before anything is shown: three warm starts and the default
_DETAIL_CHARACTERS = 2000
_ASIDE = 2.0  # times of a search beside other work are off by so much

Entry = tuple[Outcome, Candidate]


@dataclass(frozen=True, slots=True)
class Reported:
    """A compiler's report on a candidate's launches, and the lower bound that follows; empty without a report."""

    launches: tuple[LaunchRecord, ...] = ()
    bound_ns: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Hooks:
    """Callbacks of an evaluator.

    `doubt` is called for a time below its bound times `scale`, before the search receives the time: the machine may have become
    faster than its calibration. `reports` is called for every candidate that compiled. `place` returns the journal's record of
    where a measurement was made: (number of the worker process, name of the slot, number of the slot's work item).
    """

    doubt: Callable[[], None] = lambda: None
    scale: Callable[[], float] = lambda: 1.0
    reports: Callable[[Candidate, Source], Reported] = lambda candidate, source: Reported()
    place: Callable[[int, str, int], MeasurementOrigin | None] = lambda worker, slot, number: None


def largest_batch(builder: AbstractBuilder) -> int:
    """Returns the maximum number of candidates in a batch: two runs of the compiler, and at least `BATCH`."""
    return max(BATCH, 2 * builder.most_together)


class SearchEvaluator:
    """Evaluates the candidates of a search: lowers them, submits their text to a pool, and records the outcomes."""

    def __init__(
        self,
        pool: AbstractPool,
        builder: AbstractBuilder,
        journal: AbstractJournal,
        *,
        at_s: Callable[[], float],
        bound: Callable[[Candidate], float],
        interrupt: Interrupt,
        failed_folder: Path | None,
        hooks: Hooks | None = None,
    ) -> None:
        hooks = hooks or Hooks()
        self._pool = pool
        self._journal = journal
        self._lowering = EvaluatedSources(builder.dialect())
        self._bound = bound
        self._at_s = at_s
        self._epoch_s = at_s() - time.monotonic()  # of the run's clock
        self._interrupt = interrupt
        self._failed_folder = failed_folder
        self._doubt = hooks.doubt
        self._scale = hooks.scale
        self._sources: OrderedDict[bytes, Source | Failure] = OrderedDict()
        self._wholes: dict[bytes, Source] = {}  # as one text: few, in the last rounds
        self._times_components = False
        self._reports = hooks.reports
        self._rows = ComponentRows()
        self._place = hooks.place
        self._submitted: dict[Ticket, Trial] = {}
        self._unwritten: deque[tuple[Trial, Failure]] = deque()  # trials that have no text
        self._entries: dict[str, Entry] = {}  # by source key
        self.is_over: Callable[[], bool] = lambda: False
        self.alike = EqualFailures()
        self.n_disturbed = 0  # measurements that other work disturbed, more or less
        self.contenders = pool.machine.contenders
        pool.is_over = self._is_to_end

    @property
    def control(self) -> Control:
        """The control program of the machine, timed beside each batch as a reference."""
        return self._pool.machine.control

    def source(self, candidate: Candidate) -> Source | Failure:
        """Returns the source text of a candidate; a Failure of kind "compile" if it cannot be lowered."""
        key = candidate.key
        found = self._sources.get(key)
        if found is None:
            try:
                found = self._lowering.source(candidate)
            except Exception:
                text = traceback.format_exc()
                found = Failure("compile", "it could not be lowered", text)
            self._sources[key] = found
            if len(self._sources) > _KEPT_SOURCES:
                self._sources.popitem(last=False)
        return found

    def implementation_key(self, candidate: Candidate) -> bytes | None:
        """Returns a key of the candidate's source text; equal texts have equal keys. None without a text."""
        source = self.source(candidate)
        return source.key.encode() if isinstance(source, Source) else None

    def component_key(self, candidate: Candidate, component: int) -> bytes | None:
        """Returns a key of the text of one component of a candidate; None if the component has no text of its own."""
        try:
            found = self._lowering.component_key(candidate, component)
        except Exception:  # it is recorded as that of the candidate
            return None
        return None if found is None else found.encode()

    def is_long(self, candidate: Candidate) -> bool:
        """True if compilers take a second or more for a candidate: it is measured before others are compiled."""
        source = self.source(candidate)
        return isinstance(source, Source) and source.n_characters > _LONG_TEXTS

    def time_components(self, candidate: Candidate) -> bool:
        """Turns timing of single components on if the program of `candidate` has several. Returns True if so."""
        source = self.source(candidate)
        self._times_components = isinstance(source, Source) and bool(source.components)
        return self._times_components

    def ahead(self, candidate: Candidate, n_to_come: int) -> None:
        """Submits a candidate of the next batch to the compilers early; at most `n_to_come` more will follow."""
        source = self.source(candidate)
        if isinstance(source, Source):
            self._pool.ahead(Work(source), n_to_come)

    def begin(self, candidates: Sequence[Candidate], known: Container[bytes]) -> None:
        """Submits the candidates of the first batch to the compilers early, except those whose outcome is in `known`.

        Short texts are submitted together, so that one compiler run takes several. Long ones compile while others are lowered.
        """
        announced: set[str] = set()
        written: list[Source] = []
        for candidate in candidates:
            s = self.source(candidate)
            if isinstance(s, Source) and s.key not in announced and s.key.encode() not in known:
                announced.add(s.key)
                written.append(s)
            if sum(x.n_characters for x in written) > _LONG_TEXTS:
                self._pool.begin(list(map(Work, written)))
                written.clear()
        self._pool.begin(list(map(Work, written)))

    def leave(self) -> None:
        """Drops all submitted candidates and stops their compilers.

        Measurements that finished meanwhile are recorded.
        """
        submitted, self._submitted = self._submitted, {}
        for done in self._pool.drop():
            if done.ticket in submitted:
                self._record(submitted[done.ticket], done)

    def answer(self, ask: Ask) -> Tell | None:
        """Submits the trials of `ask`, and returns the next outcome, after the journal has it.

        None if evaluation has ended: after an interrupt, after enough equally wrong candidates, after `is_over` with something
        measured, or when a worker or a compiler took too long.
        """
        for trial in ask.trials:
            assert isinstance(trial.candidate, Candidate)
            source = self.source(trial.candidate)
            if isinstance(source, Source):
                work = Work(source, times_components=self._times_components)
                self._submitted[self._pool.submit(work)] = trial
            else:
                self._unwritten.append((trial, source))
        if self._unwritten and not self._is_to_end():
            trial, failure = self._unwritten.popleft()
            return Tell(trial.key, self._record(trial, Done(ticket=Ticket(-1), failed=failure)))
        done = next(self._pool.done(), None)
        if done is None:
            self._unwritten.clear()
            return None
        trial = self._submitted.pop(done.ticket)
        return Tell(trial.key, self._record(trial, done))

    def __call__(self, candidates: Sequence[Candidate]) -> list[Outcome]:
        """Returns the outcomes of distinct candidates, without those left unmeasured when evaluation ended."""
        outcomes: dict[bytes, Outcome] = {}
        ask = Ask(tuple(Trial(c.key, c) for c in candidates))
        while len(outcomes) < len(candidates) and (tell := self.answer(ask)) is not None:
            outcomes[tell.key] = tell.outcome
            ask = Ask()
        return [outcomes[c.key] for c in candidates if c.key in outcomes]

    def adopt(self, entry: Entry, *, is_partly_verified: bool) -> None:
        """Adds a candidate that an earlier session measured to the contenders for the best."""
        outcome = entry[0]
        if outcome.time_ns is not None:
            self._keep(entry)
            self.contenders.adopt(
                outcome.key,
                outcome.time_ns,
                is_by_ratio=outcome.is_by_ratio,
                is_partly_verified=is_partly_verified,
            )

    def top(self, n: int) -> list[Entry]:
        """The n fastest distinct implementations measured or adopted so far, best first."""
        return self._recorded(self.contenders.top(n))

    def finalists(self, n: int, near: float) -> list[Entry]:
        """Returns at most n candidates that may be fastest in one of the observed machine states, best first.

        `near`: largest ratio of a candidate's time to the best time in its state.
        """
        return self._recorded(self.contenders.finalists(n, near))

    def apart(self) -> list[Entry]:
        """The implementations outside of the tree that took at most `_ASIDE` times as long as the best."""
        best = self.top(1)
        most_ns = _ASIDE * (best[0][0].time_ns or 0.0) if best else 0.0
        aside = (e for e in self._entries.values() if e[1].is_apart)
        return [e for e in aside if e[0].time_ns is not None and e[0].time_ns <= most_ns]

    def _recorded(self, keys: Sequence[str]) -> list[Entry]:
        """Returns the entries (outcome and candidate) of these source keys, as far as they were recorded."""
        return [self._entries[key] for key in keys if key in self._entries]

    def _keep(self, entry: Entry) -> None:
        self._entries[entry[0].key] = entry
        if len(self._entries) > _KEPT_ENTRIES:
            self._entries = {k: e for k, e in self._entries.items() if k in self.contenders}

    def _is_to_end(self) -> bool:
        # A run whose set-up took its time still has something to show for it.
        if self._interrupt.is_set or self.alike.are_enough:
            return True
        return bool(self.contenders.n) and self.is_over()

    def artifacts(self, candidates: Sequence[Candidate]) -> list[Artifact | Failure]:
        """Builds each candidate by itself: as units if it has several components. Raises Stopped."""
        return self._built(candidates, lambda sources: self._pool.build_each(sources, None))

    def whole(self, candidate: Candidate) -> Source | Failure:
        """Returns the candidate as one source text without units, as a replay builds it."""
        source = self.source(candidate)
        if isinstance(source, Failure) or not source.units:
            return source
        if candidate.key not in self._wholes:
            self._wholes[candidate.key] = self._lowering.whole(candidate)
        return self._wholes[candidate.key]

    def alone(
        self, candidate: Candidate, builder: AbstractBuilder | None = None
    ) -> Artifact | Failure:
        """Builds a candidate as one source text, with `builder` of the same dialect if given. Raises Stopped."""
        source = self.whole(candidate)
        if isinstance(source, Failure):
            return source
        return self._pool.build_each([source], builder)[0]

    def verified_alone(self, candidate: Candidate) -> Artifact | Failure:
        """Builds a candidate as one source text, and verifies the build if only its units were verified before.

        Raises Stopped.
        """
        built = self.alone(candidate)
        source = self.source(candidate)
        if isinstance(built, Failure) or isinstance(source, Failure) or not source.units:
            return built
        return self._pool.machine.fault(built) or built

    def built_by(
        self, builder: AbstractBuilder, entries: Sequence[Entry]
    ) -> list[Artifact | Failure]:
        """Builds each entry with `builder` of the same dialect, several in one run of its compiler.

        Raises Stopped.
        """
        return self._built(
            [candidate for _, candidate in entries],
            lambda sources: self._pool.build_together(sources, builder),
        )

    def _built(
        self,
        candidates: Sequence[Candidate],
        build: Callable[[Sequence[Source]], list[Artifact | Failure]],
    ) -> list[Artifact | Failure]:
        sources = [self.source(c) for c in candidates]
        built = iter(build([s for s in sources if isinstance(s, Source)]))
        return [s if isinstance(s, Failure) else next(built) for s in sources]

    def _record(self, trial: Trial, done: Done) -> Outcome:
        """Writes the result of a trial to the journal, and returns it as an outcome."""
        candidate, found = trial.candidate, done.found
        assert isinstance(candidate, Candidate)
        source = self.source(candidate)
        self.alike.see(found)
        self.n_disturbed += isinstance(found, Measurement) and found.is_disturbed
        key = source.key if isinstance(source, Source) else ""
        reported = Reported()
        # A source that did not compile is not compiled again for a report. One that needs too much for a launch was compiled.
        is_built = done.artifact is not None or (
            isinstance(found, Failure) and found.kind == "launch"
        )
        if isinstance(source, Source) and is_built:
            reported = self._reports(candidate, source)
        outcome = replace(
            _as_outcome(found, key),
            bound_ns=reported.bound_ns,
            spent_s=done.run_s,
            slowness=done.slowness,
        )
        bound_ns = max(self._bound(candidate), reported.bound_ns)
        is_sure = outcome.time_ns is not None and not outcome.is_by_ratio
        if is_sure and (outcome.time_ns or 0.0) < bound_ns * self._scale():
            self._doubt()
        if outcome.time_ns is None and isinstance(source, Source):
            self._keep_failed(source, outcome)
        decisions = open_decisions(candidate)
        texts = source.components if isinstance(source, Source) else ()
        self._journal.append(
            EvaluationRecord(
                at_s=self._at_s(),
                decisions=decisions,
                source_key=key,
                status=outcome.status,  # type: ignore[arg-type]
                time_ns=outcome.time_ns,
                spread=outcome.spread,
                min_ns=found.min_ns if isinstance(found, Measurement) else None,
                bound_ns=bound_ns * self._scale(),
                detail=outcome.detail,
                stopped_early=isinstance(found, Measurement) and found.stopped_early,
                is_partly_verified=isinstance(found, Measurement) and found.is_partly_verified,
                slowness=done.slowness,
                launches=reported.launches or msgspec.UNSET,
                components=self._rows.rows(candidate.space, decisions, texts, found),
                ratio=_ratio_record(done),
                origin=_origin(trial),
                place=self._place(done.worker, done.slot, done.number),
                timing=_timing(done, self._epoch_s),
            )
        )
        if outcome.time_ns is not None:
            self._keep((outcome, candidate))
        return outcome

    def is_right(self, entry: Entry, artifact: Artifact) -> bool:
        """True if a candidate is right on all input sets.

        A wrong one is recorded as wrong and removed from the contenders.
        """
        outcome, candidate = entry
        found = self._pool.machine.refuted(outcome.key, artifact)
        if found is None:
            return True
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
                components=msgspec.UNSET,
                place=self._place(self._pool.machine.worker, self._pool.machine.slot, 0),
                timing=None,
            )
        )
        return False

    def _keep_failed(self, source: Source, outcome: Outcome) -> None:
        """Writes the source of a failed candidate to the failed folder, as material for a bug report."""
        if self._failed_folder is None:
            return
        reason = outcome.detail.replace("*/", "* /")
        text = f"/* {outcome.status}: {reason} */\n{source.file_text}"
        name = f"{outcome.status}-{source.key}{source.suffix}"
        write_in(self._failed_folder, name, text.encode())


def _ratio_record(done: Done) -> RatioRecord | msgspec.UnsetType:
    if done.measured is None or done.measured.ratio is None:
        return msgspec.UNSET
    return RatioRecord(ratio=done.measured.ratio, control=done.control, control_ns=done.control_ns)


def _origin(trial: Trial) -> Origin | None:
    p = trial.provenance
    return None if p is None else Origin(tag=p.tag, node=p.node, parent=p.parent.decode())


def _timing(done: Done, epoch_s: float) -> Timing:
    build_s, compiling_s = 0.0, None
    if done.artifact is not None:
        build_s, compiling_s = 1e-9 * done.artifact.build_ns, done.artifact.compiling_s
    began, ended = (max(0.0, t + epoch_s) for t in compiling_s or (0.0, 0.0))
    timing = Timing(
        build_s=build_s,
        run_s=done.run_s,
        compiling_s=msgspec.UNSET if compiling_s is None else (began, ended),
    )
    if done.measured is None:
        return timing
    return msgspec.structs.replace(
        timing,
        n_samples=done.measured.n_samples,
        n_disturbed=done.measured.disturbed,
        quantiles_ns=done.measured.quantiles_ns,
    )


def outcome_of(record: EvaluationRecord) -> Outcome:
    """Returns the outcome that the journal record of an earlier evaluation holds."""
    r = record
    is_by_ratio = r.ratio is not msgspec.UNSET
    rows = () if r.components is msgspec.UNSET else r.components
    return Outcome(
        r.status,
        r.time_ns,
        r.spread,
        r.detail,
        r.source_key,
        is_by_ratio=is_by_ratio,
        component_ns=tuple(row.time_ns for row in rows),
    )


def open_decisions(candidate: Candidate) -> Decisions:
    """Returns a candidate's decisions on choices that are open in the whole space.

    These include decisions fixed before the search.
    """
    space = candidate.space
    root = (space.whole or space).open_root()
    assert not isinstance(root, DeadEnd)
    is_open = {space.choices[int(v)].name for v in root.open_choices()}
    return tuple((name, value) for name, value in to_names(candidate) if name in is_open)


def _as_outcome(found: Measurement | Failure, key: str) -> Outcome:
    if isinstance(found, Measurement):
        is_by_ratio = found.ratio is not None
        return Outcome(
            "ok",
            found.time_ns,
            found.spread,
            "",
            key,
            is_by_ratio=is_by_ratio,
            component_ns=found.component_ns,
        )
    detail = f"{found.advice}\n{found.log}".strip()[:_DETAIL_CHARACTERS]
    return Outcome(found.kind, None, 0.0, detail, key)
