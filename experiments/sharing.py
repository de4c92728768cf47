"""What do threads save by a page between their buffers, and by packing a block together? One candidate in each way, in turn.

    python -m kernelscape.experiments.sharing [--only atax:m=1024,n=1024 matmul:m=64,n=64,k=64:f64] [--rounds 11] [--again]

Rows that are in the results already are kept unless --again is given. Writes experiments/results/sharing.md after every
row. The exit status is 1 when a row fails.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..codegen.lower import lower, print_source
from ..codegen.passes.pipeline import CPU
from ..codegen.passes.storage import APART_BYTES
from ..codegen.text.source import Source
from ..explorer.entry import library_workload
from ..kernels.library import load
from ..runtime.api.artifact import Artifact
from ..runtime.api.outcome import FINAL, Protocol
from ..runtime.cpu.device import CpuDevice
from ..runtime.device import open_device
from ..runtime.records.replay import dialect_of
from ..runtime.worker.inputs import make_input_sets
from ..runtime.worker.worker import AbstractWorker, Worker
from ..search.starts.complete import first_candidates, sketched_candidates
from ..search.starts.sketches import Packing
from ..space.build import build_space
from ..space.candidate import Candidate, Space
from .conditions import stamp, stamp_text
from .measuring import all_built, built, level_of, median, spread, time_ns
from .rows import Job, Row, Table, answer, run_row, table_parser, title, wanted_jobs
from .writing import ratio_text, table, time_text

_MODULE = "sharing"
_LIMIT_S = 900.0  # of one row
_SQUARE = {"m": 1024, "n": 1024}
_ROWS = (
    *(Job(name, _SQUARE) for name in ("atax", "bicgk", "sgemvt", "gemver")),
    *(Job("matmul", dict.fromkeys("mnk", n)) for n in (96, 256, 1024, 2048)),
)
# Between the copies of two threads: nothing, a few lines, less than a page, what is generated, and not whole pages.
DISTANCES = (APART_BYTES, 0, 320, 1024, APART_BYTES + 320)
TOGETHER, OWN = (
    Packing(every=True, depth_first=True, by_team=by_team) for by_team in (True, False)
)

PROTOCOL = """Each row is a process of its own. Of a product the candidates are one in which all threads
pack the panels of B, and one in which each packs panels of its own; of others it is the fastest first candidate,
beside the same with other distances, in bytes, between what each thread has for itself. Then rounds in which all are timed, sample
by sample in turn. "x" is the time over that of the first, formed inside each round: the median over rounds, and half the
inter-quartile range."""


@dataclass(frozen=True)
class SharingOptions:
    """Options of one row."""

    rounds: int = 11
    seed: int = 1
    budget_ms: float = 60.0  # of timed work for each way in each round


def make_row(job: Job, options: SharingOptions) -> Row:
    """ns of each round by way."""
    device = open_device("cpu")
    assert isinstance(device, CpuDevice)
    workload = library_workload(load(job.name), job.sizes, job.dtype, options.seed)
    space = build_space(workload.problem, device.machine.facts())
    rng = np.random.default_rng(options.seed)
    input_sets = make_input_sets(workload.recording, workload.problem, workload.arguments, rng, 2)
    protocol = replace(FINAL, budget_ns=1e6 * options.budget_ms)
    with Worker(device) as worker:
        worker.prepare(input_sets)
        tag, ways = _by_team(space, device) or _apart(space, device, worker, protocol)
        artifacts = {way: built(device, source) for way, source in ways.items()}
        memory, rounds = [], []
        for _ in range(options.rounds):
            memory.append(worker.probe())
            found = worker.interleave(list(artifacts.values()), protocol)
            rounds.append([time_ns(x) for x in found])
    level = level_of(workload.problem, device.machine.facts())
    times = np.array(rounds).T.tolist()
    return {
        "candidate": tag,
        "times_ns": dict(zip(ways, times, strict=True)),
        "level": "memory" if level is None else level.name,
        "stamp": stamp(device, median(memory)),
    }


def _by_team(space: Space, device: CpuDevice) -> tuple[str, dict[str, Source]] | None:
    """Panels packed by the team, and by each thread; None where there is no product."""
    made: dict[str, Candidate] = {}
    for sketch, candidate in sketched_candidates(space):
        packing = sketch.packing
        if packing in (TOGETHER, OWN):
            made.setdefault("together" if packing == TOGETHER else "each its own", candidate)
    if len(made) < 2:
        return None
    return "panels packed once", {way: _source(made[way], device) for way in sorted(made)[::-1]}


def _apart(
    space: Space, device: CpuDevice, worker: AbstractWorker, protocol: Protocol
) -> tuple[str, dict[str, Source]]:
    """The fastest first candidate at each distance."""
    firsts = dict(first_candidates(space))
    sources = [_source(c, device) for c in firsts.values()]
    made = dict(zip(firsts, all_built(device, sources), strict=True))
    quick = replace(protocol, budget_ns=min(2e7, protocol.budget_ns))
    best = min(made, key=lambda tag: _quick_ns(worker, made[tag], quick))
    return best, {str(n): _source(firsts[best], device, n) for n in DISTANCES}


def _quick_ns(worker: AbstractWorker, artifact: Artifact, quick: Protocol) -> float:
    (found,) = worker.interleave([artifact], quick)
    return time_ns(found)


def _source(candidate: Candidate, device: CpuDevice, apart_bytes: int = APART_BYTES) -> Source:
    return print_source(
        lower(candidate, passes=replace(CPU, apart_bytes=apart_bytes)), dialect_of(device)
    )


def report(made: dict[str, Any]) -> str:
    """A line for each way of each row."""
    parts = ["# What threads share, and what lies between them", "", PROTOCOL, ""]
    good = [r for r in made["rows"] if r["status"] == "ok"]
    if good:
        parts += [stamp_text(max((r["stamp"] for r in good), key=lambda s: str(s["taken"])))]
        read = [r["stamp"]["memory_bytes_per_ns"] for r in good]
        parts += [f"- memory read {min(read):.0f} – {max(read):.0f} GB/s over the rows", ""]
    heads = ["sequence", "type", "in", "candidate", "way", "time", "x", "rounds"]
    parts += [table(heads, [cells for r in good for cells in _cells(r)])]
    parts += [f"- {title(r)} failed: {r['why']}" for r in made["rows"] if r["status"] != "ok"]
    return "\n".join([*parts, ""])


def _cells(r: Row) -> list[list[str]]:
    base = np.array(next(iter(r["times_ns"].values())))
    named = [title(r), r["dtype"], r["level"], r["candidate"]]
    return [
        [
            *named,
            way,
            time_text(median(ns)),
            ratio_text(median(np.array(ns) / base), spread(np.array(ns) / base)),
            str(len(ns)),
        ]
        for way, ns in r["times_ns"].items()
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = table_parser(__doc__, "NAME:n=8192,...[:f64]")
    parser.add_argument("--rounds", type=int, default=SharingOptions.rounds)
    parser.add_argument(
        "--budget-ms", type=float, default=SharingOptions.budget_ms, help="a way and round"
    )
    given = parser.parse_args(arguments)
    if given.child:
        return answer(given.child, SharingOptions, make_row)
    if given.rounds < 1:
        parser.error(f"--rounds {given.rounds} must be positive")
    wanted = wanted_jobs(parser, given.only, _ROWS, dtypes=("f32", "f64"))
    options = SharingOptions(given.rounds, given.seed, given.budget_ms)
    results = Table(_MODULE, _ROWS, report, given.results)
    made = results.make(
        results.missing(wanted, given.again),
        lambda job: run_row(_MODULE, job, options, _LIMIT_S),
        lambda row: ", ".join(f"{w} {time_text(median(ns))}" for w, ns in row["times_ns"].items()),
    )
    return int(any(r["status"] != "ok" for r in made["rows"]))


if __name__ == "__main__":
    sys.exit(main())
