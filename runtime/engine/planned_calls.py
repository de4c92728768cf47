"""Calls of a window as a plan runs them: kernels by default decisions, and stored implementations in place of some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ...kernels.ir.kernel import KernelIR

if TYPE_CHECKING:
    from ...kernels.tasks.window_kernels import WindowKernels, WindowStep
    from .stored_components import FoundPart


@dataclass(frozen=True, eq=False)
class PlannedCalls:
    """The kernels of a window by default decisions, and the stored implementations that replace those of some calls, in order."""

    kernels: WindowKernels
    parts: Sequence[FoundPart] = ()

    @cached_property
    def irs(self) -> list[KernelIR]:
        """All kernels: also of calls that stored implementations run, which are compared with them."""
        steps = self.kernels.steps
        return list({id(step.kernel.ir): step.kernel.ir for step in steps}.values())

    @cached_property
    def units(self) -> list[tuple[FoundPart | None, list[WindowStep]]]:
        """Units of the plan in order: a stored implementation with the kernels that it replaces, or one kernel."""
        part_of = {call: part for part in self.parts for call in part.calls}
        found: list[tuple[FoundPart | None, list[WindowStep]]] = []
        for step in self.kernels.steps:
            part = part_of.get(step.call)
            if part is not None and found and found[-1][0] is part:
                found[-1][1].append(step)
            else:
                found.append((part, [step]))
        return found

    @cached_property
    def n_loops(self) -> int:
        """Number of launches of a run."""
        return sum(
            sum(step.kernel.n_loops for step in steps) if part is None else part.stored.n_launches
            for part, steps in self.units
        )
