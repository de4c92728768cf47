"""One session of a run: prepare, compare, search, time the best again, keep; all told as events."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from ..codegen.c.source import Source
from ..kernels.offload.closed import closed_tasks
from ..runtime.apart import Stopped, over_after
from ..runtime.device import DeviceOptions, open_device
from ..runtime.records.folder import JOURNAL
from ..runtime.records.journal import FileJournal
from ..runtime.records.replay import restore_complete
from ..runtime.reference import Reference
from ..runtime.worker.inputs import make_workload
from ..runtime.worker.outcome import Failure
from ..runtime.worker.worker import WorkerError, Workload
from ..search import events as ev
from ..search.bound.bounder import Bounder
from ..search.budget import AbstractRule, Budget, Evaluations, Gap, Interrupt, Seconds
from ..search.incumbent import BoundScale
from ..search.inputs import Guidance, History, Oracle
from ..search.learn.surrogate import Surrogate
from ..search.options import Batches, SearchOptions
from ..search.precompile import precompile
from ..search.run import search
from ..search.starts.complete import sketched_candidates, solved_candidates
from ..search.tree.ordering import NextChoice
from ..space.constraints import build_space
from ..space.engine.candidate import Candidate, DeadEnd, Space
from ..space.targets.target import Target
from . import stages as st
from .compiler_comparison import N_RIVALS, Rival, Rivalry
from .doubts import doubts_of
from .evaluation import BATCH, FIRST_BATCH, Entry, Evaluator, largest_batch
from .machine import (
    believed_now,
    bound_now,
    conditions_of,
    look_at,
    lower_to,
    lower_to_earlier,
    open_worker,
)
from .numpy_timing import NumpyTiming
from .registers import Registers
from .remeasure import NEAR, comparison, time_again, with_default
from .run_writer import Keeper, Kept
from .user_reference import UserReference, WrongReferenceError, stopped_when
from .workload import Options, Subject

_LEAST_SEARCH_SHARE = 0.3  # of the time limit, whatever the preparation took
_FINAL_SHARE = 0.15  # of the time limit, for timing the best candidates again
_FINAL_S = 12.0  # and at most so long
_RIVALS_SHARE = 0.33  # of that, for what other compilers make of them
_CUT = "the best time"  # sets the bound where all that is open is slower
_LEAST_REFERENCE_SHARE = 0.5  # of the time limit, whatever other preparation took
_NUMPY_SHARE = 0.25  # of the time limit, for the user's NumPy function
_LATE_SHARE = 0.25  # of the time limit: what the last evaluation may take beyond it
_PATIENCE_S = 1.0  # what a running evaluation is given once the user has interrupted
_SLACK = 1e-3  # a time so little below the bound is noise of the clock, not a wrong bound

Tell = Callable[[st.Stage | ev.Event], None]
"""Takes every event of a session."""


class Session:
    """One session of a run in `folder`: its first, or one that goes on where another ended.

    `run` raises DeviceError, WorkerError, RecordError and StaleError, each with one sentence.
    """

    def __init__(
        self, subject: Subject, options: Options, folder: Path, tell: Tell, interrupt: Interrupt
    ) -> None:
        self._subject = subject
        self._options = options
        self._folder = folder
        self._tell = tell
        self._interrupt = interrupt
        self._started_s = time.monotonic()
        self._default: Entry | None = None
        self._default_ns: float | None = None
        self._is_all_right = True  # as far as anything was verified
        self._n_sets = 0
        self._is_final_disturbed = False
        self._has_looked = False  # at the machine
        self._last_s = math.inf  # when even what is running is given up
        self._preparing_s = 0.0  # what a worker takes to take over the arguments
        self._bound_ns: float | None = None
        self._root_ns = 0.0  # of the root, unscaled
        # On the machine as it was in the final re-measurement.
        self._bound_now_ns: float | None = None
        self._compiler = ""
        self._scale = BoundScale()
        self._closed = closed_tasks(subject.problem)

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._started_s

    def run(self) -> st.Ended:
        """Everything, from the first record to the saved result."""
        o = self._options
        with self._interrupt.immediate():
            precompile(lambda text: self._tell(st.Compiling(text)))
        self._started_s = (
            time.monotonic()
        )  # what is compiled once a version is no part of the session's time
        device = open_device(
            o.target, DeviceOptions(compiler=o.compiler, compile_timeout_s=o.compile_timeout_s)
        )
        with FileJournal(self._folder / JOURNAL) as journal, open_worker(device) as worker:
            worker.end_when(self._is_past_waiting)
            with self._interrupt.immediate():
                worker.start()  # meanwhile this process has a core of its own
                target = device.machine.facts()
                space = build_space(self._subject.problem, target)
                root = space.root()
                conditions = conditions_of(device, worker)
            keeper = Keeper(self._folder, journal, self._subject, o, space, conditions)
            self._numpy = NumpyTiming(self._subject, keeper, o.time_limit_s)
            keeper.begin()
            self._tell_opened(keeper, space, target, device.machine.calibrated_by)
            if isinstance(root, DeadEnd):
                return self._tell_end("infeasible", None, None, keeper, 0)
            self._keeper, self._journal = keeper, journal
            self._device, self._worker, self._target = device, worker, target
            self._compiler = device.reporter.version()
            try:
                return self._explore(space, root)
            except Stopped:  # before anything was measured
                return self._end_early()

    def _tell_opened(
        self, keeper: Keeper, space: Space, target: Target, calibrated_by: str
    ) -> None:
        o = self._options
        n_resumed = len(keeper.evaluations)
        elapsed_s = self._elapsed_s
        self._tell(
            st.Opened(
                self._folder,
                self._subject.problem,
                space,
                target,
                o.seed,
                o.given,
                n_resumed,
                elapsed_s,
                calibrated_by,
                self._subject.stored.changes() if n_resumed else (),
            )
        )

    # ------------------------------------------------------------------ searching

    def _explore(self, space: Space, root: Candidate) -> st.Ended:
        self._space, self._root = space, root
        bounder = Bounder(space)
        whole = bounder.bound(root)
        doubted = set(self._keeper.notes("alarm"))
        lower_to_earlier(
            self._scale,
            self._keeper.evaluations,
            doubted,
            lambda r: bounder.ns(restore_complete(space, r.decisions)),
        )
        self._bound_ns = whole.ns * self._scale.factor
        self._root_ns = whole.ns
        self._tell(st.Rooted(self._bound_ns, whole.terms, whole.limiting))
        self._bounder = bounder
        self._keeper.bound(self._bound_ns, lambda: whole.limiting)
        self._keeper.plant(self._bound_ns)
        self._prepare()
        registers = Registers(self._device.reporter, space, bounder)
        registers.recall(self._keeper.evaluations)
        evaluator = self._evaluator = Evaluator(
            self._device.builder,
            self._worker,
            self._journal,
            at_s=self._keeper.at_s,
            bound=bounder.ns,
            interrupt=self._interrupt,
            failed_folder=self._folder / "failed",
            doubt=self._look_again,
            scale=lambda: self._scale.factor,
            on_change=self._meet_change,
            reports=registers.reports,
            place=self._keeper.place,
        )
        evaluator.before_measuring = self._look_at_what_is_beside
        sketched = sketched_candidates(space)
        firsts = [candidate for _, candidate in sketched]
        solved = solved_candidates(space, sketched)
        surrogate = Surrogate(space)
        for r in self._keeper.evaluations:
            ns = None if r.time_ns is None else r.time_ns / r.slowness
            surrogate.recall(root, r.decisions, ns)
        known, warm = self._keeper.known(), self._warm(space)
        self._recall_default(firsts, known)
        finished: ev.Finished | None = None
        held: list[ev.Event] = []
        oracle = Oracle[Candidate](
            bound=bounder.ns,
            evaluate=evaluator,
            key=evaluator.implementation_key,
            scale=self._scale,
            announce=evaluator.announce,
            ahead=evaluator.ahead,
        )
        guidance = Guidance[Candidate](
            next_choice=NextChoice(space),
            neighbour=registers.neighbour,
            expected=registers.expected_ns if self._device.reporter.reports else None,
            surrogate=surrogate,
            widened=registers.widened,
            names=_names_of(space),
        )
        history = History[Candidate](
            outcomes=known,
            doubted=[text.encode() for text in self._keeper.notes("alarm")],
            incumbents=firsts[:1],
            warm_starts=chain(warm, firsts[1:], solved),
        )
        batches = Batches(
            first=FIRST_BATCH, size=BATCH, largest=largest_batch(self._device.builder)
        )
        found = search(
            registers.widened() or root,
            oracle,
            guidance,
            history,
            self._budget(),
            np.random.default_rng([self._options.seed, len(known)]),
            SearchOptions(
                strategy=self._options.strategy, n_top=self._options.final_top, batches=batches
            ),
        )
        try:
            for event in found:
                if isinstance(event, ev.Finished):
                    finished = event
                elif self._default is None and firsts:
                    # Those measured before the default, in the same batch, are told after it: it is what they are compared with.
                    held.append(event)
                    if isinstance(event, ev.Evaluated) and event.tag == "U":
                        self._hear_all([held.pop(), *held])
                        held.clear()
                else:
                    self._hear(event)
        finally:
            evaluator.leave()
        assert finished is not None
        self._hear_all(held)
        return self._end(finished)

    def _hear_all(self, events: Sequence[ev.Event]) -> None:
        for event in events:
            self._hear(event)

    def _look_again(self) -> None:
        """Lower bounds to the machine as it is now: as it was not seen yet, or something was faster than its bound."""
        self._has_looked = True
        with suppress(WorkerError, Stopped):  # then nothing new is known of it
            lower_to(self._scale, self._target, look_at(self._device, self._worker))

    def _looked_at_last(self, finished: ev.Finished) -> ev.Finished:
        """What a search within its first batch says of the machine as it is now."""
        before = self._scale.factor
        self._look_again()
        if finished.bound_ns is None or self._scale.factor == before:
            return finished
        t = finished.tally
        is_by_bound = t.pruned_bound + t.rollout_bound + t.near_bound + t.overtaken > 0
        is_unproved = finished.status == "optimal" and is_by_bound
        return replace(
            finished,
            status="exhausted" if is_unproved else finished.status,
            bound_ns=finished.bound_ns * self._scale.factor / before,
        )

    def _look_at_what_is_beside(self) -> None:
        """The machine and NumPy, once the first candidates were shown: either may take as long as all of them."""
        if self._default is None:
            return
        if not self._has_looked:
            self._look_again()
        if self._numpy.is_due and not self._numpy.is_disturbed:
            self._take_numpy()

    def _prepare(self) -> None:
        """Hand the inputs to the worker."""
        s, o = self._subject, self._options
        rng = np.random.default_rng(o.seed)
        is_over, is_enough = self._limits_of_reference()
        with self._interrupt.immediate():
            workload = make_workload(
                s.recording,
                s.problem,
                s.arguments,
                rng,
                o.input_sets,
                Reference(is_over),
                is_enough,
                s.more,
            )
        self._n_sets = sum(bool(s.expected) for s in workload.sets)
        if s.user_reference is not None and self._numpy.ns is None:
            self._numpy.know(self._check_reference(s.user_reference, workload))
        started_s = time.monotonic()
        with self._interrupt.immediate():
            self._worker.prepare(workload)
        self._preparing_s = time.monotonic() - started_s

    @property
    def _is_late(self) -> bool:
        limit_s = self._options.time_limit_s
        return limit_s is not None and self._elapsed_s > limit_s - self._final_s

    def _take_numpy(self) -> None:
        told = self._numpy.take(self._device, self._worker, lambda: self._interrupt.is_set)
        if told is not None:
            self._tell(told)

    def _check_reference(self, reference: UserReference, workload: Workload) -> float | None:
        """Compare the user's NumPy function with the kernels and time it; None where that takes too long.

        Raises WrongReferenceError and FailedReferenceError.
        """
        limit_s = _NUMPY_SHARE * (self._options.time_limit_s or math.inf)
        took_s: float | None = None
        try:
            with self._interrupt.immediate(), stopped_when(over_after(limit_s)):
                took_s = reference.compare(self._subject.stored.parameters, workload)
                return reference.time_ns(took_s)
        except Stopped:
            if self._interrupt.is_set:
                raise
            self._tell(st.ReferenceTooSlow(limit_s, took_s is not None))
            return None
        except WrongReferenceError as e:
            self._keeper.note("reference", str(e))
            raise

    def _limits_of_reference(self) -> tuple[Callable[[], bool], Callable[[], bool]]:
        """Whether the reference is to end, and whether no more input sets are to be made: after what is left of the time limit, and
        half of that. Where other preparation took more than half, half of the limit is for the reference all the same.
        """
        limit_s = self._options.time_limit_s
        if limit_s is None:
            return (lambda: self._interrupt.is_set), (lambda: False)
        left_s = max(limit_s - self._elapsed_s, _LEAST_REFERENCE_SHARE * limit_s)
        is_late, is_half_late = over_after(left_s), over_after(left_s / 2)
        return (lambda: self._interrupt.is_set or is_late()), is_half_late

    def _is_past_waiting(self) -> bool:
        """Whether no answer of a worker is of use any more."""
        return time.monotonic() > self._last_s or self._interrupt.since_s > _PATIENCE_S

    def _end_early(self) -> st.Ended:
        """Where preparing alone took the time there was."""
        if self._interrupt.is_set:
            return self._tell_end("interrupted", None, None, self._keeper, 0)
        assert self._options.time_limit_s is not None
        self._tell(st.OutOfTime(self._options.time_limit_s))
        return self._tell_end("time_limit", None, None, self._keeper, 0)

    def _warm(self, space: Space) -> list[Candidate]:
        """The best candidates of earlier sessions."""
        timed = {r.source_key: r for r in self._keeper.evaluations if r.time_ns is not None}
        best = sorted(timed.values(), key=lambda r: r.time_ns or 0.0)
        warm = []
        for r in best[: self._options.final_top]:
            candidate = restore_complete(space, r.decisions)
            outcome = ev.Outcome(r.status, r.time_ns, r.spread, r.detail, r.source_key)
            self._evaluator.adopt(candidate, outcome)
            warm.append(candidate)
        return warm

    def _recall_default(self, firsts: list[Candidate], known: dict[bytes, ev.Outcome]) -> None:
        """The time of the default from an earlier session: this one may prune it unseen."""
        key = self._evaluator.implementation_key(firsts[0]) if firsts else None
        if key is not None and key in known:
            self._meet_default(known[key], firsts[0])

    def _meet_default(self, outcome: ev.Outcome, candidate: Candidate) -> None:
        self._default, self._default_ns = (outcome, candidate), outcome.time_ns
        self._tell(st.Compared(self._default_ns, self._numpy.ns, self._n_sets))

    def _budget(self) -> Budget:
        o = self._options
        rules: list[AbstractRule] = []
        if o.gap > 0:
            rules.append(Gap(o.gap))
        if o.max_evals is not None:
            rules.append(Evaluations(o.max_evals))
        if o.time_limit_s is not None:
            left_s = o.time_limit_s - self._elapsed_s - self._final_s
            search_s = max(left_s, _LEAST_SEARCH_SHARE * o.time_limit_s)
            rules.append(Seconds(search_s))
            # A batch of slow candidates must not carry the search far beyond its time.
            end_s = time.monotonic() + search_s
            self._last_s = end_s + self._final_s + _LATE_SHARE * o.time_limit_s + _PATIENCE_S
            self._evaluator.is_over = lambda: time.monotonic() > end_s
        return Budget(*rules, interrupt=self._interrupt)

    @property
    def _final_s(self) -> float:
        limit_s = self._options.time_limit_s
        return _FINAL_S if limit_s is None else min(_FINAL_S, _FINAL_SHARE * limit_s)

    def _hear(self, event: ev.Event) -> None:
        """Keep what must outlive the session, and pass the event on."""
        if (
            isinstance(event, ev.Evaluated)
            and event.outcome.status == "wrong"
            and self._is_all_right
        ):
            self._is_all_right = False
            self._tell(st.FirstWrong(event.outcome.key, event.outcome.detail))
        match event:
            case ev.Evaluated(tag="U") if self._default is None:
                assert isinstance(event.candidate, Candidate)
                self._meet_default(event.outcome, event.candidate)
            case ev.NewIncumbent(best=best):
                self._keeper.incumbent(best.outcome.key, best.time_ns)
                if isinstance(best.candidate, Candidate):
                    self._keep(best.outcome, best.candidate, "running")
            case ev.BoundMoved() | ev.Row() if self._closed:
                self._hear_of_what_is_open(event)
                return
            case ev.BoundMoved(bound_ns=bound_ns, candidate=candidate):
                self._bound_ns = bound_ns
                self._keeper.bound(bound_ns, lambda: self._limiting(candidate))
            case ev.NodeExpanded() | ev.Pruned() | ev.Reopened():
                self._keeper.grow(event)
            case ev.Widened(bound_ns=bound_ns):
                self._keeper.plant(bound_ns)
            case ev.Row(tally=tally):
                self._keeper.tally(tally)
                if not self._device.machine.times_count:
                    event = replace(event, gap=None)
            case ev.AdmissibilityAlarm(key=key):
                self._bound_ns = None
                self._keeper.note("alarm", key.decode(errors="replace"))
        self._tell(event)

    def _limiting(self, candidate: object) -> str:
        """The resource that limits the node which sets the bound."""
        if isinstance(candidate, Candidate):
            return self._bounder.bound(candidate).limiting
        return _CUT

    def _meet_change(self, ratio: float) -> None:
        self._keeper.machine(ratio)
        self._tell(st.MachineChanged(ratio))

    def _hear_of_what_is_open(self, event: ev.BoundMoved | ev.Row) -> None:
        """What the search proves holds of closed bodies as they are written: of all implementations only the root's bound does."""
        if isinstance(event, ev.BoundMoved):
            return
        self._keeper.tally(event.tally)
        self._bound_ns = None if event.bound_ns is None else self._whole_ns
        gap = None
        if event.best_ns is not None and self._bound_ns is not None:
            gap = max(0.0, 1 - self._bound_ns / event.best_ns)
        self._tell(replace(event, bound_ns=self._bound_ns, gap=gap))

    @property
    def _whole_ns(self) -> float:
        """The root's bound, in which closed bodies count for nothing."""
        return self._root_ns * self._scale.factor

    # ------------------------------------------------------------------ ending

    def _end(self, finished: ev.Finished) -> st.Ended:
        if not self._has_looked and not self._interrupt.is_set:
            finished = self._looked_at_last(finished)
        self._bound_ns = finished.bound_ns
        self._keeper.tally(finished.tally, is_last=True)
        if self._closed:
            if self._bound_ns is not None:
                self._bound_ns = self._whole_ns
            if finished.status == "optimal":
                finished = replace(finished, status="optimal_open")
        if finished.status == "interrupted" and not self._interrupt.is_set:
            finished = replace(finished, status="time_limit")  # in the middle of a batch
        top = self._evaluator.top(self._options.final_top)
        if not top:
            return self._tell_end(finished.status, None, None, self._keeper, finished.tally.alarms)
        best, candidate = top[0]
        won: Rival | None = None
        with suppress(Stopped):  # then what was there before it stands
            if finished.status != "interrupted" and self._numpy.is_due and not self._is_late:
                self._take_numpy()
            if finished.status != "interrupted":
                top = self._time_again() or top
                best, candidate = top[0]
            if finished.status != "interrupted" and (won := self._try_other_compilers(top)):
                best, candidate = won.outcome, won.candidate
                self._default_ns, self._compiler = won.default_ns, won.compiler
        assert best.time_ns is not None
        alarms = finished.tally.alarms
        if self._bound_ns is not None and finished.status == "optimal":
            self._bound_ns = best.time_ns
        elif self._bound_ns is not None and best.time_ns < self._bound_ns * (1 - _SLACK):
            unscaled_ns = self._bound_ns / self._scale.factor
            self._look_again()
            self._bound_ns = unscaled_ns * self._scale.factor
            if best.time_ns < self._bound_ns * (1 - _SLACK):
                self._keeper.note("alarm", best.key)
                self._bound_ns, alarms = None, alarms + 1
        assert best.time_ns is not None
        self._bound_now_ns = believed_now(self._bound_now_ns, best.time_ns, best.spread)
        self._keep(best, candidate, finished.status, is_final=True, rival=won)
        return self._tell_end(finished.status, best, self._bound_ns, self._keeper, alarms)

    def _gap(self, best_ns: float | None, bound_ns: float | None) -> float | None:
        """The share of the best time above the bound; None where either is not known, or times are no times of the target."""
        if best_ns is None or bound_ns is None or not self._device.machine.times_count:
            return None
        return max(0.0, (best_ns - bound_ns) / best_ns)

    def _time_again(self) -> list[Entry]:
        """The best candidates and the default, timed in turn; best first. [] where that told nothing."""
        finalists = self._evaluator.finalists(self._options.final_top, NEAR)
        entries = with_default(finalists, self._default)
        limit_s = (1 - _RIVALS_SHARE) * self._final_s
        moved = Bounder(self._space).roofline()
        timed, rates = time_again(entries, self._evaluator, self._worker, limit_s, moved)
        if not timed:
            return []
        told = comparison(timed)
        self._keeper.remeasured(told)
        self._tell(told)
        self._is_final_disturbed = told.is_disturbed
        if told.is_disturbed:
            return []
        self._bound_now_ns = bound_now(self._root, rates)
        for t in timed:
            if self._default is not None and t.outcome.key == self._default[0].key:
                self._default_ns = t.outcome.time_ns
        return [(t.outcome, t.candidate) for t in timed]

    def _try_other_compilers(self, top: list[Entry]) -> Rival | None:
        """The best as the compiler that makes it fastest builds it; None where that is the compiler of the search."""
        default = None if self._default is None else self._default[1]
        keys = {outcome.key for outcome, _ in top}
        others = [e for e in self._evaluator.top(N_RIVALS) if e[0].key not in keys]
        entries = [*top, *others][:N_RIVALS]
        rivalry = Rivalry(entries, default, self._evaluator, self._worker)
        left_s, limit_s = _RIVALS_SHARE * self._final_s, self._options.time_limit_s
        if limit_s is not None:
            left_s = min(left_s, limit_s - self._elapsed_s)
        won: Rival | None = None
        for rival in rivalry.run(self._device.others(), left_s, self._preparing_s):
            self._tell(st.OtherCompiler(rival.compiler, rival.outcome.time_ns or 0.0, rival.ratio))
            if rival.wins and (won is None or rival.ratio < won.ratio):
                won = rival
        return won

    def _keep(
        self,
        outcome: ev.Outcome,
        candidate: Candidate,
        status: str,
        is_final: bool = False,
        rival: Rival | None = None,
    ) -> None:
        source = self._evaluator.source(candidate)
        assert isinstance(source, Source)
        assert outcome.time_ns is not None
        best = self._keeper.keep(
            Kept(
                candidate,
                source,
                outcome.time_ns,
                outcome.spread,
                self._bound_ns,
                status,
                self._default_ns,
                self._numpy.ns,
                self._n_sets,
                None if rival is None else rival.conditions,
                self._library(candidate, rival) if is_final and status != "interrupted" else None,
                self._bound_now_ns if is_final else None,
            )
        )
        if is_final and self._options.store:
            self._keeper.store(best)

    def _library(self, candidate: Candidate, rival: Rival | None) -> Path | None:
        """The shared library of a candidate that was built alone, as a replay would; None of a GPU."""
        if self._device.name != "cpu":
            return None
        if rival is not None:
            return Path(rival.library)
        built = self._evaluator.artifacts([candidate])[0]
        return None if isinstance(built, Failure) else Path(built.path)

    def _tell_end(
        self,
        status: str,
        best: ev.Outcome | None,
        bound_ns: float | None,
        keeper: Keeper,
        alarms: int,
    ) -> st.Ended:
        best_ns = None if best is None else best.time_ns
        gap, gap_now = self._gap(best_ns, bound_ns), None
        if gap is not None and self._bound_now_ns is not None:
            # What is proved holds in any state of the machine.
            self._bound_now_ns = max(self._bound_now_ns, bound_ns or 0.0)
            gap_now = self._gap(best_ns, self._bound_now_ns)
        keeper.end(status)
        ended = st.Ended(
            problem=self._subject.problem.name,
            status=status,
            best_ns=best_ns,
            best_spread=0.0 if best is None else best.spread,
            bound_ns=bound_ns,
            gap=gap,
            bound_now_ns=None if gap_now is None else self._bound_now_ns,
            gap_now=gap_now,
            default_ns=self._default_ns,
            numpy_ns=self._numpy.ns,
            evaluations=len(keeper.evaluations),
            alarms=alarms,
            failures=keeper.failures(),
            n_input_sets=self._n_sets,
            verified=best is not None,
            compiler=self._compiler,
            directory=self._folder,
            elapsed_s=self._elapsed_s,
            closed=self._closed,
            doubts=() if best is None else self._doubts(status),
        )
        self._tell(ended)
        return ended

    def _doubts(self, status: str) -> tuple[str, ...]:
        return doubts_of(
            status,
            len(self._keeper.evaluations),
            self._evaluator.n_disturbed,
            is_final_disturbed=self._is_final_disturbed,
            is_numpy_disturbed=self._numpy.is_disturbed,
        )


def _names_of(space: Space) -> Callable[[int, int], tuple[str, str]]:
    def names(choice: int, value: int) -> tuple[str, str]:
        found = space.choices[choice]
        return found.name, found.values[value]

    return names
