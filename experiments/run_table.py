"""How fast is what the search finds? Every library sequence, against the default and NumPy.

    python -m kernelscape.experiments.run_table [--seconds 60] [--only bicgk axpydot:n=2^26] [--again]

Rows that are in the results already are kept unless --again is given, so that the table can be made
in pieces. Writes experiments/results/run_table.md after every row. The exit status is 1
when a check of the whole table fails.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..kernels.library import load, names
from .conditions import stamp_text
from .rows import Job, Row, Table, answer, table_parser, title, wanted_jobs
from .rows import run_row as row_of_child
from .run_row import RowOptions, compilers_s, make_row
from .writing import ratio_text, share_text, table, time_text

SPEED_UP = 1.5
ROOF_SHARE = 0.85
CHECKED = ("axpydot", "waxpby", "vadd", "bicgk", "gemver")
_TWO_SIZES = ("heat", "standardise")  # in memory and in the last cache
_ROW_MARGIN_S = 420.0  # set-up and comparison of the largest size on a busy machine

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
"within 5 %" until something that near the search's best was measured."""


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


def run_row(job: Job, options: RowOptions) -> Row:
    """The row, made in a child. A row that fails says why."""
    return row_of_child("run_table", job, options, 4 * options.seconds + _ROW_MARGIN_S)


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


def report(made: dict[str, Any]) -> str:
    """The table as Markdown."""
    rows: list[Row] = made["rows"]
    heads = [
        *("sequence", "best", "± %", "default", "NumPy", "x default", "x NumPy", "rate"),
        *("of", "roofline", "bound", "gap", "budget s", "evaluations", "/s", "compilers"),
        *("below bound", "set-up s", "within 5 % s", "ended"),
    ]
    good = [r for r in rows if r["status"] == "ok"]
    missed = problems(rows)
    n_below = sum(r["below_bound"] for r in good)
    parts = ["# What the search finds", "", PROTOCOL, ""]
    if good:
        last = max(good, key=lambda r: str(r["stamp"]["taken"]))
        read = [r["stamp"]["memory_bytes_per_ns"] for r in good]
        seconds = sorted({f"{r['options']['seconds']:g}" for r in good})
        parts += [
            stamp_text(last["stamp"]),
            f"- memory read {min(read):.0f} – {max(read):.0f} GB/s over the rows,"
            f" rows from {min(r['stamp']['taken'] for r in good)}",
            f"- {' or '.join(seconds)} s a row, {good[0]['options']['rounds']} rounds, f32",
            "",
        ]
    parts += [table(heads, [_cells(r) for r in rows]), ""]
    parts += [f"Measurements below their bound, of all evaluations: {n_below}.", ""]
    parts += [f"Checks ({', '.join(CHECKED)} in memory at least {SPEED_UP} x NumPy and at least"]
    parts += [f"{ROOF_SHARE:.0%} of the roofline; no measurement below its bound):", ""]
    parts += [f"- {line}" for line in missed or ["all met"]]
    return "\n".join([*parts, ""])


def _cells(r: Row) -> list[str]:
    if r["status"] != "ok":
        return [title(r), f"failed: {r['why']}".replace("|", "/"), *[""] * 18]
    rate = r["flops"] if r["is_computed"] else r["bytes"]
    failed = r["default_ns"] is None
    search_s = r["search_s"]
    return [
        title(r),
        time_text(r["best_ns"]),
        f"{100 * r['best_spread']:.1f}",
        r["default_fails"].split(":")[0] if failed else time_text(r["default_ns"]),
        time_text(r["numpy_ns"]),
        ratio_text(r.get("over_default"), r.get("over_default_spread")),
        ratio_text(r["over_numpy"], r["over_numpy_spread"]),
        f"{rate / r['best_ns']:.0f} {'GF/s' if r['is_computed'] else 'GB/s'}",
        "peak" if r["is_computed"] else r["level"],
        share_text(r["roof_share"], r["roof_share_spread"]),
        time_text(r["bound_ns"]),
        "–" if r["gap"] is None else f"{r['gap']:.0%}",
        f"{r['options']['seconds']:g}",
        str(r["evaluations"]),
        f"{r['evaluations'] / search_s:.1f}",
        f"{compilers_s(r['spent_s']) / search_s:.0%}",
        str(r["below_bound"]),
        f"{r['set_up_s']['started']:.1f}",
        f"{r['near_s']:.1f}",
        r["search_status"],
    ]


def make_table(
    wanted: Sequence[Job], options: RowOptions, again: bool, folder: Path | None
) -> list[Row]:
    """Make the rows that are missing, writing after each; all rows of the results."""
    results = Table("run_table", all_jobs(), report, folder)
    missing = results.missing(wanted, again)
    rows: list[Row] = results.make(missing, lambda job: run_row(job, options), _said)["rows"]
    return rows


def _said(row: Row) -> str:
    return f"{time_text(row['best_ns'])}, {row['over_numpy']:.2f} x NumPy"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = table_parser(__doc__, "NAME or NAME:n=2^20,...")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each exploration")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--no-calibrate", action="store_true")
    given = parser.parse_args(arguments)
    if given.child:
        return answer(given.child, RowOptions, make_row)
    wanted = wanted_jobs(parser, given.only, all_jobs())
    options = RowOptions(given.seconds, given.rounds, given.seed, not given.no_calibrate)
    missed = problems(make_table(wanted, options, given.again, given.results))
    print("\n".join(f"missed: {line}" for line in missed) or "all checks met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
