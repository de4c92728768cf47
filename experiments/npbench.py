"""How fast are NPBench's programs, beside NumPy and numba with all threads?

    python -m kernelscape.experiments.npbench [--only gemm lu:n=500] [--seconds 15] [--piece 15] [--again]

Rows that are in the results already are kept unless --again is given. Writes experiments/results/npbench.md after every row.
The exit status is 1 where a row fails, a search finds nothing, or ours are not faster than the better of NumPy and numba.
A row takes about a minute. `--seconds 0` leaves out the searches.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

import numpy as np

from . import contestants
from .conditions import stamp
from .npbench_programs import PROGRAMS
from .question import Question, asked, failures
from .rows import Columns, Job, Row, page
from .writing import time_text

PROTOCOL = """In f64, layers of neural networks in f32, at sizes of NPBench's presets S and M.
`call`: our kernels as they are called, with decisions by default. `found`: the sequence explored, for as long as `searched` says.
NumPy uses its BLAS and LAPACK, numba `prange` and `fastmath` where that is legal.
All take turns in one process and get new copies of the arrays each time; the least time counts. "medians": how far these are
above it, of the better of theirs and of ours. Results are compared with those of `call`.
"candidates": those that the search evaluated; "first result": seconds from its beginning to the first time."""
THEIRS = ("NumPy", "numba")
ROUNDS = 7

JOBS = tuple(Job(name, dict(p.sizes), p.dtype) for name, p in PROGRAMS.items())


@dataclass(frozen=True)
class NpbenchOptions:
    """Options of one row."""

    seconds: float = asked(15.0, "of each search; 0: none", least=0)
    seed: int = asked(1, least=0)


def make_row(job: Job, options: NpbenchOptions) -> Row:
    """The times of a row. Raises RuntimeError where two do not agree."""
    program = PROGRAMS[job.name]
    given = program.arrays(job.sizes, np.random.default_rng(options.seed), job.dtype)
    forms = program.forms(job.sizes)
    search = contestants.best_by_search(forms["call"], given, options.seconds, options.seed)
    with search as (found, row):
        runs = forms | found
        results = contestants.results_by(runs, given, program.of)
        noise = contestants.noise_of(runs["NumPy"], given, program.of)
        contestants.check_agreement(results, program.agrees, noise)
        times = contestants.timed_in_turn(runs, given, ROUNDS, {})
    return {**row, **contestants.values_of(times), "stamp": stamp()}


def _found_nothing(row: Row) -> bool:
    return "candidates" in row and "found" not in row["times_ns"]


def missed(made: Sequence[Row]) -> list[str]:
    """Rows that failed, found nothing or are too slow."""
    lines = failures(made)
    for r in made:
        if r["status"] == "ok":
            ratio = contestants.speed(r, THEIRS)
            lines += [f"{Job.of(r).key}: nothing valid was found"] * _found_nothing(r)
            lines += [f"{Job.of(r).key}: {ratio:.2f} of the better peer"] * (ratio < 1.0)
    return lines


COLUMNS: Columns = {
    "program": lambda r: r["name"],
    "sizes": lambda r: ", ".join(f"{k} {v}" for k, v in r["sizes"].items()),
    **{name: contestants.time_cell(name) for name in (*contestants.OURS, *THEIRS)},
    "theirs / ours": lambda r: f"{contestants.speed(r, THEIRS):.2f}",
    "medians": lambda r: contestants.spread_text(r, THEIRS),
    "searched": lambda r: f"{r['options']['seconds']:.0f} s",
    "candidates": lambda r: str(r.get("candidates", "–")),
    "first result": lambda r: f"{s:.1f} s" if (s := r.get("first_s")) is not None else "–",
    "bound": lambda r: time_text(r.get("bound_ns")),
    "non-affine": lambda r: r.get("closed", "–").replace("|", "/"),
}


def report(made: dict[str, Any]) -> str:
    """The table as Markdown."""
    good = [r for r in made["rows"] if r["status"] == "ok"]
    speeds = [contestants.speed(r, THEIRS) for r in good]
    mean = f"{geometric_mean(speeds):.2f}" if speeds else "–"
    return (
        page("The programs of NPBench", PROTOCOL, COLUMNS, made["rows"])
        + f"- Ahead of the better of NumPy and numba: {sum(x > 1.0 for x in speeds)} of {len(good)} rows, of {len(JOBS)} programs;"
        f" geometric mean of its time over ours: {mean}; searches that found nothing: {sum(map(_found_nothing, good))}.\n"
    )


QUESTION = Question(
    file="npbench",
    doc=__doc__,
    order=JOBS,
    options=NpbenchOptions,
    make=make_row,
    report=report,
    say=lambda row: contestants.said(row, THEIRS),
    missed=missed,
    dtypes=("f64", "f32"),
    works=PROGRAMS,
)
main = QUESTION.main

if __name__ == "__main__":
    sys.exit(main())
