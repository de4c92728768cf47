"""Ask and tell: a search yields `Ask` (measure these candidates), and its caller sends a `Tell` (the next outcome).

The search does not depend on who measures, and on how many machines.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import TypeVar

from .candidate import SearchCandidate
from .events import Event, Outcome, Provenance

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Trial:
    """A complete candidate to be measured.

    `key`: key of its implementation; `provenance`: its origin, if known.
    """

    key: bytes
    candidate: SearchCandidate
    provenance: Provenance | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """Request to measure `trials`, and to send the next outcome: of one of these, or of an earlier request.

    Without trials it requests only the next outcome.
    """

    trials: tuple[Trial, ...] = ()


@dataclass(frozen=True, slots=True)
class Tell:
    """Answer to an `Ask`: the outcome of one trial.

    A caller sends None in place of a `Tell` if it will measure no more trials.
    """

    key: bytes
    outcome: Outcome


Asking = Generator[Ask, Tell | None, T]
Search = Generator[Event | Ask, Tell | None, None]


def answered(search: Search, answer: Callable[[Ask], Tell | None]) -> Iterator[Event]:
    """Yields the events of a search; `answer` gives the `Tell` for each `Ask`."""
    tell: Tell | None = None
    while True:
        try:
            said = search.send(tell)
        except StopIteration:
            return
        tell = None
        if isinstance(said, Ask):
            tell = answer(said)
        else:
            yield said
