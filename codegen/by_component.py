"""Sources of a search's candidates, component by component: a decision re-lowers only the component that it is about."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

from ..kernels.ir.repeats import repeats_of
from ..kernels.ir.task import Problem
from ..space.candidate import Candidate, Space
from ..space.targets.kind import CPU
from .lower import lower, lower_unit, print_source
from .plan.candidates import CONVERSIONS, ComponentPlans, plan_of
from .text.dialect import Dialect
from .text.source import Source
from .write.units import Unit, linked, unit_of

_KEPT_UNITS = 1 << 14


@dataclass(frozen=True)
class _Conversions:
    """The decided layout conversions of sparse trees, before and behind the sequence, and the problem that contains them."""

    problem: Problem
    before: tuple[Unit | None, ...]
    after: tuple[Unit | None, ...]


class EvaluatedSources:
    """Sources of candidates for evaluation: one text per component if the space has several, else one text."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._plans: ComponentPlans | None = None
        self._units: OrderedDict[tuple[int, bytes], Unit | None] = OrderedDict()
        self._conversions: dict[bytes, _Conversions] = {}
        self.n_lowered = 0
        """The number of components that were lowered so far."""

    def source(self, candidate: Candidate) -> Source:
        """Returns the source of a complete candidate."""
        space = candidate.space
        has_units = len(space.backbone.components) > 1 and not candidate.is_apart
        if has_units and space.target.kind == CPU:
            found = self._by_component(candidate)
            if found is not None:
                return found
        return print_source(lower(plan_of(candidate)), self._dialect)

    def whole(self, candidate: Candidate) -> Source:
        """Returns the source of a complete candidate as one text, without a table of units, under the key of `source`."""
        found = self.source(candidate)
        if not found.units:
            return found
        return replace(print_source(lower(plan_of(candidate)), self._dialect), known_as=found.key)

    def component_key(self, candidate: Candidate, component: int) -> str | None:
        """Returns the key of the text of one component of a candidate; None if it has no text of its own."""
        unit = self._unit(self._plans_of(candidate.space), candidate, component)
        return None if unit is None else unit.text.key

    def _by_component(self, candidate: Candidate) -> Source | None:
        """Returns the source as units; None if a body (with an assertion) may end the sequence's call."""
        plans = self._plans_of(candidate.space)
        around = self._around(plans, candidate)
        units = [
            *((CONVERSIONS, unit) for unit in around.before),
            *((k, self._unit(plans, candidate, k)) for k in range(len(plans.components))),
            *((CONVERSIONS, unit) for unit in around.after),
        ]
        found = [(k, unit) for k, unit in units if unit is not None]
        if len(found) < len(units):
            return None
        tasks = candidate.space.problem.tasks
        loops = [() if k < 0 else tasks[plans.components[k].tasks.start].repeats for k, _ in found]
        cores = candidate.space.target.cores
        return linked(around.problem, cores, found, repeats_of(loops), self._dialect)

    def _plans_of(self, space: Space) -> ComponentPlans:
        if self._plans is None or self._plans.space is not space:
            self._plans = ComponentPlans(space)
            self._units.clear()
            self._conversions.clear()
        return self._plans

    def _around(self, plans: ComponentPlans, candidate: Candidate) -> _Conversions:
        key = plans.key(candidate, CONVERSIONS)
        found = self._conversions.get(key)
        if found is None:
            plan = plans.plan(candidate, CONVERSIONS)
            made = [unit_of(lower_unit(plan, (x,)), self._dialect) for x in plan.launches]
            n = len(plan.problem.entering)
            found = _Conversions(plan.problem, tuple(made[:n]), tuple(made[n:]))
            self._conversions[key] = found
        return found

    def _unit(self, plans: ComponentPlans, candidate: Candidate, component: int) -> Unit | None:
        key = component, plans.key(candidate, component)
        if key in self._units:
            self._units.move_to_end(key)
            return self._units[key]
        plan = plans.plan(candidate, component)
        found = self._units[key] = unit_of(lower_unit(plan, plan.launches), self._dialect)
        self.n_lowered += 1
        if len(self._units) > _KEPT_UNITS:
            self._units.popitem(last=False)
        return found
