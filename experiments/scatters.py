"""How fast are updates that iterations share: particles to a grid, a histogram, edges of a mesh?

    python -m kernelscape.experiments.scatters [--only p2g_sorted:n=200000] [--seconds 30] [--taichi PYTHON] [--again]

Rows that are in the results already are kept unless --again is given. Writes experiments/results/scatters.md after every row.
The exit status is 1 when a row fails. A row takes as long as its search, and a minute.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..codegen.describe import scatters
from ..codegen.lower import lower, print_source
from ..codegen.plan.reading import read_plan
from ..explorer.workload import Workload, make_workload
from ..kernels.fields.matrix import Vector
from ..kernels.language.kernel import kernel, ndrange, static, types
from ..runtime.api.outcome import FINAL, Failure
from ..runtime.cpu.device import CpuDevice
from ..runtime.device import open_device
from ..runtime.records.replay import dialect_of
from ..runtime.worker.inputs import make_input_sets
from ..runtime.worker.worker import Worker
from ..search.starts.complete import complete_sketch
from ..search.starts.proposals import default_sketch
from ..search.starts.sketches import Along
from ..space import choices as ch
from ..space.candidate import Candidate
from .conditions import stamp
from .measuring import built, failure_text, time_ns
from .rows import Job, Row, Table, answer, page, run_row, table_parser, title, wanted_jobs
from .run_row import best_found
from .taichi_scatters import arrays_of

PROTOCOL = """Each search has a limit of time and finds its best by itself. Its best, all updates made atomically by all threads,
the default (one thread), and Taichi's kernel are then timed in turn, each in a process of its own (least of the rounds).
The results of ours are verified on the same inputs. A time is that of a whole call, with the sort where there is one."""
_LIMIT_S = 400.0  # of one row
_TAICHI_S = 120.0  # of one of its processes

nd: Any = types.ndarray()
vector: Any = Vector  # in a kernel its values are numbers


@kernel
def transfer(x: nd, q: nd, grid: nd) -> None:
    n = grid.shape[0]
    for p in range(x.shape[0]):
        bx, by, bz = int(x[p, 0] * n - 0.5), int(x[p, 1] * n - 0.5), int(x[p, 2] * n - 0.5)
        f = vector([x[p, 0] * n - bx, x[p, 1] * n - by, x[p, 2] * n - bz])
        w = [0.5 * (1.5 - f) ** 2, 0.75 - (f - 1.0) ** 2, 0.5 * (f - 0.5) ** 2]
        for i, j, k in static(ndrange(3, 3, 3)):
            weight = w[i][0] * w[j][1] * w[k][2]
            for d in range(4):
                grid[bx + i, by + j, bz + k, d] += weight * q[p, d]


def p2g(x: Any, q: Any, grid: Any) -> None:
    """Momentum and mass of particles to the 27 nodes around them, with quadratic B-splines."""
    transfer(x, q, grid)


@kernel
def count(key: nd, bins: nd) -> None:
    for i in range(key.shape[0]):
        bins[key[i]] += 1


def histogram(key: Any, bins: Any) -> None:
    """How often each key occurs."""
    count(key, bins)


@kernel
def flux(edge: nd, u: nd, f: nd) -> None:
    for e in range(edge.shape[0]):
        s = u[edge[e, 1]] - u[edge[e, 0]]
        f[edge[e, 0]] += s
        f[edge[e, 1]] -= s


def edges(edge: Any, u: Any, f: Any) -> None:
    """Differences along the edges of a mesh, added up at both ends."""
    flux(edge, u, f)


@dataclass(frozen=True)
class ScatterSequence:
    """A sequence of this table."""

    sequence: Callable[..., None]

    def complete(self, sizes: dict[str, int]) -> dict[str, int]:
        """Sizes as `Job` has them. Raises ValueError."""
        if sizes.keys() != {"n"} or sizes["n"] < 3:
            raise ValueError("the size is n, at least 3")
        return sizes

    def workload(self, job: Job, seed: int) -> Workload:
        name = self.sequence.__name__
        given = arrays_of(job.name, job.sizes["n"], seed)
        return make_workload(self.sequence, given, sequence=f"{__name__}:{name}", name=name)


SEQUENCES = {
    "p2g_sorted": ScatterSequence(p2g),
    "p2g_unsorted": ScatterSequence(p2g),
    "histogram": ScatterSequence(histogram),
    "edges": ScatterSequence(edges),
}
JOBS = (
    Job("p2g_sorted", {"n": 200_000}),
    Job("p2g_unsorted", {"n": 200_000}),
    Job("histogram", {"n": 1 << 22}),
    Job("edges", {"n": 1 << 20}),
)


@dataclass(frozen=True)
class ScatterOptions:
    """How one row is made. `taichi` is a Python that has it; "": without."""

    seconds: float = 30.0  # of the search
    seed: int = 1
    taichi: str = ""
    rounds: int = 3
    evaluations: int | None = None  # end the search, too


def make_row(job: Job, options: ScatterOptions) -> Row:
    """What is found for a row. Raises RuntimeError where nothing was found, or something is wrong."""
    device = open_device("cpu")
    assert isinstance(device, CpuDevice)
    workload = SEQUENCES[job.name].workload(job, options.seed)
    run, best = best_found(workload, device, options.seconds, options.seed, options.evaluations)
    space = best.space
    root, plain = space.root(), default_sketch(space)
    assert isinstance(root, Candidate)
    atomic = replace(plain, threads=Along(scatter=ch.BY_ATOMICS))
    made = {"atomic": complete_sketch(root, atomic), "one thread": complete_sketch(root, plain)}
    programs = {"best": best, **{name: x for name, x in made.items() if x is not None}}
    dialect = dialect_of(device)
    artifacts = {n: built(device, print_source(lower(x), dialect)) for n, x in programs.items()}
    inputs = make_input_sets(
        workload.recording,
        workload.problem,
        workload.arguments,
        np.random.default_rng(options.seed),
        2,
    )
    protocol = replace(FINAL, budget_ns=3e8)
    times: dict[str, list[float]] = {name: [] for name in artifacts}
    for k in range(options.rounds):
        for name, artifact in artifacts.items():
            with Worker(device) as worker:
                worker.prepare(inputs)
                outcome = worker.evaluate(artifact, protocol) if k == 0 else None
                if isinstance(outcome, Failure):
                    raise RuntimeError(f"{name}: {failure_text(outcome)}")
                memory = worker.probe()
                times[name].append(time_ns(worker.interleave([artifact], protocol)[0]))
        if options.taichi:
            times.setdefault("taichi", []).append(taichi_ns(job, options))
    return {
        "times_ns": {name: min(found) for name, found in times.items()},
        "found": run.status,
        "how": list(scatters(read_plan(best))),
        "stamp": stamp(device, memory),
    }


def taichi_ns(job: Job, options: ScatterOptions) -> float:
    """The least time of a call in Taichi, in a process of its own. Raises RuntimeError."""
    with tempfile.TemporaryDirectory(prefix="kernelscape-scatters-") as scratch:
        (Path(scratch) / "kernelscape").symlink_to(Path(__file__).resolve().parents[1])
        command = [options.taichi, "-m", "kernelscape.experiments.taichi_scatters", job.name]
        command += ["--n", str(job.sizes["n"]), "--seed", str(options.seed)]
        more = {"PYTHONPATH": scratch, "TI_ARCH": "x64", "TI_LOG_LEVEL": "error"}
        try:
            done = subprocess.run(
                command,
                env=os.environ | more,
                capture_output=True,
                text=True,
                timeout=_TAICHI_S,
            )
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"Taichi: no end within {_TAICHI_S:.0f} s") from None
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no word"])[-1]
        raise RuntimeError(f"Taichi: {said}")
    return float(json.loads(done.stdout.strip().splitlines()[-1])["ns"])


def report(made: dict[str, Any]) -> str:
    """The table as Markdown."""
    heads = ["sequence", "found, ns each", "atomic", "one thread", "Taichi", "atomic / found"]
    heads += ["Taichi / found", "ended", "how"]
    return page("Scatters", PROTOCOL, heads, _cells, made["rows"])


def _cells(r: Row) -> list[str]:
    ns, n = r["times_ns"], r["sizes"]["n"]

    def each(name: str) -> str:
        return f"{ns[name] / n:.3g}" if name in ns else "–"

    def ratio(name: str) -> str:
        return f"{ns[name] / ns['best']:.1f}" if name in ns else "–"

    names = ("best", "atomic", "one thread", "taichi")
    ratios = (ratio("atomic"), ratio("taichi"))
    return [title(r), *map(each, names), *ratios, r["found"], "; ".join(r["how"])]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = table_parser(__doc__, "NAME or NAME:n=200000")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each search")
    parser.add_argument("--taichi", default="", help="a Python that has Taichi")
    given = parser.parse_args(arguments)
    if given.child:
        return answer(given.child, ScatterOptions, make_row)
    if given.seconds <= 0:
        parser.error("--seconds must be positive")
    options = ScatterOptions(given.seconds, given.seed, given.taichi)
    which = {"known": tuple(SEQUENCES), "find": SEQUENCES.__getitem__}
    wanted = wanted_jobs(parser, given.only, JOBS, **which)
    results = Table("scatters", JOBS, report, given.results)

    def make(job: Job) -> Row:
        row = run_row("scatters", job, options, _LIMIT_S)
        # Results hold no path of a machine.
        return row | {"options": row["options"] | {"taichi": Path(options.taichi).name}}

    def say(row: Row) -> str:
        n = row["sizes"]["n"]
        return ", ".join(f"{name} {ns / n:.1f} ns" for name, ns in row["times_ns"].items())

    rows = results.make(results.missing(wanted, given.again), make, say)["rows"]
    return 1 if any(r["status"] != "ok" for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
