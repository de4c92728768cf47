"""Does every search find what an expert would write, and how soon? Searches with other seeds, each from a cold start.

    python -m kernelscape.experiments.seeds [--seconds 60] [--seeds 5] [--seed 1] [--only bicgk ...] [--again]

Rows that are in the results already are kept unless --again is given. Writes experiments/results/seeds.md after every
row. The exit status is 1 when a search missed its bar by more than 5 %.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ..kernels.library import load
from ..runtime.api.outcome import FINAL
from ..runtime.cpu.device import CpuDevice
from ..runtime.records.folder import BEST
from ..runtime.records.loading import load_best
from ..runtime.records.replay import restore_complete
from ..runtime.worker.worker import Worker
from . import row
from .conditions import stamp
from .expert import names
from .measuring import built, median, spread, time_ns
from .peers import DTYPES, choose, usable_devices
from .peers_bars import share_of_expert
from .question import Question, asked
from .rows import Columns, Job, Row, in_fresh_process, page, title
from .writing import time_text

NEAR_BAR = 0.95  # of the bar, for every seed
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

    seconds: float = asked(60.0, "of each search")
    seeds: int = asked(5, "searches of a row")
    first: int = asked(1, "the others follow it", least=0, option="--seed")
    evaluations: int | None = None  # end each search, too
    rounds: int = asked(7, "of the comparison")
    budget_ms: float = asked(100.0, "of timed work, a program and round")


def make_row(job: Job, options: SeedOptions) -> Row:
    """The row of a job. One that fails says why."""
    about = job._asdict() | {"options": asdict(options)}
    limit_s = 2 * options.seconds + 600.0
    searches = []
    for seed in range(options.first, options.first + options.seeds):
        found = in_fresh_process("seeds", about | {"seed": seed}, limit_s)
        if isinstance(found, str):
            return {"status": "failed", **about, "why": f"seed {seed}: {found}"}
        searches.append(found)
    bests = [s.pop("decisions") for s in searches]
    compared = in_fresh_process("seeds", about | {"bests": bests}, limit_s)
    if isinstance(compared, str):
        return {"status": "failed", **about, "why": compared}
    return {"status": "ok", **about, "searches": searches, **compared}


def answer(wanted: Row, options: SeedOptions) -> Row:
    """A part of a row: one search, or the comparison of what all have found."""
    job, device = Job.of(wanted), next(iter(usable_devices().values()))
    if "bests" in wanted:
        return _compared(job, device, wanted["bests"], options)
    seed = wanted["seed"]
    told = row.with_one_compiler(device, options.seconds, seed, options.evaluations)
    with row.searched(row.workload_of(job, seed), told) as (found, folder):
        return {**found, "seed": seed, "decisions": load_best(folder / BEST).decisions}


def _compared(job: Job, device: CpuDevice, bests: Sequence[Any], options: SeedOptions) -> Row:
    workload = row.workload_of(job, 1)
    space = row.space_of(workload, device)
    sources = [row.text_of(restore_complete(space, d), device) for d in bests]
    input_sets = row.inputs_of(workload, 1)
    protocol = replace(FINAL, budget_ns=1e6 * options.budget_ms)
    quick = replace(protocol, budget_ns=min(3e7, protocol.budget_ns))
    chosen = choose(device, workload, input_sets, sources[0], quick)
    artifacts = [chosen.expert, *(built(device, s) for s in sources)]
    memory, rounds = [], []
    with Worker(device) as worker:
        worker.prepare(input_sets)
        for _ in range(options.rounds):
            memory.append(worker.probe())
            rounds.append([time_ns(x) for x in worker.interleave(artifacts, protocol)])
    times = np.array(rounds)
    shares = times[:, :1] / times[:, 1:]
    return {
        "level": row.level_name(workload, device),
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


def _over_seeds(key: str) -> Callable[[Row], str]:
    def cell(r: Row) -> str:
        values = [s[key] for s in r["searches"]]
        return f"{median(values):.1f} (at most {max(values):.1f})"

    return cell


def _share(spent: Callable[[Row], float]) -> Callable[[Row], str]:
    """Of the time of all searches."""
    return lambda r: (
        f"{sum(map(spent, r['searches'])) / sum(s['search_s'] for s in r['searches']):.0%}"
    )


COLUMNS: Columns = {
    "sequence": title,
    "type": lambda r: r["dtype"],
    "in": lambda r: r["level"],
    "expert": lambda r: time_text(r["expert_ns"]),
    "shares of the seeds": lambda r: " ".join(f"{share:.2f}" for share in r["shares"]),
    "± %": lambda r: f"{100 * max(r['share_spreads']):.1f}",
    "good from": lambda r: f"{NEAR_BAR * share_of_expert(r):.2f}",
    "within 5 % s": _over_seeds("near_s"),
    "within 1 % s": _over_seeds("nearer_s"),
    "set-up s": lambda r: f"{median([s['set_up_s']['started'] for s in r['searches']]):.1f}",
    "evaluations": lambda r: f"{median([s['evaluations'] for s in r['searches']]):.0f}",
    "compilers": _share(lambda s: row.compilers_s(s["spent_s"])),
    "runs": _share(lambda s: s["spent_s"]["run"]),
    "budget s": lambda r: f"{r['options']['seconds']:g}",
}


def _notes(good: list[Row]) -> list[str]:
    read = [r["stamp"]["memory_bytes_per_ns"] for r in good]
    return [f"- memory read {min(read):.0f} – {max(read):.0f} GB/s over the rows"]


def report(made: dict[str, Any]) -> str:
    """The table as Markdown."""
    missed = problems([r for r in made["rows"] if r["status"] == "ok"])
    said = [f"- missed: {line}" for line in missed] or ["Every seed of every row is good."]
    heading = "Time to the expert's code"
    text = page(heading, PROTOCOL, COLUMNS, made["rows"], notes=_notes, by_time=True)
    return text + "\n".join([*said, ""])


QUESTION = Question(
    file="seeds",
    doc=__doc__,
    order=_ROWS,
    options=SeedOptions,
    row=make_row,
    answer=answer,
    report=report,
    say=lambda r: f"shares of the expert {' '.join(f'{s:.2f}' for s in r['shares'])}",
    missed=problems,
    dtypes=DTYPES,
    works={name: load(name) for name in names()},
)
main = QUESTION.main

if __name__ == "__main__":
    sys.exit(main())
