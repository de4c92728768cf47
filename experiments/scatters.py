"""How fast are updates that iterations share: particles to a grid, a histogram, edges of a mesh?

    python -m kernelscape.experiments.scatters [--only p2g_sorted:n=200000] [--seconds 30] [--taichi PYTHON] [--again]

Rows that are in the results already are kept unless --again is given. Writes experiments/results/scatters.md after every row.
The exit status is 1 when a row fails. A row takes as long as its search, and a minute.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..codegen.describe import scatters
from ..codegen.plan.candidates import plan_of
from ..kernels.fields.matrix import Vector
from ..kernels.frontend.kernel import kernel, ndrange, static, types
from ..runtime.api.outcome import FINAL
from ..search.starts.proposals import default_sketch
from ..search.starts.sketches import Along
from ..space import choices as ch
from . import row
from .conditions import stamp
from .measuring import built
from .question import Question, asked
from .row import Program
from .rows import Columns, Job, Row, page, title
from .taichi_scatters import arrays_of
from .turns import last_said, this_package

PROTOCOL = """Each search has a limit of time and finds its best by itself. Its best, all updates made atomically by all threads,
the default (one thread), and Taichi's kernel are then timed in turn, each in a process of its own (least of the rounds).
The results of ours are verified on the same inputs. A time is that of a whole call, with the sort where there is one."""

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


def _arguments(job: Job, seed: int) -> Sequence[Any]:
    return arrays_of(job.name, job.sizes["n"], seed)


SEQUENCES = {
    "p2g_sorted": Program(p2g, _arguments),
    "p2g_unsorted": Program(p2g, _arguments),
    "histogram": Program(histogram, _arguments),
    "edges": Program(edges, _arguments),
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

    seconds: float = asked(30.0, "of each search")
    seed: int = asked(1, least=0)
    taichi: str = asked("", "a Python that has Taichi")
    rounds: int = 3
    evaluations: int | None = None  # end the search, too


def make_row(job: Job, options: ScatterOptions) -> Row:
    """What is found for a row. Raises RuntimeError where nothing was found, or something is wrong."""
    device = row.cpu()
    workload = SEQUENCES[job.name].workload(job, options.seed)
    searched = row.with_one_compiler(device, options.seconds, options.seed, options.evaluations)
    run, best = row.best_found(workload, device, searched)
    plain = default_sketch(best.space)
    atomic = replace(plain, threads=Along(scatter=ch.BY_ATOMICS))
    sketches = {"atomic": atomic, "one thread": plain}
    made = {name: row.sketched(best.space, x) for name, x in sketches.items()}
    programs = {"best": best, **{name: x for name, x in made.items() if x is not None}}
    artifacts = {name: built(device, row.text_of(x, device)) for name, x in programs.items()}
    times, memory = row.each_alone(
        device,
        artifacts,
        row.inputs_of(workload, options.seed),
        replace(FINAL, budget_ns=3e8),
        options.rounds,
        lambda: {"taichi": taichi_ns(job, options)} if options.taichi else {},
    )
    return {
        "times_ns": {name: min(found) for name, found in times.items()},
        "found": run.status,
        "how": list(scatters(plan_of(best))),
        "stamp": stamp(device, memory[-1]),
    }


def taichi_ns(job: Job, options: ScatterOptions) -> float:
    """The least time of a call in Taichi, in a process of its own. Raises RuntimeError."""
    with this_package() as (_, environment):
        command = [options.taichi, "-m", "kernelscape.experiments.taichi_scatters", job.name]
        command += ["--n", str(job.sizes["n"]), "--seed", str(options.seed)]
        return float(last_said(command, 120.0, environment)["ns"])


def _each(name: str) -> Callable[[Row], str]:
    """Nanoseconds an update."""
    return lambda r: f"{ns / r['sizes']['n']:.3g}" if (ns := r["times_ns"].get(name)) else "–"


def _ratio(name: str) -> Callable[[Row], str]:
    return lambda r: f"{ns / r['times_ns']['best']:.1f}" if (ns := r["times_ns"].get(name)) else "–"


COLUMNS: Columns = {
    "sequence": title,
    "found, ns each": _each("best"),
    "atomic": _each("atomic"),
    "one thread": _each("one thread"),
    "Taichi": _each("taichi"),
    "atomic / found": _ratio("atomic"),
    "Taichi / found": _ratio("taichi"),
    "ended": lambda r: r["found"],
    "how": lambda r: "; ".join(r["how"]),
}


def report(made: dict[str, Any]) -> str:
    """The table as Markdown."""
    return page("Scatters", PROTOCOL, COLUMNS, made["rows"])


QUESTION = Question(
    file="scatters",
    doc=__doc__,
    order=JOBS,
    options=ScatterOptions,
    make=make_row,
    report=report,
    say=lambda r: ", ".join(
        f"{name} {ns / r['sizes']['n']:.1f} ns" for name, ns in r["times_ns"].items()
    ),
    works=SEQUENCES,
)
main = QUESTION.main

if __name__ == "__main__":
    sys.exit(main())
