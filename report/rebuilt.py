"""Results that need the rebuilt space of a run: texts of implementations, terms of bounds, roofline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ..codegen.lower import lower, print_source
from ..codegen.plan.candidates import plan_of
from ..kernels.ir.task import Problem
from ..kernels.tasks.state_flow import StateFlowGraph, build_graph
from ..runtime.api.backend import AbstractDevice
from ..runtime.api.errors import DeviceError
from ..runtime.device import open_device
from ..runtime.measure.conditions import take_conditions
from ..runtime.records.record import EvaluationRecord
from ..runtime.records.replay import (
    StaleError,
    dialect_of,
    rebuild_problem,
    restore_older,
    space_of,
)
from ..search.bound.bounder import Bound, Bounder, Roofline
from ..space.candidate import Candidate, Space
from .pairs import Predictions, predicted_effects
from .run_data import RunData


@dataclass(frozen=True)
class Implementation:
    """One implementation: its source text, and the `terms` of its bound in ns, largest first.

    `scale`: factor of bounds that the search used.
    """

    candidate: Candidate
    text: str
    bound: Bound
    scale: float

    @property
    def terms(self) -> list[tuple[str, float]]:
        return [(name, ns * self.scale) for name, ns in self.bound.terms]


class RebuiltSpace:
    """The space of a run, rebuilt on this machine."""

    def __init__(self, problem: Problem, space: Space, device: AbstractDevice) -> None:
        self.problem = problem
        self.space = space
        self._dialect = dialect_of(device)
        self._bounder = Bounder(space)
        self._looked: dict[str, Implementation | None] = {}

    def look(self, r: EvaluationRecord) -> Implementation | None:
        """Returns the implementation of an evaluation; None if its decisions are invalid in this space."""
        if r.source_key not in self._looked:
            self._looked[r.source_key] = self._look(r)
        return self._looked[r.source_key]

    def _look(self, r: EvaluationRecord) -> Implementation | None:
        try:
            candidate = restore_older(self.space, r.decisions)
        except StaleError:
            return None
        bound = self._bounder.bound(candidate)
        scale = min(1.0, r.bound_ns / bound.ns) if r.bound_ns > 0 and bound.ns > 0 else 1.0
        text = print_source(lower(plan_of(candidate)), self._dialect).text
        return Implementation(candidate, text, bound, scale)

    @cached_property
    def roofline(self) -> Roofline:
        return self._bounder.roofline()

    @property
    def roofs(self) -> tuple[list[tuple[str, float]], list[tuple[str, float]]]:
        """Roofs of the roofline: bytes per ns of memory and caches, operations per ns of the used dtypes."""
        t = self.space.target
        sizes = {task.dtype.size_bytes for task in self.problem.tasks}
        rates = {4: ("f32", t.f32_flops_per_ns), 8: ("f64", t.f64_flops_per_ns)}
        bandwidths = [("memory", t.memory_read_bytes_per_ns)]
        bandwidths += [(level.name, level.read_bytes_per_ns) for level in reversed(t.levels)]
        return bandwidths, [rates[n] for n in sorted(sizes & set(rates))]

    def predictions(
        self, best: EvaluationRecord, evaluations: Sequence[EvaluationRecord]
    ) -> Predictions | None:
        looked = self.look(best)
        if looked is None:
            return None
        return predicted_effects(looked.candidate.space, looked.candidate, evaluations)


def graph_of(run: RunData) -> StateFlowGraph | str:
    """Returns the state-flow graph of the run's sequence; a sentence with the reason if it cannot be built."""
    try:
        return build_graph(rebuild_problem(run.header.stored, run.header.problem_key)[1])
    except StaleError as e:
        return str(e)


def rebuilt(run: RunData) -> RebuiltSpace | str:
    """Returns the run's space, rebuilt here; a sentence with the reason if it cannot be, as on another machine."""
    try:
        device = open_device(run.header.target)
        here = take_conditions(accelerator=device.machine.accelerator()).machine
        if run.header.conditions.machine != here:
            return (
                f"this machine is {here}, and the run was made on {run.header.conditions.machine}"
            )
        problem = rebuild_problem(run.header.stored, run.header.problem_key)[1]
        space = space_of(problem, device.machine.facts(), run.header)
    except (StaleError, DeviceError) as e:
        return str(e)
    if space.key != run.header.space_key:
        return "the space has changed since the run was made"
    return RebuiltSpace(problem, space, device)
