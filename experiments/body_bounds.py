"""Is the bound of a sequence with branches, ranges of data or scatters above its call, and never above a time?

    python -m kernelscape.experiments.body_bounds [--only mandelbrot:n=256] [--most 12] [--again]

Rows that are in the results already are kept unless --again is given. Writes experiments/results/body_bounds.md after every row.
The exit status is 1 when a row fails or a time is below its bound. A row takes about ten seconds, and what is compiled once.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..explorer.entry import explore_workload
from ..explorer.profiling import known_profile
from ..explorer.workload import Options, Workload, make_workload
from ..kernels.language.kernel import kernel, ndrange, types
from ..runtime.device import open_device
from ..runtime.records.folder import JOURNAL
from ..runtime.records.journal import read_journal
from ..runtime.records.record import EvaluationRecord
from ..search.bound.bounder import Bounder
from ..space.build import build_space
from ..space.candidate import Candidate, Space
from . import bodies, polybench_kernels
from .conditions import stamp
from .polybench_peers import arrays_of as polybench_arrays
from .rows import Job, Row, Table, answer, page, run_row, table_parser, title, wanted_jobs
from .scatters import SEQUENCES as SCATTERS
from .taichi_scatters import arrays_of as scatter_arrays
from .writing import time_text

PROTOCOL = """Each sequence is explored for a few evaluations. "Any input" is the bound of what its bodies do whatever the arrays
hold, "this input" that with the profile of the arguments; the call alone is what both are at least. "Nearest" is the largest share
that the bound of an implementation is of its time: above 100 % the bound would be wrong."""
_LIMIT_S = 400.0  # of one row
_SEARCH_S = 120.0

nd: Any = types.ndarray()


@kernel
def escape(pixels: nd, most: int) -> None:
    for i in range(pixels.shape[0]):
        for j in range(pixels.shape[1]):
            cx, cy = 2.0 * i / pixels.shape[0] - 1.5, 2.0 * j / pixels.shape[1] - 1.0
            x, y, k = 0.0, 0.0, 0
            while x * x + y * y < 4.0 and k < most:
                t = x * x - y * y + cx
                y = 2.0 * x * y + cy
                x = t
                k += 1
            pixels[i, j] = k * 1.0


def mandelbrot(pixels: Any) -> None:
    """Steps of each pixel until it escapes."""
    escape(pixels, 200)


@kernel
def halve(x: nd, y: nd) -> None:
    for i in range(x.shape[0]):
        t = x[i]
        while t > 0.5:
            t = t * 0.5
        y[i] = t


def halvings(x: Any, y: Any) -> None:
    """A loop whose length values decide."""
    halve(x, y)


@kernel
def gather(at: nd, x: nd, y: nd) -> None:
    for i in range(y.shape[0]):
        if x[i] > 0.0:
            y[i] = x[at[i]] * 2.0
        else:
            y[i] = -x[i]


def gathered(at: Any, x: Any, y: Any) -> None:
    """Elements from anywhere, where a value says so."""
    gather(at, x, y)


@kernel
def wave(u: nd, v: nd, wall: nd) -> None:
    for i, j in ndrange((1, u.shape[0] - 1), (1, u.shape[1] - 1)):
        if wall[i, j] == 0:
            around = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]
            v[i, j] = 2.0 * u[i, j] - v[i, j] + 0.2 * (around - 4.0 * u[i, j])


def walls(u: Any, v: Any, wall: Any) -> None:
    """Two steps of a wave around cells that a value says are none of it."""
    wave(u, v, wall)
    wave(v, u, wall)


def _square(n: int, rng: np.random.Generator) -> list[Any]:
    return [np.zeros((n, n))]


def _room(n: int, rng: np.random.Generator) -> list[Any]:
    wall = (rng.random((n, n)) < 0.05).astype(np.int32)
    return [*(rng.standard_normal((n, n)).astype(np.float32) for _ in range(2)), wall]


def _two(n: int, rng: np.random.Generator) -> list[Any]:
    return [rng.uniform(0, 50, n).astype(np.float32), np.zeros(n, np.float32)]


def _anywhere(n: int, rng: np.random.Generator) -> list[Any]:
    at = rng.integers(0, n, n).astype(np.int32)
    return [at, rng.standard_normal(n).astype(np.float32), np.zeros(n, np.float32)]


@dataclass(frozen=True)
class BodyProgram:
    """A sequence, and what makes its arguments."""

    sequence: Callable[..., None]
    arguments: Callable[[int, np.random.Generator], list[Any]]

    def complete(self, sizes: dict[str, int]) -> dict[str, int]:
        """Sizes as `Job` has them. Raises ValueError."""
        if sizes.keys() != {"n"} or sizes["n"] < 8:
            raise ValueError("the size is n, at least 8")
        return sizes

    def workload(self, job: Job, seed: int) -> Workload:
        given = self.arguments(job.sizes["n"], np.random.default_rng(seed))
        name = self.sequence.__name__
        return make_workload(self.sequence, given, sequence=f"{__name__}:{name}", name=name)


def _polybench(name: str) -> BodyProgram:
    program = polybench_kernels.PROGRAMS[name].sequence
    return BodyProgram(program, lambda n, rng: list(polybench_arrays(name, n, rng)))


def _scatter(name: str) -> BodyProgram:
    program = SCATTERS[name].sequence
    return BodyProgram(program, lambda n, rng: list(scatter_arrays(name, n, 1)))


def _branches(name: str) -> BodyProgram:
    found = bodies.SEQUENCES[name]

    def arguments(n: int, rng: np.random.Generator) -> list[Any]:
        return [rng.standard_normal((n, n)).astype(np.float32) for _ in range(found.n_arrays)]

    return BodyProgram(found.sequence, arguments)


PROGRAMS = {
    "mandelbrot": BodyProgram(mandelbrot, _square),
    "halvings": BodyProgram(halvings, _two),
    "gathered": BodyProgram(gathered, _anywhere),
    "walls": BodyProgram(walls, _room),
    **{name: _scatter(name) for name in SCATTERS},
    **{name: _branches(name) for name in bodies.SEQUENCES},
    **{name: _polybench(name) for name in polybench_kernels.PROGRAMS},
}
_SIZES = {
    "mandelbrot": 512,
    "walls": 1024,
    "halvings": 1_000_000,
    "gathered": 1_000_000,
    "csr_vector": 50_000,
}
_SIZES |= {"csr_block": 20_000, "heat_3d": 40, "nussinov": 150}
_SIZES |= dict.fromkeys(SCATTERS, 50_000) | dict.fromkeys(bodies.SEQUENCES, 1024)
JOBS = tuple(Job(name, {"n": _SIZES.get(name, 200)}) for name in PROGRAMS)


@dataclass(frozen=True)
class BoundOptions:
    """Options of one row."""

    most: int = 12  # evaluations
    seed: int = 1


def make_row(job: Job, options: BoundOptions) -> Row:
    """What a search says of the bound of a row. Raises RuntimeError where nothing was found."""
    workload = PROGRAMS[job.name].workload(job, options.seed)
    device = open_device("cpu")
    target = device.machine.facts()
    space = build_space(workload.problem, target)
    told = Options(
        time_limit_s=_SEARCH_S, max_evals=options.most, seed=options.seed, input_sets=1, store=False
    )
    with tempfile.TemporaryDirectory(prefix="kernelscape-bounds-") as folder:
        run = explore_workload(workload, told, directory=Path(folder) / "run")
        records = read_journal(Path(folder) / "run" / JOURNAL)
        profile = known_profile(Path(folder) / "run")
    if run.best is None:
        raise RuntimeError(f"no implementation was found: {run.status}")
    timed = [r for r in records if isinstance(r, EvaluationRecord) and r.time_ns is not None]
    return {
        "call_ns": target.call_ns,
        "any_ns": _root_ns(space),
        "this_ns": _root_ns(space.profiled(profile)),
        "is_profiled": profile is not None,
        "best_ns": run.best.time_ns,
        "nearest": max(r.bound_ns / (r.min_ns or r.time_ns or 1.0) for r in timed),
        "evaluations": len(timed),
        "alarms": run.ended.limits.n_alarms,
        "stamp": stamp(),
    }


def _root_ns(space: Space) -> float:
    root = space.root()
    assert isinstance(root, Candidate)
    return Bounder(space).ns(root)


def report(made: dict[str, Any]) -> str:
    """The table as Markdown."""
    heads = [
        "sequence",
        "call",
        "any input",
        "this input",
        "best",
        "bound / best",
        "nearest",
        "below",
    ]
    return page("The bound of bodies", PROTOCOL, heads, _cells, made["rows"])


def _cells(r: Row) -> list[str]:
    return [
        title(r),
        time_text(r["call_ns"]),
        time_text(r["any_ns"]),
        time_text(r["this_ns"]) if r["is_profiled"] else "–",
        time_text(r["best_ns"]),
        f"{r['this_ns'] / r['best_ns']:.1%}",
        f"{r['nearest']:.1%}",
        f"{r['alarms']} of {r['evaluations']}",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = table_parser(__doc__, "NAME or NAME:n=512")
    parser.add_argument("--most", type=int, default=12, help="evaluations of each search")
    given = parser.parse_args(arguments)
    if given.child:
        return answer(given.child, BoundOptions, make_row)
    if given.most < 1:
        parser.error("--most must be at least 1")
    options = BoundOptions(given.most, given.seed)
    which = {"known": tuple(PROGRAMS), "dtypes": ("f32",), "find": PROGRAMS.__getitem__}
    wanted = wanted_jobs(parser, given.only, JOBS, **which)
    results = Table("body_bounds", JOBS, report, given.results)

    def make(job: Job) -> Row:
        return run_row("body_bounds", job, options, _LIMIT_S)

    def say(row: Row) -> str:
        return f"bound {time_text(row['this_ns'])}, best {time_text(row['best_ns'])}"

    rows = results.make(results.missing(wanted, given.again), make, say)["rows"]
    return 1 if any(r["status"] != "ok" or r["alarms"] for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
