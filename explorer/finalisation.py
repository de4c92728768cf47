"""Finalisation of a session: re-times the best, builds them with other compilers, stores and reports the result."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ..runtime.fleet.fleet import SlotLostError
from ..runtime.fleet.seats import FleetWorker
from ..runtime.forked import Stopped
from ..runtime.records.replay import dialect_of
from ..runtime.worker.contenders import NEAR
from ..runtime.worker.worker import AbstractWorker, WorkerError
from ..search import events as ev
from ..search.budget import Interrupt
from ..space.candidate import Candidate
from . import stages as st
from .alike import disagreed
from .compiler_comparison import LEAST_S, N_COMPARED, CompiledBest, CompilerComparison
from .deadlines import Deadlines
from .doubts import doubts_of
from .evaluation import Entry, SearchEvaluator
from .event_handler import Tell
from .numpy_timing import take_numpy
from .remeasure import (
    TimedAgain,
    comparison,
    confirmed,
    longer_where_steadier,
    time_again,
    with_other,
)
from .session_state import Standing
from .workload import Options, Workload


class Ending:
    """Records and reports the end of a session, with or without a result."""

    def __init__(
        self, workload: Workload, folder: Path, standing: Standing, deadlines: Deadlines, tell: Tell
    ) -> None:
        self._workload = workload
        self._folder = folder
        self._standing = standing
        self._deadlines = deadlines
        self._tell = tell
        self.n_disturbed = 0  # measurements, by other work
        self.is_disturbed = False  # the final re-measurement

    def early(self, interrupt: Interrupt) -> st.Ended:
        """Ends a session that was interrupted, or whose time limit passed, before its search began."""
        if interrupt.is_set:
            return self.tell("interrupted", None, 0)
        tell_out_of_time(self._deadlines, self._tell)
        return self.tell("time_limit", None, 0)

    def tell(self, status: str, best: ev.Outcome | None, alarms: int) -> st.Ended:
        """Records and reports the end of a session.

        `best`: None if nothing valid was found. `alarms`: number of times that were below their bound.
        """
        s = self._standing
        best_ns = None if best is None else best.time_ns
        bound_ns = None if best is None else s.claims.bound_ns
        gap, gap_now = s.claims.gap(best_ns, bound_ns), s.claims.gap_now(best_ns)
        s.writer.end(status)
        n_evaluations = len(s.writer.evaluations)
        ended = st.Ended(
            status=status,
            best_ns=best_ns,
            spread=0.0 if best is None else best.spread,
            bound_ns=bound_ns,
            gap=gap,
            bound_now_ns=None if gap_now is None else s.claims.now_ns,
            gap_now=gap_now,
            why_not_now="" if gap is None or gap_now is not None else s.claims.why_not_now,
            baseline_ns=s.default_ns,
            numpy_ns=s.numpy.ns,
            evaluations=n_evaluations,
            alarms=alarms,
            failures=s.writer.failures(),
            verified=best is not None,
            compiler="" if best is None else s.compiler,
            run_dir=str(self._folder),
            elapsed_s=round(self._deadlines.elapsed_s, 3),
            non_affine=st.non_affine_rows(s.claims.non_affine),
            doubts=() if best is None else self._doubts(status, n_evaluations),
            fixed=dict(s.claims.fixed),
            n_input_sets=s.n_sets,
            non_affine_tasks=s.claims.non_affine,
            is_for_input=s.claims.is_for_input,
        )
        self._tell(ended)
        return ended

    def _doubts(self, status: str, n_evaluations: int) -> tuple[str, ...]:
        return doubts_of(
            status,
            n_evaluations,
            self.n_disturbed,
            is_final_disturbed=self.is_disturbed,
            is_numpy_disturbed=self._standing.numpy.is_disturbed,
            fault_as_one_text=self._standing.fault_as_one_text,
        )


def tell_out_of_time(deadlines: Deadlines, tell: Tell) -> None:
    """Reports that the time limit passed before anything was measured, with the phase that was running then."""
    assert deadlines.limit_s is not None, "only a limit or a signal cuts"
    tell(st.OutOfTime(deadlines.limit_s, deadlines.during))


def end_before_the_run(folder: Path, deadlines: Deadlines, tell: Tell) -> st.Ended:
    """Ends a session whose time limit passed before a run directory existed."""
    tell_out_of_time(deadlines, tell)
    elapsed_s = round(deadlines.elapsed_s, 3)
    ended = st.Ended(status="time_limit", run_dir=str(folder), elapsed_s=elapsed_s)
    tell(ended)
    return ended


class LastRounds:
    """Work of a session after its search: final re-timing, verification, other compilers, storing."""

    def __init__(
        self,
        options: Options,
        standing: Standing,
        ending: Ending,
        evaluator: SearchEvaluator,
        worker: AbstractWorker,
        deadlines: Deadlines,
        interrupt: Interrupt,
        tell: Tell,
    ) -> None:
        self._options = options
        self._standing = standing
        self._claims = standing.claims
        self._ending = ending
        self._evaluator = evaluator
        self._worker = worker
        self._deadlines = deadlines
        self._interrupt = interrupt
        self._tell = tell

    def run(self, finished: ev.Finished) -> st.Ended:
        s, claims = self._standing, self._claims
        self._deadlines.begin_end()
        if not claims.has_looked and not self._interrupt.is_set:
            finished = claims.looked_at_last(finished)
        s.writer.tally(finished.tally, is_last=True)
        finished = claims.finish(finished)
        if finished.status == "interrupted" and not self._interrupt.is_set:
            finished = replace(finished, status="time_limit")  # in the middle of a batch
        status, alarms = finished.status, finished.tally.alarms
        top = self._evaluator.top(self._options.final_top)
        alike = self._evaluator.alike
        if alike.at is not None and alike.n > 1 and not top and not self._interrupt.is_set:
            self._tell(disagreed(alike.n, alike.at))
            status = "disagreement" if alike.are_enough else status
        if not top:
            if status == "time_limit":
                tell_out_of_time(self._deadlines, self._tell)
            return self._ending.tell(status, None, alarms)
        best, won = top[0], None
        if status != "interrupted":
            with suppress(Stopped), self._deadlines.cut():  # then the results before it stand
                if s.numpy.is_due and not self._deadlines.is_late:
                    take_numpy(
                        s.numpy, s.device, self._worker, self._deadlines.is_past_waiting, self._tell
                    )
                top = self._time_again() or top
                best = top[0]
                won = self._try_other_compilers(top)
            if won is not None:
                best = won.outcome, won.candidate
                s.default_ns, s.compiler = won.default_ns, won.compiler
        outcome = best[0]
        assert outcome.time_ns is not None
        if outcome.is_by_ratio:
            claims.bound_ns = None  # a time by ratio is relative, no measured time
        if claims.is_contradicted(outcome.time_ns, status == "optimal"):
            claims.learn_alarm(best[1], outcome.time_ns)
            s.writer.note("alarm", outcome.key)
            alarms += 1
        claims.believe(outcome.time_ns, outcome.spread)
        kept = s.keep_last(self._evaluator, best, status, won, self._deadlines.cut)
        if self._options.store:
            s.writer.store(kept, best[1], dialect_of(s.device))
        self._ending.n_disturbed = self._evaluator.n_disturbed
        return self._ending.tell(status, outcome, alarms)

    def _time_again(self) -> list[Entry]:
        """Times the best candidates, those outside of the tree and the default alternately. Returns them best first.

        [] if none is right. If other work disturbed the times, those of the search stand, but for some that seem too short.
        """
        default = self._standing.default
        entries = self._evaluator.finalists(self._options.final_top, NEAR)
        for other in (*self._evaluator.apart(), default):
            entries = with_other(entries, other)
        moved = self._claims.roofline()
        limit_s = self._deadlines.again_s
        timed, rates = time_again(entries, self._evaluator, self._worker, limit_s, moved)
        timed = self._from_a_right_one(timed)
        if not timed:
            return []
        told = comparison(timed)
        self._standing.writer.remeasured(told)
        self._tell(told)
        self._ending.is_disturbed = told.is_disturbed
        if told.is_disturbed:
            self._claims.why_not_now = "other work disturbed the final comparison"
            timed = self._from_a_right_one(longer_where_steadier(entries, timed))
        else:
            self._claims.see_memory(rates)
            self._confirm(timed)
        for t in timed:
            if default is not None and t.outcome.key == default[0].key:
                self._standing.default_ns = t.outcome.time_ns
        return [(t.outcome, t.candidate) for t in timed]

    def _confirm(self, timed: list[TimedAgain]) -> None:
        """Times the best on a second slot of the fleet, if there is one, and reports if it is the best there, too."""
        second = self._worker.second() if isinstance(self._worker, FleetWorker) else None
        if second is None or self._deadlines.is_late:
            return
        found = None
        with suppress(WorkerError, SlotLostError):
            found = confirmed(timed, *second, self._deadlines.again_s / 2)
        if found is not None:
            said = "agrees" if found.agrees else "disagrees"
            self._standing.writer.note("confirmed", f"{found.slot} {said}: {found.ratio:.4f}")
            self._tell(found)

    def _from_a_right_one(self, timed: list[TimedAgain]) -> list[TimedAgain]:
        """Returns `timed` from the first candidate on that is right on all input sets."""
        for k, t in enumerate(timed):
            assert t.artifact is not None, "it was timed"
            if self._evaluator.is_right((t.outcome, t.candidate), t.artifact):
                return timed[k:]
        return []

    def _try_other_compilers(self, top: list[Entry]) -> CompiledBest | None:
        """Returns the best as another compiler builds it, if that is faster than the search's compiler; else None."""
        s = self._standing
        left_s = self._deadlines.others_s
        if left_s < LEAST_S + s.preparing_s:
            return None
        default: Candidate | None = None if s.default is None else s.default[1]
        keys = {outcome.key for outcome, _ in top}
        others = [e for e in self._evaluator.top(N_COMPARED) if e[0].key not in keys]
        entries = [*top, *others][:N_COMPARED]
        compared = CompilerComparison(
            entries, default, self._evaluator, self._worker, self._deadlines.is_past_waiting
        )
        won: CompiledBest | None = None
        for other in compared.run(s.device.others(), left_s, s.preparing_s):
            self._tell(st.OtherCompiler(other.compiler, other.outcome.time_ns or 0.0, other.ratio))
            if other.wins and (won is None or other.ratio < won.ratio):
                won = other
        return won
