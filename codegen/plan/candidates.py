"""Plans of a search's complete candidates."""

from __future__ import annotations

from typing import Any

from ...space.candidate import Candidate, Space
from ...space.components import Component, components_of
from ...space.decisions import by_kind
from ...space.draft import AS_IT_IS, SequencePart
from .bands import read_component
from .plan import Plan
from .reading import read_plan

CONVERSIONS = -1  # of parts of trees, as a component
_Place = tuple[str, Any, int]  # kind, object and position of a choice


def plan_of(candidate: Candidate) -> Plan:
    """Returns the plan of a complete candidate. An incomplete candidate is a bug of the caller."""
    space = candidate.space
    return read_plan(space.problem, by_kind(candidate), space.target, space.backbone)


class ComponentPlans:
    """Plans of single components of a space's candidates, read from the decisions about the component alone."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.components: tuple[Component, ...] = components_of(space)
        of_trees, placed = list[_Place](), dict[int, _Place]()
        for table in space.variables.tables():
            for site, var in table.items():
                place = space.choices[var].kind, site, var
                if isinstance(site, SequencePart):
                    of_trees.append(place)
                else:
                    placed[var] = place
        placed |= {k: ("order", pair, k) for k, pair in enumerate(space.model.rows.pairs())}
        self._of_trees = tuple(of_trees)
        self._places = [
            tuple(placed[var] for var in x.choices if var in placed) for x in self.components
        ]

    def key(self, candidate: Candidate, component: int) -> bytes:
        """Returns a key; candidates have equal keys if their decisions about the component are equal."""
        of_trees = [var for *_, var in self._of_trees]
        own = self.components[component].choices if component != CONVERSIONS else ()
        return candidate.domains[[*of_trees, *own]].tobytes()

    def plan(self, candidate: Candidate, component: int) -> Plan:
        """Returns the plan of one component of a complete candidate."""
        own = self._places[component] if component != CONVERSIONS else ()
        tasks = self.components[component].tasks if component != CONVERSIONS else range(0)
        space, found = self.space, dict[str, dict[Any, str]]()
        for kind, site, var in (*self._of_trees, *own):
            value = candidate.value(var)
            if not isinstance(site, SequencePart) or value != AS_IT_IS:
                found.setdefault(kind, {})[site] = space.choices[var].values[value]
        return read_component(space.problem, found, space.target, space.backbone, tasks)
