"""What a search is handed, in three records: whom it asks, what steers it, and what was known before."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ..space.candidate import DeadEnd
from .candidate import SearchCandidate
from .events import Outcome, Provenance
from .incumbent import BoundScale

C = TypeVar("C", bound=SearchCandidate)
_Asked = TypeVar("_Asked", bound=SearchCandidate, contravariant=True)


class Surrogate(Protocol[_Asked]):
    """Guesses from what was measured; search/learn/surrogate.py has the one for spaces of implementations."""

    @property
    def is_ready(self) -> bool:
        """Whether enough is known for anything to be expected."""
        ...

    def learn(self, candidate: _Asked, time_ns: float | None, /) -> None:
        """Take in the time of a complete candidate, None where it failed."""
        ...

    def expected(self, candidates: Sequence[_Asked], /) -> npt.NDArray[np.float64] | None:
        """Logarithms of the times expected, up to a constant; None while too little is known."""
        ...


@dataclass(frozen=True, kw_only=True)
class Oracle(Generic[C]):
    """Whom a search asks about candidates, and tells what it is about to ask.

    `bound(candidate)` is a lower bound in ns on all completions. `evaluate` measures distinct complete candidates, a
    batch at once, and answers in their order. Implementations of equal `key` (None: the candidate's own key) are
    measured once. `scale`, which the caller may lower at any time and the search lowers after a time below its bound,
    multiplies every bound.
    """

    bound: Callable[[C], float]
    evaluate: Callable[[list[C]], Sequence[Outcome]]
    key: Callable[[C], bytes | None] = lambda candidate: None
    scale: BoundScale | None = None
    announce: Callable[[C, Provenance], None] = lambda candidate, provenance: None
    """Told what is to be measured, and how it was come by."""
    ahead: Callable[[C, int], None] = lambda candidate, n_to_come: None
    """Told the same, after that, and how many more at most with it, so that work on it may begin; the cut may still overtake it."""


def _plain_names(choice: int, value: int) -> tuple[str, str]:
    return str(choice), str(value)


@dataclass(frozen=True, kw_only=True)
class Guidance(Generic[C]):
    """What steers a search, and rules nothing out."""

    next_choice: Callable[[C], int]
    """The order of decisions: an open choice of a candidate."""
    neighbour: Callable[[C, np.random.Generator], C | DeadEnd | None] | None = None
    """Draws a complete candidate near a good one; None of it: there is nothing to change. `mcts` alternates between the tree and
    such draws.
    """
    expected: Callable[[C], float] | None = None
    """What a candidate may be expected to take, in ns: rollouts weigh values by it where it is more than the bound says."""
    surrogate: Surrogate[C] | None = None
    """Learns from all that is measured; of several draws `mcts` measures the one that it expects most of."""
    widened: Callable[[], C | None] = lambda: None
    """The root of a wider space, with the same choices, once what was measured shows that this one leaves too much out."""
    names: Callable[[int, int], tuple[str, str]] = _plain_names
    """Of a choice and of its value, as events say them."""


@dataclass(frozen=True, kw_only=True)
class History(Generic[C]):
    """What is there before a search begins.

    `outcomes`, by implementation key, are not measured again and set the first cut: that is how a search is resumed.
    `doubted` are keys of implementations once found faster than their bound: the gap stays withdrawn. `incumbents`
    (tag U) and `warm_starts` (tag W) are complete candidates measured first: the former, which may be slow, behind a
    few of the latter, so that they are given up early.
    """

    outcomes: Mapping[bytes, Outcome] = field(default_factory=dict)
    doubted: Collection[bytes] = ()
    incumbents: Sequence[C] = ()
    warm_starts: Iterable[C] = ()
