"""Costs of windows that a process of its own measures: held calls, periods by plans, broken periods, and roots of long windows.

    python -m kernelscape.experiments.window_parts calls called|planned PERIODS BREAKS
    python -m kernelscape.experiments.window_parts roots distinct|mgpcg_2d SIZE

The last line is JSON. `experiments.window_costs` runs these by turns and writes their page.
"""

# mypy: disable-error-code="valid-type"

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np

from ..explorer.workload import Options, Workload, make_workload, space_for
from ..kernels.fields.program import current_program
from ..kernels.frontend import dispatch
from ..kernels.frontend.kernel import kernel
from ..runtime.engine import current_engine
from ..runtime.engine.planned_window import PlannedWindow
from ..runtime.engine.ran_window import RanWindow, WindowRun
from ..runtime.engine.window import DeferralWindow
from ..space.candidate import Candidate
from . import row
from .period_search import period_workload
from .program_texts import TEXTS

CALLED, PLANNED = "called", "planned"
DISTINCT, MGPCG = "distinct", "mgpcg_2d"
ks: Any = import_module(__package__.partition(".")[0])  # programs of users see it whole
STEPS = ("recorded", "space", "root")  # of the way to a root
N_CALLS = 8  # of a period: the executor runs shorter ones several at once
N_CELLS = 16
N_ARRAYS = 12  # of the window of distinct kernels
EXTENT = 4096  # of each of them
_MOST_TRIES = 5  # periods behind the first six, of which one must run by a plan
_EXTENSION_S = 60.0  # in which a compiler makes it
_LIMIT = 1024  # calls of a window
_PLACES = (2, 5)  # calls in front of what breaks a period
_BREAKS = ("whole", "new", "known", "read")
_MET = ("known", "read")  # breaks whose windows are met before, so that they have plans
Found = dict[str, Any]
Runs = list[tuple[Callable[..., object], tuple[Any, ...]]]


# --- calls ---------------------------------------------------------------------------------------


class SmallProgram:
    """Program whose kernels compute nearly nothing, so that its times are those of its calls. It needs `ks.init`.

    `period` are the arguments of the calls of a period. `n_others` fields, at most 64, are for calls that break one: a kernel
    knows so many kinds of calls again.
    """

    def __init__(self, n_others: int = 0) -> None:
        fields = [ks.field(ks.f32, N_CELLS) for _ in range(N_CALLS)]
        self.fields = fields
        self.others = [ks.field(ks.f32, N_CELLS) for _ in range(n_others)]
        self.period = [(fields[k], fields[(k + 1) % N_CALLS]) for k in range(N_CALLS)]

        @kernel
        def move(a: ks.template(), b: ks.template()) -> None:
            for i in a:
                b[i] = 0.5 * (a[i] + b[i])

        @kernel
        def scale(a: ks.template(), by: ks.f32) -> None:
            for i in a:
                a[i] = by * a[i]

        @kernel
        def bring(a: ks.template(), b: ks.template()) -> None:
            for i in a:
                b[i] = 0.5 * (a[i] + b[i])

        self.move: Any = move
        self.bring: Any = bring
        self.scale: Any = scale

    def run(self) -> None:
        """One period."""
        for a, b in self.period:
            self.move(a, b)

    def settle(self, way: str) -> None:
        """Runs periods until their code is there, and with plans until one runs. Raises RuntimeError."""
        self._bring_all()
        settled(self.run, way)
        self._wait_for_extension()
        self._bring_all()  # with it from now on
        for _ in range(2):  # a period is expected behind a period again
            self.run()
            ks.sync()

    def _bring_all(self) -> None:
        for other in self.others:
            self.bring(other, self.fields[0])
        ks.sync()

    def _wait_for_extension(self) -> None:
        """Waits until calls need no Python of the engine's: the extension for them is compiled beside. Raises RuntimeError."""
        engine, ir = current_engine(), self.move.instantiate(*self.period[0])
        until_s = time.monotonic() + _EXTENSION_S
        while engine.prepared(ir) is None or engine.quick(ir) is None:
            if time.monotonic() > until_s:
                raise RuntimeError("there is no extension for calls")
            time.sleep(0.01)


def settled(period: Callable[[], None], way: str) -> None:
    """Runs a period until all of it is compiled, and with plans until its plan runs. Raises RuntimeError."""
    for _ in range(6):
        period()
    ks.sync()
    before = ks.engine.stats().n_planned
    for _ in range(_MOST_TRIES):
        _wait_for_plans()
        period()
        ks.sync()
        if way != PLANNED or ks.engine.stats().n_planned > before:
            return
    raise RuntimeError("a period that runs again and again has no plan")


def _wait_for_plans() -> None:
    """Waits until plans are there which have begun to be built: that is done beside the program."""
    program = current_program()
    window = None if program is None else program.follower
    if isinstance(window, PlannedWindow):
        window.plans.complete()


def begin(way: str) -> None:
    """Begins a program whose calls run at once, or wait for plans."""
    ks.init(async_mode=way == PLANNED, async_flush_every=_LIMIT)


def calls(way: str, n_periods: int, n_breaks: int) -> Found:
    """Microseconds of calls: of held ones, of those that run a period, of whole periods, and of broken ones."""
    begin(way)
    small = SmallProgram(n_breaks)
    small.settle(way)
    held, last = _ends_us(small.move, lambda: small.period, n_periods)
    found: Found = {"held": held, "last": last, "period": _period_us(small, n_periods)}
    rng = random.Random(1)

    def numbered() -> Sequence[tuple[Any, float]]:
        by = rng.uniform(0.9, 1.1)
        return [(x, by) for x in small.fields]

    def scaled() -> None:
        for x, by in numbered():
            small.scale(x, by)

    settled(scaled, way)
    found["held_number"], found["last_number"] = _ends_us(small.scale, numbered, n_periods)
    small.settle(way)
    for kind in _BREAKS:
        if kind in _MET:
            for _ in range(2):
                list(_broken_us(small, kind, 3 * len(_PLACES)))
                _wait_for_plans()
        found[kind] = median(_broken_us(small, kind, n_breaks))
    if way == PLANNED:
        found["code"] = code_us(n_periods)
    return found


def _ends_us(
    called: Any, period: Callable[[], Sequence[tuple[Any, Any]]], n: int
) -> tuple[float, float]:
    """Microseconds of a call but the last one of a period, and of the last one, which runs a window."""
    clock, firsts, lasts = time.perf_counter_ns, [], []
    ks.sync()
    for _ in range(n):
        *first, (a, b) = period()
        begun = clock()
        for x, y in first:
            called(x, y)
        held = clock()
        called(a, b)
        ended = clock()
        firsts.append(1e-3 * (held - begun) / (N_CALLS - 1))
        lasts.append(1e-3 * (ended - held))
    return median(firsts), median(lasts)


def _period_us(small: SmallProgram, n: int) -> float:
    """Microseconds of a period among others."""
    clock, times = time.perf_counter_ns, []
    for _ in range(n):
        begun = clock()
        small.run()
        times.append(1e-3 * (clock() - begun))
    return median(times)


def _broken_us(small: SmallProgram, kind: str, n: int) -> Iterator[float]:
    """Yields microseconds of periods that are broken, at two places by turns, up to the end of their calls.

    `kind`: another call breaks each ("new"), the same call all ("known"), Python reads a field ("read"), nothing does ("whole").
    Two to four whole periods run between them, so that a whole one is expected.
    """
    clock, rng = time.perf_counter_ns, random.Random(1)
    for k in range(n):
        for _ in range(rng.randint(2, 4)):
            small.run()
        ks.sync()
        at = _PLACES[k % len(_PLACES)]
        first, rest = small.period[:at], small.period[at:]
        other, field = small.others[k if kind == "new" else 0], small.fields[0]
        begun = clock()
        for a, b in first:
            small.move(a, b)
        if kind == "read":
            _ = field[3]
        elif kind != "whole":
            small.bring(other, field)
        for a, b in rest:
            small.move(a, b)
        ks.sync()
        yield 1e-3 * (clock() - begun)


def code_us(n: int) -> float:
    """Microseconds of the kernels of a period's plan, called one after the other."""
    runs, clock, times = _code(_planned_window()), time.perf_counter_ns, []
    for _ in range(n):
        begun = clock()
        for run, arrays in runs:
            run(*arrays)
        times.append(1e-3 * (clock() - begun))
    return median(times)


def _planned_window() -> RanWindow:
    """Returns a period of the small program as a window with its plan."""
    noted: list[WindowRun] = []
    with dispatch.watching(
        lambda: PlannedWindow(DeferralWindow(), _LIMIT, note=lambda run: noted.append(run))
    ):
        begin(PLANNED)
        SmallProgram().settle(PLANNED)
    return noted[-1].ran


def _code(ran: RanWindow) -> Runs:
    """The functions of a window's plan with their arguments, which are arrays: it is on no tree, and has no numbers."""
    assert ran.bound is not None and ran.bound.kernels.rotation == 0
    runs: Runs = []
    for step in ran.bound.kernels.steps:
        run = current_engine().prepared(step.kernel.ir)
        assert run is not None and not step.scalars
        numbers = [x for x in step.kernel.arrays if isinstance(x, int)]
        assert len(numbers) == len(step.kernel.arrays)
        runs.append((run, tuple(ran.arrays[x] for x in numbers)))
    return runs


# --- roots ---------------------------------------------------------------------------------------


def root(name: str, size: int) -> Found:
    """CPU seconds until a window is at the root of its space: `size` distinct kernels, or MGPCG with so many times fewer cells."""
    target = row.cpu().machine.facts()
    with TemporaryDirectory(prefix="kernelscape-roots-") as scratch:
        folder = Path(scratch)
        few = _prepared_distinct(3, folder / "few.py")()
        space_for(few.problem, target, Options()).root()  # loads what is compiled of the search
        prepared = _prepared_distinct if name == DISTINCT else _prepared_mgpcg
        make = prepared(size, folder / f"{name}.py")
        clock = time.process_time
        times_s = [clock()]
        workload = make()
        times_s.append(clock())
        space = space_for(workload.problem, target, Options())
        times_s.append(clock())
        is_there = isinstance(space.root(), Candidate)
        times_s.append(clock())
    assert is_there, f"{name} has no implementation"
    spent_s = (end - begun for begun, end in pairwise(times_s))
    found: Found = dict(zip(STEPS, spent_s, strict=True))
    n_calls = sum(1 for _ in workload.recording.calls_in_order())
    return found | {
        "calls": n_calls,
        "tasks": len(workload.problem.tasks),
        "choices": space.n_choices,
    }


def distinct_text(n: int) -> str:
    """A program of `n` kernels no two of which are alike: sums, sums of neighbours and reductions, with numbers of their own."""
    head = "import kernelscape as ks\n\nArray = ks.types.ndarray()\n"
    bodies = (
        "    for i in range(c.shape[0]):\n        c[i] = {k}.5 * a[i] + b[i]\n",
        "    for i in range(1, c.shape[0] - 1):\n        c[i] = a[i - 1] + {k}.25 * b[i + 1]\n",
        "    s = 0.0\n    for i in range(a.shape[0]):\n        s += {k}.125 * a[i] * b[i]\n    c[0] = s\n",
    )
    kernels = (
        f"\n\n@ks.kernel\ndef kernel_{k}(a: Array, b: Array, c: Array):\n{bodies[k % 3].format(k=k)}"
        for k in range(n)
    )
    return head + "".join(kernels)


def _prepared_distinct(n: int, file: Path) -> Callable[[], Workload]:
    """Returns what records a window of `n` distinct kernels on 12 arrays; each reads what some before have written."""
    name = file.stem
    program = _loaded(name, distinct_text(n), file)
    arrays = [np.ones(EXTENT, np.float32) for _ in range(N_ARRAYS)]

    def sequence(*given: Any) -> None:
        for k in range(n):
            own = (given[(k + step) % N_ARRAYS] for step in (0, 3, 5))
            getattr(program, f"kernel_{k}")(*own)

    return lambda: make_workload(sequence, arrays, sequence=f"{name}:sequence", name=name)


def _prepared_mgpcg(shrink: int, file: Path) -> Callable[[], Workload]:
    """Returns what records an iteration, behind two that have activated its cells."""
    ks.init()
    head = f"import kernelscape.compat.taichi as ti\nshrink = {shrink}\n"
    program = _loaded(MGPCG, head + TEXTS[MGPCG], file)
    for _ in range(2):
        program.step()
    ks.sync()
    return lambda: period_workload(program.step)


def _loaded(name: str, text: str, file: Path) -> ModuleType:
    """A program from a file: kernels are read from there."""
    file.write_text(text)
    spec = spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    program = module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line, for `experiments.window_costs` alone."""
    part, name, *sizes = sys.argv[1:] if arguments is None else arguments
    numbers = [int(x) for x in sizes]
    found = calls(name, *numbers) if part == "calls" else root(name, *numbers)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
