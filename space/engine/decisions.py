"""Decisions by name: what is stored of a candidate, and the way back.

Names outlive positions: a stored decision survives a change of the layout of the domain vector,
and one that no longer exists is reported instead of meaning something else.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from .candidate import Candidate, DeadEnd, Space
from .declarations import Choice

_OR = "|"  # between the values that a narrowed but open choice has left


class DecisionError(Exception):
    """A decision names a choice or a value that the space does not have; one sentence."""


def to_names(candidate: Candidate) -> tuple[tuple[str, str], ...]:
    """(choice name, value name) of every searchable choice that is decided, in order of position.

    An open choice with fewer values than the root has appears with these joined by "|", so that
    `restore` gives back the same candidate, complete or not.
    """
    space = candidate.space
    root = space.root()
    named = []
    for var in map(int, space.searchable):
        domain = int(candidate.domains[var])
        if domain & (domain - 1) and isinstance(root, Candidate) and domain == root.domains[var]:
            continue
        choice = space.choices[var]
        names = _OR.join(choice.values[value] for value in candidate.values(var))
        named.append((choice.name, names))
    return tuple(named)


def restore(space: Space, decisions: Iterable[tuple[str, str]]) -> Candidate | DeadEnd:
    """The candidate that the decisions describe; DecisionError for unknown names."""
    domains = space.model.initial.copy()
    positions = space.model.positions
    for name, value_names in decisions:
        var = positions.get(name)
        if var is None:
            near = get_close_matches(name, positions, n=1, cutoff=0.4)
            raise DecisionError(f"this space has no choice {name}{_suggest(near)}")
        mask = _mask(space.choices[var], value_names)
        if not int(domains[var]) & mask:
            return DeadEnd(name, f"{value_names} is not possible here")
        space.model.narrow(domains, var, mask)
    return space.candidate(domains)


def _mask(choice: Choice, value_names: str) -> int:
    mask = 0
    for value in value_names.split(_OR):
        if value not in choice.values:
            near = get_close_matches(value, choice.values, n=1, cutoff=0.0)
            raise DecisionError(f"{choice.name} has no value {value}{_suggest(near)}")
        mask |= 1 << choice.values.index(value)
    return mask


def _suggest(near: list[str]) -> str:
    return f"; the nearest is {near[0]}" if near else ""
