"""Windows that have run: their calls, their plans, and what ran behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import is_
from typing import TYPE_CHECKING

from .plan_bank import LEAST_TIMES, BoundPlan, PlanBank, WindowPlan
from .rotation import Rotation
from .successors import Successors
from .tree_marks import TreeMarks
from .waiting_kernel import Held, Known, Values, WaitingKernel
from .window_calls import window_calls
from .window_stats import Stats

if TYPE_CHECKING:  # the frontend is imported while the engine looks for its compiler
    from ...kernels.fields.tree import Structure
    from ...kernels.sparse.recorded import WindowCall


class RanWindow:
    """A window that has run: the kernels of its calls, its plan bound to their arrays, and the windows that ran after it.

    `plans`: where it gets its plan; None for no plan.
    """

    def __init__(self, kernels: tuple[WaitingKernel, ...], plans: PlanBank | None) -> None:
        self.kernels = kernels
        self._plans = plans if len(kernels) > 1 else None
        self.called: list[Known | None] = [None] * len(kernels)
        self.behind: Successors[RanWindow] = Successors()
        self.bound: BoundPlan | None = None
        self.rotation: Rotation[RanWindow] | None = None
        self._n_met = 0
        # Runs that are not counted yet: call by call, and by `_run_quickly`.
        self.n_alone = self.n_by_plan = 0

    @cached_property
    def _numbered(self) -> tuple[tuple[WindowCall, ...], Values, tuple[Structure, ...]]:
        return window_calls(self.kernels)

    @cached_property
    def _plan(self) -> WindowPlan | None:
        """The plan of its calls: made when it is met again, since most windows are not."""
        return None if self._plans is None else self._plans.plan(self._numbered[0], self._n_met - 1)

    @property
    def may_have_plan(self) -> bool:
        """True unless it has no plan, whatever comes."""
        return self._plans is not None

    @property
    def arrays(self) -> Values:
        """The arrays that its calls use."""
        return self._numbered[1]

    @property
    def structures(self) -> tuple[Structure, ...]:
        """The trees that its calls use."""
        return self._numbered[2] if self.is_on_trees else ()

    @cached_property
    def is_on_trees(self) -> bool:
        return any(kernel.is_on_trees for kernel in self.kernels)

    @cached_property
    def work(self) -> list[int]:
        """The numbers of loops, of lists of active cells, and of activations of its calls."""
        return [sum(n) for n in zip(*(kernel.work for kernel in self.kernels), strict=True)]

    @cached_property
    def has_numbers(self) -> bool:
        return any(kernel.has_numbers for kernel in self.kernels)

    @cached_property
    def marks(self) -> TreeMarks:
        """The marks of its trees."""
        return TreeMarks([x.memory.arrays["counters"] for x in self.structures])

    def begins(self, held: Sequence[Held]) -> bool:
        """True if these calls are its first ones, or all of them."""
        own = self.kernels
        return len(held) <= len(own) and all(map(is_, (kernel for kernel, _ in held), own))

    def begins_with(self, ran: RanWindow) -> bool:
        """True if the kernels of `ran` are its first ones, and not all of them."""
        n = len(ran.kernels)
        return n < len(self.kernels) and ran.kernels == self.kernels[:n]

    def changed(self) -> list[int] | None:
        """Returns the trees (by number) whose active cells may have changed since the last run; None if that is not known."""
        return self.marks.gone(range(len(self.structures))) if self.marks.are_set else None

    def to_run(self) -> BoundPlan | None:
        """Returns the plan bound to this window's arrays; None if it is not built or not usable."""
        self._n_met += 1
        if self._plans is None or self._n_met < LEAST_TIMES:
            return None
        plan, bound = self._plan, self.bound
        if plan is None or not plan.is_usable:
            return None
        if bound is not None and not bound.is_kept(plan):
            bound = self.bound = None
        if bound is None:
            planned = plan.planned()
            if planned is not None:
                bound = BoundPlan(planned, self.arrays, self.structures, self.marks)
                if not bound.are_apart:  # kernels of single calls say so
                    plan.refuse()
                    return None
                self.bound = bound
        return bound

    def count(self, stats: Stats) -> None:
        """Adds the runs that are not counted yet."""
        n_alone, n_by_plan, n_calls = self.n_alone, self.n_by_plan, len(self.kernels)
        self.n_alone = self.n_by_plan = 0
        if n_alone:
            stats.note_windows(n_alone, n_calls, self.work)
            stats.note_alone(n_alone, self.work)
        if n_by_plan and self.bound is not None:
            stats.note_windows(n_by_plan, n_calls, self.work)
            stats.note_plan(n_by_plan, n_calls, self.bound.planned)


@dataclass(frozen=True)
class WindowRun:
    """One run of a window: its calls, its seconds, and the reason why the window ended.

    `changed`: the trees (by number) whose active cells have changed since the run before on the same arrays; None if that is not
    known.
    `is_cut`: between the last call of the run before and its own, Python accessed a field or made a call that cannot wait.
    """

    ran: RanWindow
    calls: Sequence[Held]
    taken_s: float
    why: str
    changed: list[int] | None
    is_cut: bool
