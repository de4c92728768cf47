"""Timed programs of one machine: the finalists of each of its states, and the programs that are verified on all inputs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..api.artifact import Artifact
from .machine_state import EARLIER, best_of_each

_KEPT_TIMES = 512
NEAR = 1.2  # programs slower than so many times the best of their state of the machine are not timed again


@dataclass(frozen=True, slots=True)
class Timed:
    """A program, by the key of its source, with its time in one state of the machine.

    `artifact` is the build that was timed; None where an earlier session did so. `is_by_ratio` is true if the time is a ratio
    to the control's (control.py), `spread` that of the time.
    """

    key: str
    time_ns: float
    state: int
    artifact: Artifact | None
    is_by_ratio: bool = False
    spread: float = 0.0


class Contenders:
    """The fastest programs, by the keys of their sources.

    Ratios are times divided by those of the control beside them (control.py), up to a factor that all share.
    """

    def __init__(self) -> None:
        self.claims_below_ns = math.inf
        """The least time so far: only a faster program, which becomes the best, must be right on all input sets."""
        self._timed: dict[str, Timed] = {}
        self._ratios: dict[str, dict[int, float]] = {}
        self._unproved: set[str] = set()

    def note(self, timed: Timed, ratio: float, *, is_partly_verified: bool) -> None:
        """Records a timed program, with its ratio to the control."""
        self._timed[timed.key] = timed
        if is_partly_verified:
            self._unproved.add(timed.key)
        self.note_ratio(timed.key, timed.state, ratio)
        self.claims_below_ns = min(timed.time_ns, self.claims_below_ns)
        if len(self._timed) > _KEPT_TIMES:
            self._forget_slowest()

    def note_ratio(self, key: str, state: int, ratio: float) -> None:
        """Records the ratio of a program that was timed again, in this state of the machine."""
        self._ratios.setdefault(key, {})[state] = ratio

    @property
    def n(self) -> int:
        """The number of stored programs."""
        return len(self._timed)

    def __contains__(self, key: str) -> bool:
        return key in self._timed

    def ratios(self, key: str) -> Mapping[int, float]:
        """Returns the ratios of one program, by the machine states in which it was timed."""
        return self._ratios.get(key, {})

    def adopt(
        self, key: str, time_ns: float, *, is_by_ratio: bool, is_partly_verified: bool
    ) -> None:
        """Records a program that an earlier session measured."""
        timed = Timed(key, time_ns, EARLIER, None, is_by_ratio)
        self.note(timed, time_ns, is_partly_verified=is_partly_verified)

    def forget(self, key: str) -> None:
        """Removes a program: it is no contender any more."""
        self._timed.pop(key, None)
        self._ratios.pop(key, None)

    def is_partly_verified(self, key: str) -> bool:
        """True if the program is verified on the timed input set only: nothing may be claimed of it."""
        return key in self._unproved

    def confirm(self, key: str) -> None:
        """Records that a program is right on all input sets."""
        self._unproved.discard(key)

    def in_state(self, state: int) -> list[Timed]:
        """Returns the programs whose time was taken in this state of the machine."""
        return [t for t in self._timed.values() if t.state == state]

    def not_met_in(self, state: int, n: int, near: float) -> list[Timed]:
        """Returns the finalists that were never timed in this state and can be."""
        finalists = (self._timed[key] for key in self.finalists(n, near))
        return [t for t in finalists if t.artifact is not None and state not in self._ratios[t.key]]

    def top(self, n: int) -> list[str]:
        """The keys of the n fastest programs measured or adopted so far, best first."""
        return [t.key for t in sorted(self._timed.values(), key=time_of)[:n]]

    def finalists(self, n: int, near: float) -> list[str]:
        """Returns the keys of at most n programs that may be the best in one of the states that the machine was in, best first.

        These are the fastest of each state, and others that took at most `near` times as long.
        """
        timed = ((t.state, t.time_ns, t.key) for t in self._timed.values())
        return best_of_each(timed, n, near)

    def _forget_slowest(self) -> None:
        """Drops the slowest program relative to the best of its own machine state. So the best of a state is never dropped."""
        best = _best_times(self._timed.values())
        self.forget(max(self._timed.values(), key=lambda t: t.time_ns / best[t.state]).key)


def _best_times(timed: Iterable[Timed]) -> dict[int, float]:
    """Returns the least time in each state of the machine."""
    best: dict[int, float] = {}
    for t in timed:
        best[t.state] = min(t.time_ns, best.get(t.state, t.time_ns))
    return best


def time_of(timed: Timed) -> float:
    """The time of a program, in ns."""
    return timed.time_ns
