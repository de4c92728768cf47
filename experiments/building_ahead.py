"""What it is worth that compilers begin before a batch is complete: searches with and without it, in turn, from equal seeds.

    python -m kernelscape.experiments.building_ahead [--seconds 30] [--seeds 3] [--seed 1] [--only atax:m=1024,n=1024 ...] [--again]

Rows that are in the results already are kept unless --again is given. Writes experiments/results/building_ahead.md and .json
after every row. The exit status is 1 when a row fails.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ..explorer import evaluation
from ..explorer.entry import library_subject
from ..kernels.library import load, names
from ..runtime.cpu.device import CpuDevice
from ..runtime.device import DeviceOptions
from ..runtime.worker.worker import Worker
from .conditions import stamp, stamp_text
from .measuring import median, spread
from .rows import Job, Row, Table, in_fresh_process, table_parser, title, wanted_jobs
from .run_row import search, with_one_compiler
from .writing import RESULTS, table

DTYPES = ("f32", "f64")
_ROWS = (
    Job("matmul", {"m": 256, "n": 256, "k": 32}, "f32"),
    Job("atax", {"m": 1024, "n": 1024}, "f32"),
    Job("sgemvt", {"m": 1009, "n": 4093}, "f32"),
)
_MARGIN_S = 240.0

PROTOCOL = """Each search runs in a process of its own, with nothing built before; which of the two with one seed comes
first changes from seed to seed. "Each" is the time of the search for each candidate that it measures, and "ratio"
that without over that with it, formed for each seed, ± half the inter-quartile range. "Waits" is the share of the
search in which it waits for compilers, "beside" that in which one runs while the search is still about the batch,
"runs" that in which candidates run. Two figures are those without and with it, medians over seeds."""


@dataclass(frozen=True)
class PairOptions:
    """How one row is made."""

    seconds: float = 30.0  # of each exploration
    seeds: int = 3
    first: int = 1  # the others follow it
    evaluations: int | None = None  # after which an exploration ends before its time


def make_row(job: Job, options: PairOptions) -> Row:
    """The row of a job. One that fails says why."""
    asked = job._asdict() | {"options": asdict(options)}
    pairs = []
    for seed in range(options.first, options.first + options.seeds):
        pair: dict[bool, dict[str, Any]] = {}
        for ahead in (bool(seed % 2), not seed % 2):
            child = asked | {"seed": seed, "ahead": ahead}
            found = in_fresh_process("building_ahead", child, 2 * options.seconds + _MARGIN_S)
            if isinstance(found, str):
                return {"status": "failed", **asked, "why": f"seed {seed}: {found}"}
            pair[ahead] = found
        pairs.append({"seed": seed, "without": pair[False], "with": pair[True]})
    return {"status": "ok", **asked, "pairs": pairs}


def answer(asked: str) -> int:
    """The other end of `make_row`: one search."""
    wanted = json.loads(asked)
    job, options = Job.of(wanted), PairOptions(**wanted["options"])
    subject = library_subject(load(job.name), job.sizes, job.dtype, wanted["seed"])
    device = CpuDevice(DeviceOptions())
    n_ahead = evaluation.JOBS_AHEAD if wanted["ahead"] else 0
    folder = Path(tempfile.mkdtemp(prefix="kernelscape-ahead-"))
    try:
        with patch.object(evaluation, "JOBS_AHEAD", n_ahead):
            explored = with_one_compiler(device, options.seconds, wanted["seed"])
            explored = replace(explored, max_evals=options.evaluations)
            found = search(subject, explored, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    with Worker(device) as worker:
        memory = worker.probe()
    kept = {key: found[key] for key in ("evaluations", "search_s", "spent_s", "search_best_ns")}
    print(json.dumps(kept | {"stamp": stamp(device, memory)}))
    return 0


def report(made: dict[str, Any]) -> str:
    """The table as Markdown."""
    rows: list[Row] = made["rows"]
    good = [r for r in rows if r["status"] == "ok"]
    heads = ["sequence", "type", "seeds", "evaluations", "each ms", "ratio", "± %"]
    heads += ["waits", "beside", "runs", "budget s"]
    parts = ["# Compilers that begin before a batch is complete", "", PROTOCOL, ""]
    if good:
        stamps = [p["with"]["stamp"] for r in good for p in r["pairs"]]
        parts += [stamp_text(max(stamps, key=lambda taken: str(taken["taken"]))), ""]
    parts += [table(heads, [_cells(r) for r in good]), ""]
    parts += [f"- {title(r)} failed: {r['why']}" for r in rows if r["status"] != "ok"]
    return "\n".join([*parts, ""])


def ratios(row: Row) -> list[float]:
    """Of each seed: how many times as long a search without it takes for each candidate."""
    return [_each_ms(p["without"]) / _each_ms(p["with"]) for p in row["pairs"]]


def _each_ms(found: dict[str, Any]) -> float:
    return 1e3 * float(found["search_s"]) / int(found["evaluations"])


def _cells(r: Row) -> list[str]:
    sides = [[p[side] for p in r["pairs"]] for side in ("without", "with")]

    def share(key: str) -> str:
        shares = (median([s["spent_s"][key] / s["search_s"] for s in side]) for side in sides)
        return " – ".join(f"{x:.0%}" for x in shares)

    return [
        title(r),
        r["dtype"],
        str(len(r["pairs"])),
        " – ".join(f"{median([s['evaluations'] for s in side]):.0f}" for side in sides),
        " – ".join(f"{median([_each_ms(s) for s in side]):.1f}" for side in sides),
        f"{median(ratios(r)):.2f}",
        f"{100 * spread(ratios(r)):.1f}",
        *(share(key) for key in ("compile", "beside", "run")),
        f"{r['options']['seconds']:g}",
    ]


def make_table(
    wanted: Sequence[Job], options: PairOptions, again: bool, folder: Path | None
) -> list[Row]:
    """Make the rows that are missing, writing after each; all rows of the results."""
    results = Table("building_ahead", _ROWS, report, folder)
    missing = results.missing(wanted, again)
    rows: list[Row] = results.make(missing, lambda job: make_row(job, options), _said)["rows"]
    return rows


def _said(row: Row) -> str:
    return " ".join(f"{x:.2f}" for x in ratios(row))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = table_parser(__doc__, "NAME or NAME:n=2^20,...[:f64]")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each exploration")
    parser.add_argument("--seeds", type=int, default=3, help="pairs of searches of a row")
    given = parser.parse_args(arguments)
    if given.child:
        return answer(given.child)
    wanted = wanted_jobs(parser, given.only, _ROWS, known=names(), dtypes=DTYPES)
    options = PairOptions(given.seconds, given.seeds, given.seed)
    rows = make_table(wanted, options, given.again, given.results)
    print(f"written to {given.results or RESULTS}")
    return int(any(r["status"] != "ok" for r in rows))


if __name__ == "__main__":
    sys.exit(main())
