"""Machine states during a search: periods in which the machine runs at one speed.

A virtual machine's cores move between sockets and caches while it runs. Memory then delivers half or twice as much, for some tens
of seconds, and the order of two programs may change with it. So times of one state are no evidence about another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import log
from statistics import fmean
from typing import TypeVar

Program = TypeVar("Program")

EARLIER = -1  # the state of times that another session took
LAST = -2  # that of final rounds without a control

SAME = 0.25  # relative difference of the control's times within one state: it is noise on a shared machine


class StateTable:
    """The machine states observed so far, by all machines of a search."""

    def __init__(self) -> None:
        self.control_ns: dict[int, float] = {}  # of each state that can be recognised
        self.slowness = {0: 1.0}  # of each state
        self.latest = 0  # in which a program was made the control

    def add(self, control_ns: float, slowness: float) -> int:
        """Adds a state with this time of the control and this slowness; returns its number."""
        state = len(self.slowness)
        self.control_ns[state], self.slowness[state] = control_ns, slowness
        return state


class MachineStates:
    """Recognises the states of one machine by the time of the control, a program timed repeatedly."""

    def __init__(self, table: StateTable | None = None) -> None:
        """Machines of one search share `table`, so that equal states of them have one number."""
        self._table = table or StateTable()
        self.current = 0

    @property
    def control_ns(self) -> float:
        """The control's ns in the current state; 0.0 before there is a control."""
        return self._table.control_ns.get(self.current, 0.0)

    @property
    def slowness(self) -> float:
        """Times in the current state divided by times in the first state, by the control."""
        return self._table.slowness[self.current]

    def join(self) -> None:
        """Sets the current state to the one in which another machine has chosen the control."""
        self.current = self._table.latest

    def anchor(self, control_ns: float) -> None:
        """Makes another program the control, with time `control_ns` in the current state.

        Other states cannot be recognised any more.
        """
        self._table.control_ns = {self.current: control_ns}
        self._table.latest = self.current

    def meet(self, control_ns: float, same: float = SAME) -> float | None:
        """Sets the current state from the control's time: a known state, or a new one.

        Returns the control's time divided by the time before if the state has changed, else None. Times of one state differ by
        at most the share `same`.
        """
        known = self._table.control_ns
        before_ns = known.get(self.current)
        if before_ns is None:  # another machine has changed the control since
            known[self.current] = control_ns
            return None
        if _distance(before_ns, control_ns) <= log(1 + same):
            return None
        nearest = min(known, key=lambda state: _distance(known[state], control_ns))
        if _distance(known[nearest], control_ns) <= log(1 + same):
            self.current = nearest
        else:
            self.current = self._table.add(control_ns, self.slowness * control_ns / before_ns)
        return control_ns / before_ns


def best_of_each(timed: Iterable[tuple[int, float, Program]], n: int, near: float) -> list[Program]:
    """Returns at most n programs, the best of every state before the second best of any; sorted by time.

    `timed`: (state, ns, program). Programs that take more than `near` times as long as the best of their state are left out.
    """
    by_state: dict[int, list[tuple[float, Program]]] = {}
    for state, ns, program in sorted(timed, key=lambda entry: entry[1]):
        by_state.setdefault(state, []).append((ns, program))
    ranked = [
        (rank, ns, program)
        for programs in by_state.values()
        for rank, (ns, program) in enumerate(programs)
        if ns <= near * programs[0][0]
    ]
    chosen = sorted(ranked, key=lambda entry: entry[:2])[:n]
    return [program for _, _, program in sorted(chosen, key=lambda entry: entry[1])]


def least_regret(ratios: Sequence[Mapping[int, float]]) -> list[float]:
    """Returns for each program the largest log ratio of its time to another program's. The best has the least.

    Two programs are compared by the mean over those machine states in which both were timed. `ratios`: for each program, its time
    by state divided by that of one common program.
    """
    return [max(_longer(a, b) for b in ratios) for a in ratios]


def _longer(a: Mapping[int, float], b: Mapping[int, float]) -> float:
    both = a.keys() & b.keys()
    return fmean(log(a[state] / b[state]) for state in both) if both else 0.0


def _distance(a_ns: float, b_ns: float) -> float:
    return abs(log(a_ns / b_ns))
