"""Evaluation ledger: requested and finished evaluations, batches, equal implementations, and outcomes known before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .candidate import SearchCandidate
from .events import Origin, Outcome, Tag
from .node import Node


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """Evaluation request: a complete candidate without an outcome yet.

    `node` is the deepest tree node on its path (None outside the tree). `is_leaf` is true if the node is the candidate itself.
    """

    candidate: SearchCandidate
    key: bytes
    bound_ns: float  # as stored, not scaled
    tag: Tag
    node: Node | None
    is_leaf: bool


@dataclass(frozen=True, slots=True)
class Answer:
    request: Request
    outcome: Outcome
    origin: Origin


class Ledger:
    """Measures every implementation once.

    A request whose key has an outcome is answered at once. A request whose key is already queued shares that measurement.
    """

    def __init__(
        self,
        evaluate: Callable[[list[SearchCandidate]], Sequence[Outcome]],
        key: Callable[[SearchCandidate], bytes | None],
        history: Mapping[bytes, Outcome],
    ) -> None:
        self._evaluate = evaluate
        self._key = key
        self._history = dict(history)
        self._measured: dict[bytes, Outcome] = {}
        self._waiting: dict[bytes, list[Request]] = {}
        self._asked: set[bytes] = set()

    @property
    def n_waiting(self) -> int:
        """The number of distinct queued implementations."""
        return len(self._waiting)

    def key(self, candidate: SearchCandidate) -> bytes:
        """The implementation key, or the candidate key where there is none."""
        key = self._key(candidate)
        return candidate.key if key is None else key

    def is_settled(self, key: bytes) -> bool:
        """True if `key` has an outcome or is queued."""
        return key in self._measured or key in self._history or key in self._waiting

    def was_asked(self, candidate: SearchCandidate) -> bool:
        """True if this very candidate was requested before. A candidate of equal text may have been requested regardless."""
        return candidate.key in self._asked

    def pass_over(self, candidate: SearchCandidate, key: bytes) -> None:
        """Mark a candidate as requested if its `key` is not queued. Queued requests may be withdrawn, so they do not count."""
        if key not in self._waiting:
            self._asked.add(candidate.key)

    def ask(self, request: Request) -> Answer | None:
        """Returns the answer if there is one already. Otherwise queues the request and returns None."""
        self._asked.add(request.candidate.key)
        if (outcome := self._measured.get(request.key)) is not None:
            return Answer(request, outcome, "duplicate")
        if (outcome := self._history.pop(request.key, None)) is not None:
            self._measured[request.key] = outcome  # from now on a repetition like any other
            return Answer(request, outcome, "history")
        self._waiting.setdefault(request.key, []).append(request)
        return None

    def withdraw(self, unless_below_ns: float) -> list[Request]:
        """Remove and return the queued requests of implementations with no bound below the cut."""
        taken = [
            key
            for key, requests in self._waiting.items()
            if all(r.bound_ns >= unless_below_ns for r in requests)
        ]
        withdrawn = [request for key in taken for request in self._waiting.pop(key)]
        self._asked.difference_update(r.candidate.key for r in withdrawn)
        return withdrawn

    def measure(self) -> list[Answer]:
        """Evaluate all queued requests, in the order of requests. Raises ValueError unless there is one outcome a candidate."""
        batch = list(self._waiting.items())
        if not batch:
            return []
        outcomes = self._evaluate([requests[0].candidate for _, requests in batch])
        if len(outcomes) != len(batch):
            raise ValueError(f"evaluate gave {len(outcomes)} outcomes for {len(batch)} candidates")
        self._waiting = {}
        answers = []
        for (key, requests), outcome in zip(batch, outcomes, strict=True):
            self._measured[key] = outcome
            for index, request in enumerate(requests):
                answers.append(Answer(request, outcome, "duplicate" if index else "measured"))
        return answers
