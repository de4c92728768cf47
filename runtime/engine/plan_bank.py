"""Plan bank: default plans of windows by signature.

A plan holds kernels for all calls of a window, decided by rules. A window is a sequence of deferred calls. Its plan is built in
the background from the second run on, and cached by content as all kernels are. A plan assumes properties of sparse trees that
a run of the window leaves behind. If they do not hold, the calls run one by one, which establishes them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
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
from .work import Work

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
    """The plan of all windows with one signature.

    It assumes properties that a run of the window leaves behind, except for the trees (by number) in `unsure`.
    """

    calls: tuple[WindowCall, ...]
    unsure: frozenset[int] = frozenset()
    n_met: int = 0
    is_usable: bool = True
    _kernels: Work[WindowKernels] | None = field(default=None, repr=False)

    def kernels(self) -> WindowKernels | None:
        """Returns the plan's kernels if their code is loaded; None while it is built, or without a usable plan."""
        self.n_met += 1
        if not self.is_usable or self.n_met < _LEAST_TIMES:
            return None
        if self._kernels is None:
            try:
                self._kernels = current_engine().submit(partial(_begun, self.calls, self.unsure))
            except RuntimeError:  # Python ends, and starts no thread
                return None
        return self._built(waits=False) if self._kernels.done() else None

    def complete(self) -> None:
        """Waits until the plan is built, if that has begun."""
        if self._kernels is not None:
            self._built(waits=True)

    def refuse(self) -> None:
        """Makes windows of this signature run call by call from now on."""
        self.is_usable = False

    def assume_less(self, trees: Iterable[int]) -> None:
        """Adds trees to `unsure`, the trees without assumptions; the plan is built anew."""
        self.unsure, self._kernels = self.unsure.union(trees), None

    def _built(self, *, waits: bool) -> WindowKernels | None:
        assert self._kernels is not None
        engine = current_engine()
        try:
            kernels = self._kernels.result()
            irs = _irs_of(kernels)
            if not waits and not engine.prepare(irs):
                return None
            return kernels if all(engine.prepared(ir) is not None for ir in irs) else None
        except Exception as e:  # also a bug in the rules: calls without a plan are right
            self.is_usable = False
            why = str(e) if isinstance(e, CompileError) else f"its plan failed: {e!r}"
            warnings.warn(
                f"a window of calls runs call by call: {why}", RuntimeWarning, stacklevel=2
            )
            return None


class BoundPlan:
    """A plan bound to the arrays of one window, and the `marks` of its trees."""

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
        """True if all assumptions of the plan hold now."""
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
        """True if the assumptions fail repeatedly: other calls change cells before each run."""
        return self._n_missed > _MOST_MISSES

    def run(self, numbers: Sequence[Any], begun: list[bool]) -> None:
        """Runs all calls of the window. An interrupt takes effect before or after all of them.

        `begun` is empty as long as no kernel has begun; it gets the results of those that have run.
        """
        runs = self._runs or self._callers()
        if self._has_numbers:
            steps = zip(runs, self.kernels.steps, strict=True)
            runs = [(*run, *(numbers[k] for k in step.scalars)) for run, step in steps]
        if self._reshapes:
            self._marks.drop()
        results = takewhile(bool, starmap(call, runs))
        # Kernels of the extension run inside of one call of Python's, and signals are handled behind it.
        may_interrupt = self._runs is None
        is_over = False
        try:
            begun.extend(results)
            is_over = True
        except Exception:  # of a call, which ends its window
            is_over = True
            raise
        finally:
            if not is_over:
                self._marks.drop()
                if may_interrupt:  # in a kernel that has begun
                    begun.append(True)
                    for run in runs[len(begun) :]:
                        begun.append(call(*run))
                elif len(begun) < len(runs):
                    self._raise(len(begun), runs[len(begun)])
        if len(begun) < len(runs):
            self._raise(len(begun), runs[len(begun)])
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
        """Raises the error of step `k`, which refused its arguments."""
        ir = self.kernels.steps[k].kernel.ir
        n = 1 + len(ir.arrays)
        current_engine().run(ir, run[1:n], run[n:])
        raise AssertionError(f"a kernel of a window has refused its arguments once: {ir.name}")


def _are_apart(arrays: Any) -> bool:
    """True if no two arrays overlap in memory."""
    return not any(np.may_share_memory(a, b) for a, b in combinations(arrays, 2))


def _irs_of(kernels: WindowKernels) -> list[KernelIR]:
    return list({id(step.kernel.ir): step.kernel.ir for step in kernels.steps}.values())


def _begun(calls: Sequence[WindowCall], unsure: frozenset[int]) -> WindowKernels:
    """Returns the kernels of a window's calls, after starting their compilation."""
    from ...kernels.tasks.window_kernels import window_kernels

    kernels = window_kernels(calls, unsure)
    current_engine().prepare(_irs_of(kernels))
    return kernels


class PlanBank:
    """Plans of a program's windows by signature. The kernels of a signature live as long as its plan."""

    def __init__(self) -> None:
        self._plans: dict[object, WindowPlan] = {}

    def plan(self, calls: tuple[WindowCall, ...]) -> WindowPlan | None:
        """Returns the plan of a window; None if there are too many plans."""
        key = tuple((id(c.ir), c.arrays, tuple(n for n, _ in c.trees)) for c in calls)
        found = self._plans.get(key)
        if found is None and len(self._plans) < _MOST_PLANS:
            found = self._plans[key] = WindowPlan(calls)
        return found

    def complete(self) -> None:
        """Waits for all plans being built."""
        for plan in tuple(self._plans.values()):
            plan.complete()

    def clear(self) -> None:
        """Drops all plans."""
        self._plans.clear()
