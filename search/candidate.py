"""What a search needs of a candidate, whatever its space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

import numpy as np

from ..space.candidate import DeadEnd


class SearchCandidate(Protocol):
    """What the search needs of a candidate; `space.candidate.Candidate` is one."""

    @property
    def is_complete(self) -> bool: ...

    @property
    def key(self) -> bytes:
        """Equal if and only if the domains are equal."""
        ...

    def open_choices(self) -> Sequence[int] | np.ndarray:
        """Ids of the choices with more than one value left."""
        ...

    def values(self, choice: int, /) -> tuple[int, ...]: ...

    def decide(self, choice: int, mask: int, /) -> Self | DeadEnd:
        """Narrow `choice` to the values of the bit mask `mask` and propagate; changes nothing."""
        ...

    def expand(self, choice: int, /) -> Sequence[tuple[int, Self | DeadEnd]]:
        """One (value, child) for every value `choice` still has."""
        ...

    def random_completion(self, rng: np.random.Generator, /) -> Self | DeadEnd: ...
