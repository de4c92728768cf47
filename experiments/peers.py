"""Is what the search finds level with expert C, and ahead of every library? One table, at the sizes of the bars.

    python -m kernelscape.experiments.peers [--seconds 60] [--only bicgk gemver:n=4096:f64] [--again] [--quick]

Rows that are in the results already are kept unless --again is given, so that the table can be made in pieces; --quick makes small
rows with short searches, to see that everything works, and writes to a folder of its own unless one is given. Writes
experiments/results/peers.md after every row. The exit status is 1 when a bar is missed. Libraries that are not installed
are left out: pip install '.[peers]' has them all.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..kernels.library import load
from .conditions import stamp_text
from .expert import names
from .peers_bars import SEQUENCES, UNFUSED, fusion_gain, missed_bars, share_of_unstrided, verdict
from .peers_row import COMPILERS, LIBRARIES, PeerOptions, make_row
from .rows import Job, Row, Table, answer, table_parser, title, wanted_jobs
from .rows import run_row as row_of_child
from .writing import RESULTS, table, time_text

DTYPES = ("f32", "f64")
_ROW_MARGIN_S = 900.0  # libraries compile, and arrays of the largest size are copied to every child

# Of sequences with so many sizes, and of some that differ.
Extents = tuple[tuple[int, ...], ...]
_F32: dict[int, Extents] = {
    1: ((2**26,), (2**20,), (2**15,), (1009 * 1013,)),
    2: ((8192, 8192), (4096, 4096), (1024, 1024), (256, 256), (1009, 4093)),
    3: ((256, 256, 32), (1024, 1024, 1024), (2048, 2048, 2048), (1000, 999, 1001)),
}
_F32_OF: dict[str, Extents] = {
    "madd": ((8192, 8192), (1024, 1024), (256, 256), (1009, 1013)),
    "matmul_strided": ((1024, 1024, 1024),),
}
_F64: dict[int, Extents] = {1: ((2**25,),), 2: ((4096, 4096),), 3: ((1024, 1024, 1024),)}
_QUICK = ("axpydot:n=2^15", "gemver:n=256", "sgemvt:n=256:f64", "matmul:m=256,n=256,k=32")

PROTOCOL = """Each row is made in a process of its own with no setting of OpenBLAS preset: a
calibration (of the first row only, with --no-calibrate), a search of our own with gcc (the budget is
in the row), at whose end newer versions let the other compilers build the best as well; then the best
it found, built with each compiler, beside the expert's C; "ours" is with the compiler of the result.
The expert's C is built with all passes of its compiler; of its variants, verified and timed in turn, the
fastest of each compiler competes. Then rounds of {a probe of memory; for each compiler ours and the expert's, sample by sample
in turn; each library in a child of its own; beside a strided product what a second search found for
the unstrided one}, which begin with another competitor each time. Arrays are on huge pages, touched
and warm; calls follow one another; every child has as many threads as this process has cores.
Columns are times divided by the expert's of the same round (1.00 is equal, more is slower), medians
over rounds; ± is half the inter-quartile range of ours. "Expert" is the faster of its compilers.
JAX makes new arrays for results, which is part of its time; torch.compile copies into the given ones.
A dash: not installed here, or it failed."""


def all_jobs() -> list[Job]:
    """The whole table, small sizes first: a mistake shows early."""
    jobs = [
        Job(name, sizes, dtype)
        for name in names()
        for dtype in DTYPES
        for sizes in _sizes(name, dtype)
    ]
    return sorted(jobs, key=lambda job: job.volume)


def _sizes(name: str, dtype: str) -> list[dict[str, int]]:
    keys = tuple(load(name).sizes)
    single = _F32_OF.get(name, _F32[len(keys)])
    extents = single if dtype == "f32" else _F64[len(keys)]
    return [dict(zip(keys, e, strict=True)) for e in extents]


def run_row(job: Job, options: PeerOptions) -> Row:
    """The row, made in a child. A row that fails says why."""
    return row_of_child("peers", job, options, 4 * options.seconds + _ROW_MARGIN_S)


def report(made: dict[str, Any]) -> str:
    """The table as Markdown."""
    rows: list[Row] = made["rows"]
    ok = [r for r in rows if r["status"] == "ok"]
    clang = COMPILERS[1]
    heads = ["sequence", "type", "in", "expert", "by", "ours", "± %", f"ours {clang}"]
    heads += ["expert gcc", f"expert {clang}", *(x.heading for x in LIBRARIES)]
    heads += ["memory GB/s", "evaluations", "budget s", "bar"]
    missed = missed_bars(rows)
    parts = ["# Against expert C and other libraries", ""]
    if ok:
        taken = sorted(r["stamp"]["taken"] for r in ok)
        parts += [stamp_text(ok[-1]["stamp"]), *_versions(ok[-1])]
        parts.append(
            f"- the stamp is of the last row; rows were taken from {taken[0]} to {taken[-1]}"
        )
    parts += ["", PROTOCOL, "", table(heads, [_cells(r) for r in ok]), "", *_means(ok)]
    failed = [f"- {title(r)} {r['dtype']} failed: {r['why']}" for r in rows if r["status"] != "ok"]
    absent = {key: why for r in ok for key, why in r["absent"].items()}
    gaps = [f"- not compared: {key}, {why}" for key, why in sorted(absent.items())]
    verdicts = [f"- missed: {line}" for line in missed] or (["All bars are met."] if ok else [])
    return "\n".join([*parts, "", *gaps, *failed, *verdicts, ""])


def _versions(row: Row) -> list[str]:
    libraries = ", ".join(f"{name} {v}" for name, v in sorted(row["versions"].items()))
    return [f"- compared: {libraries}; " + "; ".join(row["compilers"].values())]


def _cells(r: Row) -> list[str]:
    ratio, compiler = r["ratio"], r["expert"].partition(" ")[2]
    ours = f"ours {r['search']['compiler']}"
    variant = r["variants"][compiler].replace("-D", "")
    columns = [f"ours {COMPILERS[1]}", *(f"expert {c}" for c in COMPILERS)]
    columns += [x.key for x in LIBRARIES]
    return [
        title(r),
        r["dtype"],
        r["level"],
        time_text(r["median_ns"][r["expert"]]),
        compiler + (f", {variant}" if variant else ""),
        f"{ratio[ours]:.2f}",
        f"{100 * r['ratio_spread'][ours]:.1f}",
        *(f"{ratio[key]:.2f}" if key in ratio else "–" for key in columns),
        f"{np.median(r['memory']):.0f}",
        str(r["search"]["evaluations"]),
        f"{r['options']['seconds']:g}",
        verdict(r),
    ]


def _means(rows: Sequence[Row]) -> list[str]:
    """Geometric means of the columns by where the data are, and of the speed-up over unfused calls."""
    keys = ["ours gcc", "ours clang", *(x.key for x in LIBRARIES)]
    body = []
    for level in dict.fromkeys(r["level"] for r in rows):
        chosen = [r for r in rows if r["level"] == level and r["name"] in SEQUENCES]
        means = [_mean([r["ratio"][k] for r in chosen if k in r["ratio"]]) for k in keys]
        body.append([level, str(len(chosen)), *(f"{m:.2f}" if m else "–" for m in means)])
    lines = ["Geometric means of the 11 sequences, time over the expert's:", ""]
    lines += [table(["in", "rows", *keys], body)] if body else []
    gain = fusion_gain(rows)
    if gain is not None:
        what = f"{gain:.2f} ({', '.join(UNFUSED)})"
        lines += ["", f"Speed-up over the best unfused library calls, beyond the caches: {what}."]
    for r in rows:
        share = share_of_unstrided(r)
        if share is not None:
            what = f"{share[0]:.2f} ± {100 * share[1]:.1f} %"
            lines += ["", f"{title(r)} {r['dtype']}: {what} of the speed of the unstrided product."]
    return lines


def _mean(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values)))) if values else 0.0


def make_table(
    wanted: Sequence[Job], options: PeerOptions, again: bool, folder: Path | None
) -> list[Row]:
    """Make the rows that are missing, writing after each; all rows of the results."""
    results = Table("peers", all_jobs(), report, folder)
    missing = results.missing(wanted, again)
    rows: list[Row] = results.make(missing, lambda job: run_row(job, options), _said)["rows"]
    return rows


def _said(row: Row) -> str:
    return f"{verdict(row)}, expert {row['expert']}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = table_parser(__doc__, "NAME or NAME:n=2^20,...[:f64]")
    parser.add_argument("--quick", action="store_true", help="small rows, short searches")
    parser.add_argument("--seconds", type=float, help="of each search (60; 3 when quick)")
    parser.add_argument("--rounds", type=int, help="of the comparison (7; 2 when quick)")
    parser.add_argument("--no-calibrate", action="store_true")
    given = parser.parse_args(arguments)
    if given.child:
        return answer(given.child, PeerOptions, make_row)
    options = PeerOptions(
        seconds=given.seconds or (3.0 if given.quick else 60.0),
        rounds=given.rounds or (2 if given.quick else 7),
        seed=given.seed,
        budget_ms=20.0 if given.quick else 150.0,
        calibrate=not (given.no_calibrate or given.quick),
    )
    folder = given.results
    if given.quick and folder is None:
        folder = Path(tempfile.mkdtemp(prefix="kernelscape-peers-"))
    texts = given.only or (_QUICK if given.quick else ())
    wanted = wanted_jobs(parser, texts, all_jobs(), known=names(), dtypes=DTYPES)
    rows = make_table(wanted, options, given.again, folder)
    missed = missed_bars(rows)
    print(f"written to {folder or RESULTS}")
    print("\n".join(f"missed: {line}" for line in missed) or "all bars are met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
