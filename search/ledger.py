"""Ledger of evaluations: requested and finished ones, batches, equal implementations, and outcomes known before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .asking import Trial
from .candidate import SearchCandidate
from .events import Origin, Outcome, Provenance, Tag
from .node import Node


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """Request to evaluate a complete candidate without an outcome yet.

    `node`: the deepest tree node on its path (None outside the tree). `is_leaf`: True if the node
    is the candidate itself.
    """

    candidate: SearchCandidate
    key: bytes
    bound_ns: float  # as stored, not scaled
    tag: Tag
    node: Node | None
    is_leaf: bool
    parent: bytes = b""  # key of the implementation of which it is a neighbour

    @property
    def node_id(self) -> int:
        return -1 if self.node is None else self.node.node_id


@dataclass(frozen=True, slots=True)
class Answer:
    request: Request
    outcome: Outcome
    origin: Origin


class Ledger:
    """Queue of evaluation requests that measures each implementation once.

    A request whose key has an outcome is answered at once. A request whose key is already queued
    shares that measurement.
    """

    def __init__(
        self,
        key: Callable[[SearchCandidate], bytes | None],
        history: Mapping[bytes, Outcome],
    ) -> None:
        self._key = key
        self._history = dict(history)
        self._measured: dict[bytes, Outcome] = {}
        self._waiting: dict[bytes, list[Request]] = {}
        self._sent: set[bytes] = set()  # keys of those that wait for an outcome that is on its way
        self._asked: set[bytes] = set()

    @property
    def n_waiting(self) -> int:
        """Number of distinct queued implementations."""
        return len(self._waiting)

    def key(self, candidate: SearchCandidate) -> bytes:
        """Returns a candidate's implementation key, or its candidate key if it has none."""
        key = self._key(candidate)
        return candidate.key if key is None else key

    def is_settled(self, key: bytes) -> bool:
        """True if implementation `key` has an outcome or is queued."""
        return key in self._measured or key in self._history or key in self._waiting

    def was_asked(self, candidate: SearchCandidate) -> bool:
        """True if this very candidate was requested before; a candidate with an equal text does not count."""
        return candidate.key in self._asked

    def pass_over(self, candidate: SearchCandidate, key: bytes) -> None:
        """Marks a candidate as requested, unless its implementation is queued: queued requests may be withdrawn."""
        if key not in self._waiting:
            self._asked.add(candidate.key)

    def ask(self, request: Request) -> Answer | None:
        """Returns the answer if the outcome is known. Otherwise queues the request and returns None."""
        self._asked.add(request.candidate.key)
        if (outcome := self._measured.get(request.key)) is not None:
            return Answer(request, outcome, "duplicate")
        if (outcome := self._history.pop(request.key, None)) is not None:
            self._measured[request.key] = outcome  # from now on a repetition like any other
            return Answer(request, outcome, "history")
        self._waiting.setdefault(request.key, []).append(request)
        return None

    def withdraw(self, unless_below_ns: float) -> list[Request]:
        """Removes and returns the queued requests of implementations whose bounds are all at or above the cut.

        The cut is `unless_below_ns`. Requests that were sent remain.
        """
        taken = [
            key
            for key, requests in self._waiting.items()
            if key not in self._sent and all(r.bound_ns >= unless_below_ns for r in requests)
        ]
        withdrawn = [request for key in taken for request in self._waiting.pop(key)]
        self._asked.difference_update(r.candidate.key for r in withdrawn)
        return withdrawn

    def trials(self) -> tuple[Trial, ...]:
        """Returns the queued implementations that were not sent for measurement yet, in the order of requests."""
        firsts = ((key, requests[0]) for key, requests in self._waiting.items())
        return tuple(
            Trial(key, r.candidate, Provenance(r.tag, r.node_id, r.parent))
            for key, r in firsts
            if key not in self._sent
        )

    def send(self) -> tuple[tuple[Trial, ...], list[Request]]:
        """Returns the queued implementations that were not sent yet, and their requests, and marks them as sent."""
        trials = self.trials()
        self._sent |= {trial.key for trial in trials}
        return trials, [r for trial in trials for r in self._waiting[trial.key]]

    def settle(self, outcomes: Mapping[bytes, Outcome]) -> list[Answer]:
        """Returns the answers to queued requests that follow from `outcomes`, in the order of requests.

        They are removed from the queue. Raises ValueError for an outcome of an implementation that
        is not queued.
        """
        if not outcomes.keys() <= self._waiting.keys():
            raise ValueError("an outcome was told that was not asked for")
        answers = []
        for key in [key for key in self._waiting if key in outcomes]:
            self._measured[key] = outcome = outcomes[key]
            self._sent.discard(key)
            for index, request in enumerate(self._waiting.pop(key)):
                answers.append(Answer(request, outcome, "duplicate" if index else "measured"))
        return answers
