"""Windows of a running program: the sequences of kernels that it calls again and again, their times, and what ends them."""

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
from ..runtime.engine.planned_window import Held, PlannedWindow, RanWindow
from ..runtime.engine.window import DeferralWindow
from .workload import Workload, make_workload

_MOST_CALLS = 4096  # of a window
_REPEATED = 3  # runs of a window that make its time known
_MORE = 3.0  # times as long as it should, a program is watched at most


@dataclass(eq=False)
class ProgramWindow:
    """Window of a program: its calls as they were made last, the seconds of each run, and what ended it how often.

    `varying` are the positions of numbers, counted over all calls, that are not the same in each run.
    """

    calls: tuple[KernelCall, ...]
    times_s: list[float] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)
    varying: set[int] = field(default_factory=set)

    @property
    def time_s(self) -> float:
        """The median time of a run, kernel by kernel."""
        return statistics.median(self.times_s)

    @property
    def cost_s(self) -> float:
        """The time of all runs, without what is compiled in some."""
        return self.time_s * len(self.times_s)

    @property
    def kernels(self) -> str:
        """The names of its kernels in order: `p2g, grid_op, g2p`, and `smooth x 4` for one that is called again at once."""
        runs = [(name, len(list(x))) for name, x in groupby(c.instance.ir.name for c in self.calls)]
        return ", ".join(name if n == 1 else f"{name} x {n}" for name, n in runs)

    @property
    def why_fixed(self) -> str:
        """Reason why no other implementation can replace the calls; "" where one can."""
        for call in self.calls:
            if call.instance.hidden.draws:
                return f"{call.instance.ir.name} draws random numbers"
            if call.instance.is_gone:
                return f"fields of {call.instance.ir.name} are gone"
        return ""

    def add(self, calls: Sequence[Held], taken_s: float, why: str) -> None:
        """Notes a run."""
        known = [x for c in self.calls for x in c.scalars.values()]
        now = [x for kernel, values in calls for x in values[kernel.n_arrays :]]
        self.varying |= {k for k, (x, y) in enumerate(zip(known, now, strict=True)) if x != y}
        if self.varying:
            self.calls = tuple(kernel.called(values) for kernel, values in calls)
        self.times_s.append(taken_s)
        self.ends[why] += 1

    def workload(self, sequence: str, name: str) -> Workload:
        """Returns the calls as a sequence to explore, on what the fields hold now. Raises LanguageError.

        Numbers that vary are its arguments.
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
        return make_workload(called, args, sequence=sequence, name=name)


class WindowLog:
    """The windows that a program runs. After `seconds`, `stop` is called once: it may raise what ends the program.

    A program that repeats no window by then waits for compilers: it gets three times as long.
    """

    def __init__(self, seconds: float, stop: Callable[[], None]) -> None:
        self._seconds, self._stop = seconds, stop
        self._begin_s = perf_counter()
        self._windows: dict[int, tuple[RanWindow, ProgramWindow]] = {}

    def add(self, ran: RanWindow, calls: Sequence[Held], taken_s: float, why: str) -> None:
        """Notes a run of a window."""
        found = self._windows.get(id(ran))
        if found is None:
            made = ProgramWindow(tuple(kernel.called(values) for kernel, values in calls))
            found = self._windows[id(ran)] = ran, made
        found[1].add(calls, taken_s, why)
        is_known = len(found[1].times_s) >= _REPEATED
        if self.seconds > self._seconds * (1 if is_known else _MORE):
            self._seconds = inf
            self._stop()

    def close(self) -> None:
        """Ends the log: what runs from now on ends by itself."""
        self._seconds = inf

    @property
    def seconds(self) -> float:
        """The time since the program began."""
        return perf_counter() - self._begin_s

    @property
    def windows(self) -> list[ProgramWindow]:
        """All windows, the most expensive first."""
        return sorted((w for _, w in self._windows.values()), key=lambda w: -w.cost_s)


def watched_window(log: WindowLog) -> PlannedWindow:
    """Returns an executor that logs what a program runs. A window has one period of a program that repeats itself, and no plan."""
    return PlannedWindow(DeferralWindow(), _MOST_CALLS, least_calls=1, plans=False, note=log.add)
