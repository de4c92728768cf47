"""How fast are sequences with branches, beside C that a person writes by hand?

    python -m kernelscape.experiments.bodies [--only red_black:n=512] [--seconds 30] [--again]

Rows that are in the results already are kept unless --again is given. Writes experiments/results/bodies.md after every row.
The exit status is 1 when a row fails. A row takes as long as its search, and ten seconds.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..codegen.describe import phrases
from ..codegen.lower import lower, print_source
from ..codegen.plan.reading import read_plan
from ..explorer.workload import Workload, make_workload
from ..kernels.language.kernel import kernel, types
from ..runtime.api.outcome import FINAL, Failure
from ..runtime.cpu.device import CpuDevice
from ..runtime.device import open_device
from ..runtime.records.replay import dialect_of
from ..runtime.worker.inputs import make_input_sets
from ..runtime.worker.worker import Worker
from ..search.starts.complete import complete_sketch
from ..search.starts.proposals import default_sketch
from ..space.candidate import Candidate
from .conditions import stamp
from .expert import body_source
from .measuring import built, failure_text, median, time_ns
from .rows import Job, Row, Table, answer, page, run_row, table_parser, title, wanted_jobs
from .run_row import best_found
from .writing import time_text

PROTOCOL = """Each search has a limit of time and finds its best by itself. Its best, its default and C by hand on as many threads
(experiments/expert/bodies) are then timed in turn, each in a process of its own (median of five rounds);
the results of all are verified on the same inputs."""
ROUNDS = 5
_LIMIT_S = 300.0  # of one row

nd: Any = types.ndarray()


@kernel
def sweep(z: nd, r: nd, colour: int) -> None:
    for i in range(1, z.shape[0] - 1):
        for j in range(1, z.shape[1] - 1):
            if (i + j) % 2 == colour:
                z[i, j] = 0.25 * (r[i, j] + z[i - 1, j] + z[i + 1, j] + z[i, j - 1] + z[i, j + 1])


def red_black(z: Any, r: Any) -> None:
    """A Gauss-Seidel sweep of both colours, in place."""
    sweep(z, r, 0)
    sweep(z, r, 1)


@kernel
def generation(a: nd, b: nd) -> None:
    for i in range(1, a.shape[0] - 1):
        for j in range(1, a.shape[1] - 1):
            n = a[i - 1, j - 1] + a[i - 1, j] + a[i - 1, j + 1] + a[i, j - 1] + a[i, j + 1]
            n += a[i + 1, j - 1] + a[i + 1, j] + a[i + 1, j + 1]
            if a[i, j] > 0.5:
                if n < 1.5 or n > 3.5:
                    b[i, j] = 0.0
                else:
                    b[i, j] = 1.0
            elif n > 2.5 and n < 3.5:
                b[i, j] = 1.0
            else:
                b[i, j] = 0.0


def game_of_life(a: Any, b: Any) -> None:
    """One generation."""
    generation(a, b)


@kernel
def carry(q: nd, u: nd, new: nd) -> None:
    for i in range(1, q.shape[0] - 1):
        for j in range(1, q.shape[1] - 1):
            if u[i, j] > 0.0:
                new[i, j] = q[i, j] - 0.1 * u[i, j] * (q[i, j] - q[i, j - 1])
            else:
                new[i, j] = q[i, j] - 0.1 * u[i, j] * (q[i, j + 1] - q[i, j])


def upwind(q: Any, u: Any, new: Any) -> None:
    """A step of advection along rows, with the difference on the side that the wind comes from."""
    carry(q, u, new)


@dataclass(frozen=True)
class BodySequence:
    """A sequence of this table: `n_arrays` arrays of n x n."""

    sequence: Callable[..., None]
    n_arrays: int

    def complete(self, sizes: dict[str, int]) -> dict[str, int]:
        """Sizes as `Job` has them. Raises ValueError."""
        if sizes.keys() != {"n"} or sizes["n"] < 3:
            raise ValueError("the size is n, at least 3")
        return sizes

    def workload(self, job: Job, seed: int) -> Workload:
        rng = np.random.default_rng(seed)
        shape = (job.sizes["n"], job.sizes["n"])
        dtype = np.float32 if job.dtype == "f32" else np.float64
        arrays = [rng.standard_normal(shape).astype(dtype) for _ in range(self.n_arrays)]
        name = self.sequence.__name__
        return make_workload(self.sequence, arrays, sequence=f"{__name__}:{name}", name=name)


SEQUENCES = {
    "red_black": BodySequence(red_black, 2),
    "game_of_life": BodySequence(game_of_life, 2),
    "upwind": BodySequence(upwind, 3),
}
JOBS = tuple(Job(name, {"n": n}) for name in SEQUENCES for n in (512, 509, 2048))


@dataclass(frozen=True)
class BodyOptions:
    """Options of one row."""

    seconds: float = 30.0  # of the search
    seed: int = 1


def make_row(job: Job, options: BodyOptions) -> Row:
    """What is found for a row. Raises RuntimeError where nothing was found, or something is wrong."""
    device = open_device("cpu")
    assert isinstance(device, CpuDevice)
    workload = SEQUENCES[job.name].workload(job, options.seed)
    run, best = best_found(workload, device, options.seconds, options.seed)
    space = best.space
    programs = {"best": best}
    root = space.root()
    default = complete_sketch(root, default_sketch(space)) if isinstance(root, Candidate) else None
    if default is not None:
        programs["default"] = default
    dialect = dialect_of(device)
    sources = {name: print_source(lower(c), dialect) for name, c in programs.items()}
    with contextlib.suppress(KeyError):  # nobody has written one
        cores = device.machine.facts().cores
        sources["by hand"] = body_source(workload.recording, job.sizes["n"], cores)
    artifacts = {name: built(device, s) for name, s in sources.items()}
    rng = np.random.default_rng(options.seed)
    inputs = make_input_sets(workload.recording, workload.problem, workload.arguments, rng, 2)
    protocol = replace(FINAL, budget_ns=3e8)
    # Each in a process of its own: with a library OpenMP's leaves as well, under the threads that it still has.
    for name, artifact in artifacts.items():
        with Worker(device) as one:
            one.prepare(inputs)
            outcome = one.evaluate(artifact, protocol)
            if isinstance(outcome, Failure):
                raise RuntimeError(f"{name}: {failure_text(outcome)}")
    # Threads of OpenMP and of ours stay awake for a while: in one process they would take the cores from one another.
    times: dict[str, list[float]] = {name: [] for name in artifacts}
    for _ in range(ROUNDS):
        for name, artifact in artifacts.items():
            with Worker(device) as worker:
                worker.prepare(inputs)
                memory = worker.probe()
                times[name].append(time_ns(worker.interleave([artifact], protocol)[0]))
    return {
        "times_ns": {name: median(found) for name, found in times.items()},
        "bound_ns": run.bound_ns,
        "found": run.status,
        "closed": str(run.closed),
        "guards": list(phrases(read_plan(best), "branches")),
        "stamp": stamp(device, memory),
    }


def report(made: dict[str, Any]) -> str:
    """The table as Markdown."""
    heads = [
        "sequence",
        "type",
        "found",
        "by hand",
        "found / by hand",
        "default",
        "bound",
        "ended",
        "how",
    ]
    return page("Branches", PROTOCOL, heads, _cells, made["rows"])


def _cells(r: Row) -> list[str]:
    ns = r["times_ns"]
    hand = ns.get("by hand")
    return [
        title({**r, "sizes": {"m": r["sizes"]["n"], "n": r["sizes"]["n"]}}),
        r["dtype"],
        time_text(ns["best"]),
        time_text(hand) if hand else "–",
        f"{ns['best'] / hand:.2f}" if hand else "–",
        time_text(ns["default"]) if "default" in ns else "–",
        time_text(r["bound_ns"]) if r["bound_ns"] else "–",
        r["found"],
        r["closed"] or "; ".join(r["guards"]) or "selects",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = table_parser(__doc__, "NAME or NAME:n=512[:f64]")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each search")
    given = parser.parse_args(arguments)
    if given.child:
        return answer(given.child, BodyOptions, make_row)
    if given.seconds <= 0:
        parser.error("--seconds must be positive")
    options = BodyOptions(given.seconds, given.seed)
    which = {"known": tuple(SEQUENCES), "dtypes": ("f32", "f64"), "find": SEQUENCES.__getitem__}
    wanted = wanted_jobs(parser, given.only, JOBS, **which)
    results = Table("bodies", JOBS, report, given.results)

    def make(job: Job) -> Row:
        return run_row("bodies", job, options, _LIMIT_S)

    def say(row: Row) -> str:
        return ", ".join(f"{name} {time_text(ns)}" for name, ns in row["times_ns"].items())

    rows = results.make(results.missing(wanted, given.again), make, say)["rows"]
    return 1 if any(r["status"] != "ok" for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
