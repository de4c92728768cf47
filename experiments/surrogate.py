"""What choosing among draws by a surrogate is worth: searches with and without it, in turn, from equal seeds.

    python -m kernelscape.experiments.surrogate [--seconds 30] [--seeds 3] [--seed 1] [--only bicgk ...] [--again]

Rows that are in the results already are kept unless --again is given. Writes experiments/results/surrogate.md after
every row.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..codegen.lower import lower, print_source
from ..explorer.entry import library_workload
from ..explorer.evaluation import BATCH, Evaluator, largest_batch
from ..explorer.workload import Workload
from ..kernels.library import load, names
from ..runtime.api.outcome import FINAL, Measurement
from ..runtime.cpu.device import CpuDevice
from ..runtime.device import DeviceOptions
from ..runtime.records.journal import MemoryJournal
from ..runtime.records.replay import dialect_of
from ..runtime.worker.inputs import make_input_sets
from ..runtime.worker.worker import AbstractWorker, Worker
from ..search import events as ev
from ..search.bound.bounder import Bounder
from ..search.budget import Budget, Evaluations, Interrupt, Seconds
from ..search.incumbent import BoundScale
from ..search.inputs import Guidance, History, Oracle
from ..search.learn.neighbourhood import Neighbourhood
from ..search.learn.surrogate import Surrogate
from ..search.options import Batches, SearchOptions
from ..search.run import search
from ..search.starts.complete import first_candidates
from ..search.tree.ordering import NextChoice
from ..space.build import build_space
from ..space.candidate import Candidate, Space
from .conditions import stamp, stamp_text
from .measuring import built, level_of, median, time_ns
from .paper_rows import root_of
from .rows import Job, Row, Table, in_fresh_process, table_parser, title, wanted_jobs
from .writing import RESULTS, table

DTYPES = ("f32", "f64")
_ROWS = (
    Job("matmul", {"m": 256, "n": 256, "k": 32}, "f32"),
    Job("sgemvt", {"m": 1009, "n": 4093}, "f32"),
    Job("bicgk", {"m": 4096, "n": 4096}, "f32"),
    Job("gemver", {"m": 4096, "n": 4096}, "f32"),
)
_NEAR = 1.05
_MARGIN_S = 240.0

PROTOCOL = """Each pair of searches has one seed and one process, the first candidates in common and nothing built before; which
of the two comes first changes from seed to seed. "Near" is the share of the neighbours of the best that took at most 1.05 times
as long as the best until then; "median" is how many times as long the median neighbour took; "runs" is the share of the search
in which candidates ran. The bests of both are timed in turn: "speed" is the time of that found without over that of the one found
with a surrogate. "As good after" is when a search with a surrogate had measured what the one without it ended with."""


@dataclass(frozen=True)
class PairOptions:
    """Options of one row."""

    seconds: float = 30.0  # of each search
    seeds: int = 3
    first: int = 1  # the others follow it
    evaluations: int | None = None  # end each search, too


@dataclass(frozen=True)
class Searched:
    """One search: what it measured, in order, and its best."""

    at_s: list[float]
    times: list[float]  # ns
    near: list[float]  # of neighbours: times over the best until then
    run_s: float
    best: Candidate


def make_row(job: Job, options: PairOptions) -> Row:
    """The row of a job. One that fails says why."""
    asked = job._asdict() | {"options": asdict(options)}
    limit_s = 2 * options.seconds + _MARGIN_S
    pairs = []
    for seed in range(options.first, options.first + options.seeds):
        found = in_fresh_process("surrogate", asked | {"seed": seed}, limit_s)
        if isinstance(found, str):
            return {"status": "failed", **asked, "why": f"seed {seed}: {found}"}
        pairs.append(found)
    return {"status": "ok", **asked, "pairs": pairs}


def answer(asked: str) -> int:
    """The other end of `make_row`: both searches of one seed."""
    wanted = json.loads(asked)
    job, options = Job.of(wanted), PairOptions(**wanted["options"])
    workload = library_workload(load(job.name), job.sizes, job.dtype, wanted["seed"])
    print(json.dumps(_pair(workload, options, wanted["seed"])))
    return 0


def _pair(workload: Workload, options: PairOptions, seed: int) -> dict[str, Any]:
    device = CpuDevice(DeviceOptions())
    space = build_space(workload.problem, device.machine.facts())
    rng = np.random.default_rng(seed)
    input_sets = make_input_sets(workload.recording, workload.problem, workload.arguments, rng, 2)
    ends = [] if options.evaluations is None else [Evaluations(options.evaluations)]
    found: dict[bool, Searched] = {}
    with Worker(device) as worker:
        worker.prepare(input_sets)
        for with_it in (bool(seed % 2), not seed % 2):
            budget = Budget(Seconds(options.seconds), *ends)
            surrogate = Surrogate(space) if with_it else None
            found[with_it] = _searched(space, worker, budget, seed, surrogate)
        again = _timed_again(worker, device, [found[False].best, found[True].best])
        memory = worker.probe()
    without, guided = found[False], found[True]
    aim_ns = min(without.times)
    reached = (s for s, ns in zip(guided.at_s, guided.times, strict=True) if ns <= aim_ns)
    level = level_of(workload.problem, device.machine.facts())
    return {
        "seed": seed,
        "level": "memory" if level is None else level.name,
        "evaluations": [len(s.times) for s in (without, guided)],
        "near": [_share_near(s.near) for s in (without, guided)],
        "median": [median(s.near) if s.near else None for s in (without, guided)],
        "run_s": [s.run_s for s in (without, guided)],
        "again_ns": again,
        "best_s": _first(without, aim_ns),
        "as_good_s": next(reached, None),
        "stamp": stamp(device, memory),
    }


def _searched(
    space: Space, worker: AbstractWorker, budget: Budget, seed: int, surrogate: Surrogate | None
) -> Searched:
    bounder, started_s = Bounder(space), time.monotonic()
    firsts = [candidate for _, candidate in first_candidates(space)]
    at_s, times, near = [], [], []
    run_s, best_ns = 0.0, np.inf
    with (
        tempfile.TemporaryDirectory(prefix="kernelscape-surrogate-") as folder,
        ExitStack() as last,
    ):
        device = CpuDevice(DeviceOptions(build_folder=Path(folder)))
        evaluate = Evaluator(
            device.builder,
            worker,
            MemoryJournal(),
            at_s=lambda: time.monotonic() - started_s,
            bound=bounder.ns,
            interrupt=Interrupt(),
            failed_folder=None,
        )
        last.callback(evaluate.leave)
        oracle = Oracle[Candidate](
            bound=bounder.ns,
            evaluate=evaluate,
            key=evaluate.implementation_key,
            scale=BoundScale(),
            ahead=evaluate.ahead,
        )
        guidance = Guidance[Candidate](
            next_choice=NextChoice(space), neighbour=Neighbourhood(space), surrogate=surrogate
        )
        for event in search(
            root_of(space),
            oracle,
            guidance,
            History(incumbents=firsts[:1], warm_starts=firsts[1:]),
            budget,
            np.random.default_rng(seed),
            SearchOptions(batches=Batches(size=BATCH, largest=largest_batch(device.builder))),
        ):
            if not isinstance(event, ev.Evaluated) or event.origin != "measured":
                continue
            run_s += event.outcome.spent_s
            ns = event.outcome.time_ns
            if ns is None:
                continue
            if event.tag == "N":
                near.append(ns / best_ns)
            best_ns = min(best_ns, ns)
            at_s.append(event.elapsed_s)
            times.append(ns)
        [(_, best)] = evaluate.top(1)
    return Searched(at_s, times, near, run_s, best)


def _timed_again(
    worker: AbstractWorker, device: CpuDevice, bests: Sequence[Candidate]
) -> list[float]:
    """ns of each, as if the machine had been as usual in every turn."""
    artifacts = [built(device, print_source(lower(c), dialect_of(device))) for c in bests]
    found = worker.interleave(artifacts, FINAL)
    return [(isinstance(m, Measurement) and m.paired_ns) or time_ns(m) for m in found]


def _share_near(ratios: Sequence[float]) -> float:
    return sum(r <= _NEAR for r in ratios) / max(1, len(ratios))


def _first(searched: Searched, aim_ns: float) -> float:
    return next(s for s, ns in zip(searched.at_s, searched.times, strict=True) if ns <= aim_ns)


def report(made: dict[str, Any]) -> str:
    """The table as Markdown."""
    rows: list[Row] = made["rows"]
    good = [r for r in rows if r["status"] == "ok"]
    heads = ["sequence", "type", "in", "seeds", "evaluations", "near", "median", "runs"]
    heads += ["its best after s", "as good after s", "speed", "budget s"]
    parts = ["# Choosing among draws by a surrogate", "", PROTOCOL, ""]
    parts += ["Two figures are those without and with it, medians over seeds.", ""]
    if good:
        stamps = [p["stamp"] for r in good for p in r["pairs"]]
        parts += [stamp_text(max(stamps, key=lambda taken: str(taken["taken"]))), ""]
    parts += [table(heads, [_cells(r) for r in good]), ""]
    parts += [f"- {title(r)} failed: {r['why']}" for r in rows if r["status"] != "ok"]
    return "\n".join([*parts, ""])


def _cells(r: Row) -> list[str]:
    pairs, seconds = r["pairs"], r["options"]["seconds"]

    def both(key: str, form: str, unit: float = 1.0) -> str:
        values = ([p[key][k] for p in pairs if p[key][k] is not None] for k in (0, 1))
        return " – ".join(form.format(median(v) / unit) if v else "?" for v in values)

    soon = [p["as_good_s"] for p in pairs if p["as_good_s"] is not None]
    late = f", {len(pairs) - len(soon)} not" if len(soon) < len(pairs) else ""
    speeds = [p["again_ns"][0] / p["again_ns"][1] for p in pairs]
    return [
        title(r),
        r["dtype"],
        pairs[0]["level"],
        str(len(pairs)),
        both("evaluations", "{:.0f}"),
        both("near", "{:.0%}"),
        both("median", "{:.2f}"),
        both("run_s", "{:.0%}", seconds),
        f"{median([p['best_s'] for p in pairs]):.1f}",
        (f"{median(soon):.1f}" if soon else "–") + late,
        " ".join(f"{speed:.2f}" for speed in speeds),
        f"{seconds:g}",
    ]


def make_table(
    wanted: Sequence[Job], options: PairOptions, again: bool, folder: Path | None
) -> list[Row]:
    """Make the rows that are missing, writing after each; all rows of the results."""
    results = Table("surrogate", _ROWS, report, folder)
    missing = results.missing(wanted, again)
    rows: list[Row] = results.make(missing, lambda job: make_row(job, options), _said)["rows"]
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = table_parser(__doc__, "NAME or NAME:n=2^20,...[:f64]")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each search")
    parser.add_argument("--seeds", type=int, default=3, help="pairs of searches of a row")
    given = parser.parse_args(arguments)
    if given.child:
        return answer(given.child)
    wanted = wanted_jobs(parser, given.only, _ROWS, known=names(), dtypes=DTYPES)
    options = PairOptions(given.seconds, given.seeds, given.seed)
    make_table(wanted, options, given.again, given.results)
    print(f"written to {given.results or RESULTS}")
    return 0


def _said(row: Row) -> str:
    return ", ".join(f"{p['again_ns'][0] / p['again_ns'][1]:.2f}" for p in row["pairs"])


if __name__ == "__main__":
    sys.exit(main())
