"""One row of the table of results: explore one sequence at one size, then compare at the same moment.

Run by run_table in a process of its own, so that what a row does to its process ends with it.
"""

from __future__ import annotations

import resource
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ..codegen.lower import lower, print_source
from ..explorer import stages as st
from ..explorer.entry import Run, explore_workload, library_workload
from ..explorer.workload import Options, Workload
from ..kernels.library import load
from ..runtime.api.artifact import Artifact
from ..runtime.api.backend import AbstractDevice
from ..runtime.api.outcome import FINAL, Failure
from ..runtime.cpu.device import CpuDevice
from ..runtime.cpu.probe import calibrate
from ..runtime.device import open_device
from ..runtime.records.folder import BEST, JOURNAL
from ..runtime.records.journal import read_journal
from ..runtime.records.loading import load_best
from ..runtime.records.record import EvaluationRecord
from ..runtime.records.replay import dialect_of, rebuild, restore_complete
from ..runtime.worker.inputs import make_input_sets
from ..runtime.worker.worker import Worker, WorkerOptions
from ..search import events as ev
from ..search.bound.bounder import Bounder, Roofline
from ..search.starts.complete import first_candidates
from ..space.build import build_space
from ..space.candidate import Candidate
from ..space.targets.target import Target
from .conditions import stamp
from .measuring import built, level_of, median, spread, time_ns
from .rows import Job, Row

SLACK = 1e-3  # below the bound by less is the clock, see explorer/bound_validity.py
NEAR = 1.05  # a time this near the best counts as found
NEARER = 1.01  # and this is as near as a measurement can tell


@dataclass(frozen=True)
class RowOptions:
    """Options of one row."""

    seconds: float = 60.0
    rounds: int = 7
    seed: int = 1
    calibrate: bool = True
    evaluations: int | None = None  # end the search, too


@dataclass
class Watch:
    """What a row wants to know of an exploration, from its events."""

    started_s: float = field(default_factory=time.monotonic)
    set_up_s: dict[str, float] = field(default_factory=dict)
    ended: st.Ended | None = None

    def hear(self, event: Any) -> None:
        elapsed_s = time.monotonic() - self.started_s
        match event:
            case st.Opened() | st.Rooted() | ev.Started() | st.Compared():
                self.set_up_s[type(event).__name__.lower()] = elapsed_s
            case st.Ended():
                self.ended = event


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


def make_row(job: Job, options: RowOptions) -> Row:
    """What is found for a row. Raises RuntimeError where nothing was found or it no longer runs."""
    device = open_device("cpu")
    assert isinstance(device, CpuDevice)
    if options.calibrate:
        calibrate(device)
    workload = library_workload(load(job.name), job.sizes, job.dtype, options.seed)
    folder = Path(tempfile.mkdtemp(prefix="kernelscape-table-"))
    try:
        explored = with_one_compiler(device, options.seconds, options.seed, options.evaluations)
        found = search(workload, explored, folder)
        compared = _compare(workload, device, folder, options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    roof = Bounder(build_space(workload.problem, device.machine.facts())).roofline()
    values = found | compared | _shares(workload, roof, device.machine.facts(), compared)
    bound_ns = values["bound_ns"]
    # A closed gap has the incumbent's own time for a bound, and another measurement may undercut that.
    is_open = bound_ns is not None and bound_ns < values["search_best_ns"] * (1 - SLACK)
    values["below_bound"] += is_open and values["best_ns"] < bound_ns * (1 - SLACK)
    values["gap"] = None if bound_ns is None else max(0.0, 1 - bound_ns / values["best_ns"])
    values["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    values["stamp"] = stamp(device, median(compared["memory"]["memory_read"]))
    return values


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


def best_found(
    workload: Workload,
    device: CpuDevice,
    seconds: float,
    seed: int,
    evaluations: int | None = None,
) -> tuple[Run, Candidate]:
    """What a search that keeps no files ends with, and its best. Raises RuntimeError where it found nothing."""
    folder = Path(tempfile.mkdtemp(prefix="kernelscape-row-"))
    try:
        explored = with_one_compiler(device, seconds, seed, evaluations)
        run = explore_workload(workload, explored, directory=folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if run.best is None:
        raise RuntimeError(f"no implementation was found: {run.status}")
    space = build_space(workload.problem, device.machine.facts())
    return run, restore_complete(space, run.best.file.decisions)


def search(workload: Workload, explored: Options, folder: Path) -> dict[str, Any]:
    """Explore into `folder`; what the search did, as JSON values. Raises RuntimeError where it found nothing."""
    watch = Watch()
    explore_workload(workload, explored, directory=folder, on_event=watch.hear)
    ended = watch.ended
    if ended is None or ended.best is None:
        raise RuntimeError("no implementation was found" if ended is None else ended.status)
    records = [r for r in read_journal(folder / JOURNAL) if isinstance(r, EvaluationRecord)]
    # The journal counts from where the exploration was opened, and has bounds as they were claimed: scaled to the memory of then.
    opened_s = watch.set_up_s["opened"]
    timed = [(opened_s + r.at_s, r.time_ns, r.bound_ns) for r in records if r.time_ns is not None]
    least_ns = min(ns for _, ns, _ in timed)
    near_s, nearer_s = (
        next(s for s, ns, _ in timed if ns <= factor * least_ns) for factor in (NEAR, NEARER)
    )
    return {
        "search_status": ended.status,
        "search_best_ns": ended.best.time_ns,
        "bound_ns": ended.limits.bound_ns,
        "alarms": ended.limits.n_alarms,
        "below_bound": sum(ns < bound_ns * (1 - SLACK) for _, ns, bound_ns in timed),
        "failures": dict(ended.effort.failures),
        "evaluations": len(records),
        "search_s": opened_s + max(r.at_s for r in records) - watch.set_up_s["started"],
        "near_s": near_s,
        "nearer_s": nearer_s,
        "set_up_s": watch.set_up_s,
        "spent_s": spent_s(records),
        "elapsed_s": ended.effort.elapsed_s,
    }


def _compare(
    workload: Workload, device: CpuDevice, folder: Path, options: RowOptions
) -> dict[str, Any]:
    """Best, default and NumPy in turn, round by round, each round beside a probe of memory."""
    best, default = best_and_default(workload, device, folder)
    rng = np.random.default_rng(options.seed)
    input_sets = make_input_sets(workload.recording, workload.problem, workload.arguments, rng, 2)
    protocol = replace(FINAL, budget_ns=1.5e8)
    rounds: list[tuple[float, float, float]] = []
    memory: dict[str, list[float]] = {}
    default_fails = ""
    with Worker(device) as ours, Worker(device, WorkerOptions(runs_candidates=False)) as theirs:
        assert isinstance(ours, Worker)
        assert isinstance(theirs, Worker)
        ours.prepare(input_sets)
        theirs.prepare(replace(input_sets, sets=input_sets.sets[:1]))
        del input_sets
        assert workload.reference is not None
        for _ in range(options.rounds):
            for key, samples in ours.probe_state().items():
                memory.setdefault(key, []).append(median(samples))
            outcomes = ours.interleave([best] if default_fails else [best, default], protocol)
            if not default_fails and isinstance(outcomes[1], Failure):
                # Beyond 2^24 terms a sum in order is no longer exact enough to be verified.
                default_fails = f"{outcomes[1].kind}: {outcomes[1].advice}"
            numpy_ns = time_ns(theirs.time_function(*workload.reference, protocol))
            default_ns = float("nan") if default_fails else time_ns(outcomes[1])
            rounds.append((time_ns(outcomes[0]), default_ns, numpy_ns))
    best_ns, theirs_ns = np.array(rounds).T[[0, 2]]
    return {
        **_over_default(rounds, default_fails),
        "rounds_ns": [[ns if ns == ns else None for ns in times] for times in rounds],
        "memory": memory,
        "best_ns": median(best_ns),
        "best_spread": spread(best_ns),
        "numpy_ns": median(theirs_ns),
        "over_numpy": median(theirs_ns / best_ns),
        "over_numpy_spread": spread(theirs_ns / best_ns),
    }


def best_and_default(
    workload: Workload, device: AbstractDevice, folder: Path
) -> tuple[Artifact, Artifact]:
    """The best, as the file of a run says, and the default. Raises RuntimeError where they no longer compile."""
    dialect = dialect_of(device)
    best = rebuild(load_best(folder / BEST), device.machine.facts(), dialect)
    default = first_candidates(build_space(workload.problem, device.machine.facts()))[0][1]
    return built(device, best.source), built(device, print_source(lower(default), dialect))


def _over_default(rounds: list[tuple[float, float, float]], default_fails: str) -> dict[str, Any]:
    """The default beside the best; why it failed, where it did."""
    if default_fails:
        return {"default_fails": default_fails, "default_ns": None}
    best_ns, default_ns, _ = np.array(rounds).T
    return {
        "default_ns": median(default_ns),
        "over_default": median(default_ns / best_ns),
        "over_default_spread": spread(default_ns / best_ns),
    }


def _shares(
    workload: Workload, roof: Roofline, target: Target, compared: Mapping[str, Any]
) -> dict[str, Any]:
    """What is moved and computed, and the share of the roofline, formed inside each round.

    In memory the rate is that of the probe of the same round with the nearest mix of reads and
    writes; in a cache it is the calibrated one.
    """
    level = level_of(workload.problem, target)
    in_place = sum(a.size_bytes for a in workload.problem.arrays if a.role == "inout")
    mix = nearest_mix(roof.read_bytes, roof.written_bytes, in_place)
    shares = []
    for k, times_ns in enumerate(compared["rounds_ns"]):
        rate = compared["memory"][mix][k] if level is None else level.read_bytes_per_ns
        roof_ns = max(roof.total_bytes / rate, roof.flops / target.f32_flops_per_ns)
        shares.append(roof_ns / times_ns[0])
    values = np.array(shares)
    return {
        "bytes": roof.total_bytes,
        "flops": roof.flops,
        "level": "memory" if level is None else level.name,
        "mix": mix if level is None else "",
        "roof_share": median(values),
        "roof_share_spread": spread(values),
        "is_computed": roof.flops / target.f32_flops_per_ns
        > roof.total_bytes / target.memory_read_bytes_per_ns,
    }


def nearest_mix(read_bytes: float, written_bytes: float, in_place_bytes: float) -> str:
    """The kind of the memory probe that moves most like this."""
    total = max(1.0, read_bytes + written_bytes)
    if in_place_bytes > 0.4 * total:
        return "memory_scale"
    kinds = {"memory_read": 0.0, "memory_read3_write_nt": 1 / 4, "memory_triad_nt": 1 / 3}
    kinds |= {"memory_copy_nt": 1 / 2, "memory_write_nt": 1.0}
    return min(kinds, key=lambda kind: abs(kinds[kind] - written_bytes / total))
