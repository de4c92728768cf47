"""Does a sequence of a hundred time steps cost more to explore than one of two, and how fast is what is found beside numba?

    python -m kernelscape.experiments.time_loops [--only jacobi_2d-100 ...] [--seconds 15] [--again]

Writes experiments/results/time_loops.md after every row; rows that are there are kept unless --again is given. The exit status is 1
when a row fails. A row takes up to a minute.
"""

# mypy: disable-error-code="valid-type"

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
from ..kernels.language.kernel import kernel
from ..kernels.language.record import record_sequence
from ..kernels.tasks.pipeline import normalise
from ..search.bound.bounder import Bounder
from ..space.build import build_space
from ..space.candidate import Candidate
from ..testing.checking import TARGET
from .conditions import stamp, stamp_text
from .measuring import median
from .polybench import take_turns
from .polybench_kernels import STEPS, five_points, nd, seven_points
from .polybench_peers import PEERS, Arrays, arrays_of
from .rows import Job, Row, Table, answer, run_row, table_parser
from .writing import table, time_text

FILE = "time_loops"
PROTOCOL = """Steps of PolyBench's jacobi_2d and heat_3d, two sweeps each, in f64; `swapped` takes as many sweeps of jacobi_2d
and exchanges its arrays, `sourced` adds to the row that has the number of the step. Build, root, descent and bound are of the
space: the median descent of random decisions, by propagation alone. `found` is the best of a search of limited time, `numba`
has `prange` loops in a loop of Python. Both take turns in one process, and the least time counts."""
_LIMIT_S = 240.0  # of one row
FEW = 2
JOBS = tuple(
    Job(name, {"n": n, "steps": steps}, "f64")
    for name, n in (("jacobi_2d", 1000), ("heat_3d", 100), ("swapped", 1000), ("sourced", 1000))
    for steps in (FEW, STEPS)
)


@dataclass(frozen=True)
class Options:
    """Options of one row."""

    seconds: float = 15.0  # of the search; 0: none
    seed: int = 1
    descents: int = 20


@kernel
def add_source(a: nd, t: int) -> None:
    """A source that moves on by a row in each step."""
    for j in range(a.shape[1]):
        a[t + 1, j] += 0.5


def sequence_of(name: str, steps: int) -> Callable[[Any, Any], None]:
    """The sequence of a row."""
    sweep = seven_points if name == "heat_3d" else five_points

    def there_and_back(a: Any, b: Any) -> None:
        for _ in range(steps):
            sweep(a, b)
            sweep(b, a)

    def swapped(a: Any, b: Any) -> None:
        for _ in range(2 * steps):
            sweep(a, b)
            a, b = b, a

    def sourced(a: Any, b: Any) -> None:
        for t in range(steps):
            sweep(a, b)
            sweep(b, a)
            add_source(a, t)

    return {"swapped": swapped, "sourced": sourced}.get(name, there_and_back)


def make_row(job: Job, options: Options) -> Row:
    """One row. Raises RuntimeError where nothing is found, or what is found differs from numba."""
    steps, n = job.sizes["steps"], job.sizes["n"]
    same = "jacobi_2d" if job.name in ("swapped", "sourced") else job.name
    has_peer = steps == STEPS and job.name != "sourced"
    given = arrays_of(same, n, np.random.default_rng(options.seed))
    sequence = sequence_of(job.name, steps)
    _space(sequence_of(job.name, FEW), given, options)  # what is compiled once
    row = _space(sequence, given, options)
    if options.seconds:
        row |= _found(sequence, given, options, PEERS[same]["numba"] if has_peer else None)
    return {**row, "stamp": stamp()}


def _space(sequence: Callable[..., None], given: Arrays, options: Options) -> Row:
    began = time.perf_counter()
    problem = normalise(record_sequence(sequence, given))
    recorded = time.perf_counter()
    space = build_space(problem, TARGET)
    built = time.perf_counter()
    root = space.root()
    rooted = time.perf_counter()
    assert isinstance(root, Candidate)
    rng = np.random.default_rng(options.seed)
    bounder, descents, bounds = Bounder(space), [], []
    for _ in range(options.descents):
        at = time.perf_counter()
        root.random_completion(rng)
        done = time.perf_counter()
        bounder.ns(root)
        descents.append(done - at)
        bounds.append(time.perf_counter() - done)
    return {
        "n_tasks": len(problem.tasks),
        "n_choices": space.n_choices,
        "record_ms": 1e3 * (recorded - began),
        "build_ms": 1e3 * (built - recorded),
        "root_ms": 1e3 * (rooted - built),
        "descent_ms": 1e3 * median(descents),
        "bound_us": 1e6 * median(bounds),
    }


def _found(
    sequence: Callable[..., None], given: Arrays, options: Options, peer: Callable[..., Any] | None
) -> Row:
    folder = Path(tempfile.mkdtemp(prefix="kernelscape-time-loops-"))
    try:
        run = explore(
            sequence,
            *given,
            time_limit=options.seconds,
            seed=options.seed,
            directory=folder / "run",
        )
        if run.best is None:
            raise RuntimeError(f"no implementation was found: {run.status}")
        runs = {"found": run.best.compile()} | ({} if peer is None else {"numba": peer})
        times = take_turns(runs, given)
        counted = {"n_evaluations": run.ended.effort.n_evaluations, "bound_ns": run.bound_ns}
        return counted | {"times_ns": {name: min(found) for name, found in times.items()}}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def report(made: dict[str, Any]) -> str:
    """The table as Markdown."""
    rows: list[Row] = made["rows"]
    good = [r for r in rows if r["status"] == "ok"]
    heads = ["sequence", "n", "steps", "tasks", "choices", "record ms", "build ms", "root ms"]
    heads += ["descent ms", "bound us", "evaluations", "found", "numba", "numba / found", "bound"]
    parts = ["# Time loops: exploring two steps and a hundred", "", PROTOCOL, ""]
    if good:
        parts += [stamp_text(good[-1]["stamp"]), ""]
    parts += [table(heads, [_cells(r) for r in good]), ""]
    parts += [f"- {r['name']} failed: {r['why']}" for r in rows if r["status"] != "ok"]
    return "\n".join([*parts, ""])


def _cells(r: Row) -> list[str]:
    measured = [f"{r[k]:.2f}" for k in ("record_ms", "build_ms", "root_ms", "descent_ms")]
    ns = r.get("times_ns", {})
    ratio = f"{ns['numba'] / ns['found']:.2f}" if "numba" in ns else "–"
    return [
        *(r["name"], str(r["sizes"]["n"]), str(r["sizes"]["steps"])),
        *(str(r["n_tasks"]), str(r["n_choices"]), *measured, f"{r['bound_us']:.1f}"),
        str(r.get("n_evaluations", "–")),
        *(time_text(ns.get("found")), time_text(ns.get("numba")), ratio),
        time_text(r.get("bound_ns")),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = table_parser(__doc__, "rows, as jacobi_2d-100 (default: all)")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each search; 0: none")
    given = parser.parse_args(arguments)
    if given.child:
        return answer(given.child, Options, make_row)
    by_name = {f"{job.name}-{job.sizes['steps']}": job for job in JOBS}
    unknown = [name for name in given.only if name not in by_name]
    if unknown:
        parser.error(f"there is no row {unknown[0]}: there are {', '.join(by_name)}")
    options = Options(given.seconds, given.seed)
    results = Table(FILE, JOBS, report, given.results)
    wanted = results.missing([by_name[name] for name in given.only] or list(JOBS), given.again)

    def make(job: Job) -> Row:
        return run_row(FILE, job, options, _LIMIT_S)

    def say(row: Row) -> str:
        return ", ".join(f"{name} {time_text(ns)}" for name, ns in row.get("times_ns", {}).items())

    rows = results.make(wanted, make, say)["rows"]
    return 1 if any(r["status"] != "ok" for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
