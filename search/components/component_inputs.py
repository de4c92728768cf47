"""Inputs of a search by components: what each tree begins with, and how candidates of components make one of the sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

from ..inputs import C, Guidance, History, Oracle

UNIT_NS = 1e6  # the time of the sequence under the present coupling, as the tree of coupling choices has it


@dataclass(frozen=True, kw_only=True)
class ComponentInputs(Generic[C]):
    """Inputs of the tree of one component, which may stand for equal ones at several places.

    `root` has the choices of this component open alone. `places` are positions in `Outcome.component_ns`. Bounds, times and
    outcomes are of all places together. The first incumbent of `history` is its part of the default. `warm_starts` may be read
    once.
    """

    name: str
    places: tuple[int, ...]
    root: C
    oracle: Oracle[C]
    guidance: Guidance[C]
    history: History[C]


@dataclass(frozen=True, kw_only=True)
class Coupling(Generic[C]):
    """Choices that concern all components, such as layouts: a tree above theirs, whose candidates are timed as whole sequences.

    `inputs` are those of its tree, with no places. `applied` returns its first argument, a candidate of the sequence, with these
    choices as in its second, one of the tree. `under` returns the division with these choices as in a candidate of the sequence.
    """

    inputs: ComponentInputs[C]
    applied: Callable[[C, C], C]
    under: Callable[[C], Division[C]]


@dataclass(frozen=True, kw_only=True)
class Division(Generic[C]):
    """Division of a sequence into components, in the order of the program.

    `join` makes a candidate of the sequence from a complete one of each component. `part` is the reverse: it returns the candidate
    of the component with this number, and None where its places differ. `bound_ns` is a lower bound on the sequence's time from
    those on the times of the components.
    """

    components: Sequence[ComponentInputs[C]]
    join: Callable[[Sequence[C]], C]
    part: Callable[[C, int], C | None]
    bound_ns: Callable[[Sequence[float]], float]
    coupling: Coupling[C] | None = None
