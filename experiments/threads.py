"""How long do calls take that follow one another, after a pause, and beside busy processes? Ours, unthreaded, and numba.

    python -m kernelscape.experiments.threads [--only waxpby:n=2^20 updates] [--rounds 5] [--calls 10000] [--again]
                                              [--former TEXT]

Rows that are in the results already are kept unless --again is given. Writes experiments/results/threads.md after every
row. The exit status is 1 when a row fails. `launches`, `updates`, `steps` and `products` are called by turns with serial
numba beside 0 to 14 busy processes, in three runs each; a run takes one to four minutes. --former: the team of threads of an
earlier version, as one text, to compare with: of `git show REVISION:runtime/cpu/team.c`, behind `waiting.c` where there is one.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..codegen.text.source import Source
from ..explorer.entry import library_workload
from ..kernels.library import LibrarySequence, load, names
from ..runtime.api.artifact import Artifact
from ..runtime.api.outcome import FINAL
from ..runtime.cpu.device import CpuDevice
from ..runtime.cpu.runner import CpuModule
from ..runtime.worker.channel import available_cores
from ..runtime.worker.input_sets import InputSets
from ..runtime.worker.worker import AbstractWorker, Worker
from ..search.starts.complete import first_candidates
from ..space.build import build_space
from . import busy, row
from .busy import Call
from .calls import A_ROW, sparse_arguments, sparse_product
from .conditions import stamp
from .measuring import all_built, built, busy_processes, median, time_ns
from .question import Question, asked
from .rows import Columns, Job, Row, page, title
from .writing import time_text

_SPMV = LibrarySequence(
    name="spmv",
    formula="y = A x, A in compressed rows",
    sequence=sparse_product,
    sizes={"n": 20_000},
    benchmark_sizes=(),
    make_arguments=sparse_arguments,
    reference=sparse_product,
    flops=lambda sizes: 2 * A_ROW * sizes["n"],
)
_ROWS = (
    Job("waxpby", {"n": 1 << 20}),
    Job("sgemv", {"m": 1024, "n": 1024}),
    Job("atax", {"m": 1024, "n": 1024}),
    Job("axpydot", {"n": 1 << 17}),
    Job("matmul", {"m": 256, "n": 256, "k": 32}),
    Job(_SPMV.name, dict(_SPMV.sizes)),
    *(
        Job(work.name, {**work.sizes, "run": run}, "f64")
        for run in (1, 2, 3)
        for work in busy.WORKS.values()
    ),
)
TEAM, ALONE, NUMBA = "threads", "one thread", "numba"
PAUSED, BESIDE = "after a pause", "beside busy processes"


@dataclass(frozen=True)
class Round:
    """How long one is called in a round."""

    stretch_s: float = 0.3  # of calls that follow one another
    pause_s: float = 0.005
    pauses: int = 30


ROUND = Round()

PROTOCOL = f"""Each row is a process of its own, which loads what it calls as a user's program does: the fastest first candidate for
all cores ("{TEAM}"), the fastest for one ("{ALONE}"), and numba's parallel function, on NumPy's own arrays.
Rounds, in which all three are called in turn: {1e3 * ROUND.stretch_s:.0f} ms of calls that follow one another ("hot": the median);
{ROUND.pauses} single calls, each after {1e3 * ROUND.pause_s:.0f} ms of sleep ("after a pause": median, and the slowest tenth); and
{1e3 * ROUND.stretch_s:.0f} ms of calls while as many processes as there are cores do nothing but compute ("beside busy
processes": median, and the mean, in which calls that lost their core count in full). "x" is the mean over that of one thread."""


def _text_of(file: str) -> str:
    if not Path(file).is_file():
        raise argparse.ArgumentTypeError(f"there is no such file: {file}")
    return Path(file).read_text()


@dataclass(frozen=True)
class ThreadsOptions:
    """Options of one row."""

    rounds: int = asked(5)
    seed: int = asked(1, least=0)
    calls: int = asked(10_000, "of each work beside each number of processes")
    former: str | None = asked(None, "team.c of an earlier version", type=_text_of)


def sequence_called(name: str) -> LibrarySequence:
    """A sequence of the library, the sparse product, or a work beside busy processes. Raises KeyError."""
    own = {_SPMV.name: _SPMV, **busy.WORKS}
    return own[name] if name in own else load(name)


def make_row(job: Job, options: ThreadsOptions) -> Row:
    """Nanoseconds of calls, by what surrounds them and by who computes."""
    return _busy_row(job, options) if job.name in busy.WORKS else _paused_row(job, options)


def _paused_row(job: Job, options: ThreadsOptions) -> Row:
    device = row.cpu()
    entry = sequence_called(job.name)
    workload = library_workload(entry, job.sizes, job.dtype, options.seed)
    input_sets = row.inputs_of(workload, options.seed, 1)
    facts = device.machine.facts()
    chosen = {}
    with Worker(device) as worker:
        worker.prepare(input_sets)
        memory = worker.probe()
        for way, target in ((TEAM, facts), (ALONE, replace(facts, cores=1))):
            space = build_space(workload.problem, target)
            _, chosen[way] = _fastest(device, worker, [c for _, c in first_candidates(space)])
    calls = {way: _own(device, artifact, input_sets) for way, artifact in chosen.items()}
    theirs = entry.make_arguments(job.sizes, job.numpy, np.random.default_rng(options.seed))
    peers = importlib.import_module(f"{__package__}.libraries.numba_fused").peers
    calls[NUMBA] = busy.timed(getattr(peers, job.name), theirs)
    times: dict[str, dict[str, list[list[float]]]] = {}
    for _ in range(options.rounds):
        for way, call in calls.items():
            times.setdefault("hot", {}).setdefault(way, []).append(_stretch(call))
        for way, call in calls.items():
            times.setdefault(PAUSED, {}).setdefault(way, []).append(_pauses(call))
        with busy_processes(available_cores()):
            for way, call in calls.items():
                times.setdefault(BESIDE, {}).setdefault(way, []).append(_stretch(call))
    return {
        "times_ns": {when: {w: _summary(x) for w, x in by.items()} for when, by in times.items()},
        "stamp": stamp(device, memory),
    }


def _busy_row(job: Job, options: ThreadsOptions) -> Row:
    """Nanoseconds of a work's calls beside busy processes. Raises RuntimeError where the three ways differ."""
    device = row.cpu()
    entry, seed = busy.WORKS[job.name], options.seed + job.sizes["run"]
    workload = library_workload(entry, job.sizes, job.dtype, seed)
    input_sets = row.inputs_of(workload, seed, 1)
    with Worker(device) as worker:
        worker.prepare(input_sets)
        memory = worker.probe()
        space = row.space_of(workload, device)
        candidates = [c for _, c in first_candidates(space)]
        source, artifact = _fastest(device, worker, candidates)
    given = entry.make_arguments(job.sizes, job.numpy, np.random.default_rng(seed))
    serial = busy.serial_numba(entry.sequence)
    results = []
    for function in (entry.sequence, serial):
        results.append([np.copy(x) for x in given])
        function(*results[-1])
    if not all(np.allclose(a, b) for a, b in zip(*results, strict=True)):
        raise RuntimeError(f"{job.name}: kernel by kernel and by numba differ")
    calls = {
        busy.TUNED: _own(device, artifact, input_sets),
        busy.PLAIN: busy.timed(entry.sequence, results[0]),
        busy.SERIAL: busy.timed(serial, results[1]),
    }
    former = None
    if options.former is not None:
        earlier = _own(device, built(device, _with_team(source, options.former)), input_sets)
        former = busy.against_former(calls[busy.TUNED], earlier)
    loads = busy.beside_loads(calls, options.calls)
    return {"loads": loads, "former": former, "stamp": stamp(device, memory)}


def _with_team(source: Source, team: str) -> Source:
    """The source with a team of its own, beside that of the process."""
    text, team = (x.replace("ks_team_", "ks_former_") for x in (source.text, team))
    return replace(source, text=text, team=team)


def _fastest(
    device: CpuDevice, worker: AbstractWorker, candidates: Sequence[Any]
) -> tuple[Source, Artifact]:
    sources = [row.text_of(c, device) for c in candidates]
    quick = replace(FINAL, budget_ns=2e7)
    made = zip(sources, all_built(device, sources), strict=True)
    return min(made, key=lambda x: time_ns(worker.interleave([x[1]], quick)[0]))


def _own(device: CpuDevice, artifact: Artifact, input_sets: InputSets) -> Call:
    module = device.runner.load(artifact)
    assert isinstance(module, CpuModule)
    given = input_sets.sets[0]
    values: list[Any] = [
        np.array(given.arrays[a.name]) if a.kind == "array" else given.scalars[a.name]
        for a in artifact.arguments
        if a.kind != "workspace"
    ]
    if artifact.workspace_bytes:
        values.append(module.make_workspace())
    pointers, kept = module.bind(values)

    def call(_kept: Any = kept) -> float:
        return float(device.runner.harness.ks_run(module.entry, pointers, ctypes.c_int64(1)))

    return call


def _stretch(call: Call) -> list[float]:
    call()
    end, taken = time.monotonic() + ROUND.stretch_s, []
    while time.monotonic() < end:
        taken.append(call())
    return taken


def _pauses(call: Call) -> list[float]:
    taken = []
    for _ in range(ROUND.pauses):
        time.sleep(ROUND.pause_s)
        taken.append(call())
    return taken


def _summary(rounds: Sequence[Sequence[float]]) -> dict[str, float]:
    every = np.concatenate([np.asarray(x) for x in rounds])
    return {
        "median": median(every),
        "slowest_tenth": float(np.quantile(every, 0.9)),
        "mean": float(every.mean()),
        "calls": len(every),
    }


def _ways(r: Row) -> list[Row]:
    """A line for each way; rows beside busy processes have a table of their own."""
    return [] if busy.is_busy_row(r) else [r | {"way": way} for way in r["times_ns"]["hot"]]


def _time(when: str, which: str) -> Callable[[Row], str]:
    return lambda r: time_text(r["times_ns"][when][r["way"]][which])


def _over_alone(r: Row) -> str:
    means = {way: x["mean"] for way, x in r["times_ns"][BESIDE].items()}
    return f"{means[r['way']] / means[ALONE]:.2f}"


COLUMNS: Columns = {
    "sequence": title,
    "who": lambda r: r["way"],
    "hot": _time("hot", "median"),
    PAUSED: _time(PAUSED, "median"),
    "slowest tenth": _time(PAUSED, "slowest_tenth"),
    BESIDE: _time(BESIDE, "median"),
    "mean": _time(BESIDE, "mean"),
    "x": _over_alone,
}


def report(made: dict[str, Any]) -> str:
    """A line for each way and row."""
    heading = "Threads: after a pause, and beside busy processes"
    text = page(heading, PROTOCOL, COLUMNS, made["rows"], lines=_ways, by_time=True)
    called = [r for r in made["rows"] if busy.is_busy_row(r) and r["status"] == "ok"]
    return text + "\n".join([*busy.report(called), ""])


def _said(r: Row) -> str:
    lines = busy.cells(r) if busy.is_busy_row(r) else _cells(r)
    return ", ".join(f"{c[1]} {', '.join(c[2:])}" for c in lines)


def _cells(r: Row) -> Iterator[list[str]]:
    return ([cell(x) for cell in COLUMNS.values()] for x in _ways(r))


QUESTION = Question(
    file="threads",
    doc=__doc__,
    order=_ROWS,
    options=ThreadsOptions,
    make=make_row,
    limit_s=lambda job, options: 1200.0,
    report=report,
    say=_said,
    dtypes=("f32", "f64"),
    works={name: sequence_called(name) for name in (*names(), _SPMV.name, *busy.WORKS)},
)
main = QUESTION.main

if __name__ == "__main__":
    sys.exit(main())
