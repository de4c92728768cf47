"""How fast are kernels that people tune today, beside numba and JAX with all threads?

    python -m kernelscape.experiments.today --jax PYTHON [--only softmax gelu:n=65536] [--seconds 60] [--piece 15] [--again]

`--jax` is the interpreter of an environment that has JAX; it needs nothing of ours. Rows that are in the results already are kept
unless --again is given. Writes experiments/results/today.md after every row. The exit status is 1 where a row fails or is below 0.9
of the better peer, or the geometric mean of all rows is below 1.5. A row takes about two minutes. `--seconds 0` leaves out the
searches.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np

from . import contestants
from .conditions import stamp, versions_in
from .question import Question, asked
from .row import Program
from .rows import Columns, Job, Row, page
from .today_arrays import ROWS, STEPS, Array, arrays_of, results_of
from .today_kernels import SEQUENCES
from .today_peers import NUMBA
from .turns import this_package
from .writing import time_text

PROTOCOL = f"""All in f32, images in u8. `call`: our kernels as they are called, with decisions by default. `found`: the sequence
explored, for as long as `searched` says. numba uses `prange` and `fastmath`, JAX whole arrays under `jit`; JAX has a process of its
own, and its arrays on the device. All take turns, one at a time, and ours and numba's get new copies of the arrays each time; the
least time counts. "medians": how far these are above it, of the better of theirs and of ours. Results are compared with numba's; of
monte_carlo, whose random numbers differ, their mean.
gray_scott, lattice_boltzmann and page_rank take {STEPS} steps."""
THEIRS = ("numba", "JAX")
GOAL, LEAST = 1.5, 0.9  # of the geometric mean, and of each row
ROUNDS = 15
_RANDOM = 0.05  # of the mean price by random paths
_FEW = 1e-3  # of whole numbers, which may differ where rounding decides


def _arguments(job: Job, seed: int) -> tuple[Array, ...]:
    return arrays_of(job.name, job.sizes["n"], np.random.default_rng(seed))


PROGRAMS = {name: Program(SEQUENCES[work], _arguments) for name, (work, _) in ROWS.items()}
JOBS = tuple(Job(name, {"n": n}, "f32") for name, (_, sizes) in ROWS.items() for n in sizes)


@dataclass(frozen=True)
class TodayOptions:
    """Options of one row."""

    seconds: float = asked(60.0, "of each search; 0: none", least=0)
    seed: int = asked(1, least=0)
    jax: str = asked("", "the Python of an environment with JAX")


def make_row(job: Job, options: TodayOptions) -> Row:
    """The times of a row. Raises RuntimeError where two do not agree."""
    work, _ = ROWS[job.name]
    sequence, given = SEQUENCES[work], _arguments(job, options.seed)
    search = contestants.best_by_search(sequence, given, options.seconds, options.seed)
    with tempfile.TemporaryDirectory(prefix="kernelscape-today-") as folder, search as (found, row):
        runs = {"numba": NUMBA[work], "call": sequence, **found}
        jax = _in_jax(job, options, Path(folder)) if options.jax else nullcontext()
        with jax as server:
            times = take_turns(job.name, runs, given, server)
    if options.jax:
        row["versions"] = versions_in({"jax": options.jax})
    return {**row, **contestants.values_of(times), "stamp": stamp()}


class JaxServer:
    """A process that holds the arrays of a row, and runs it in JAX when it is asked; `results`: those of its first run."""

    def __init__(self, process: subprocess.Popen[str], results: Path) -> None:
        self._process, self._results = process, results
        if self._said() != "ready":
            raise RuntimeError("JAX did not begin")

    @property
    def results(self) -> tuple[Array, ...]:
        with np.load(self._results) as held:
            return tuple(held[name] for name in held.files)

    def time_ns(self) -> float:
        """Runs the row once."""
        assert self._process.stdin is not None
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        return float(self._said())

    def _said(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            assert self._process.stderr is not None
            raise RuntimeError(f"JAX ended: {(self._process.stderr.read().split() or ['?'])[-1]}")
        return line


@contextmanager
def _in_jax(job: Job, options: TodayOptions, folder: Path) -> Iterator[JaxServer]:
    """The server of a row, as long as this lasts."""
    module, results = "kernelscape.experiments.today_jax", folder / "results.npz"
    given = [job.name, str(job.sizes["n"]), str(options.seed), str(results)]
    with this_package() as (_, environment):
        process = subprocess.Popen(
            [options.jax, "-m", module, *given],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield JaxServer(process, results)
        finally:
            process.kill()
            process.communicate()


def take_turns(
    name: str, runs: contestants.Runs, given: Sequence[Array], jax: JaxServer | None = None
) -> contestants.Times:
    """Times in ns by contestant, after one call whose results are compared and which is not timed. Raises RuntimeError."""
    results = contestants.results_by(runs, given, lambda arrays: results_of(name, arrays))
    if jax is not None:
        results["JAX"] = jax.results
    contestants.check_agreement(results, _are_alike if name == "monte_carlo" else are_near)
    return contestants.timed_in_turn(
        runs, given, ROUNDS, {} if jax is None else {"JAX": jax.time_ns}
    )


def are_near(x: Array, y: Array) -> bool:
    """True if two results are equal but for rounding, which may decide a few whole numbers."""
    return contestants.are_near(x, y, _FEW if x.dtype.kind in "iu" else 0.0)


def _are_alike(x: Array, y: Array) -> bool:
    """True if the means of two results differ by no more than random numbers explain."""
    return abs(float(x.mean()) - float(y.mean())) <= _RANDOM * abs(float(x.mean()))


def missed(made: Sequence[Row]) -> list[str]:
    """Rows that failed, lack a peer or are too slow; and the mean, if it is too small."""
    lines = [f"{Job.of(r).key} failed: {r['why']}" for r in made if r["status"] != "ok"]
    good = [r for r in made if r["status"] == "ok"]
    for r in good:
        lines += [f"{Job.of(r).key} without {x}" for x in THEIRS if x not in r["times_ns"]]
        if contestants.speed(r, THEIRS) < LEAST:
            lines.append(f"{Job.of(r).key}: {contestants.speed(r, THEIRS):.2f} of the better peer")
    mean = geometric_mean([contestants.speed(r, THEIRS) for r in good]) if good else GOAL
    return [*lines, *([f"geometric mean {mean:.2f}"] if mean < GOAL else [])]


COLUMNS: Columns = {
    "workload": lambda r: r["name"],
    "n": lambda r: str(r["sizes"]["n"]),
    **{name: contestants.time_cell(name) for name in (*contestants.OURS, *THEIRS)},
    "theirs / ours": lambda r: f"{contestants.speed(r, THEIRS):.2f}",
    "medians": lambda r: contestants.spread_text(r, THEIRS),
    "bound": lambda r: time_text(r.get("bound_ns")),
    "searched": lambda r: f"{r['options']['seconds']:.0f} s",
    "non-affine": lambda r: r.get("closed", "–").replace("|", "/"),
}


def report(made: dict[str, Any]) -> str:
    """The table as Markdown."""
    good = [contestants.speed(r, THEIRS) for r in made["rows"] if r["status"] == "ok"]
    mean = f"{geometric_mean(good):.2f}" if good else "–"
    return (
        page("Kernels that people tune today", PROTOCOL, COLUMNS, made["rows"])
        + f"- Geometric mean of the better peer's time over ours: {mean} of {len(good)} rows;"
        f" below {LEAST}: {sum(x < LEAST for x in good)}.\n"
    )


QUESTION = Question(
    file="today",
    doc=__doc__,
    order=JOBS,
    options=TodayOptions,
    make=make_row,
    report=report,
    say=lambda row: contestants.said(row, THEIRS),
    missed=missed,
    works=PROGRAMS,
)
main = QUESTION.main

if __name__ == "__main__":
    sys.exit(main())
