"""A row of a table: its workload and device, what a search finds for it, and competitors that are timed in turn."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ..codegen.lower import lower, print_source
from ..codegen.plan.candidates import plan_of
from ..codegen.text.source import Source
from ..explorer import stages as st
from ..explorer.entry import Run, explore_workload, library_workload
from ..explorer.workload import Options, Workload, make_workload
from ..kernels.library import load
from ..runtime.api.artifact import Artifact
from ..runtime.api.backend import AbstractDevice
from ..runtime.api.outcome import Failure, Protocol
from ..runtime.cpu.device import CpuDevice
from ..runtime.device import DeviceOptions, open_device
from ..runtime.records.folder import BEST, JOURNAL
from ..runtime.records.journal import read_journal
from ..runtime.records.loading import load_best
from ..runtime.records.record import EvaluationRecord, standing_evaluations
from ..runtime.records.replay import dialect_of, rebuild, restore_complete
from ..runtime.worker.input_sets import InputSets
from ..runtime.worker.inputs import make_input_sets
from ..runtime.worker.worker import Worker
from ..search import events as ev
from ..search.starts.complete import complete_sketch, first_candidates
from ..search.starts.proposals import default_sketch
from ..search.starts.sketches import Sketch
from ..space.build import build_space
from ..space.candidate import Candidate, Space
from .measuring import built, failure_text, level_of, median, spread, time_ns
from .rows import Job

SLACK = 1e-3  # below the bound by less is the clock, see explorer/bound_validity.py
NEAR = 1.05  # a time this near the best counts as found
NEARER = 1.01  # and this is as near as a measurement can tell
SOON_S = 2.0  # in which a search is to find something good

Times = dict[str, list[float]]
"""Nanoseconds of each round, by competitor."""


# --- what a row is about -------------------------------------------------------------------------


def cpu(**options: Any) -> CpuDevice:
    """The CPU of this machine, with such `DeviceOptions`."""
    device = open_device("cpu", DeviceOptions(**options))
    assert isinstance(device, CpuDevice)
    return device


def workload_of(job: Job, seed: int) -> Workload:
    """A sequence of the library."""
    return library_workload(load(job.name), job.sizes, job.dtype, seed)


def space_of(workload: Workload, device: AbstractDevice) -> Space:
    return build_space(workload.problem, device.machine.facts())


def inputs_of(workload: Workload, seed: int, n_sets: int = 2) -> InputSets:
    """What candidates are verified and timed on."""
    rng = np.random.default_rng(seed)
    given = (workload.recording, workload.problem, workload.arguments)
    return make_input_sets(*given, rng, n_sets)


def text_of(candidate: Candidate, device: AbstractDevice) -> Source:
    return print_source(lower(plan_of(candidate)), dialect_of(device))


def level_name(workload: Workload, device: AbstractDevice) -> str:
    """The innermost cache that holds all arguments, or "memory"."""
    level = level_of(workload.problem, device.machine.facts())
    return "memory" if level is None else level.name


def sketched(space: Space, sketch: Sketch | None = None) -> Candidate | None:
    """The candidate of a sketch (default: that of no search); None where there is none."""
    root = space.root()
    if not isinstance(root, Candidate):
        return None
    return complete_sketch(root, sketch or default_sketch(space))


@dataclass(frozen=True)
class Program:
    """A sequence that the library has not, and the arguments of a row with it."""

    sequence: Callable[..., None]
    arguments: Callable[[Job, int], Sequence[Any]]  # of a job and a seed
    least: int = 3

    def complete(self, sizes: dict[str, int]) -> dict[str, int]:
        """Sizes as `Job` has them. Raises ValueError."""
        return one_size(sizes, self.least)

    def workload(self, job: Job, seed: int) -> Workload:
        name, given = self.sequence.__name__, self.arguments(job, seed)
        place = f"{self.sequence.__module__}:{name}"
        return make_workload(self.sequence, given, sequence=place, name=name)


def one_size(sizes: dict[str, int], least: int) -> dict[str, int]:
    """The sizes, where they are an `n` that is large enough. Raises ValueError."""
    if sizes.keys() != {"n"} or sizes["n"] < least:
        raise ValueError(f"the size is n, at least {least}")
    return sizes


# --- what a search finds -------------------------------------------------------------------------


@contextmanager
def explored(
    workload: Workload, options: Options, on_event: Callable[[Any], None] | None = None
) -> Iterator[tuple[Run, Path]]:
    """A search, and its folder as long as this lasts. Raises RuntimeError where it found nothing."""
    with tempfile.TemporaryDirectory(prefix="kernelscape-row-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        run = explore_workload(workload, options, directory=folder, on_event=on_event)
        if run.best is None:
            raise RuntimeError(f"no implementation was found: {run.status}")
        yield run, folder


def evaluations_in(folder: Path) -> list[EvaluationRecord]:
    """The evaluations that a journal acknowledges, without those that were refuted later."""
    return list(standing_evaluations(read_journal(folder / JOURNAL)))


def with_one_compiler(
    device: CpuDevice, seconds: float, seed: int, evaluations: int | None = None
) -> Options:
    """Of a search with the device's compiler: where one is named no others are tried, and nothing is stored."""
    return Options(
        time_limit_s=seconds,
        max_evals=evaluations,
        seed=seed,
        store=False,
        compiler=device.builder.compiler.path,
    )


def best_found(workload: Workload, device: CpuDevice, options: Options) -> tuple[Run, Candidate]:
    """What a search that keeps no files ends with, and its best. Raises RuntimeError where it found nothing."""
    with explored(workload, options) as (run, _):
        assert run.best is not None
        return run, restore_complete(space_of(workload, device), run.best.file.decisions)


@contextmanager
def searched(workload: Workload, options: Options) -> Iterator[tuple[dict[str, Any], Path]]:
    """What a search did, as JSON values, and its folder as long as this lasts. Raises RuntimeError where it found nothing."""
    started_s, set_up_s = time.monotonic(), dict[str, float]()

    def hear(event: Any) -> None:
        if isinstance(event, st.Opened | st.Rooted | ev.Started | st.Compared):
            set_up_s[type(event).__name__.lower()] = time.monotonic() - started_s

    with explored(workload, options, hear) as (run, folder):
        yield _facts(run, evaluations_in(folder), set_up_s), folder


def _facts(
    run: Run, records: Sequence[EvaluationRecord], set_up_s: dict[str, float]
) -> dict[str, Any]:
    # The journal counts from where the exploration was opened, and has bounds as they were claimed: scaled to the memory of then.
    opened_s, ended = set_up_s["opened"], run.ended
    assert ended.best_ns is not None
    timed = [(opened_s + r.at_s, r.time_ns, r.bound_ns) for r in records if r.time_ns is not None]
    least_ns = min(ns for _, ns, _ in timed)
    near_s, nearer_s = (
        next(s for s, ns, _ in timed if ns <= factor * least_ns) for factor in (NEAR, NEARER)
    )
    return {
        "search_status": ended.status,
        "search_best_ns": ended.best_ns,
        "bound_ns": ended.bound_ns,
        "alarms": ended.alarms,
        "below_bound": sum(ns < bound_ns * (1 - SLACK) for _, ns, bound_ns in timed),
        "failures": dict(ended.failures),
        "evaluations": len(records),
        "search_s": opened_s + max(r.at_s for r in records) - set_up_s["started"],
        "near_s": near_s,
        "nearer_s": nearer_s,
        "soon": soon_over_best([(s, ns) for s, ns, _ in timed]),
        "set_up_s": set_up_s,
        "spent_s": spent_s(records),
        "elapsed_s": ended.elapsed_s,
    }


def soon_over_best(timed: Sequence[tuple[float, float]]) -> float | None:
    """Least time of the first two seconds over the least of all; None where nothing was measured so soon.

    `timed`: seconds since the start of an exploration and ns of a candidate, of all that were measured.
    """
    soon = [ns for at_s, ns in timed if at_s <= SOON_S]
    return min(soon) / min(ns for _, ns in timed) if soon else None


def spent_s(records: Sequence[EvaluationRecord]) -> dict[str, float]:
    """Seconds in which a compiler ran, or several did, and in which candidates ran, as the journal says."""
    timings = [r.timing for r in records if r.timing is not None]
    spans = [t.compiling_s for t in timings if t.compiling_s is not msgspec.UNSET]
    return {"compilers": covered_s(spans), "run": sum(t.run_s for t in timings)}


def compilers_s(spent: Mapping[str, float]) -> float:
    """Those of compilers; rows of earlier versions had the time in which the search waited, and the rest, if they had it."""
    return (
        spent["compilers"] if "compilers" in spent else spent["compile"] + spent.get("beside", 0.0)
    )


def covered_s(spans: Iterable[tuple[float, float]]) -> float:
    """Seconds in at least one of the spans."""
    total_s, reached_s = 0.0, 0.0
    for began_s, ended_s in sorted(spans):
        total_s += max(0.0, ended_s - max(began_s, reached_s))
        reached_s = max(reached_s, ended_s)
    return total_s


def best_and_default(
    workload: Workload, device: AbstractDevice, folder: Path
) -> tuple[Artifact, Artifact]:
    """The best, as the file of a run says, and the default. Raises RuntimeError where they no longer compile."""
    best = rebuild(load_best(folder / BEST), device.machine.facts(), dialect_of(device))
    default = first_candidates(space_of(workload, device))[0][1]
    return built(device, best.source), built(device, text_of(default, device))


def beside_bound(found: Mapping[str, Any], best_ns: float) -> dict[str, Any]:
    """How near the bound is to the row's own time of the best, and how many measurements were below theirs, this one among them."""
    bound_ns = found["bound_ns"]
    # A closed gap has the incumbent's own time for a bound, and another measurement may undercut that.
    is_open = bound_ns is not None and bound_ns < found["search_best_ns"] * (1 - SLACK)
    is_below = is_open and best_ns < bound_ns * (1 - SLACK)
    gap = None if bound_ns is None else max(0.0, 1 - bound_ns / best_ns)
    return {"below_bound": found["below_bound"] + is_below, "gap": gap}


# --- competitors ---------------------------------------------------------------------------------


def in_turn(
    runners: dict[str, Callable[[], dict[str, float]]],
    n_rounds: int,
    absent: dict[str, str],
    *,
    excused: tuple[type[Exception], ...] = (),
    before: Callable[[], object] = lambda: None,
) -> Times:
    """Nanoseconds of what each runner times, by round; who raises what is `excused` is `absent` from then on, with the reason.

    Rounds begin with another competitor each time, so that a change of the machine favours none.
    """
    times: Times = {}
    for k in range(n_rounds):
        before()
        names = list(runners)
        at = k % len(names)
        for name in names[at:] + names[:at]:
            try:
                measured = runners[name]()
            except excused as e:
                absent[name] = str(e)
                times.pop(name, None)
                del runners[name]
                continue
            for column, ns in measured.items():
                times.setdefault(column, []).append(ns)
    return times


def each_alone(
    device: AbstractDevice,
    artifacts: Mapping[str, Artifact],
    inputs: InputSets,
    protocol: Protocol,
    n_rounds: int,
    beside: Callable[[], dict[str, float]] = dict,
) -> tuple[Times, list[float]]:
    """Nanoseconds of each round, and the rates of memory; each is verified once, and in a process of its own each time.

    Threads of OpenMP and of ours stay awake for a while: in one process they would take the cores from one another.
    Raises RuntimeError where one is wrong.
    """
    times: Times = {}
    memory = []
    for k in range(n_rounds):
        for name, artifact in artifacts.items():
            with Worker(device) as worker:
                worker.prepare(inputs)
                outcome = worker.evaluate(artifact, protocol) if k == 0 else None
                if isinstance(outcome, Failure):
                    raise RuntimeError(f"{name}: {failure_text(outcome)}")
                memory.append(worker.probe())
                ns = time_ns(worker.interleave([artifact], protocol)[0])
                times.setdefault(name, []).append(ns)
        for name, ns in beside().items():
            times.setdefault(name, []).append(ns)
    return times, memory


def with_spread(name: str, values: Sequence[float] | np.ndarray[Any, Any] | None) -> dict[str, Any]:
    """The median as `name`, and its spread; None where there are no values."""
    if values is None:
        return {name: None, f"{name}_spread": None}
    return {name: median(values), f"{name}_spread": spread(values)}
