"""How fast are loops over triangles, time steps and sparse rows, beside NumPy and numba with all threads?

    python -m kernelscape.experiments.polybench [--only syrk lu:n=500] [--seconds 60] [--again]

Rows that are in the results already are kept unless --again is given. Writes experiments/results/polybench.md after every row.
The exit status is 1 when a row fails. A row takes about a minute. `--seconds 0` leaves out the searches.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..explorer.entry import explore
from .conditions import stamp
from .measuring import median
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
OURS, THEIRS = ("call", "found"), ("NumPy", "numba")
ROUNDS = 7
_TURNS_S = 20.0  # of all rounds of a row
_REST_S = 0.02  # between two contestants: threads of the one before go to sleep
_TOLERANCE = 1e-7  # of what is compared, beside the largest element


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
    runs: dict[str, Callable[..., Any]] = {"call": sequence, **PEERS[job.name]}
    row: Row = {}
    with tempfile.TemporaryDirectory(prefix="kernelscape-polybench-") as folder:
        if options.seconds:
            run = explore(
                sequence,
                *given,
                time_limit=options.seconds,
                seed=options.seed,
                directory=Path(folder) / "run",
            )
            # In time: else the call alone counts, and the page has no `found`.
            if run.best is not None:
                runs["found"] = run.best.compile()
            row |= {"bound_ns": run.bound_ns, "ended": run.status, "closed": str(run.non_affine)}
        times = take_turns(runs, given)
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


def _above(r: Row) -> str:
    """How far the medians are above the least times, of the better of theirs and of ours."""
    ns, medians = r["times_ns"], r["medians_ns"]
    better = (min((n for n in of if n in ns), key=lambda n: ns[n]) for of in (THEIRS, OURS))
    return ", ".join(f"+{medians[n] / ns[n] - 1:.0%}" for n in better)


def _time(name: str) -> Callable[[Row], str]:
    return lambda r: time_text(r["times_ns"].get(name))


COLUMNS: Columns = {
    "program": lambda r: r["name"],
    "n": lambda r: str(r["sizes"]["n"]),
    **{name: _time(name) for name in (*OURS, *THEIRS)},
    "theirs / ours": lambda r: f"{speed(r):.2f}",
    "medians": _above,
    "bound": lambda r: time_text(r.get("bound_ns")),
    "closed": lambda r: r.get("closed", "–").replace("|", "/"),
}


def report(made: dict[str, Any]) -> str:
    """The table as Markdown."""
    speeds = [speed(r) for r in made["rows"] if r["status"] == "ok"]
    return (
        page("Triangles, time steps and sparse rows", PROTOCOL, COLUMNS, made["rows"])
        + f"- At least as fast as the better of NumPy and numba: {sum(x >= 1.0 for x in speeds)} of {len(speeds)} rows;"
        f" below half of its speed: {sum(x < 0.5 for x in speeds)}.\n"
    )


def _said(r: Row) -> str:
    times = ", ".join(f"{name} {time_text(ns)}" for name, ns in r["times_ns"].items())
    return f"{times}; {speed(r):.2f}"


QUESTION = Question(
    file="polybench",
    doc=__doc__,
    order=JOBS,
    options=PolybenchOptions,
    make=make_row,
    report=report,
    say=_said,
    dtypes=("f64",),
    works=PROGRAMS,
)
main = QUESTION.main

if __name__ == "__main__":
    sys.exit(main())
