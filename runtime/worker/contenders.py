"""Timed programs of a search: finalists by machine state, and programs verified on all input sets."""

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
    """A program, by its source key, with its time in one state of the machine.

    `artifact` is the build that was timed, None if an earlier session timed it. `is_by_ratio`: the time was computed from a ratio
    to the control's (control.py). `spread` is the time's.
    """

    key: str
    time_ns: float
    state: int
    artifact: Artifact | None
    is_by_ratio: bool = False
    spread: float = 0.0


class Contenders:
    """The fastest programs so far, by source key.

    Ratios are times divided by simultaneous times of the control (control.py), up to a common factor.
    """

    def __init__(self) -> None:
        self.claims_below_ns = math.inf
        """The least time so far: only a faster program, which becomes the best, must be right on all input sets."""
        self._timed: dict[str, Timed] = {}
        self._ratios: dict[str, dict[int, float]] = {}
        self._unproved: set[str] = set()

    def note(self, timed: Timed, ratio: float, *, is_partly_verified: bool) -> None:
        """Adds a timed program, with its ratio to the control."""
        self._timed[timed.key] = timed
        if is_partly_verified:
            self._unproved.add(timed.key)
        self.note_ratio(timed.key, timed.state, ratio)
        self.claims_below_ns = min(timed.time_ns, self.claims_below_ns)
        if len(self._timed) > _KEPT_TIMES:
            self._forget_slowest()

    def note_ratio(self, key: str, state: int, ratio: float) -> None:
        """Stores a program's ratio to the control in the machine state `state`."""
        self._ratios.setdefault(key, {})[state] = ratio

    @property
    def n(self) -> int:
        """Number of stored programs."""
        return len(self._timed)

    def __contains__(self, key: str) -> bool:
        return key in self._timed

    def ratios(self, key: str) -> Mapping[int, float]:
        """Returns the ratios of one program to the control, by machine state."""
        return self._ratios.get(key, {})

    def adopt(
        self, key: str, time_ns: float, *, is_by_ratio: bool, is_partly_verified: bool
    ) -> None:
        """Adds a program that an earlier session measured."""
        timed = Timed(key, time_ns, EARLIER, None, is_by_ratio)
        self.note(timed, time_ns, is_partly_verified=is_partly_verified)

    def forget(self, key: str) -> None:
        """Removes a program."""
        self._timed.pop(key, None)
        self._ratios.pop(key, None)

    def is_partly_verified(self, key: str) -> bool:
        """True if a program is verified on the timed input set only, so it cannot be the best yet."""
        return key in self._unproved

    def confirm(self, key: str) -> None:
        """Records that a program is right on all input sets."""
        self._unproved.discard(key)

    def in_state(self, state: int) -> list[Timed]:
        """Returns the programs whose time was taken in the machine state `state`."""
        return [t for t in self._timed.values() if t.state == state]

    def not_met_in(self, state: int, n: int, near: float) -> list[Timed]:
        """Returns the finalists with a build that were never timed in the machine state `state`.

        `n`: maximum number of finalists. `near`: largest ratio of a time to the best of its state.
        """
        finalists = (self._timed[key] for key in self.finalists(n, near))
        return [t for t in finalists if t.artifact is not None and state not in self._ratios[t.key]]

    def top(self, n: int) -> list[str]:
        """Returns the keys of the n fastest programs measured or adopted so far, best first."""
        return [t.key for t in sorted(self._timed.values(), key=time_of)[:n]]

    def finalists(self, n: int, near: float) -> list[str]:
        """Returns the keys of at most n programs that may be the best in some machine state, best first.

        These are the fastest program of each state, then others that took at most `near` times as long.
        """
        timed = ((t.state, t.time_ns, t.key) for t in self._timed.values())
        return best_of_each(timed, n, near)

    def _forget_slowest(self) -> None:
        """Drops the program that is slowest relative to the best of its machine state.

        So the best of a state is never dropped.
        """
        best = _best_times(self._timed.values())
        self.forget(max(self._timed.values(), key=lambda t: t.time_ns / best[t.state]).key)


def _best_times(timed: Iterable[Timed]) -> dict[int, float]:
    """Returns the least time in each machine state."""
    best: dict[int, float] = {}
    for t in timed:
        best[t.state] = min(t.time_ns, best.get(t.state, t.time_ns))
    return best


def time_of(timed: Timed) -> float:
    """Returns the time of a program in ns."""
    return timed.time_ns
