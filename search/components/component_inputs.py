"""Inputs of a search by components: for each tree, and for joining candidates of components to one of the sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

from ..inputs import C, Guidance, History, Oracle

UNIT_NS = 1e6  # the time of the sequence under the present coupling, as the tree of coupling choices has it


@dataclass(frozen=True, kw_only=True)
class ComponentInputs(Generic[C]):
    """Inputs of the tree of one component, which may stand for several equal ones.

    `places`: positions of these components in `Outcome.component_ns`. Bounds, times and outcomes
    are of all places together.
    `root`: a candidate of the sequence in which only this component's choices are open.
    `least_ns`: lower bound on the time of all its implementations, also under other values of the
    choices that concern all components.
    `holds_anywhere`: the bounds of its tree hold under all values of these.
    `history`: its first incumbent is the component's part of the default. `warm_starts` may be read
    only once.
    """

    name: str
    places: tuple[int, ...]
    root: C
    oracle: Oracle[C]
    guidance: Guidance[C]
    history: History[C]
    least_ns: float = 0.0
    holds_anywhere: bool = False


@dataclass(frozen=True, kw_only=True)
class Coupling(Generic[C]):
    """Choices that concern all components, such as layouts: a further tree, whose candidates are whole sequences.

    `inputs`: those of its tree, without places.
    `applied(a, b)`: the candidate `a` of the sequence, with these choices as in the tree's
    candidate `b`.
    `under(candidate)`: the division with these choices as in a candidate of the sequence.
    """

    inputs: ComponentInputs[C]
    applied: Callable[[C, C], C]
    under: Callable[[C], Division[C]]


@dataclass(frozen=True, kw_only=True)
class Division(Generic[C]):
    """Division of a sequence into components, in the order of the program.

    `join`: makes a candidate of the sequence from a complete candidate of each component.
    `part(candidate, k)`: the candidate of component k within one of the sequence; None if the
    component's equal places differ.
    `bound_ns`: returns a lower bound on the sequence's time, from bounds on the components' times.
    `only_least`: no bounds but the components' `least_ns` hold for all implementations.
    """

    components: Sequence[ComponentInputs[C]]
    join: Callable[[Sequence[C]], C]
    part: Callable[[C, int], C | None]
    bound_ns: Callable[[Sequence[float]], float]
    coupling: Coupling[C] | None = None
    only_least: bool = False
