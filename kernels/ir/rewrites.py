"""Derived rewrites of a sequence, by name. They save work and cost none, so no choice is about them.

A recording may leave some of them out, which shows their worth. Nothing but time depends on that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .errors import LanguageError

DEAD_STORES, COPIES, LISTS, ACTIVATIONS = "dead_stores", "copies", "lists", "activations"
REWRITES: Mapping[str, str] = {
    DEAD_STORES: "stores that a later call overwrites unread",  # kernels/tasks/initialisers.py, last_steps.py
    COPIES: "copies of whole arrays that are renaming",  # kernels/tasks/copies.py
    LISTS: "lists of active cells that are valid still",  # kernels/sparse/redundancy.py
    ACTIVATIONS: "activations of active cells",  # kernels/sparse/redundancy.py
}
"""Operations that the rewrite of each name removes."""


def rewrites_named(names: Sequence[str]) -> tuple[str, ...]:
    """Returns the rewrites of these names, each once, in their order. Raises LanguageError."""
    if isinstance(names, str) or not all(isinstance(n, str) for n in names):
        raise LanguageError(
            f"without= takes the names of rewrites, such as ('dead_stores',), not {names!r:.60}"
        )
    for name in names:
        if name not in REWRITES:
            raise LanguageError(
                f"there is no rewrite {name!r:.60}; there are {', '.join(REWRITES)}"
            )
    return tuple(name for name in REWRITES if name in names)
