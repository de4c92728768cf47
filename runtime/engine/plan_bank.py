"""Plan bank: default plans of windows by signature.

A plan holds kernels for all calls of a window, decided by rules. A window is a sequence of deferred calls. Its plan is built in
the background from the second run on, and cached by content as all kernels are. A plan assumes properties of sparse trees that
a run of the window leaves behind. If they do not hold, the calls run one by one, which establishes them.

With stored components (`ks.init(decisions=True)`) calls that were searched in another window run as they were found there.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, starmap, takewhile
from operator import call, eq
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.ir.errors import failed_assertion
from ...kernels.ir.kernel import KernelIR
from ..free_memory import available_bytes
from ..restoring import restore
from . import current_engine
from .folder import CompileError
from .planned_calls import PlannedCalls
from .tree_marks import TreeMarks
from .work import Work

if TYPE_CHECKING:  # the rules of plans are imported with the first of them
    from ...kernels.fields.tree import Structure
    from ...kernels.sparse.recorded import WindowCall
    from ...kernels.tasks.window_kernels import WindowStep
    from .stored_components import Claim, FoundPart, StoredComponents

LEAST_TIMES = 2  # that a window is met before its plan is built
_MOST_PLANS = 256
# Runs in a row that make true what a plan assumes. Trees that activate each other are known not to grow from the second one on.
MOST_RUNS = 2
_MOST_MISSES = 3  # runs in a row before which cells have changed, or had lately

Values = tuple[Any, ...]


@dataclass(eq=False)
class WindowPlan:
    """The plan of all windows with one signature.

    It assumes properties that a run of the window leaves behind, or also those of several in a row if it `is_patient`, except for
    the trees (by number) in `unsure`. It runs the components in `stored` as they were found, except for the ranges of calls in
    `left_out`.
    """

    calls: tuple[WindowCall, ...]
    stored: StoredComponents | None = None
    unsure: frozenset[int] = frozenset()
    left_out: frozenset[range] = frozenset()
    is_patient: bool = True
    n_met: int = 0
    is_usable: bool = True
    _planned: Work[PlannedCalls] | None = field(default=None, repr=False)

    def planned(self) -> PlannedCalls | None:
        """Returns the plan's kernels if their code is loaded; None while it is built, or without a usable plan."""
        self.n_met += 1
        if not self.is_usable or self.n_met < LEAST_TIMES:
            return None
        if self._planned is None:
            try:
                most_runs = MOST_RUNS if self.is_patient else 1
                begun = partial(
                    _begun, self.calls, self.unsure, self.stored, self.left_out, most_runs
                )
                self._planned = current_engine().submit(begun)
            except RuntimeError:  # Python ends, and starts no thread
                return None
        return self._loaded(waits=False) if self._planned.done() else None

    def complete(self) -> None:
        """Waits until the plan is built, if that has begun."""
        if self._planned is not None:
            self._loaded(waits=True)

    def refuse(self) -> None:
        """Makes windows of this signature run call by call from now on."""
        self.is_usable = False

    def assume_less(self, trees: Iterable[int]) -> None:
        """Adds trees to `unsure`, the trees without assumptions; the plan is built anew if there are new ones."""
        unsure = self.unsure.union(trees)
        if unsure != self.unsure:
            self.unsure, self._planned = unsure, None

    def wait_less(self) -> None:
        """Assumes only what one run leaves behind; the plan is built anew if it assumed more."""
        if self.is_patient:
            self.is_patient, self._planned = False, None

    def leave_out(self, parts: Iterable[FoundPart]) -> None:
        """Runs these calls by default, and those of other parts as before; the plan is built anew.

        Refused components say why when it is built.
        """
        self.left_out, self._planned = self.left_out.union(x.calls for x in parts), None

    def _loaded(self, *, waits: bool) -> PlannedCalls | None:
        planned = self._built(waits=waits)
        if self.stored is not None:
            # Said here: in the thread that builds the plan, a warning as an error would be one of the plan.
            self.stored.warn()
        return planned

    def _built(self, *, waits: bool) -> PlannedCalls | None:
        assert self._planned is not None
        engine = current_engine()
        try:
            planned = self._planned.result()
            irs = planned.irs
            if not waits and not engine.prepare(irs):
                return None
            return planned if all(engine.prepared(ir) is not None for ir in irs) else None
        except Exception as e:  # also a bug in the rules: calls without a plan are right
            self.is_usable = False
            why = str(e) if isinstance(e, CompileError) else f"its plan failed: {e!r}"
            warnings.warn(
                f"a window of calls runs call by call: {why}", RuntimeWarning, stacklevel=2
            )
            return None


@dataclass(frozen=True, eq=False)
class _Step:
    """Kernel of a plan with its arrays, and the positions of its numbers."""

    ir: KernelIR
    arrays: Values
    scalars: tuple[int, ...]

    def run(self, numbers: Sequence[Any]) -> None:
        """Runs the kernel by itself. Raises its errors."""
        current_engine().run(self.ir, self.arrays, [numbers[k] for k in self.scalars])


class _Unit:
    """Part of a plan that one call runs: a kernel, or a stored implementation (`part`) in place of some kernels (`steps`)."""

    def __init__(self, part: FoundPart | None, steps: Sequence[_Step], arrays: Values) -> None:
        self.part, self.steps = part, steps
        (self.arrays, self.scalars) = (
            (steps[0].arrays, steps[0].scalars)
            if part is None
            else (tuple(arrays[n] for n in part.arrays), part.scalars)
        )
        self.written = {} if part is None else {n: arrays[n] for n in part.written}
        # With trees also what is only read: it says which cells are active.
        self.seen = dict(self.written)
        if part is not None and part.stored.recording.trees:
            self.seen |= {n: arrays[n] for n in part.arrays}

    def caller(self, numbers: Sequence[Any]) -> Callable[..., bool] | None:
        """Returns the function that runs it on its arrays and numbers; `numbers` are those of all calls."""
        if self.part is None:
            return current_engine().prepared(self.steps[0].ir)
        if self.part.is_checked:
            return self.part.stored.caller
        return _CheckedRun(self.part, self, numbers)

    @property
    def is_quick(self) -> bool:
        """True if no call of Python's is between the program and its code."""
        if self.part is not None:
            return self.part.is_checked
        return current_engine().quick(self.steps[0].ir) is not None

    def run_steps(self, numbers: Sequence[Any]) -> None:
        """Runs its kernels one by one. Raises their errors."""
        for step in self.steps:
            step.run(numbers)

    def run_refused(self, numbers: Sequence[Any]) -> None:
        """Runs its kernels, since its code has refused its arguments. Raises their errors; a single kernel has one."""
        self.run_steps(numbers)
        if self.part is None:
            name = self.steps[0].ir.name
            raise AssertionError(f"a kernel of a window has refused its arguments once: {name}")


class _Claims:
    """Unit behind a stored implementation: a look at what it could not write, without a call of Python's."""

    scalars: tuple[int, ...] = ()
    is_quick = True

    def __init__(self, claims: Sequence[Claim], arrays: Values) -> None:
        self._rows = [(arrays[x.counters][-1, : len(x.messages)], x.messages) for x in claims]
        none = tuple(memoryview(np.zeros_like(row)) for row, _ in self._rows)
        self.arrays = (tuple(memoryview(row) for row, _ in self._rows), none)

    def caller(self, numbers: Sequence[Any]) -> Callable[..., bool]:
        """Returns the function that is true of its arrays if all was written."""
        return eq

    def run_refused(self, numbers: Sequence[Any]) -> None:
        """Raises the error of the kernel that could not write, and removes the records of it."""
        told = (x for row, texts in self._rows for x in zip(row.tolist(), texts, strict=True))
        text = next(text for is_failed, text in told if is_failed)
        for row, _ in self._rows:
            row[:] = 0
        raise failed_assertion(text)


class _CheckedRun:
    """One run of a stored implementation, compared with the kernels that it replaces; their results stay.

    An interrupt may end it anywhere. `complete` then does what is missing.
    """

    def __init__(self, part: FoundPart, unit: _Unit, numbers: Sequence[Any]) -> None:
        self._part, self._unit, self._numbers = part, unit, numbers
        # Contents by number; the stored code runs only behind all copies.
        self._before: dict[int, Any] | None = None
        self._is_over = False

    def __call__(self, *args: Any) -> bool:
        """Runs both. False, without effect, if there is not enough memory for a comparison."""
        try:
            _check_memory(self._unit.written.values())
            self._before = {n: x.copy() for n, x in self._unit.written.items()}
            got = self._stored(args)
        except MemoryError as e:
            self._part.refuse(f"there is not enough memory to compare it: {e}")
            if self._before is None:
                return False
            got = None
        self.complete()
        if got is not None:
            self._part.compare({**self._unit.seen, **got}, self._unit.seen)
        return True

    def complete(self) -> None:
        """Runs the kernels on the contents from before, unless they have run to their end."""
        if self._is_over:
            return
        for n, old in (self._before or {}).items():
            restore(self._unit.written[n], old)
        self._unit.run_steps(self._numbers)
        self._is_over = True

    def _stored(self, args: Values) -> dict[int, Any] | None:
        """Returns what the stored code leaves, by number; None if it cannot run, which refuses it."""
        try:
            was_run = self._part.stored.caller(*args)
        except Exception as e:  # of stored content: the kernels run
            self._part.refuse(f"{type(e).__name__}: {e}")
            return None
        if not was_run:
            self._part.refuse("it does not take its arguments")
            return None
        return {n: x.copy() for n, x in self._unit.written.items()}


def _check_memory(arrays: Iterable[Any]) -> None:
    """Raises MemoryError if there is no room for `arrays` and two copies: parts of trees may be larger than memory."""
    n_bytes, free = 3 * sum(x.nbytes for x in arrays), available_bytes()
    if free is not None and n_bytes > free:
        raise MemoryError(f"{n_bytes:.3g} bytes are needed, {free:.3g} are free")


class BoundPlan:
    """A plan bound to the arrays of one window, and the `marks` of its trees."""

    def __init__(
        self,
        planned: PlannedCalls,
        arrays: Values,
        structures: Sequence[Structure],
        marks: TreeMarks,
    ) -> None:
        sections = [x.memory.arrays for x in structures]
        self.planned, self.kernels, self._marks = planned, planned.kernels, marks

        def bound(step: WindowStep) -> _Step:
            own = (
                arrays[x] if isinstance(x, int) else sections[x[0]][x[1]]
                for x in step.kernel.arrays
            )
            return _Step(step.kernel.ir, tuple(own), step.scalars)

        units = [
            _Unit(part, [bound(step) for step in steps], arrays) for part, steps in planned.units
        ]
        self._units: list[_Unit | _Claims] = []
        for unit in units:
            claims = () if unit.part is None else unit.part.claims
            self._units += [unit, _Claims(claims, arrays)] if claims else [unit]
        of_steps = (a for unit in units for step in unit.steps for a in step.arrays)
        used = (*of_steps, *(a for unit in units for a in unit.arrays))
        self.are_apart = _are_apart({id(a): a for a in used}.values())
        self._reshapes = not self.kernels.reshaped.isdisjoint(self.kernels.assumed)
        self._runs: list[Values] | None = None  # callers with their arrays
        self._scalars = [unit.scalars for unit in self._units]
        self._has_numbers = any(self._scalars)
        # Runs in a row, since the plan ran: before which cells had changed, and so soon behind them that it could not run.
        self._n_missed = self._n_waited = 0
        self.unsure: set[int] = set()  # trees whose cells had changed before these
        self._others: list[FoundPart] = []  # stored implementations for other numbers
        # It assumes nothing, and a window that follows itself begins where it is.
        self.is_plain = not (planned.parts or self.kernels.assumed or self.kernels.rotation)

    def may_run(self, numbers: Sequence[Any]) -> bool:
        """True if all assumptions of the plan hold now; `numbers` are those of all calls."""
        if self.is_plain:
            return True
        self._others = [x for x in self.planned.parts if not x.takes(numbers)]
        if self._others:
            return False
        assumed = self.kernels.assumed
        gone = self._marks.gone(assumed) if assumed else ()
        if gone:
            if self._marks.are_set:
                self._n_missed += 1
                self.unsure.update(gone)
            return False
        if not self._marks.are_behind(self.kernels.n_runs, assumed):
            self._n_waited += 1
            return False
        self._n_missed = self._n_waited = 0
        self.unsure.clear()
        return True

    def is_kept(self, plan: WindowPlan) -> bool:
        """True if this is still how `plan` should run; else the plan is built anew.

        It is not if the assumptions fail repeatedly, since other calls change cells before each run or every other one, nor if a
        stored implementation is refused or for other numbers.
        """
        if self.is_plain:
            return True
        if self._n_missed + self._n_waited > _MOST_MISSES:
            if self._n_waited:
                plan.wait_less()
            else:
                plan.assume_less(self.unsure)
        elif self._others or any(x.stored.refusal for x in self.planned.parts):
            plan.leave_out(self._others)
        else:
            return True
        return False

    def run(self, numbers: Sequence[Any], begun: list[bool]) -> None:
        """Runs all calls of the window. An interrupt takes effect before or after all of them.

        `begun` is empty as long as no kernel has begun; it gets the results of those that have run.
        """
        runs = self._runs or self._callers(numbers)
        if self._has_numbers:
            units = zip(runs, self._scalars, strict=True)
            runs = [(*run, *[numbers[k] for k in own]) for run, own in units]
        marked = self._marks.begin() if self._reshapes else None
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
                    at = runs[len(begun)][0] if len(begun) < len(runs) else None
                    begun.append(True)
                    if isinstance(at, _CheckedRun):
                        at.complete()
                self._run_rest(runs, numbers, begun)
        if len(begun) < len(runs):
            self._run_rest(runs, numbers, begun)
        if marked is not None:
            self._marks.set(marked)

    def _run_rest(self, runs: Sequence[Values], numbers: Sequence[Any], begun: list[bool]) -> None:
        """Runs what has not run; the first of them may have refused its arguments. Raises errors."""
        while len(begun) < len(runs):
            run, unit = runs[len(begun)], self._units[len(begun)]
            if not call(*run):
                unit.run_refused(numbers)
            begun.append(True)

    def _callers(self, numbers: Sequence[Any]) -> list[Values]:
        runs = [(unit.caller(numbers), *unit.arrays) for unit in self._units]
        if all(unit.is_quick for unit in self._units):
            self._runs = runs
        return runs


def _are_apart(arrays: Any) -> bool:
    """True if no two arrays overlap in memory."""
    return not any(np.may_share_memory(a, b) for a, b in combinations(arrays, 2))


def _begun(
    calls: Sequence[WindowCall],
    unsure: frozenset[int],
    stored: StoredComponents | None,
    left_out: frozenset[range],
    most_runs: int,
) -> PlannedCalls:
    """Returns the kernels of a window's calls, after starting their compilation."""
    from ...kernels.tasks.window_kernels import Window

    window = Window(calls, unsure, most_runs)
    found = [] if stored is None else stored.parts(calls, window.derived, left_out)
    kernels = window.kernels([x.calls for x in found])
    planned = PlannedCalls(kernels, [x for x in found if x.calls in kernels.apart])
    current_engine().prepare(planned.irs)
    return planned


class PlanBank:
    """Plans of a program's windows by signature. The kernels of a signature live as long as its plan.

    `stored`: components that run as they were found.
    """

    def __init__(self, stored: StoredComponents | None = None) -> None:
        self.stored = stored
        self._plans: dict[object, WindowPlan] = {}

    def plan(self, calls: tuple[WindowCall, ...], n_met: int = 0) -> WindowPlan | None:
        """Returns the plan of a window, which was met `n_met` times without it; None if there are too many plans."""
        key = tuple((id(c.ir), c.arrays, tuple(n for n, _ in c.trees)) for c in calls)
        found = self._plans.get(key)
        if found is None and len(self._plans) < _MOST_PLANS:
            found = self._plans[key] = WindowPlan(calls, self.stored, n_met=n_met)
        return found

    def complete(self) -> None:
        """Waits for all plans being built."""
        for plan in tuple(self._plans.values()):
            plan.complete()

    def clear(self) -> None:
        """Drops all plans."""
        self._plans.clear()
