"""Neighbourhood search: changes one or two decisions of a good implementation, and retains as many others as possible.

The constraints decide how many. This is the simplest form of what MIP solvers do around an
incumbent (relaxation-induced neighbourhoods, local branching). The tree finds regions; the
neighbourhood search improves inside them, and needs no bound.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...space.candidate import Candidate, DeadEnd, Space
from ..tree.ordering import open_in_order

MAX_BACKTRACKS = 60
SHARE_OF_PAIRS = 0.4  # of draws change two decisions: sizes trade against one another


class Neighbourhood:
    """Draws random neighbours of candidates in one space."""

    def __init__(self, space: Space) -> None:
        root = space.root()
        self._root = root
        self._order = open_in_order(space)
        self._open = [int(v) for v in root.open_choices()] if isinstance(root, Candidate) else []
        kinds = [space.choices[v].kind for v in self._open]
        # One draw per kind of choice is as likely as another: orders outnumber sizes, but say less.
        weights = np.array([1.0 / kinds.count(kind) for kind in kinds])
        self._weights = weights / weights.sum() if len(weights) else weights
        self._values = max((len(c.values) for c in space.choices), default=1)

    def __call__(self, centre: Candidate, rng: np.random.Generator) -> Candidate | DeadEnd | None:
        """Returns a complete candidate near `centre`, or a dead end; None if the space has nothing to change."""
        if not self._open or not isinstance(self._root, Candidate):
            return None
        n_changes = 2 if len(self._open) > 1 and rng.random() < SHARE_OF_PAIRS else 1
        at = rng.choice(len(self._open), n_changes, replace=False, p=self._weights)
        candidate: Candidate | DeadEnd = self._root
        for place in at:
            var = self._open[int(place)]
            if not isinstance(candidate, Candidate):
                return candidate
            others = [v for v in candidate.values(var) if v != centre.value(var)]
            if others:
                candidate = candidate.decide(var, 1 << self._near(centre.value(var), others, rng))
        if not isinstance(candidate, Candidate):
            return candidate
        return self.completed(candidate, centre, MAX_BACKTRACKS)

    def completed(
        self, candidate: Candidate, centre: Candidate, max_backtracks: int
    ) -> Candidate | DeadEnd:
        """Returns a completion of `candidate` that retains the decisions of `centre` if possible, or a dead end."""
        return candidate.complete(self.preference(centre), self._order, max_backtracks)

    @staticmethod
    def _near(value: int, others: list[int], rng: np.random.Generator) -> int:
        """Returns a random one of the other values, near ones more often (values of sizes are in order)."""
        weights = np.array([1.0 / abs(v - value) for v in others])
        return int(others[int(rng.choice(len(others), p=weights / weights.sum()))])

    def preference(self, centre: Candidate) -> npt.NDArray[np.uint8]:
        """Returns [n_choices, n_values]: values of each choice, the centre's first, then the others by distance."""
        values = np.arange(self._values)
        held = np.log2(centre.domains.astype(np.float64)).astype(np.int64)
        distance = np.abs(values[None, :] - held[:, None])
        return np.argsort(distance, axis=1, kind="stable").astype(np.uint8)
