"""Windows of a running program: sequences of kernel calls that it repeats, their times, and why each ended.

Windows that differ only in their fields are one, such as those of fields that a program swaps each period: plan_replay.py runs what
is found for one of them on the fields of all. Sparse fields may be of one tree, or of trees that are equal.

A window that follows itself may be rotated, as plans are (runtime/engine/rotation.py): it begins some calls later, where loops of
two of its runs become one.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import inf
from time import perf_counter
from typing import Any

from ..kernels.fields.tree import Structure
from ..kernels.frontend import dispatch
from ..kernels.frontend.instance import KernelCall
from ..kernels.tasks.window_kernels import window_rotation
from ..runtime.engine.held_memory import written_arrays
from ..runtime.engine.plan_bank import MOST_RUNS
from ..runtime.engine.planned_window import PlannedWindow
from ..runtime.engine.ran_window import RanWindow, WindowRun
from ..runtime.engine.waiting_kernel import Held
from ..runtime.engine.window import DeferralWindow
from ..runtime.engine.window_calls import window_calls
from ..runtime.free_memory import available_bytes
from ..runtime.restoring import restore
from .call_form import CallForm, form_of
from .workload import Workload, make_workload

_MOST_CALLS = 4096  # of a window
_REPEATED = 3  # runs of a window that make its time known
_MORE = 3.0  # times as long as it should, a program is watched at most
_OFTEN = 0.25  # of the runs: a tree whose active cells change so often is unsure
# Runs in a row, on average, from which on a window is rotated: at both ends of a row some of its calls then run one by one.
_LEAST_IN_A_ROW = 8
_Form = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(eq=False)
class ProgramWindow:
    """Window of a program (a repeated sequence of calls): last calls, seconds of each run, counts of end reasons.

    `ran`: the window with the arrays of `calls`. `trees`: those of `calls` in the order of first use, which all runs have alike.
    `varying` are the positions of scalar arguments, counted over all calls, whose values differ between runs. `n_compared` runs
    were compared with one before on the same fields: `n_changed` of these found other active cells in a tree, by its number.
    Its runs are `n_rows` rows, in which each directly follows the one before on the same fields. `prologue`: the calls that a
    program makes before each row of a rotated window.
    """

    calls: tuple[KernelCall, ...]
    ran: RanWindow
    trees: tuple[Structure, ...]
    times_s: list[float] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)
    varying: set[int] = field(default_factory=set)
    n_changed: Counter[int] = field(default_factory=Counter)
    n_compared: int = 0
    n_rows: int = 0
    prologue: tuple[KernelCall, ...] = ()

    @property
    def time_s(self) -> float:
        """Median seconds of one run, kernel by kernel."""
        return statistics.median(self.times_s)

    @property
    def cost_s(self) -> float:
        """Seconds of all runs: median time times number of runs, so that compilation does not count."""
        return self.time_s * len(self.times_s)

    @property
    def kernels(self) -> str:
        """Names of the window's kernels in order, "p2g, grid_op, g2p"; consecutive equal ones as "smooth x 4"."""
        runs = [(name, len(list(x))) for name, x in groupby(c.instance.ir.name for c in self.calls)]
        return ", ".join(name if n == 1 else f"{name} x {n}" for name, n in runs)

    @property
    def why_fixed(self) -> str:
        """Reason why no other implementation can replace the calls; "" if one can."""
        for call in self.calls:
            if call.instance.hidden.draws:
                return f"{call.instance.ir.name} draws random numbers"
            if call.instance.is_gone:
                return f"fields of {call.instance.ir.name} are gone"
        return ""

    def add(self, run: WindowRun, trees: tuple[Structure, ...], *, follows: bool) -> None:
        """Adds one run of the window on some `trees`. `follows`: directly behind one on the same fields."""
        known = [x for c in self.calls for x in c.scalars.values()]
        now = [x for kernel, values in run.calls for x in values[kernel.n_arrays :]]
        self.varying |= {k for k, (x, y) in enumerate(zip(known, now, strict=True)) if x != y}
        if self.varying:
            self.calls, self.ran, self.trees = _called(run.calls), run.ran, trees
        if run.changed is not None:
            changed = {id(run.ran.structures[k]) for k in run.changed}
            self.n_changed.update(k for k, x in enumerate(trees) if id(x) in changed)
            self.n_compared += 1
        self.n_rows += not follows
        self.times_s.append(run.taken_s)
        self.ends[run.why] += 1

    @property
    def trees_unsure(self) -> frozenset[str] | None:
        """Names of the trees in which a run often does not find the active cells of the run before.

        Those are among them whose cells have changed since the last run. None if no two runs were compared.
        """
        now = self.ran.changed()
        if now is None or not self.n_compared:
            return None
        often = (k for k, n in self.n_changed.items() if n >= _OFTEN * self.n_compared)
        unsure = (*(self.ran.structures[k] for k in now), *(self.trees[k] for k in often))
        return frozenset(x.layout.tree.name for x in unsure)

    def rotated(self) -> ProgramWindow:
        """Returns the window that begins some calls later, where loops of two runs become one; the window itself if none do.

        The window itself also if its rows are so short that the calls at both ends, which run one by one, cost more.
        """
        is_cut = len(self.times_s) < _LEAST_IN_A_ROW * self.n_rows
        if is_cut or self.why_fixed:
            return self
        names, structures = self.trees_unsure, self.ran.structures
        unsure = {
            k for k, x in enumerate(structures) if names is None or x.layout.tree.name in names
        }
        n = window_rotation(window_calls(self.ran.kernels)[0], frozenset(unsure))
        if n == 0 or not _has_room(self.calls[:n]):
            return self
        first, rest = self.calls[:n], self.calls[n:]
        n_first, n_rest = (sum(len(c.scalars) for c in some) for some in (first, rest))
        varying = {(k - n_first) % (n_first + n_rest) for k in self.varying}
        return replace(self, calls=(*rest, *first), varying=varying, prologue=first)

    @contextmanager
    def workload(self, sequence: str, name: str) -> Iterator[Workload]:
        """Gives the calls as a workload to explore, on the contents that the fields have where the window begins.

        It assumes lists and active cells as the runs before have left them. Varying numbers become its arguments. Behind the block
        the fields are as before. Raises LanguageError, and what calls of the prologue raise.
        """
        given = [x for c in self.calls for x in c.scalars.values()]

        def called(*numbers: Any) -> None:
            all_numbers: list[Any] = list(given)
            for k, x in zip(sorted(self.varying), numbers, strict=True):
                all_numbers[k] = x
            rest = iter(all_numbers)
            for c in self.calls:
                own = {name: next(rest) for name in c.scalars}
                dispatch.current().run(replace(c, scalars=own))

        args = [given[k] for k in sorted(self.varying)]
        unsure = self.trees_unsure  # before the prologue runs, since it may make lists
        most_runs = self._most_runs(unsure or frozenset())
        with _behind(self.prologue):
            yield make_workload(
                called,
                args,
                sequence=sequence,
                name=name,
                unsure=unsure,
                most_runs=most_runs,
            )

    def _most_runs(self, unsure: Container[str]) -> int:
        """Returns the number of runs in a row that have left the active cells of all trees but `unsure`, at most `MOST_RUNS`."""
        names = enumerate(x.layout.tree.name for x in self.ran.structures)
        sure = [k for k, name in names if name not in unsure]
        return MOST_RUNS if self.ran.marks.are_behind(MOST_RUNS, sure) else 1


class WindowLog:
    """Log of the windows that a program runs.

    After `seconds`, `stop` is called once; it may raise to end the program. A program that has repeated no window by then waits
    for compilers: it gets three times as long.
    """

    def __init__(self, seconds: float, stop: Callable[[], None]) -> None:
        self._seconds, self._stop = seconds, stop
        self._last: RanWindow | None = None
        self._begin_s = perf_counter()
        self._windows: dict[int, tuple[RanWindow, ProgramWindow, tuple[Structure, ...]]] = {}
        self._by_form: dict[_Form, ProgramWindow] = {}

    def add(self, run: WindowRun) -> None:
        """Adds one run of a window, and calls `stop` if the time is over."""
        ran = run.ran
        found = self._windows.get(id(ran))
        if found is None:
            form, trees = _form_of(run.calls)
            if form not in self._by_form:
                self._by_form[form] = ProgramWindow(_called(run.calls), ran, trees)
            found = self._windows[id(ran)] = ran, self._by_form[form], trees
        found[1].add(run, found[2], follows=ran is self._last and not run.is_cut)
        self._last = ran
        is_known = len(found[1].times_s) >= _REPEATED
        if self.seconds > self._seconds * (1 if is_known else _MORE):
            self._seconds = inf
            self._stop()

    def close(self) -> None:
        """Removes the log's time limit: later runs do not call `stop`."""
        self._seconds = inf

    @property
    def seconds(self) -> float:
        """Seconds since the log began."""
        return perf_counter() - self._begin_s

    @property
    def windows(self) -> list[ProgramWindow]:
        """All windows, the most expensive first."""
        return sorted(self._by_form.values(), key=lambda w: -w.cost_s)


def _called(calls: Sequence[Held]) -> tuple[KernelCall, ...]:
    return tuple(kernel.called(values) for kernel, values in calls)


def _form_of(calls: Sequence[Held]) -> tuple[_Form, tuple[Structure, ...]]:
    """Returns the form of a window, and its trees in the order of first use.

    The form has the texts of its kernels, and its arrays, trees and sparse fields, numbered in this order.
    """
    forms: dict[int, CallForm] = {}
    numbers: dict[tuple[int, ...], int] = {}
    structures: dict[int, Structure] = {}
    found = []
    for kernel, values in calls:
        trees = dict(kernel.instance.structures)
        if id(kernel) not in forms:
            fields = {name: x.layout.fields for name, x in trees.items()}
            forms[id(kernel)] = form_of(kernel.ir, kernel.instance.logical, fields.__getitem__)
        form = forms[id(kernel)]
        named = [trees[name] for name in form.trees]
        structures.update((id(x), x) for x in named)
        used: list[tuple[int, ...]] = [(id(values[k]),) for k in form.arrays]
        used += [(id(x),) for x in named]
        used += [(id(named[k]), number) for k, number in form.fields]
        found.append((form.text, tuple(numbers.setdefault(x, len(numbers)) for x in used)))
    return tuple(found), tuple(structures.values())


def _written(calls: Sequence[KernelCall]) -> list[Any]:
    """Returns the arrays that some calls write, each once."""
    written: dict[int, Any] = {}
    for c in calls:
        arrays, _ = c.in_order
        written.update((id(arrays[k]), arrays[k]) for k in written_arrays(c.instance.ir))
    return list(written.values())


def _has_room(calls: Sequence[KernelCall]) -> bool:
    """True if memory has room for what some calls write, and for a copy: parts of trees may be larger than memory."""
    free = available_bytes()
    return free is None or 2 * sum(x.nbytes for x in _written(calls)) <= free


@contextmanager
def _behind(calls: Sequence[KernelCall]) -> Iterator[None]:
    """Runs some calls before the block, and restores behind it all that they have written."""
    before = [(x, x.copy()) for x in _written(calls)]
    try:
        for c in calls:
            dispatch.eager().run(c)
        yield
    finally:
        for x, contents in before:
            restore(x, contents)


def watched_window(log: WindowLog) -> PlannedWindow:
    """Returns an executor that runs calls kernel by kernel and logs one window per period of the program."""
    return PlannedWindow(DeferralWindow(), _MOST_CALLS, least_calls=1, plans=False, note=log.add)
