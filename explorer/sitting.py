"""A session with its preparation: one time limit and one signal handler for both."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from ..runtime.fleet.request import FleetRequest
from ..runtime.forked import Stopped
from ..search.budget import Interrupt
from . import stages as st
from .deadlines import Deadlines
from .finalisation import end_before_the_run
from .session import Session, Tell
from .workload import Options, Workload

RECORDED = "the sequence was recorded"


@dataclass(frozen=True)
class Sitting:
    """The listener, the interrupt and the deadlines of one session and its preparation."""

    tell: Tell
    interrupt: Interrupt
    deadlines: Deadlines
    signals: list[int]  # seen so far
    fleet: FleetRequest | None = None  # None: this machine alone

    @property
    def signal(self) -> int:
        """Number of the first signal received; 0 if none."""
        return self.signals[0] if self.signals else 0

    def within(self, during: str, make: Callable[[], Workload]) -> Workload | None:
        """Returns the result of `make`; None if the time limit passed first. Raises Stopped at a signal.

        `during` describes the work in messages.
        """
        try:
            with self.deadlines.phase(during):
                return make()
        except Stopped:
            if self.interrupt.is_set:
                raise
            return None

    def session(self, workload: Workload, options: Options, folder: Path) -> st.Ended:
        """Runs a session in `folder` (`Session.run`), with the same exceptions."""
        heard = self.tell, self.interrupt, self.deadlines
        return Session(workload, options, folder, *heard, self.fleet).run()

    def end_before(self, folder: Path) -> st.Ended:
        """Returns the end of a session whose time limit passed before it could begin."""
        return end_before_the_run(folder, self.deadlines, self.tell)


class TooLateError(Exception):
    """The time limit passed before the workload was made; the message is one sentence."""


def made_within(limit_s: float | None, make: Callable[[], Workload]) -> Workload:
    """Returns the result of `make` within a time limit, if no session follows. Raises TooLateError."""
    with sit(limit_s, None, None) as sitting:
        workload = sitting.within(RECORDED, make)
    if workload is None:
        raise TooLateError(
            f"the time limit of {limit_s:g} s passed while {RECORDED}: give more time, or smaller sizes"
        )
    return workload


@contextmanager
def sit(
    limit_s: float | None,
    on_event: Tell | None,
    on_interrupt: Callable[[], None] | None,
    fleet: FleetRequest | None = None,
) -> Iterator[Sitting]:
    """Context manager of one session, which begins now; without `on_event` no events are reported."""
    interrupt = Interrupt()
    with _interruptible(interrupt, on_interrupt) as seen:
        try:
            deadlines = Deadlines(limit_s, interrupt)
            yield Sitting(on_event or _silent, interrupt, deadlines, seen, fleet)
        except Stopped as e:  # also raised where it is known that there was a signal, and not which
            raise Stopped(*seen[:1]) from e


@contextmanager
def _interruptible(
    interrupt: Interrupt, on_interrupt: Callable[[], None] | None
) -> Iterator[list[int]]:
    """Context manager for signals: the first SIGINT or SIGTERM requests the session's end, the second ends it at once.

    Yields the signals received. The first raises Stopped at once if nothing was measured that could be lost.
    """
    seen: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        if interrupt.is_set:
            raise KeyboardInterrupt
        interrupt.set()
        if interrupt.is_immediate:
            raise Stopped(number)
        if on_interrupt is not None:
            on_interrupt()

    if threading.current_thread() is not threading.main_thread():
        yield seen
        return
    before = {n: signal.signal(n, hear) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield seen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _silent(event: object) -> None:
    """Ignores an event."""
