"""How fast are loops over triangles, time steps and sparse rows, beside NumPy and numba with all threads?

    python -m kernelscape.experiments.polybench [--only syrk lu:n=500] [--seconds 60] [--again]

Rows that are in the results already are kept unless --again is given. Writes experiments/results/polybench.md after every row.
The exit status is 1 when a row fails. A row takes about a minute. `--seconds 0` leaves out the searches.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import contestants
from .conditions import stamp
from .polybench_kernels import SEQUENCES, STEPS, SWEEPS
from .polybench_peers import COLUMNS as BLOCK
from .polybench_peers import PEERS, PER_ROW, Arrays, arrays_of
from .question import Question, asked
from .row import Program
from .rows import Columns, Job, Row, page
from .writing import time_text

PROTOCOL = f"""All in f64. `call`: our kernels as they are called, with decisions by default. `found`: the sequence explored
for a limited time. NumPy uses its BLAS and LAPACK, numba `prange` and `fastmath` where that is legal.
All take turns in one process and get new copies of the arrays each time; the least time counts. "medians": how far these are
above it, of the better of theirs and of ours.
What each leaves in the arrays is compared with the others. jacobi_2d and heat_3d take {STEPS} steps of two sweeps,
seidel_2d {SWEEPS} sweeps; the sparse matrix has {PER_ROW} entries a row on average, and is multiplied by one vector or by
{BLOCK} as a block."""
THEIRS = ("NumPy", "numba")
ROUNDS = 7


def _arguments(job: Job, seed: int) -> Arrays:
    return arrays_of(job.name, job.sizes["n"], np.random.default_rng(seed))


PROGRAMS = {name: Program(f, _arguments, least=8) for name, f in SEQUENCES.items()}
_SIZES = {"heat_3d": 100, "csr_vector": 100_000, "csr_block": 100_000}
JOBS = tuple(Job(name, {"n": _SIZES.get(name, 1000)}, "f64") for name in PROGRAMS)


@dataclass(frozen=True)
class PolybenchOptions:
    """Options of one row."""

    # Of the search, of which the reference takes up to half.
    seconds: float = asked(30.0, "of each search; 0: none", least=0)
    seed: int = asked(1, least=0)


def make_row(job: Job, options: PolybenchOptions) -> Row:
    """The times of a row. Raises RuntimeError where two do not agree."""
    sequence, given = SEQUENCES[job.name], _arguments(job, options.seed)
    with contestants.best_by_search(sequence, given, options.seconds, options.seed) as (found, row):
        times = take_turns({"call": sequence, **PEERS[job.name], **found}, given)
    return {**row, **contestants.values_of(times), "stamp": stamp()}


def take_turns(runs: contestants.Runs, given: Arrays) -> contestants.Times:
    """Times in ns by name, after one call that is compared with the others' and not timed. Raises RuntimeError."""
    contestants.check_agreement(
        contestants.results_by(runs, given, lambda arrays: arrays), contestants.are_near
    )
    return contestants.timed_in_turn(runs, given, ROUNDS, {})


COLUMNS: Columns = {
    "program": lambda r: r["name"],
    "n": lambda r: str(r["sizes"]["n"]),
    **{name: contestants.time_cell(name) for name in (*contestants.OURS, *THEIRS)},
    "theirs / ours": lambda r: f"{contestants.speed(r, THEIRS):.2f}",
    "medians": lambda r: contestants.spread_text(r, THEIRS),
    "bound": lambda r: time_text(r.get("bound_ns")),
    "closed": lambda r: r.get("closed", "–").replace("|", "/"),
}


def report(made: dict[str, Any]) -> str:
    """The table as Markdown."""
    speeds = [contestants.speed(r, THEIRS) for r in made["rows"] if r["status"] == "ok"]
    return (
        page("Triangles, time steps and sparse rows", PROTOCOL, COLUMNS, made["rows"])
        + f"- At least as fast as the better of NumPy and numba: {sum(x >= 1.0 for x in speeds)} of {len(speeds)} rows;"
        f" below half of its speed: {sum(x < 0.5 for x in speeds)}.\n"
    )


QUESTION = Question(
    file="polybench",
    doc=__doc__,
    order=JOBS,
    options=PolybenchOptions,
    make=make_row,
    report=report,
    say=lambda row: contestants.said(row, THEIRS),
    dtypes=("f64",),
    works=PROGRAMS,
)
main = QUESTION.main

if __name__ == "__main__":
    sys.exit(main())
