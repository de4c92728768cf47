"""Journal records of components: the time of each component of a candidate, keyed by its decisions."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from msgspec import UNSET, UnsetType

from ..runtime.api.outcome import Failure, Measurement
from ..runtime.records.record import ComponentRecord, Decisions
from ..space.candidate import Space
from ..space.components import components_of


class ComponentRows:
    """Makes the component records of evaluations in one space."""

    def __init__(self) -> None:
        self._space: Space | None = None
        self._component_of: dict[str, int] = {}  # by the name of a choice
        self._n = 0

    def rows(
        self,
        space: Space,
        decisions: Decisions,
        texts: Sequence[str],
        found: Measurement | Failure,
    ) -> tuple[ComponentRecord, ...] | UnsetType:
        """Returns one record per component of a measured candidate; UNSET if no component was timed.

        `decisions`: those on open choices. `texts`: a key of each component's text.
        """
        if isinstance(found, Failure) or not found.component_ns:
            return UNSET
        times = zip(
            self.keys(space, decisions),
            texts,
            found.component_ns,
            found.component_spread,
            strict=True,
        )
        return tuple(ComponentRecord(key=k, text=x, time_ns=t, spread=s) for k, x, t, s in times)

    def keys(self, space: Space, decisions: Decisions) -> list[str]:
        """Returns one key per component; equal decisions about a component give equal keys."""
        self._look_at(space)
        digests = [hashlib.blake2b(digest_size=12) for _ in range(self._n)]
        for name, value in decisions:
            digests[self._component_of[name]].update(f"{name}\0{value}\0".encode())
        return [digest.hexdigest() for digest in digests]

    def _look_at(self, space: Space) -> None:
        if self._space is space:
            return
        components = components_of(space)
        self._space, self._n = space, len(components)
        self._component_of = {
            space.choices[var].name: k for k, x in enumerate(components) for var in x.choices
        }
