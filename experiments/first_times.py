"""How do the first candidates of a sequence and the expert's C compare, and what of that is noise? All timed in turn, in several
processes.

    python -m kernelscape.experiments.first_times --only gemver:n=8192 sgemvt:n=8192:f64 [--processes 3] [--tags panel contiguous]

Rows that are in the results already are kept unless --again is given. Writes experiments/results/first_times.md after
every row. The exit status is 1 when a row fails.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..codegen.lower import lower, print_source
from ..codegen.text.source import Source
from ..explorer.entry import library_workload
from ..explorer.workload import Workload
from ..kernels.library import load
from ..runtime.api.artifact import Artifact
from ..runtime.api.outcome import FINAL, Failure
from ..runtime.building.queue import build_many
from ..runtime.cpu.device import CpuDevice
from ..runtime.cpu.probe import calibrate
from ..runtime.device import open_device
from ..runtime.records.replay import dialect_of
from ..runtime.worker.channel import available_cores
from ..runtime.worker.inputs import make_input_sets
from ..runtime.worker.worker import AbstractWorker, Worker
from ..search.bound.bounder import Bounder, Roofline
from ..search.starts.complete import first_candidates
from ..space.build import build_space
from ..space.targets.target import CacheLevel, Target
from .conditions import stamp, stamp_text
from .expert import VARIANTS, expert_source, names
from .measuring import failure_text, level_of, median, spread
from .rows import Job, Row, Table, answer, run_row, table_parser, title, wanted_jobs
from .writing import ratio_text, table, time_text

_MODULE = "first_times"
_COPY = "memory_copy_nt"  # the probe: as many bytes read as written, past the caches
_LIMIT_S = 1800.0  # of one process
_EXPERT = "expert"  # begins the tags of the expert's variants

PROTOCOL = """Each process is fresh: a calibration, the first candidates and all variants of the expert's C built and verified, then
rounds of {a probe that copies memory; all of them, sample by sample in turn}. The expert's C is built with all passes of the same
compiler. A time is the median over samples; that of a row is the median over processes of medians over rounds. "± rounds" is half
the inter-quartile range over the rounds of a process, the median over processes; "± processes" half the range of the processes'
medians. "x best" is the time over that of the fastest in the same round, "x expert" over that of the expert's fastest. GB/s counts
every argument once (no write-allocate); "x copy" is that over the copy rate of the same round. The roofline is the calibrated one:
the longest of bytes at the rate of where they are, and operations at the peak."""


@dataclass(frozen=True)
class FirstOptions:
    """Options of one row."""

    rounds: int = 5
    processes: int = 3
    seed: int = 1
    limit: int = 40  # candidates
    tags: Sequence[str] = ()  # only candidates with one of these in their names; () for all
    budget_ms: float = 150.0  # of timed work for each candidate in each round
    calibrate: bool = True


def make_row(job: Job, options: FirstOptions) -> Row:
    """What several processes find, together. One that fails fails the row."""
    parts = []
    for _ in range(options.processes):
        part = run_row(_MODULE, job, options, _LIMIT_S)
        if part["status"] != "ok":
            return part
        parts.append(part)
    kept = {k: parts[-1][k] for k in ("bytes", "flops", "level", "stamp")}
    asked = job._asdict() | {"status": "ok", "options": parts[-1]["options"]}
    failed = {tag: why for part in parts for tag, why in part["failed"].items()}
    times = {
        tag: [part["times_ns"][tag] for part in parts]
        for tag in parts[0]["times_ns"]
        if tag not in failed
    }
    if all(tag.startswith(_EXPERT) for tag in times):
        return asked | {"status": "failed", "why": next(iter(failed.values()))}
    found = {
        "times_ns": times,
        "failed": failed,
        "copies": [part["copies"] for part in parts],
        "roof_ns": min(part["roof_ns"] for part in parts),
    }
    return asked | kept | found | {"candidates": summary(found | kept)}


def make_part(job: Job, options: FirstOptions) -> Row:
    """What one process finds: ns of each round by candidate, why others have none, the copy rates, and the roofline."""
    device = open_device("cpu")
    assert isinstance(device, CpuDevice)
    if options.calibrate:
        calibrate(device)
    target = device.machine.facts()
    workload = library_workload(load(job.name), job.sizes, job.dtype, options.seed)
    space = build_space(workload.problem, target)
    chosen = {
        tag: candidate
        for tag, candidate in first_candidates(space, limit=options.limit)
        if not options.tags or any(part in tag for part in options.tags)
    }
    if not chosen:
        raise RuntimeError(f"no first candidate is called {' or '.join(options.tags)}")
    sources = {tag: print_source(lower(c), dialect_of(device)) for tag, c in chosen.items()}
    made = _built(device, sources) | _built(device.with_all_passes(), _expert_sources(workload))
    artifacts = {tag: a for tag, a in made.items() if isinstance(a, Artifact)}
    failed = {tag: failure_text(f) for tag, f in made.items() if isinstance(f, Failure)}
    rng = np.random.default_rng(options.seed)
    input_sets = make_input_sets(workload.recording, workload.problem, workload.arguments, rng, 2)
    with Worker(device) as worker:
        worker.prepare(input_sets)
        times, copies = _rounds(worker, artifacts, failed, options)
    roof = Bounder(space).roofline()
    level = level_of(workload.problem, target)
    return {
        "times_ns": times,
        "failed": failed,
        "copies": copies,
        "bytes": roof.total_bytes,
        "flops": roof.flops,
        "level": "memory" if level is None else level.name,
        "roof_ns": roof_ns(roof, level, target, job.dtype),
        "stamp": stamp(device),
    }


def _built(device: CpuDevice, sources: dict[str, Source]) -> dict[str, Artifact | Failure]:
    made = build_many(device.builder, list(sources.values()), available_cores())
    return dict(zip(sources, made, strict=True))


def _expert_sources(workload: Workload) -> dict[str, Source]:
    """All variants of the expert's C by tag; none where there is no such program."""
    name = workload.sequence
    if name not in names():
        return {}
    return {
        " ".join([_EXPERT, *variant.replace("-D", "").split()]): expert_source(
            workload.recording, workload.sizes, variant, available_cores()
        )
        for variant in ("", *VARIANTS[name])
    }


def _rounds(
    worker: AbstractWorker,
    artifacts: dict[str, Artifact],
    failed: dict[str, str],
    options: FirstOptions,
) -> tuple[dict[str, list[float]], list[float]]:
    """ns of each round by candidate, and bytes that a copy moves a ns. What fails once is left out, with its reason in `failed`."""
    protocol = replace(FINAL, budget_ns=1e6 * options.budget_ms)
    left = dict(artifacts)
    times: dict[str, list[float]] = {tag: [] for tag in left}
    copies = []
    for _ in range(options.rounds):
        copies.append(median(worker.probe_state()[_COPY]))
        outcomes = worker.interleave(list(left.values()), protocol)
        for tag, outcome in zip(list(left), outcomes, strict=True):
            if isinstance(outcome, Failure):
                failed[tag] = failure_text(outcome)
                del left[tag], times[tag]
            else:
                times[tag].append(outcome.time_ns)
    return times, copies


def roof_ns(roof: Roofline, level: CacheLevel | None, target: Target, dtype: str) -> float:
    """The least time at calibrated rates of what must be moved and computed, overlapped."""
    flops_per_ns = target.f32_flops_per_ns if dtype == "f32" else target.f64_flops_per_ns
    computed_ns = roof.flops / flops_per_ns
    if level is not None:
        return max(computed_ns, roof.total_bytes / level.read_bytes_per_ns)
    return max(
        computed_ns,
        roof.read_bytes / target.memory_read_bytes_per_ns,
        roof.written_bytes / target.memory_write_bytes_per_ns,
        roof.total_bytes / target.memory_mixed_bytes_per_ns,
    )


def summary(found: Row) -> list[dict[str, Any]]:
    """Each candidate, the fastest first. Ratios are formed inside a round."""
    times = {tag: np.array(ns) for tag, ns in found["times_ns"].items()}  # [processes, rounds]
    copies = np.array(found["copies"])
    medians = {tag: median(np.median(ns, axis=1)) for tag, ns in times.items()}
    ranked = sorted(times, key=lambda tag: medians[tag])
    expert = next((tag for tag in ranked if tag.startswith(_EXPERT)), None)
    made = []
    for tag in ranked:
        of_process = np.median(times[tag], axis=1)
        over_best = times[tag] / times[ranked[0]]
        made.append(
            {
                "tag": tag,
                "median_ns": medians[tag],
                "rounds_spread": median([spread(ns) for ns in times[tag]]),
                "processes_spread": float(np.ptp(of_process)) / 2 / medians[tag],
                "over_best": median(over_best),
                "over_best_spread": spread(over_best),
                "over_expert": expert and median(times[tag] / times[expert]),
                "over_copy": median(found["bytes"] / times[tag] / copies),
                "roof_share": found["roof_ns"] / medians[tag],
            }
        )
    return made


def report(made: dict[str, Any]) -> str:
    """A section for each row."""
    parts = [
        "# The first candidates of a search, against each other and the expert's C",
        "",
        PROTOCOL,
    ]
    for r in made["rows"]:
        parts += ["", f"## {title(r)} {r['dtype']}", ""]
        parts += [f"failed: {r['why']}"] if r["status"] != "ok" else _section(r)
    return "\n".join([*parts, ""])


def _section(r: Row) -> list[str]:
    heads = ["candidate", "time", "± rounds", "± processes", "x best", "x expert", "GB/s", "x copy"]
    heads += ["roofline"]
    body = [
        [
            c["tag"],
            time_text(c["median_ns"]),
            f"{100 * c['rounds_spread']:.1f} %",
            f"{100 * c['processes_spread']:.1f} %",
            ratio_text(c["over_best"], c["over_best_spread"]),
            f"{c['over_expert']:.2f}" if c.get("over_expert") else "–",
            f"{r['bytes'] / c['median_ns']:.0f}",
            f"{c['over_copy']:.2f}",
            f"{c['roof_share']:.0%}",
        ]
        for c in r["candidates"]
    ]
    copies = [rate for process in r["copies"] for rate in process]
    options = r["options"]
    return [
        stamp_text(r["stamp"]),
        f"- {options['processes']} processes of {options['rounds']} rounds, {options['budget_ms']:g} ms a candidate and round;"
        f" arguments in {r['level']}",
        f"- copies {min(copies):.1f} – {max(copies):.1f} GB/s; roofline {time_text(r['roof_ns'])}",
        "",
        table(heads, body),
        *(
            ["", *(f"- not timed: {tag}, {why}" for tag, why in r["failed"].items())]
            if r["failed"]
            else []
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = table_parser(__doc__, "NAME:n=8192,...[:f64]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument(
        "--tags",
        nargs="*",
        default=(),
        help="only candidates so called, in part, beside the expert's",
    )
    parser.add_argument("--limit", type=int, default=40, help="most candidates")
    parser.add_argument("--budget-ms", type=float, default=150.0, help="a candidate and round")
    parser.add_argument("--no-calibrate", action="store_true")
    given = parser.parse_args(arguments)
    if given.child:
        return answer(given.child, FirstOptions, make_part)
    if not given.only:
        parser.error("say which rows: --only gemver:n=8192")
    wanted = wanted_jobs(parser, given.only, (), dtypes=("f32", "f64"))
    options = FirstOptions(
        rounds=given.rounds,
        processes=given.processes,
        seed=given.seed,
        limit=given.limit,
        tags=tuple(given.tags),
        budget_ms=given.budget_ms,
        calibrate=not given.no_calibrate,
    )
    results = Table(_MODULE, (), report, given.results)
    made = results.make(
        results.missing(wanted, given.again), lambda job: make_row(job, options), _said
    )
    return int(any(r["status"] != "ok" for r in made["rows"]))


def _said(row: Row) -> str:
    first = row["candidates"][0]
    return (
        f"{first['tag']} {time_text(first['median_ns'])}, {first['roof_share']:.0%} of the roofline"
    )


if __name__ == "__main__":
    sys.exit(main())
