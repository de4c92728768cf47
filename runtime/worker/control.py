"""The control: one program timed repeatedly beside others, whose time shows the state of the machine.

Ratios to its time are comparable across machine states, and while other work runs.
"""

from __future__ import annotations

import math
import threading
import time
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
# Behind a look that took so many seconds, as of programs that are long, so many times as long passes before the next one.
_LONG_S, _LEAST_BETWEEN = 0.2, 10.0
_CALLS = 6  # of a long program in a look: three samples, each behind a call that restores
_LEAST_APART = (
    0.02  # two machines whose control differs by less are in one state, however small its spread
)


class SharedControl:
    """The control program of all machines in a search, its time in each machine state, and all timed programs."""

    def __init__(self) -> None:
        self.contenders = Contenders()
        self.states = StateTable()
        self.program: Timed | None = None
        self.ratio = 1.0  # its own, as those of `Contenders`
        self.spread = 0.0  # of its time where it was chosen
        self.lock = threading.RLock()
        """Held while contenders, states and program are read or changed, and never while something runs."""


class Control:
    """The control on one machine, and the current machine state that its time shows."""

    def __init__(
        self,
        worker: AbstractWorker,
        shared: SharedControl,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock`: seconds."""
        self._worker, self._clock = worker, clock
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
        self._next_look_s = -math.inf
        self.is_disturbed = False
        """True if other work took the cores while something was timed last: then ratios say more than times."""

    @property
    def state(self) -> int:
        """Number of the current machine state."""
        return self._states.current

    @property
    def slowness(self) -> float:
        """Times in the current machine state divided by times in the first state, by the control."""
        return self._states.slowness

    @property
    def artifact(self) -> Artifact | None:
        """The verified build of the control.

        A new build, together with other programs, might be other machine code.
        """
        return None if self._program is None else self._program.artifact

    @property
    def key(self) -> str:
        """Source key of the control; "" before there is one."""
        return "" if self._program is None else self._program.key

    def ratio(self, time_ns: float) -> float:
        """Returns a time of the current machine state as a ratio to the control's, as stored in `Contenders`."""
        return time_ns if self._program is None else self._ratio * time_ns / self.ns

    def look(self) -> None:
        """Times the control again, and detects a change of the machine state or other work on the machine.

        After a change, finalists of other states are timed in the new one. No effect soon after a look that took long.
        """
        self.choose()
        joins = not self._has_timed
        self._adopt(joins)
        began_s = self._clock()
        if self.artifact is None or began_s < self._next_look_s:
            return
        self._has_timed = True
        found = self._worker.evaluate(self.artifact, _FEW, verify=False)
        self._put_off(self._clock() - began_s)
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
        """Makes the best program of the current state the control, if there is none or it is far slower."""
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
                if (
                    self._has_timed
                ):  # the first look tells if this machine is in the state of another one
                    self._put_off(_CALLS * 1e-9 * best.time_ns)  # it was timed just now

    def _put_off(self, look_s: float) -> None:
        """Puts the next look off behind one that took `look_s`, if that is long."""
        if look_s >= _LONG_S:
            self._next_look_s = self._clock() + _LEAST_BETWEEN * look_s

    def _adopt(self, joins: bool) -> None:
        """Uses the control program that another machine has chosen. `joins`: this machine has timed nothing yet."""
        with self._shared.lock:
            if joins and self._shared.program is not None:
                self._states.join()
            if self._program is not self._shared.program:
                self._program, self._ratio = self._shared.program, self._shared.ratio
                self.ns = self._states.control_ns

    def arrive(self, control_ns: float, same: float = SAME) -> bool:
        """Stores a new time of the control. True if it shows another machine state than before.

        `same`: relative difference of times up to which the state is the same.
        """
        with self._shared.lock:
            self.ns = control_ns
            change = self._states.meet(control_ns, same)
            if change is not None:
                self._contenders.note_ratio(self.key, self.state, self._ratio)
        if change is not None:
            self.on_change(change)
        return change is not None

    def _time_others(self) -> None:
        """Times finalists of other machine states in the current one, since the order of programs may differ."""
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
        """Stores if other work disturbed a measurement, provided that it has enough samples."""
        self._has_timed = True
        if found.n_samples + found.disturbed >= _TELLING:
            self.is_disturbed = found.is_disturbed

    def cut_ns(self) -> float | None:
        """Returns the time to beat in ns in the current machine state; None if nothing was timed.

        It is the least of the control's and all programs' times in this state, else the best of an earlier session.
        """
        with self._shared.lock:
            times = [t.time_ns for t in self._contenders.in_state(self.state)]
            if self._states.control_ns:
                times.append(self._states.control_ns)
            earlier = self._contenders.in_state(EARLIER)
            return min(times or [t.time_ns for t in earlier], default=None)
