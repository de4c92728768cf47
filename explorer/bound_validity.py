"""Validity of a session's bound: scales it to the measured machine state. Non-affine tasks count with guaranteed costs
only.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from msgspec import structs

from ..kernels.tasks.non_affine import NonAffineTasks
from ..runtime.api.backend import AbstractDevice
from ..runtime.forked import Stopped
from ..runtime.records.record import EvaluationRecord
from ..runtime.records.replay import restore_complete
from ..runtime.worker.worker import AbstractWorker, WorkerError
from ..search import events as ev
from ..search.bound.bounder import Bound, Bounder, Roofline
from ..search.bound.raising import raised
from ..search.incumbent import BoundScale
from ..space.candidate import Candidate
from ..space.targets.target import Target
from .machine import believed_now, bound_now, is_far_below, look_at, lower_to, lower_to_earlier

_SLACK = 1e-3  # a time so little below the bound is noise of the clock, not a wrong bound
_CUT = "the best time"  # sets the bound where all that is open is slower


class Claims:
    """The bound of one session, its scale, and the gaps that follow. `bound_ns` is None once it is withdrawn."""

    def __init__(
        self,
        device: AbstractDevice,
        worker: AbstractWorker,
        target: Target,
        non_affine: NonAffineTasks,
    ) -> None:
        self.fixed: tuple[tuple[str, str], ...] = ()  # of the space whose bound this is
        self.is_for_input = False  # whether it is one for the arguments that are measured
        self._device = device
        self._worker = worker
        self._target = target
        self.non_affine = non_affine
        self.scale = BoundScale()
        self.bound_ns: float | None = None
        self.now_ns: float | None = None  # on the machine as it was when the best was timed again
        self.why_not_now = "the best were not timed again in turn"  # where `now_ns` is None
        self.has_looked = False  # at the machine
        self._root_ns = 0.0  # not scaled

    def begin(
        self,
        bounder: Bounder,
        root: Candidate,
        evaluations: tuple[EvaluationRecord, ...],
        doubted: Iterable[str],
    ) -> Bound:
        """Starts from the root's bound, at the scale that earlier sessions have left. Returns that bound unscaled."""
        self.fixed = root.space.fixed
        self.is_for_input = root.space.is_for_input
        whole = bounder.bound(root)
        lower_to_earlier(
            self.scale,
            evaluations,
            set(doubted),
            lambda r: bounder.ns(restore_complete(bounder.space, r.decisions)),
        )
        self._bounder, self._root, self._root_ns = bounder, root, whole.ns
        self.bound_ns = self.whole_ns
        return whole

    @property
    def whole_ns(self) -> float:
        """The root's bound, in which non-affine bodies count with their guaranteed costs."""
        return self._root_ns * self.scale.factor

    def limiting(self, candidate: object) -> str:
        """The resource that limits the node which sets the bound."""
        if isinstance(candidate, Candidate):
            return self._bounder.bound(candidate).limiting
        return _CUT

    def look_again(self) -> None:
        """Measures the machine and lowers the scale of bounds to its current state.

        Done where it was not measured yet, or where something was faster than its bound.
        """
        self.has_looked = True
        with suppress(WorkerError, Stopped):  # then nothing new is known of it
            if not is_far_below(self._target, self._worker):
                lower_to(self.scale, self._target, look_at(self._device, self._worker))

    def looked_at_last(self, finished: ev.Finished) -> ev.Finished:
        """Scales the bound of a search that ended within its first batch to the current state of the machine.

        An "optimal" search that pruned by bounds becomes "exhausted" where the scale has fallen.
        """
        before = self.scale.factor
        self.look_again()
        if finished.bound_ns is None or self.scale.factor == before:
            return finished
        t = finished.tally
        is_by_bound = t.pruned_bound + t.rollout_bound + t.near_bound + t.overtaken > 0
        is_unproved = finished.status == "optimal" and is_by_bound
        return replace(
            finished,
            status="exhausted" if is_unproved else finished.status,
            bound_ns=finished.bound_ns * self.scale.factor / before,
        )

    def of_what_is_open(self, row: ev.Row) -> ev.Row:
        """Returns the row of a search over non-affine tasks, with the root's bound and its gap.

        The search's own bound holds for non-affine bodies as they are written. Only the root's bound holds for all implementations.
        """
        self.bound_ns = None if row.bound_ns is None else self.whole_ns
        gap = None
        if row.gap is not None and row.best_ns is not None and self.bound_ns is not None:
            gap = max(0.0, 1 - self.bound_ns / row.best_ns)
        return structs.replace(row, bound_ns=self.bound_ns, gap=gap)

    def finish(self, finished: ev.Finished) -> ev.Finished:
        """Takes over the bound that a search has proved. With non-affine tasks the root's bound counts, and "optimal"
        becomes "optimal_open".
        """
        self.bound_ns = finished.bound_ns
        if self.non_affine:
            if self.bound_ns is not None:
                self.bound_ns = self.whole_ns
            if finished.status == "optimal":
                return replace(finished, status="optimal_open")
        return finished

    def is_contradicted(self, best_ns: float, is_optimal: bool) -> bool:
        """True if the final best time is below the bound, scaled to the current state of the machine. The bound is then
        withdrawn.

        Where the search has proved the best optimal, its time becomes the bound.
        """
        if self.bound_ns is not None and is_optimal:
            self.bound_ns = best_ns
        elif self.bound_ns is not None and best_ns < self.bound_ns * (1 - _SLACK):
            unscaled_ns = self.bound_ns / self.scale.factor
            self.look_again()
            self.bound_ns = unscaled_ns * self.scale.factor
            if best_ns < self.bound_ns * (1 - _SLACK):
                self.bound_ns = None
                return True
        return False

    def roofline(self) -> Roofline:
        """Bytes and operations of the best fused implementation."""
        return self._bounder.roofline()

    def see_memory(self, rates: dict[str, float]) -> None:
        """Stores the bound at the memory rates that the final re-measurement took beside the best."""
        self.now_ns = bound_now(self._root, rates)
        if self.now_ns is None:
            has_probe = self._device.machine.probe_library() is not None
            self.why_not_now = (
                "arrays this small stay in caches" if has_probe else "nothing probes its memory"
            )

    def believe(self, best_ns: float, spread: float) -> None:
        """Drops the bound on the machine as it is now where the best has beaten it by more than its spread."""
        believed = believed_now(self.now_ns, best_ns, spread)
        if believed is None and self.now_ns is not None:
            self.why_not_now = "memory was slower beside the best than while it was timed"
        self.now_ns = believed

    def learn_alarm(self, candidate: Candidate, time_ns: float) -> None:
        """Raises the stored rates that a time below its bound has shown to be too low, for good."""
        stored = self._device.machine.stored_facts()
        if stored is not None and self._target.calibrated:
            stored.learn_alarm(raised(candidate, time_ns))

    def gap(self, best_ns: float | None, bound_ns: float | None) -> float | None:
        """The share of the best time above the bound. None where either is unknown, or where measured times are not those of the
        target.
        """
        if best_ns is None or bound_ns is None or not self._device.machine.times_count:
            return None
        return max(0.0, (best_ns - bound_ns) / best_ns)

    def gap_now(self, best_ns: float | None) -> float | None:
        """The gap to the bound on the machine as it is now; None where no gap is proved."""
        if self.now_ns is None or self.gap(best_ns, self.bound_ns) is None:
            return None
        # A proved bound holds in any state of the machine.
        self.now_ns = max(self.now_ns, self.bound_ns or 0.0)
        return self.gap(best_ns, self.now_ns)
