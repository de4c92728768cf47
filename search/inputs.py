"""Inputs of a search, in three records: oracle (bounds and keys), guidance (heuristics), and history (earlier results)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ..space.candidate import DeadEnd
from .candidate import SearchCandidate
from .events import Outcome
from .incumbent import BoundScale

C = TypeVar("C", bound=SearchCandidate)
_Asked = TypeVar("_Asked", bound=SearchCandidate, contravariant=True)


class Surrogate(Protocol[_Asked]):
    """Interface of a model that predicts times from measurements; search/learn/surrogate.py implements it."""

    @property
    def is_ready(self) -> bool:
        """True if there are enough measurements for a prediction."""
        ...

    def learn(self, candidate: _Asked, time_ns: float | None, /) -> None:
        """Adds the measured time of a complete candidate; None if it failed."""
        ...

    def expected(self, candidates: Sequence[_Asked], /) -> npt.NDArray[np.float64] | None:
        """Returns the logarithms of predicted times, up to a common constant; None with too few measurements."""
        ...


@dataclass(frozen=True, kw_only=True)
class Oracle(Generic[C]):
    """Bounds and keys of candidates.

    `bound(candidate)`: lower bound in ns on all completions.
    `key(candidate)`: implementations with equal keys are measured once; None stands for the
    candidate's own key.
    `scale`: factor on every bound. The caller may lower it at any time; the search lowers it after
    a time below its bound.
    """

    bound: Callable[[C], float]
    key: Callable[[C], bytes | None] = lambda candidate: None
    scale: BoundScale | None = None
    ahead: Callable[[C, int], None] = lambda candidate, n_to_come: None
    """Called for a candidate of the next batch, with the maximal number of further ones, so that a build may start early.

    The cut may still exclude the candidate.
    """


def _plain_names(choice: int, value: int) -> tuple[str, str]:
    return str(choice), str(value)


@dataclass(frozen=True, kw_only=True)
class Guidance(Generic[C]):
    """Heuristics that steer a search. They never rule out a candidate."""

    next_choice: Callable[[C], int]
    """The order of decisions: an open choice of a candidate."""
    neighbour: Callable[[C, np.random.Generator], C | DeadEnd | None] | None = None
    """Draws a complete neighbour of a good candidate; it returns None if there is nothing to change. `mcts` alternates between the
    tree and such draws.
    """
    expected: Callable[[C], float] | None = None
    """Expected time of a candidate, in ns: rollouts weight values by it where it exceeds the bound."""
    surrogate: Surrogate[C] | None = None
    """Learns from all measurements; among several draws `mcts` measures the one with the best prediction."""
    widened: Callable[[], C | None] = lambda: None
    """The root of a wider space, with the same choices, once measurements show that this one excludes too much."""
    names: Callable[[int, int], tuple[str, str]] = _plain_names
    """Names of a choice and of its value, as used in events."""


@dataclass(frozen=True, kw_only=True)
class History(Generic[C]):
    """Results and candidates from before the search begins.

    `outcomes`: by implementation key; they are not measured again and set the first cut, so a
    search can be resumed.
    `doubted`: keys of implementations once found faster than their bound; with any, the gap stays
    withdrawn.
    `apart`: keys of implementations outside of the tree, for which the bound of its root says
    nothing.
    `incumbents` (tag U) and `warm_starts` (tag W): complete candidates that are measured first.
    Incumbents may be slow, so a few warm starts precede them, and slow incumbents are abandoned
    early.
    """

    outcomes: Mapping[bytes, Outcome] = field(default_factory=dict)
    doubted: Collection[bytes] = ()
    apart: Collection[bytes] = ()
    incumbents: Sequence[C] = ()
    warm_starts: Iterable[C] = ()
