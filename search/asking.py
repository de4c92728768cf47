"""Ask and tell: a search yields `Ask`, and is sent a `Tell`. Who answers, and on how many machines, is no part of a search."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import TypeVar

from .candidate import SearchCandidate
from .events import Event, Outcome, Provenance

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Trial:
    """A complete candidate that is to be measured, under the key of its implementation, with its origin where that is known."""

    key: bytes
    candidate: SearchCandidate
    provenance: Provenance | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """Request to measure these trials too, and to answer with the next finished one: of these, or of an earlier request.

    Without trials it only requests the next answer.
    """

    trials: tuple[Trial, ...] = ()


@dataclass(frozen=True, slots=True)
class Tell:
    """Answer to an `Ask`: the outcome of one trial. In its place None says that no more trials will be measured."""

    key: bytes
    outcome: Outcome


Asking = Generator[Ask, Tell | None, T]
Search = Generator[Event | Ask, Tell | None, None]


def answered(search: Search, answer: Callable[[Ask], Tell | None]) -> Iterator[Event]:
    """Yields the events of a search, of which each `Ask` is answered by `answer`."""
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
