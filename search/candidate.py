"""Interface of candidates, as far as the search uses them; it does not depend on the search space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

import numpy as np

from ..space.candidate import DeadEnd


class SearchCandidate(Protocol):
    """Interface of a candidate as the search uses it. `space.candidate.Candidate` implements it."""

    @property
    def is_complete(self) -> bool: ...

    @property
    def is_apart(self) -> bool:
        """True for an implementation outside of the tree: the bound of the tree's root says nothing about it."""
        ...

    @property
    def key(self) -> bytes:
        """Identity of a candidate: equal if and only if the domains are equal."""
        ...

    def open_choices(self) -> Sequence[int] | np.ndarray:
        """Positions of the choices with more than one value left."""
        ...

    def values(self, choice: int, /) -> tuple[int, ...]: ...

    def decide(self, choice: int, mask: int, /) -> Self | DeadEnd:
        """Returns the propagated candidate with `choice` restricted to the bit mask `mask`.

        This one is unchanged.
        """
        ...

    def expand(self, choice: int, /) -> Sequence[tuple[int, Self | DeadEnd]]:
        """Returns (value, child) for every value left of `choice`."""
        ...

    def random_completion(self, rng: np.random.Generator, /) -> Self | DeadEnd: ...
