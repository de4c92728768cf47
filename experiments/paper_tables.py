"""The tables of the BLAS-fusion paper and of Telamon, for our system.

    python -m kernelscape.experiments.paper_tables [--quick] [--tables fusion telamon pruning orders]

writes experiments/results/paper_tables.md after every row; tables that are not named stay
as they are in the results. The budgets are those of `FULL` (about 20 minutes on two cores), or of
`QUICK` (tiny sizes: whether it works, not what is true).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..kernels.library import load
from . import row
from .conditions import stamp
from .paper_rows import Effort, fusion_row, order_rows, pruning_row, telamon_row, warm_up
from .paper_text import report
from .rows import Job, Row
from .writing import parser_of, read_results, write_results

TABLES = ("fusion", "telamon", "pruning", "orders")
FULL = Effort(
    seconds=20.0,
    sample=32,
    exact=700_000,
    texts=2_000,
    descents=3_000,
    runs=3,
    rounds=5,
    depth=10,
    nodes=800_000,
    enough=100_000,
    random_orders=3,
    expansions=20_000,
)
QUICK = Effort(
    seconds=20.0,
    sample=3,
    exact=1_000,
    texts=500,
    descents=20,
    runs=2,
    rounds=2,
    depth=3,
    nodes=1_000,
    enough=100,
    random_orders=1,
    expansions=10,
    evaluations=3,
)
_FUSION = (
    *("axpydot", "atax", "bicgk", "sgemv", "sgemvt", "sscal"),
    *("gemver", "gesummv", "madd", "vadd", "waxpby"),
)
_CUBE = {"m": 1024, "n": 1024, "k": 1024}
_SMALL = Job("matmul", {"m": 16, "n": 16, "k": 8})

Rows = dict[str, list[Row]]
Work = Mapping[str, Sequence[Job]]
"""What each table is made of."""

KERNELS = (
    *(Job("axpy", {"n": 1 << 24}), Job("matmul", {"m": 256, "n": 256, "k": 32})),
    *(Job("matmul", _CUBE), Job("matmul_strided", _CUBE)),
)
FULL_WORK: Work = {
    "fusion": [Job(name, dict(load(name).sizes)) for name in _FUSION],
    "telamon": KERNELS,
    "pruning": KERNELS,
    "orders": (Job("matmul", _CUBE), Job("bicgk", {"m": 4096, "n": 4096})),
}
QUICK_WORK: Work = {
    "fusion": (Job("sscal", {"n": 1000}), Job("axpydot", {"n": 1000})),
    **dict.fromkeys(("telamon", "pruning", "orders"), (_SMALL,)),
}


def make(
    work: Work,
    effort: Effort,
    tables: Sequence[str],
    rows: Rows,
    tell: Callable[[str], None],
) -> Iterator[Rows]:
    """The tables, row by row, beginning with `rows` of an earlier making."""
    for kind, job in [(x, job) for x in TABLES if x in tables for job in work[x]]:
        known = _known(rows, job)
        if kind == "fusion":
            made = [fusion_row(job, effort)]
        elif kind == "telamon":
            made = [telamon_row(job, effort)]
        elif known is None:
            tell(f"{kind} {job.key}: left out, its best time is not known")
            continue
        elif kind == "pruning":
            made = [pruning_row(job, *known, effort)]
        else:
            made = order_rows(job, known[0], effort)
        for r in made:
            _put(rows, kind, r)
        tell(f"{kind} {job.key}")
        yield rows


def _put(rows: Rows, kind: str, row: Row) -> None:
    """Replace the row of the same name, or add it."""

    def key(r: Row) -> tuple[Any, ...]:
        return r["name"], tuple(r["sizes"].items()), r.get("order")

    kept = rows.setdefault(kind, [])
    for at, other in enumerate(kept):
        if key(other) == key(row):
            kept[at] = row
            return
    kept.append(row)


def _known(rows: Rows, job: Job) -> tuple[float, Row] | None:
    """The best time (the mean over explorations, or that of the fusion table) and the size of the
    space, from the tables that are there.
    """
    for r in rows.get("telamon", []):
        if Job.of(r) == job and r["status"] == "ok":
            return float(r["best_ns"]["mean"]), r["size"]
    for r in rows.get("fusion", []):
        if Job.of(r) == job:
            return float(r["best_ns"]), r["size"]
    return None


# --- the command line ----------------------------------------------------------------------------


def run(is_quick: bool, tables: Sequence[str], seed: int, folder: Path | None) -> Rows:
    """Make the tables and write them after every row."""
    device = row.cpu()
    work, effort = (QUICK_WORK, QUICK) if is_quick else (FULL_WORK, FULL)
    effort = replace(effort, seed=seed)
    kept = read_results("paper_tables", folder).get("tables", {})
    kept = {kind: made for kind, made in kept.items() if kind not in tables}
    taken = stamp(device)
    started_s = time.monotonic()

    def tell(line: str) -> None:
        print(f"{time.monotonic() - started_s:>6.0f} s  {line}", file=sys.stderr, flush=True)

    warm_up()
    rows: Rows = {kind: made["rows"] for kind, made in kept.items()}
    for found in make(work, effort, tables, rows, tell):
        now = {"stamp": taken, "effort": asdict(effort)}
        made = {kind: kept.get(kind, now) | {"rows": found[kind]} for kind in found}
        write_results("paper_tables", report, {"tables": made}, folder)
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = parser_of(__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes and budgets; needs --results"
    )
    parser.add_argument("--tables", nargs="*", choices=TABLES, default=TABLES)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    if given.quick and given.results is None:
        parser.error("--quick results mean nothing: name another folder with --results")
    run(given.quick, given.tables, given.seed, given.results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
