"""Validity of a session's lower bound: scales it to the measured machine state.

Non-affine tasks count with guaranteed costs only.
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
    """The lower bound of one session, its scale and its gaps. `bound_ns` is None after the bound was withdrawn."""

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
        self.is_divided = False  # whether the search sums the bounds of components
        self._root_ns = 0.0  # not scaled

    def begin(
        self,
        bounder: Bounder,
        root: Candidate,
        evaluations: tuple[EvaluationRecord, ...],
        doubted: Iterable[str],
    ) -> Bound:
        """Computes the bound of the root candidate and returns it unscaled.

        `evaluations`: measurements of earlier sessions; a time below the bound lowers the scale.
        `doubted`: source keys of implementations that were measured below their bound.
        """
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
        """Scaled bound of the root candidate in ns. Non-affine tasks count with guaranteed costs."""
        return self._root_ns * self.scale.factor

    def limiting(self, candidate: object) -> str:
        """Name of the resource that limits `candidate`, the node that sets the bound; the cut if it is no candidate."""
        if isinstance(candidate, Candidate):
            return self._bounder.bound(candidate).limiting
        return _CUT

    def look_again(self) -> None:
        """Measures the machine, and lowers the scale of bounds to its current state.

        Called if the session has not measured the machine yet, or if a time was below its bound.
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

    @property
    def is_of_root(self) -> bool:
        """True if of all implementations only the root's bound holds: bodies of non-affine tasks may be written otherwise.

        A search by components sums the bounds of their roots then.
        """
        return bool(self.non_affine) and not self.is_divided

    def of_what_is_open(self, row: ev.Row) -> ev.Row:
        """Returns the progress row of a search over non-affine tasks, with the root's bound and its gap.

        The search's own bound holds for non-affine bodies as they are written. Only the root's bound holds for all
        implementations.
        """
        self.bound_ns = None if row.bound_ns is None else self.whole_ns
        gap = None
        if row.gap is not None and row.best_ns is not None and self.bound_ns is not None:
            gap = max(0.0, 1 - self.bound_ns / row.best_ns)
        return structs.replace(row, bound_ns=self.bound_ns, gap=gap)

    def finish(self, finished: ev.Finished) -> ev.Finished:
        """Stores the bound that a search has proved, and returns the search's end.

        With non-affine tasks only a bound of roots is stored, and status "optimal" becomes "optimal_open".
        """
        self.bound_ns = finished.bound_ns
        if self.is_of_root and self.bound_ns is not None:
            self.bound_ns = self.whole_ns
        if self.non_affine and finished.status == "optimal":
            return replace(finished, status="optimal_open")
        return finished

    def is_contradicted(self, best_ns: float, is_optimal: bool) -> bool:
        """True if the best time is below the bound even after measuring the machine again.

        The bound is then withdrawn. If the search has proved the best optimal, the best time becomes the bound, and the result is
        False.
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
        """Returns the bytes and operations of the best fused implementation; no implementation has fewer."""
        return self._bounder.roofline()

    def see_memory(self, rates: dict[str, float]) -> None:
        """Computes the bound for memory `rates` (bytes per ns) that the final re-measurement took beside the best."""
        self.now_ns = bound_now(self._root, rates)
        if self.now_ns is None:
            has_probe = bool(self._device.machine.probe_libraries())
            self.why_not_now = (
                "arrays this small stay in caches" if has_probe else "nothing probes its memory"
            )

    def believe(self, best_ns: float, spread: float) -> None:
        """Withdraws `now_ns`, the bound for the current machine state, if the best is faster by more than `spread`."""
        believed = believed_now(self.now_ns, best_ns, spread)
        if believed is None and self.now_ns is not None:
            self.why_not_now = "memory was slower beside the best than while it was timed"
        self.now_ns = believed

    def learn_alarm(self, candidate: Candidate, time_ns: float) -> None:
        """Raises stored rates of the machine permanently, as far as a measured time below its bound requires."""
        stored = self._device.machine.stored_facts()
        if stored is not None and self._target.calibrated:
            stored.learn_alarm(raised(candidate, time_ns))

    def gap(self, best_ns: float | None, bound_ns: float | None) -> float | None:
        """Returns (best - bound) / best.

        None if either is unknown, or if measured times are not those of the target.
        """
        if best_ns is None or bound_ns is None or not self._device.machine.times_count:
            return None
        return max(0.0, (best_ns - bound_ns) / best_ns)

    def gap_now(self, best_ns: float | None) -> float | None:
        """Returns the gap to the bound for the machine state at the final re-measurement; None without a proved gap."""
        if self.now_ns is None or self.gap(best_ns, self.bound_ns) is None:
            return None
        # A proved bound holds in any state of the machine.
        self.now_ns = max(self.now_ns, self.bound_ns or 0.0)
        return self.gap(best_ns, self.now_ns)
