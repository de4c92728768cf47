"""Transfer of decisions between spaces of one sequence: to another shape, or to another machine."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from ...space.candidate import Candidate, Space
from ...space.decisions import to_names
from ...space.engine.declarations import Choice
from ..tree.ordering import open_in_order
from .complete import NO_VALUE, greedy_preference

MAX_BACKTRACKS = 400


def complete_near(space: Space, decisions: Iterable[tuple[str, str]]) -> Candidate | None:
    """Returns the implementation of `space` closest to `decisions` of another space; None if there is none.

    A choice of the same name takes the same value if possible, else the nearest size. All other
    choices follow from propagation and the greedy first candidate.
    """
    root = space.root()
    if not isinstance(root, Candidate):
        return None
    wanted = _preference(space, decisions)
    made = root.complete(wanted, open_in_order(space), MAX_BACKTRACKS)
    return made if isinstance(made, Candidate) and made.is_complete else None


def n_alike(candidate: Candidate, decisions: Iterable[tuple[str, str]]) -> int:
    """Returns the number of the given decisions that a complete candidate has in common."""
    held = dict(to_names(candidate))
    return sum(held.get(name) == value for name, value in decisions)


def _preference(space: Space, decisions: Iterable[tuple[str, str]]) -> npt.NDArray[np.uint8]:
    """Returns [n_choices, n_values]: values of each choice by preference, padded with NO_VALUE."""
    greedy = greedy_preference(space)
    width = max(greedy.shape[1], *(len(c.values) for c in space.choices))
    wanted = np.full((len(greedy), width), NO_VALUE, np.uint8)
    wanted[:, : greedy.shape[1]] = greedy
    for name, value in decisions:
        var = space.model.positions.get(name)
        if var is not None and (ranked := _ranked(space.choices[var], value)):
            wanted[var] = NO_VALUE
            wanted[var, : len(ranked)] = ranked
    return wanted


def _ranked(choice: Choice, value: str) -> list[int]:
    """Returns the values of a choice, `value` first, then sizes by their ratio to it.

    [] if the choice has no such value.
    """
    if value.isdigit() and int(value) > 0:
        sizes = [(k, int(v)) for k, v in enumerate(choice.values) if v.isdigit() and int(v) > 0]
        return [k for k, n in sorted(sizes, key=lambda x: abs(math.log2(x[1] / int(value))))]
    return [k for k, v in enumerate(choice.values) if v == value]
