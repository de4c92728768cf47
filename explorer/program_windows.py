"""Windows of a running program: sequences of kernel calls that it repeats, their times, and why each ended.

Windows that differ only in their fields are one, such as those of fields that a program swaps each period: plan_replay.py runs what
is found for one of them on the fields of all.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import inf
from time import perf_counter
from typing import Any

from ..kernels.frontend import dispatch
from ..kernels.frontend.instance import KernelCall
from ..runtime.engine.planned_window import Held, PlannedWindow, RanWindow, WindowRun
from ..runtime.engine.spelling import spelled
from ..runtime.engine.window import DeferralWindow
from .workload import Workload, make_workload

_MOST_CALLS = 4096  # of a window
_REPEATED = 3  # runs of a window that make its time known
_MORE = 3.0  # times as long as it should, a program is watched at most
_Form = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(eq=False)
class ProgramWindow:
    """Window of a program (a repeated sequence of calls): last calls, seconds of each run, counts of end reasons.

    `ran`: the window with the arrays of `calls`. `varying` are the positions of scalar arguments, counted over all calls, whose
    values differ between runs. `unsure` are the trees, by number in `ran`, whose active cells have changed between two runs;
    `n_compared` runs were compared with one before.
    """

    calls: tuple[KernelCall, ...]
    ran: RanWindow
    times_s: list[float] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)
    varying: set[int] = field(default_factory=set)
    unsure: set[int] = field(default_factory=set)
    n_compared: int = 0

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

    def add(self, run: WindowRun) -> None:
        """Adds one run of the window."""
        known = [x for c in self.calls for x in c.scalars.values()]
        now = [x for kernel, values in run.calls for x in values[kernel.n_arrays :]]
        self.varying |= {k for k, (x, y) in enumerate(zip(known, now, strict=True)) if x != y}
        if self.varying:
            self.calls, self.ran = _called(run.calls), run.ran
        if run.changed is not None:
            self.unsure.update(run.changed)
            self.n_compared += 1
        self.times_s.append(run.taken_s)
        self.ends[run.why] += 1

    @property
    def trees_unsure(self) -> frozenset[str] | None:
        """Names of the trees in which a run does not find the active cells of the run before; None if no two runs were compared.

        Those are among them whose cells have changed since the last run.
        """
        now = self.ran.changed()
        if now is None or not self.n_compared:
            return None
        trees = self.ran.structures
        return frozenset(trees[k].layout.tree.name for k in self.unsure.union(now))

    def workload(self, sequence: str, name: str) -> Workload:
        """Returns the calls as a workload to explore, on the current contents of the fields.

        It assumes lists and active cells as the run before has left them. Varying numbers become its arguments. Raises
        LanguageError.
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
        return make_workload(called, args, sequence=sequence, name=name, unsure=self.trees_unsure)


class WindowLog:
    """Log of the windows that a program runs.

    After `seconds`, `stop` is called once; it may raise to end the program. A program that has repeated no window by then waits
    for compilers: it gets three times as long.
    """

    def __init__(self, seconds: float, stop: Callable[[], None]) -> None:
        self._seconds, self._stop = seconds, stop
        self._begin_s = perf_counter()
        self._windows: dict[int, tuple[RanWindow, ProgramWindow]] = {}
        self._by_form: dict[_Form, ProgramWindow] = {}

    def add(self, run: WindowRun) -> None:
        """Adds one run of a window, and calls `stop` if the time is over."""
        ran = run.ran
        found = self._windows.get(id(ran))
        if found is None:
            form = _form_of(run.calls)
            if form not in self._by_form:
                self._by_form[form] = ProgramWindow(_called(run.calls), ran)
            found = self._windows[id(ran)] = ran, self._by_form[form]
        found[1].add(run)
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


def _form_of(calls: Sequence[Held]) -> _Form:
    """Returns the form of a window: the texts of its kernels, and its arrays, numbered in the order of first use."""
    texts: dict[int, str] = {}
    numbers: dict[int, int] = {}
    form = []
    for kernel, values in calls:
        if id(kernel.ir) not in texts:
            texts[id(kernel.ir)] = spelled(kernel.ir, has_places=False)
        arrays = values[: kernel.n_arrays]
        at = tuple(numbers.setdefault(id(x), len(numbers)) for x in arrays)
        form.append((texts[id(kernel.ir)], at))
    return tuple(form)


def watched_window(log: WindowLog) -> PlannedWindow:
    """Returns an executor that runs calls kernel by kernel and logs one window per period of the program."""
    return PlannedWindow(DeferralWindow(), _MOST_CALLS, least_calls=1, plans=False, note=log.add)
