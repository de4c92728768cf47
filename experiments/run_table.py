"""How fast is what the search finds? Every library sequence, against the default and NumPy.

    python -m kernelscape.experiments.run_table [--seconds 60] [--only bicgk axpydot:n=2^26] [--again]

Rows that are in the results already are kept unless --again is given, so that the table can be made
in pieces. Writes experiments/results/run_table.md after every row. The exit status is 1
when a check of the whole table fails.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..explorer.workload import Workload
from ..kernels.library import load, names
from ..runtime.api.outcome import FINAL, Failure
from ..runtime.cpu.device import CpuDevice
from ..runtime.cpu.probe import calibrate
from ..runtime.worker.worker import Worker, WorkerOptions
from ..search.bound.bounder import Bounder, Roofline
from ..space.targets.target import Target
from . import row
from .conditions import stamp
from .measuring import level_of, median, spread, time_ns
from .question import Question, asked
from .rows import Columns, Job, Row, page, title
from .writing import ratio_text, share_text, time_text

SPEED_UP = 1.5
ROOF_SHARE = 0.85
CHECKED = ("axpydot", "waxpby", "vadd", "bicgk", "gemver")
_TWO_SIZES = ("heat", "standardise")  # in memory and in the last cache

PROTOCOL = """Each row is made in a process of its own: a calibration, an exploration, then
rounds of {a probe of memory; best and default, sample by sample in turn; NumPy in a child of its own
with its own threads and no OPENBLAS_* set}. Times are medians over rounds of medians, ratios are
formed inside a round; ± is half the inter-quartile range. Caches are warm: each sample follows a call of the same program.
GB/s counts every argument once (compulsory bytes of the fused sequence, no write-allocate). The
share of the roofline in memory is of the probe of the same round whose mix of reads and writes is
nearest, in caches of the calibrated read rate; of compute-bound rows of the calibrated peak. The gap
compares the bound with this table's best time. "compilers" is the share of the search's time in which
any ran. A default that fails its verification says
so. Seconds count from the start of the exploration: "set-up" until the search begins,
"within 5 %" until something that near the search's best was measured. "after 2 s" is the least time of the first two seconds over
that of all, where anything was measured so soon."""


def all_jobs() -> list[Job]:
    """The whole table, small sizes first: a mistake shows early."""
    jobs = []
    for name in names():
        sizes = [dict(s) for s in load(name).benchmark_sizes]
        if name == "matmul":
            sizes.append({"m": 2048, "n": 2048, "k": 2048})
        if name in _TWO_SIZES:
            sizes = [s for s in sizes if s["n"] in (8192, 1024)]
        jobs += [Job(name, s) for s in sizes]
    return sorted(jobs, key=lambda job: job.volume)


@dataclass(frozen=True)
class RowOptions:
    """Options of one row."""

    seconds: float = asked(60.0, "of each exploration")
    rounds: int = asked(7)
    seed: int = asked(1, least=0)
    calibrate: bool = asked(True)
    evaluations: int | None = None  # end the search, too


def make_row(job: Job, options: RowOptions) -> Row:
    """What is found for a row. Raises RuntimeError where nothing was found or it no longer runs."""
    device = row.cpu()
    if options.calibrate:
        calibrate(device)
    workload = row.workload_of(job, options.seed)
    told = row.with_one_compiler(device, options.seconds, options.seed, options.evaluations)
    with row.searched(workload, told) as (found, folder):
        compared = _compare(workload, device, folder, options)
    roof = Bounder(row.space_of(workload, device)).roofline()
    return {
        **found,
        **compared,
        **_shares(workload, roof, device.machine.facts(), compared),
        **row.beside_bound(found, compared["best_ns"]),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        "stamp": stamp(device, median(compared["memory"]["memory_read"])),
    }


def _compare(
    workload: Workload, device: CpuDevice, folder: Path, options: RowOptions
) -> dict[str, Any]:
    """Best, default and NumPy in turn, round by round, each round beside a probe of memory."""
    best, default = row.best_and_default(workload, device, folder)
    input_sets = row.inputs_of(workload, options.seed)
    protocol = replace(FINAL, budget_ns=1.5e8)
    rounds: list[tuple[float, float, float]] = []
    memory: dict[str, list[float]] = {}
    default_fails = ""
    with Worker(device) as ours, Worker(device, WorkerOptions(runs_candidates=False)) as theirs:
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
    best_ns, default_times, numpy_times = np.array(rounds).T
    over_default: dict[str, Any] = {"default_fails": default_fails, "default_ns": None}
    if not default_fails:
        over_default = {"default_ns": median(default_times)}
        over_default |= row.with_spread("over_default", default_times / best_ns)
    return {
        **over_default,
        "rounds_ns": [[ns if ns == ns else None for ns in times] for times in rounds],
        "memory": memory,
        "best_ns": median(best_ns),
        "best_spread": spread(best_ns),
        "numpy_ns": median(numpy_times),
        **row.with_spread("over_numpy", numpy_times / best_ns),
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
    return {
        "bytes": roof.total_bytes,
        "flops": roof.flops,
        "level": "memory" if level is None else level.name,
        "mix": mix if level is None else "",
        **row.with_spread("roof_share", shares),
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


def problems(rows: Sequence[Row]) -> list[str]:
    """The checks of the table; one sentence for each that fails."""
    found = [f"{title(r)} failed: {r['why']}" for r in rows if r["status"] != "ok"]
    for r in (r for r in rows if r["status"] == "ok"):
        if r["below_bound"] or r["alarms"]:
            found.append(f"{title(r)}: {r['below_bound']} measurements below their bound")
        if r["name"] in CHECKED and r["level"] == "memory":
            if r["over_numpy"] < SPEED_UP:
                found.append(f"{title(r)}: {r['over_numpy']:.2f} x NumPy")
            if r["roof_share"] < ROOF_SHARE:
                found.append(f"{title(r)}: {r['roof_share']:.0%} of the roofline")
    return found


def _rate(r: Row) -> str:
    moved, unit = (r["flops"], "GF/s") if r["is_computed"] else (r["bytes"], "GB/s")
    return f"{moved / r['best_ns']:.0f} {unit}"


def _default(r: Row) -> str:
    return time_text(r["default_ns"]) if r["default_ns"] else r["default_fails"].split(":")[0]


COLUMNS: Columns = {
    "sequence": title,
    "best": lambda r: time_text(r["best_ns"]),
    "± %": lambda r: f"{100 * r['best_spread']:.1f}",
    "default": _default,
    "NumPy": lambda r: time_text(r["numpy_ns"]),
    "x default": lambda r: ratio_text(r.get("over_default"), r.get("over_default_spread")),
    "x NumPy": lambda r: ratio_text(r["over_numpy"], r["over_numpy_spread"]),
    "rate": _rate,
    "of": lambda r: "peak" if r["is_computed"] else r["level"],
    "roofline": lambda r: share_text(r["roof_share"], r["roof_share_spread"]),
    "bound": lambda r: time_text(r["bound_ns"]),
    "gap": lambda r: "–" if r["gap"] is None else f"{r['gap']:.0%}",
    "budget s": lambda r: f"{r['options']['seconds']:g}",
    "evaluations": lambda r: str(r["evaluations"]),
    "/s": lambda r: f"{r['evaluations'] / r['search_s']:.1f}",
    "compilers": lambda r: f"{row.compilers_s(r['spent_s']) / r['search_s']:.0%}",
    "below bound": lambda r: str(r["below_bound"]),
    "set-up s": lambda r: f"{r['set_up_s']['started']:.1f}",
    "within 5 % s": lambda r: f"{r['near_s']:.1f}",
    "after 2 s": lambda r: "–" if r.get("soon") is None else f"{r['soon']:.2f}",
    "ended": lambda r: r["search_status"],
}


def _notes(good: list[Row]) -> list[str]:
    read = [r["stamp"]["memory_bytes_per_ns"] for r in good]
    seconds = sorted({f"{r['options']['seconds']:g}" for r in good})
    return [
        f"- memory read {min(read):.0f} – {max(read):.0f} GB/s over the rows,"
        f" rows from {min(r['stamp']['taken'] for r in good)}",
        f"- {' or '.join(seconds)} s a row, {good[0]['options']['rounds']} rounds, f32",
    ]


def report(made: dict[str, Any]) -> str:
    """The table as Markdown."""
    rows: list[Row] = made["rows"]
    n_below = sum(r["below_bound"] for r in rows if r["status"] == "ok")
    parts = [
        page("What the search finds", PROTOCOL, COLUMNS, rows, notes=_notes, by_time=True),
        f"Measurements below their bound, of all evaluations: {n_below}.\n",
        f"Checks ({', '.join(CHECKED)} in memory at least {SPEED_UP} x NumPy and at least",
        f"{ROOF_SHARE:.0%} of the roofline; no measurement below its bound):\n",
        *(f"- {line}" for line in problems(rows) or ["all met"]),
    ]
    return "\n".join([*parts, ""])


QUESTION = Question(
    file="run_table",
    doc=__doc__,
    order=all_jobs(),
    options=RowOptions,
    make=make_row,
    # Set-up and comparison of the largest size on a busy machine.
    limit_s=lambda job, options: 4 * options.seconds + 420.0,
    report=report,
    say=lambda r: f"{time_text(r['best_ns'])}, {r['over_numpy']:.2f} x NumPy",
    missed=problems,
)
main = QUESTION.main

if __name__ == "__main__":
    sys.exit(main())
