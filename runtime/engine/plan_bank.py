"""Plan bank: default plans of windows of calls, by signature. A plan is the kernels of all calls, decided by rules.

It is built in the background from the second time on that a window is met, and kept by content as all kernels are. It assumes what
a run of the window leaves in trees of sparse fields. Where that is not so, the calls run one by one, which makes it true.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, starmap, takewhile
from operator import call
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.ir.kernel import KernelIR
from ..api.backend import AbstractCaller
from . import current_engine
from .folder import CompileError
from .tree_marks import TreeMarks

if TYPE_CHECKING:  # the rules of plans are imported with the first of them
    from ...kernels.fields.tree import Structure
    from ...kernels.sparse.recorded import WindowCall
    from ...kernels.tasks.window_kernels import WindowKernels

_LEAST_TIMES = 2  # that a window is met before its plan is built
_MOST_PLANS = 256
_MOST_MISSES = 3  # runs in a row before which cells have changed

Values = tuple[Any, ...]


@dataclass(eq=False)
class WindowPlan:
    """The plan of windows of one signature. It assumes facts that a run of the window leaves behind, but of the trees `unsure`."""

    calls: tuple[WindowCall, ...]
    unsure: frozenset[int] = frozenset()
    n_met: int = 0
    is_usable: bool = True
    _kernels: Future[WindowKernels] | None = field(default=None, repr=False)

    def kernels(self) -> WindowKernels | None:
        """Returns the kernels of the plan, whose code is there. None while it is built, or without one."""
        self.n_met += 1
        if not self.is_usable or self.n_met < _LEAST_TIMES:
            return None
        if self._kernels is None:
            self._kernels = current_engine().submit(partial(_begun, self.calls, self.unsure))
        return self._built(waits=False) if self._kernels.done() else None

    def complete(self) -> None:
        """Waits for the plan, if it is being built."""
        if self._kernels is not None:
            self._built(waits=True)

    def refuse(self) -> None:
        """Makes its windows run call by call from now on."""
        self.is_usable = False

    def assume_less(self, trees: Iterable[int]) -> None:
        """Makes the plan one that runs whatever has happened to some trees before; it is built anew."""
        self.unsure, self._kernels = self.unsure.union(trees), None

    def _built(self, *, waits: bool) -> WindowKernels | None:
        assert self._kernels is not None
        kernels, engine = self._kernels.result(), current_engine()
        irs = _irs_of(kernels)
        if not waits and not engine.prepare(irs):
            return None
        try:
            return kernels if all(engine.prepared(ir) is not None for ir in irs) else None
        except CompileError as e:
            self.is_usable = False
            warnings.warn(f"a window of calls runs call by call: {e}", RuntimeWarning, stacklevel=2)
            return None


class BoundPlan:
    """A plan with the arrays of one window, and the `marks` of its trees."""

    def __init__(
        self,
        kernels: WindowKernels,
        arrays: Values,
        structures: Sequence[Structure],
        marks: TreeMarks,
    ) -> None:
        sections = [x.memory.arrays for x in structures]
        self.kernels, self._marks = kernels, marks
        self._arrays = [
            tuple(
                arrays[x] if isinstance(x, int) else sections[x[0]][x[1]]
                for x in step.kernel.arrays
            )
            for step in kernels.steps
        ]
        self.are_apart = _are_apart({id(a): a for some in self._arrays for a in some}.values())
        self._reshapes = not kernels.reshaped.isdisjoint(kernels.assumed)
        self._runs: list[Values] | None = None  # callers with their arrays
        self._has_numbers = any(step.scalars for step in kernels.steps)
        self._n_missed = 0  # runs in a row
        self.unsure: set[int] = set()  # trees whose cells had changed before these

    def may_run(self) -> bool:
        """True if what the plan assumes holds."""
        assumed = self.kernels.assumed
        gone = self._marks.gone(assumed) if assumed else ()
        if not gone:
            self._n_missed = 0
            self.unsure.clear()
        elif self._marks.are_set:
            self._n_missed += 1
            self.unsure.update(gone)
        return not gone

    @property
    def is_missed(self) -> bool:
        """True if the plan assumes in vain: cells change before each run."""
        return self._n_missed > _MOST_MISSES

    def run(self, numbers: Sequence[Any]) -> None:
        """Runs all calls. An interrupt comes before or behind them, also where C does not go through the kernels alone."""
        runs = self._runs or self._callers()
        if self._has_numbers:
            steps = zip(runs, self.kernels.steps, strict=True)
            runs = [(*run, *(numbers[k] for k in step.scalars)) for run, step in steps]
        if self._reshapes:
            self._marks.drop()
        done: list[bool] = []
        is_over = False
        try:
            done.extend(takewhile(bool, starmap(call, runs)))
            is_over = True
        except Exception:  # of a call, which ends its window
            is_over = True
            raise
        finally:
            if not is_over:  # interrupted in a kernel that has begun
                self._marks.drop()
                for run in runs[len(done) + 1 :]:
                    call(*run)
        if len(done) < len(runs):
            self._raise(len(done), runs[len(done)])
        if self._reshapes:
            self._marks.set()

    def _callers(self) -> list[Values]:
        engine, irs = current_engine(), [step.kernel.ir for step in self.kernels.steps]
        callers: list[AbstractCaller | None] = [engine.prepared(ir) for ir in irs]
        runs = [(caller, *arrays) for caller, arrays in zip(callers, self._arrays, strict=True)]
        if all(engine.quick(ir) is not None for ir in irs):
            self._runs = runs
        return runs

    def _raise(self, k: int, run: Values) -> None:
        """Raises the error of a step that refused its arguments."""
        ir = self.kernels.steps[k].kernel.ir
        n = 1 + len(ir.arrays)
        current_engine().run(ir, run[1:n], run[n:])
        raise AssertionError(f"a kernel of a window has refused its arguments once: {ir.name}")


def _are_apart(arrays: Any) -> bool:
    """True if no two arrays share memory."""
    return not any(np.may_share_memory(a, b) for a, b in combinations(arrays, 2))


def _irs_of(kernels: WindowKernels) -> list[KernelIR]:
    return list({id(step.kernel.ir): step.kernel.ir for step in kernels.steps}.values())


def _begun(calls: Sequence[WindowCall], unsure: frozenset[int]) -> WindowKernels:
    """Returns the kernels of all calls, whose code is being compiled."""
    from ...kernels.tasks.window_kernels import window_kernels

    kernels = window_kernels(calls, unsure)
    current_engine().prepare(_irs_of(kernels))
    return kernels


class PlanBank:
    """Plans of the windows that a program has met. The kernels of a signature live as long as its plan."""

    def __init__(self) -> None:
        self._plans: dict[object, WindowPlan] = {}

    def plan(self, calls: tuple[WindowCall, ...]) -> WindowPlan | None:
        """Returns the plan of a window; None where there are too many."""
        key = tuple((id(c.ir), c.arrays, tuple(n for n, _ in c.trees)) for c in calls)
        found = self._plans.get(key)
        if found is None and len(self._plans) < _MOST_PLANS:
            found = self._plans[key] = WindowPlan(calls)
        return found

    def complete(self) -> None:
        """Waits for all plans that are being built."""
        for plan in tuple(self._plans.values()):
            plan.complete()

    def clear(self) -> None:
        """Forgets all plans."""
        self._plans.clear()
