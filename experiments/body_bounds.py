"""Is the bound of a sequence with branches, ranges of data or scatters above its call, and never above a time?

    python -m kernelscape.experiments.body_bounds [--only mandelbrot:n=256] [--most 12] [--again]

Rows that are in the results already are kept unless --again is given. Writes experiments/results/body_bounds.md after every row.
The exit status is 1 when a row fails or a time is below its bound. A row takes about ten seconds, and what is compiled once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..explorer.profiling import known_profile
from ..explorer.workload import Options
from ..kernels.frontend.kernel import kernel, ndrange, types
from ..search.bound.bounder import Bounder
from ..space.candidate import Space
from ..testing.machines import root_of
from . import bodies, polybench, row, scatters
from .conditions import stamp
from .question import Question, asked, failures
from .row import Program
from .rows import Columns, Job, Row, page, title
from .writing import time_text

PROTOCOL = """Each sequence is explored for a few evaluations. "Any input" is the bound of what its bodies do whatever the arrays
hold, "this input" that with the profile of the arguments; the call alone is what both are at least. "Nearest" is the largest share
that the bound of an implementation is of its time: above 100 % the bound would be wrong."""
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


def _program(
    sequence: Callable[..., None],
    arguments: Callable[[int, np.random.Generator], Sequence[Any]],
) -> Program:
    def of(job: Job, seed: int) -> Sequence[Any]:
        return arguments(job.sizes["n"], np.random.default_rng(seed))

    return Program(sequence, of, least=8)


def _room(n: int, rng: np.random.Generator) -> list[Any]:
    wall = (rng.random((n, n)) < 0.05).astype(np.int32)
    return [*(rng.standard_normal((n, n)).astype(np.float32) for _ in range(2)), wall]


def _two(n: int, rng: np.random.Generator) -> list[Any]:
    return [rng.uniform(0, 50, n).astype(np.float32), np.zeros(n, np.float32)]


def _anywhere(n: int, rng: np.random.Generator) -> list[Any]:
    at = rng.integers(0, n, n).astype(np.int32)
    return [at, rng.standard_normal(n).astype(np.float32), np.zeros(n, np.float32)]


PROGRAMS = {
    "mandelbrot": _program(mandelbrot, lambda n, rng: [np.zeros((n, n))]),
    "halvings": _program(halvings, _two),
    "gathered": _program(gathered, _anywhere),
    "walls": _program(walls, _room),
    **scatters.SEQUENCES,
    **bodies.SEQUENCES,
    **polybench.PROGRAMS,
}
_SIZES = {"mandelbrot": 512, "walls": 1024, "halvings": 1_000_000, "gathered": 1_000_000}
_SIZES |= {"csr_vector": 50_000, "csr_block": 20_000, "heat_3d": 40, "nussinov": 150}
_SIZES |= dict.fromkeys(scatters.SEQUENCES, 50_000) | dict.fromkeys(bodies.SEQUENCES, 1024)
JOBS = tuple(Job(name, {"n": _SIZES.get(name, 200)}) for name in PROGRAMS)


@dataclass(frozen=True)
class BoundOptions:
    """Options of one row."""

    most: int = asked(12, "evaluations of each search")
    seed: int = asked(1, least=0)


def make_row(job: Job, options: BoundOptions) -> Row:
    """What a search says of the bound of a row. Raises RuntimeError where nothing was found."""
    workload = PROGRAMS[job.name].workload(job, options.seed)
    device = row.cpu()
    space = row.space_of(workload, device)
    told = Options(
        time_limit_s=_SEARCH_S, max_evals=options.most, seed=options.seed, input_sets=1, store=False
    )
    with row.explored(workload, told) as (run, folder):
        timed = [r for r in row.evaluations_in(folder) if r.time_ns is not None]
        profile = known_profile(folder)
    assert run.best is not None
    return {
        "call_ns": device.machine.facts().call_ns,
        "any_ns": _root_ns(space),
        "this_ns": _root_ns(space.profiled(profile)),
        "is_profiled": profile is not None,
        "best_ns": run.best.time_ns,
        "nearest": max(r.bound_ns / (r.min_ns or r.time_ns or 1.0) for r in timed),
        "evaluations": len(timed),
        "alarms": run.ended.alarms,
        "stamp": stamp(),
    }


def _root_ns(space: Space) -> float:
    return Bounder(space).ns(root_of(space))


def missed(made: Sequence[Row]) -> list[str]:
    """Rows that failed, and times below their bound."""
    below = [f"{title(r)}: {r['alarms']} below their bound" for r in made if r.get("alarms")]
    return failures(made) + below


COLUMNS: Columns = {
    "sequence": title,
    "call": lambda r: time_text(r["call_ns"]),
    "any input": lambda r: time_text(r["any_ns"]),
    "this input": lambda r: time_text(r["this_ns"] if r["is_profiled"] else None),
    "best": lambda r: time_text(r["best_ns"]),
    "bound / best": lambda r: f"{r['this_ns'] / r['best_ns']:.1%}",
    "nearest": lambda r: f"{r['nearest']:.1%}",
    "below": lambda r: f"{r['alarms']} of {r['evaluations']}",
}


def report(made: dict[str, Any]) -> str:
    """The table as Markdown."""
    return page("The bound of bodies", PROTOCOL, COLUMNS, made["rows"])


QUESTION = Question(
    file="body_bounds",
    doc=__doc__,
    order=JOBS,
    options=BoundOptions,
    make=make_row,
    report=report,
    say=lambda r: f"bound {time_text(r['this_ns'])}, best {time_text(r['best_ns'])}",
    missed=missed,
    works=PROGRAMS,
)
main = QUESTION.main

if __name__ == "__main__":
    sys.exit(main())
