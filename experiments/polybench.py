"""How fast are loops over triangles, time steps and sparse rows, beside NumPy and numba with all threads?

    python -m kernelscape.experiments.polybench [--only syrk lu:n=500] [--seconds 60] [--again]

Rows that are in the results already are kept unless --again is given. Writes experiments/results/polybench.md after every row.
The exit status is 1 when a row fails. A row takes about a minute. `--seconds 0` leaves out the searches.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..explorer.entry import explore
from .conditions import stamp, stamp_text
from .measuring import median
from .polybench_kernels import PROGRAMS, STEPS, SWEEPS
from .polybench_peers import COLUMNS, PEERS, PER_ROW, Arrays, arrays_of
from .rows import Job, Row, Table, answer, run_row, table_parser, wanted_jobs
from .writing import table, time_text

FILE = "polybench"
PROTOCOL = f"""All in f64. `call`: our kernels as they are called, with decisions by default. `found`: the sequence explored
for a limited time. NumPy uses its BLAS and LAPACK, numba `prange` and `fastmath` where that is legal.
All take turns in one process and get new copies of the arrays each time; the least time counts. "medians": how far these are
above it, of the better of theirs and of ours.
What each leaves in the arrays is compared with the others. jacobi_2d and heat_3d take {STEPS} steps of two sweeps,
seidel_2d {SWEEPS} sweeps; the sparse matrix has {PER_ROW} entries a row on average, and is multiplied by one vector or by
{COLUMNS} as a block."""
OURS, THEIRS = ("call", "found"), ("NumPy", "numba")
ROUNDS = 7
_LIMIT_S = 240.0  # of one row
_TURNS_S = 20.0  # of all rounds of a row
_REST_S = 0.02  # between two contestants: threads of the one before go to sleep
_TOLERANCE = 1e-7  # of what is compared, beside the largest element

JOBS = tuple(Job(name, {"n": p.size}, "f64") for name, p in PROGRAMS.items())


@dataclass(frozen=True)
class PolybenchOptions:
    """Options of one row."""

    seconds: float = 30.0  # of the search, of which the reference takes up to half; 0: none
    seed: int = 1


def make_row(job: Job, options: PolybenchOptions) -> Row:
    """The times of a row. Raises RuntimeError where two do not agree."""
    program = PROGRAMS[job.name]
    given = arrays_of(job.name, job.sizes["n"], np.random.default_rng(options.seed))
    runs: dict[str, Callable[..., Any]] = {"call": program.sequence, **PEERS[job.name]}
    row: Row = {}
    folder = Path(tempfile.mkdtemp(prefix="kernelscape-polybench-"))
    try:
        if options.seconds:
            run = explore(
                program.sequence,
                *given,
                time_limit=options.seconds,
                seed=options.seed,
                directory=folder / "run",
            )
            if (
                run.best is not None
            ):  # in time: else the call alone counts, and the page has no `found`
                runs["found"] = run.best.compile()
            row |= {"bound_ns": run.bound_ns, "ended": run.status, "closed": str(run.closed)}
        times = take_turns(runs, given)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    row["times_ns"] = {name: min(found) for name, found in times.items()}
    row["medians_ns"] = {name: median(found) for name, found in times.items()}
    return {**row, "stamp": stamp()}


def take_turns(runs: dict[str, Callable[..., Any]], given: Arrays) -> dict[str, list[float]]:
    """Times in ns by name, after one call that is compared with the others' and not timed. Raises RuntimeError."""
    results: dict[str, Arrays] = {}
    for name, run in runs.items():
        results[name] = tuple(a.copy() for a in given)
        run(*results[name])
    first, *others = results
    for other in others:
        for k, (x, y) in enumerate(zip(results[first], results[other], strict=True)):
            worst, largest = float(np.abs(x - y).max()), float(np.abs(y).max())
            if not worst <= _TOLERANCE * max(largest, 1.0):
                raise RuntimeError(f"{first} and {other} differ by {worst:.3g} in array {k}")
    times: dict[str, list[float]] = {name: [] for name in runs}
    began = time.monotonic()
    for _ in range(ROUNDS):
        for name, run in runs.items():
            arrays = tuple(a.copy() for a in given)
            time.sleep(_REST_S)
            started = time.perf_counter_ns()
            run(*arrays)
            times[name].append(float(time.perf_counter_ns() - started))
        if time.monotonic() - began > _TURNS_S:
            break
    return times


def speed(row: Row) -> float:
    """How many times as fast as the better of theirs the better of ours is."""
    ns = row["times_ns"]
    ours = min(ns[name] for name in OURS if name in ns)
    return float(min(ns[name] for name in THEIRS) / ours)


def report(made: dict[str, Any]) -> str:
    """The table as Markdown."""
    rows: list[Row] = made["rows"]
    good = [r for r in rows if r["status"] == "ok"]
    heads = ["program", "n", *OURS, *THEIRS, "theirs / ours", "medians", "bound", "closed"]
    parts = ["# Triangles, time steps and sparse rows", "", PROTOCOL, ""]
    if good:
        parts += [stamp_text(good[-1]["stamp"]), ""]
    parts += [table(heads, [_cells(r) for r in good]), ""]
    reached = sum(speed(r) >= 1.0 for r in good)
    parts += [
        f"- At least as fast as the better of NumPy and numba: {reached} of {len(good)} rows;"
        f" below half of its speed: {sum(speed(r) < 0.5 for r in good)}."
    ]
    parts += [f"- {r['name']} failed: {r['why']}" for r in rows if r["status"] != "ok"]
    return "\n".join([*parts, ""])


def _cells(r: Row) -> list[str]:
    ns, bound = r["times_ns"], r.get("bound_ns")
    times = [time_text(ns.get(name)) for name in (*OURS, *THEIRS)]
    closed = r.get("closed", "–").replace("|", "/")
    ratio = f"{speed(r):.2f}"
    return [r["name"], str(r["sizes"]["n"]), *times, ratio, _above(r), time_text(bound), closed]


def _above(r: Row) -> str:
    """How far the medians are above the least times, of the better of theirs and of ours."""
    ns, medians = r["times_ns"], r["medians_ns"]
    better = (min((n for n in of if n in ns), key=lambda n: ns[n]) for of in (THEIRS, OURS))
    return ", ".join(f"+{medians[n] / ns[n] - 1:.0%}" for n in better)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = table_parser(__doc__, "NAME or NAME:n=500:f64")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each search; 0: none")
    given = parser.parse_args(arguments)
    if given.child:
        return answer(given.child, PolybenchOptions, make_row)
    if given.seconds < 0:
        parser.error("--seconds must not be negative")
    options = PolybenchOptions(given.seconds, given.seed)
    which = {"known": tuple(PROGRAMS), "dtypes": ("f64",), "find": PROGRAMS.__getitem__}
    texts = [t if t.count(":") != 1 else f"{t}:f64" for t in given.only]
    wanted = wanted_jobs(parser, texts, JOBS, **which)
    results = Table(FILE, JOBS, report, given.results)

    def make(job: Job) -> Row:
        return run_row(FILE, job, options, _LIMIT_S)

    def say(row: Row) -> str:
        times = ", ".join(f"{name} {time_text(ns)}" for name, ns in row["times_ns"].items())
        return f"{times}; {speed(row):.2f}"

    rows = results.make(results.missing(wanted, given.again), make, say)["rows"]
    return 1 if any(r["status"] != "ok" for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
