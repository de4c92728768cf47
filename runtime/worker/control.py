"""The control: one program that is timed repeatedly beside others. Ratios to it make times comparable across machine states,
and beside other work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..api.artifact import Artifact
from ..api.outcome import Failure, Measurement, Protocol
from .contenders import NEAR, Contenders, Timed, time_of
from .machine_state import EARLIER, SAME, MachineStates, StateTable
from .worker import AbstractWorker

# A few samples tell states apart that differ by a quarter.
_FEW = Protocol(min_samples=5, max_samples=5, max_disturbed=5, budget_ns=1e7)
_SLOW = 2.0  # a control that takes so many times as long as the best gives way to it
_MET_AGAIN = 3  # finalists of other states that are timed in one that is met
_TELLING = 3  # samples that say whether other work disturbs
_LEAST_APART = (
    0.02  # two machines whose control differs by less are in one state, however small its spread
)


class SharedControl:
    """The program that all machines of a search time again and again, the states in which they met it, and the programs that they
    have timed.
    """

    def __init__(self) -> None:
        self.contenders = Contenders()
        self.states = StateTable()
        self.program: Timed | None = None
        self.ratio = 1.0  # its own, as those of `Contenders`
        self.spread = 0.0  # of its time where it was chosen
        self.lock = threading.RLock()
        """Held while contenders, states and program are read or changed, and never while something runs."""


class Control:
    """The control of one machine, and the machine state that it shows."""

    def __init__(self, worker: AbstractWorker, shared: SharedControl) -> None:
        self._worker = worker
        self._shared = shared
        self._contenders = shared.contenders
        self.on_change: Callable[[float], None] = lambda ratio: None
        """Called with the ratio when the control takes so many times as long as before."""
        self._states = MachineStates(shared.states)
        self._program: Timed | None = None  # as this machine has timed it last
        self._ratio = 1.0
        self.ns = 0.0
        """Its time in the current state of the machine when nothing disturbs it; 0.0 before there is one."""
        self._has_timed = False  # anything, on this machine
        self.is_disturbed = False
        """True if other work took the cores while something was timed last: then ratios say more than times."""

    @property
    def state(self) -> int:
        """The current state of the machine."""
        return self._states.current

    @property
    def slowness(self) -> float:
        """The ratio of program times in the current machine state to those in the first."""
        return self._states.slowness

    @property
    def artifact(self) -> Artifact | None:
        """The build of the control that was verified and timed. Built again, with other programs, it might be other code."""
        return None if self._program is None else self._program.artifact

    @property
    def key(self) -> str:
        """The source key of the control; "" before there is one."""
        return "" if self._program is None else self._program.key

    def ratio(self, time_ns: float) -> float:
        """Returns a current time as a ratio to the control's, as `Contenders` stores it."""
        return time_ns if self._program is None else self._ratio * time_ns / self.ns

    def look(self) -> None:
        """Times the control again.

        Shows whether the machine is still in the state in which the last candidates were timed, and whether it does other work.
        """
        self.choose()
        joins = not self._has_timed
        self._adopt(joins)
        if self.artifact is None:
            return
        self._has_timed = True
        found = self._worker.evaluate(self.artifact, _FEW, verify=False)
        if isinstance(found, Failure):
            return
        self.is_disturbed = found.is_disturbed
        # A time that other work disturbed says nothing about the machine.
        if not found.is_disturbed:
            # Of one machine, noise of a shared host is one state. Two machines are told apart by less.
            same = max(found.spread, self._shared.spread, _LEAST_APART) if joins else SAME
            if self.arrive(found.time_ns, same):
                self._time_others()

    def choose(self) -> None:
        """Makes the best of the current state the control, where there is none or where the control is far slower."""
        shared = self._shared
        with shared.lock:
            # A ratio to a ratio would carry the errors of both.
            measured = [t for t in self._contenders.in_state(self.state) if not t.is_by_ratio]
            best = min(measured, key=time_of, default=None)
            if best is None:
                return
            if shared.program is None or self._states.control_ns > _SLOW * best.time_ns:
                shared.program, shared.spread = best, best.spread
                shared.ratio = self._contenders.ratios(best.key)[self.state]
                self._program, self._ratio, self.ns = best, shared.ratio, best.time_ns
                self._states.anchor(best.time_ns)

    def _adopt(self, joins: bool) -> None:
        """Takes over the program that another machine has made the control. `joins`: this machine has timed nothing yet."""
        with self._shared.lock:
            if joins and self._shared.program is not None:
                self._states.join()
            if self._program is not self._shared.program:
                self._program, self._ratio = self._shared.program, self._shared.ratio
                self.ns = self._states.control_ns

    def arrive(self, control_ns: float, same: float = SAME) -> bool:
        """Records the control's current time. True if the machine is in another state than before."""
        with self._shared.lock:
            self.ns = control_ns
            change = self._states.meet(control_ns, same)
            if change is not None:
                self._contenders.note_ratio(self.key, self.state, self._ratio)
        if change is not None:
            self.on_change(change)
        return change is not None

    def _time_others(self) -> None:
        """Times the finalists of other machine states in this one: the order of two programs may differ between states."""
        with self._shared.lock:
            others = self._contenders.not_met_in(self.state, _MET_AGAIN, NEAR)
        for timed in others:
            assert timed.artifact is not None
            found = self._worker.evaluate(timed.artifact, _FEW, verify=False)
            if isinstance(found, Measurement) and not found.is_disturbed:
                with self._shared.lock:
                    ratio = self.ratio(found.time_ns)
                    self._contenders.note_ratio(timed.key, self.state, ratio)

    def see(self, found: Measurement) -> None:
        """Records whether other work disturbed a measurement, where it has enough samples to tell."""
        self._has_timed = True
        if found.n_samples + found.disturbed >= _TELLING:
            self.is_disturbed = found.is_disturbed

    def cut_ns(self) -> float | None:
        """The time to beat in this state of the machine: that of the control, or of the best, else that of an earlier session."""
        with self._shared.lock:
            times = [t.time_ns for t in self._contenders.in_state(self.state)]
            if self._states.control_ns:
                times.append(self._states.control_ns)
            earlier = self._contenders.in_state(EARLIER)
            return min(times or [t.time_ns for t in earlier], default=None)
