"""Does every search find what an expert would write, and how soon? Searches with other seeds, each from a cold start.

    python -m kernelscape.experiments.seeds [--seconds 60] [--seeds 5] [--seed 1] [--only bicgk ...] [--again]

Rows that are in the results already are kept unless --again is given. Writes experiments/results/seeds.md after every
row. The exit status is 1 when a search missed its bar by more than 5 %.
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

import numpy as np

from ..codegen.lower import lower, print_source
from ..explorer.entry import library_workload
from ..explorer.workload import Options, Workload
from ..kernels.library import load
from ..runtime.api.outcome import FINAL
from ..runtime.records.folder import BEST
from ..runtime.records.loading import load_best
from ..runtime.records.record import Decisions
from ..runtime.records.replay import dialect_of, restore_complete
from ..runtime.worker.inputs import make_input_sets
from ..runtime.worker.worker import Worker
from ..space.build import build_space
from .conditions import stamp, stamp_text
from .expert import names
from .measuring import built, level_of, median, spread, time_ns
from .peers import DTYPES
from .peers_bars import share_of_expert
from .peers_row import choose, usable_devices
from .rows import Job, Row, Table, in_fresh_process, table_parser, title, wanted_jobs
from .run_row import compilers_s, search, with_one_compiler
from .writing import RESULTS, table, time_text

NEAR_BAR = 0.95  # of the bar, for every seed
_MARGIN_S = 600.0
_ROWS = (
    *(Job("matmul", {"m": 256, "n": 256, "k": 32}), Job("atax", {"m": 1024, "n": 1024})),
    *(Job("sgemvt", {"m": 1009, "n": 4093}), Job("bicgk", {"m": 4096, "n": 4096})),
    *(Job("gemver", {"m": 4096, "n": 4096}), Job("axpydot", {"n": 2**26})),
    Job("matmul", {"m": 1024, "n": 1024, "k": 1024}),
)

PROTOCOL = """Each search runs in a process of its own, with no program built before. Then all that
the seeds found and the expert's C, built with the compiler of the searches, are timed sample by sample
in turn, round by round; of the expert's variants the fastest competes. The share is the expert's time
divided by ours of the same round, medians over rounds, ± half the inter-quartile range; the bar is
that of the comparison with peers, and a seed is good from 95 % of it. Seconds count from the start of
the exploration, until something was measured that near the best measurement of the same search.
"Compilers" is the share of the search in which any ran, "runs" that in which candidates did."""


@dataclass(frozen=True)
class SeedOptions:
    """Options of one row."""

    seconds: float = 60.0  # of each search
    seeds: int = 5
    first: int = 1  # the others follow it
    evaluations: int | None = None  # end each search, too
    rounds: int = 7  # of the comparison
    budget_ms: float = 100.0  # of timed work for each program in each round


def make_row(job: Job, options: SeedOptions) -> Row:
    """The row of a job. One that fails says why."""
    asked = job._asdict() | {"options": asdict(options)}
    limit_s = 2 * options.seconds + _MARGIN_S
    searches = []
    for seed in range(options.first, options.first + options.seeds):
        found = in_fresh_process("seeds", asked | {"seed": seed}, limit_s)
        if isinstance(found, str):
            return {"status": "failed", **asked, "why": f"seed {seed}: {found}"}
        searches.append(found)
    bests = [s.pop("decisions") for s in searches]
    compared = in_fresh_process("seeds", asked | {"bests": bests}, limit_s)
    if isinstance(compared, str):
        return {"status": "failed", **asked, "why": compared}
    return {"status": "ok", **asked, "searches": searches, **compared}


def answer(asked: str) -> int:
    """The other end of `make_row`: one search, or the comparison of what all have found."""
    wanted = json.loads(asked)
    job, options = Job.of(wanted), SeedOptions(**wanted["options"])
    workload = library_workload(load(job.name), job.sizes, job.dtype, wanted.get("seed", 1))
    if "seed" in wanted:
        device = next(iter(usable_devices().values()))
        explored = with_one_compiler(device, options.seconds, wanted["seed"], options.evaluations)
        made = _searched(workload, explored)
    else:
        made = _compared(workload, wanted["bests"], options)
    print(json.dumps(made))
    return 0


def _searched(workload: Workload, options: Options) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="kernelscape-seeds-"))
    try:
        found = search(workload, options, folder)
        best = load_best(folder / BEST)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {**found, "seed": options.seed, "decisions": best.decisions}


def _compared(
    workload: Workload, bests: Sequence[Decisions], options: SeedOptions
) -> dict[str, Any]:
    device = next(iter(usable_devices().values()))
    space = build_space(workload.problem, device.machine.facts())
    candidates = [restore_complete(space, d) for d in bests]
    sources = [print_source(lower(c), dialect_of(device)) for c in candidates]
    input_sets = make_input_sets(
        workload.recording, workload.problem, workload.arguments, np.random.default_rng(1), 2
    )
    protocol = replace(FINAL, budget_ns=1e6 * options.budget_ms)
    chosen = choose(
        device,
        workload,
        input_sets,
        sources[0],
        replace(protocol, budget_ns=min(3e7, protocol.budget_ns)),
    )
    artifacts = [built(device, s) for s in sources]
    memory = []
    rounds = []
    with Worker(device) as worker:
        worker.prepare(input_sets)
        for _ in range(options.rounds):
            memory.append(worker.probe())
            rounds.append(
                [time_ns(x) for x in worker.interleave([chosen.expert, *artifacts], protocol)]
            )
    times = np.array(rounds)
    shares = times[:, :1] / times[:, 1:]
    level = level_of(workload.problem, device.machine.facts())
    return {
        "level": "memory" if level is None else level.name,
        "variant": chosen.variant,
        "expert_ns": median(times[:, 0]),
        "best_ns": [median(ns) for ns in times.T[1:]],
        "shares": [median(s) for s in shares.T],
        "share_spreads": [spread(s) for s in shares.T],
        "rounds_ns": rounds,
        "stamp": stamp(device, median(memory)),
    }


def problems(rows: Sequence[Row]) -> list[str]:
    """Seeds that missed their bar, one sentence each; rows that failed say so."""
    found = []
    for r in rows:
        if r["status"] != "ok":
            found.append(f"{title(r)} {r['dtype']} failed: {r['why']}")
            continue
        least = NEAR_BAR * share_of_expert(r)
        for s, share in zip(r["searches"], r["shares"], strict=True):
            if share < least:
                found.append(
                    f"{title(r)} {r['dtype']}, seed {s['seed']}: {share:.3f} of the expert, not {least:.3f}"
                )
    return found


def report(made: dict[str, Any]) -> str:
    """The table as Markdown."""
    rows: list[Row] = made["rows"]
    good = [r for r in rows if r["status"] == "ok"]
    heads = ["sequence", "type", "in", "expert", "shares of the seeds", "± %", "good from"]
    heads += [
        "within 5 % s",
        "within 1 % s",
        "set-up s",
        "evaluations",
        "compilers",
        "runs",
        "budget s",
    ]
    parts = ["# Time to the expert's code", "", PROTOCOL, ""]
    if good:
        read = [r["stamp"]["memory_bytes_per_ns"] for r in good]
        parts += [stamp_text(max((r["stamp"] for r in good), key=lambda s: str(s["taken"])))]
        parts += [f"- memory read {min(read):.0f} – {max(read):.0f} GB/s over the rows"]
    parts += ["", table(heads, [_cells(r) for r in good]), ""]
    missed = problems(rows)
    parts += [f"- missed: {line}" for line in missed] or (
        ["Every seed of every row is good."] if good else []
    )
    return "\n".join([*parts, ""])


def _cells(r: Row) -> list[str]:
    def over_seeds(key: str) -> str:
        values = [s[key] for s in r["searches"]]
        return f"{median(values):.1f} (at most {max(values):.1f})"

    search_s = sum(s["search_s"] for s in r["searches"])
    compiled_s = sum(compilers_s(s["spent_s"]) for s in r["searches"])
    ran_s = sum(s["spent_s"]["run"] for s in r["searches"])
    return [
        title(r),
        r["dtype"],
        r["level"],
        time_text(r["expert_ns"]),
        " ".join(f"{share:.2f}" for share in r["shares"]),
        f"{100 * max(r['share_spreads']):.1f}",
        f"{NEAR_BAR * share_of_expert(r):.2f}",
        over_seeds("near_s"),
        over_seeds("nearer_s"),
        f"{median([s['set_up_s']['started'] for s in r['searches']]):.1f}",
        f"{median([s['evaluations'] for s in r['searches']]):.0f}",
        f"{compiled_s / search_s:.0%}",
        f"{ran_s / search_s:.0%}",
        f"{r['options']['seconds']:g}",
    ]


def make_table(
    wanted: Sequence[Job], options: SeedOptions, again: bool, folder: Path | None
) -> list[Row]:
    """Make the rows that are missing, writing after each; all rows of the results."""
    results = Table("seeds", _ROWS, report, folder)
    missing = results.missing(wanted, again)
    rows: list[Row] = results.make(missing, lambda job: make_row(job, options), _said)["rows"]
    return rows


def _said(row: Row) -> str:
    return f"shares of the expert {' '.join(f'{s:.2f}' for s in row['shares'])}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = table_parser(__doc__, "NAME or NAME:n=2^20,...[:f64]")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each search")
    parser.add_argument("--seeds", type=int, default=5, help="searches of a row")
    given = parser.parse_args(arguments)
    if given.child:
        return answer(given.child)
    wanted = wanted_jobs(parser, given.only, _ROWS, known=names(), dtypes=DTYPES)
    rows = make_table(
        wanted, SeedOptions(given.seconds, given.seeds, given.seed), given.again, given.results
    )
    missed = problems(rows)
    print(f"written to {given.results or RESULTS}")
    print("\n".join(f"missed: {line}" for line in missed) or "every seed of every row is good")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
