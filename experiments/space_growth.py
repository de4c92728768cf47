"""How does the space grow with the sequence? Build, root, descent, bound and memory for chains and for a multigrid iteration.

    python -m kernelscape.experiments.space_growth [--only maps-48 multigrid] [--again]

makes each row in a process of its own, below a minute each, and writes its page in experiments/results/ after every
row. The exit status is 1 when the multigrid iteration misses a goal.
"""

# mypy: disable-error-code="valid-type"

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from .. import ndrange
from ..kernels.language.kernel import kernel, types
from ..kernels.language.record import Recording, record_sequence
from ..kernels.tasks.pipeline import normalise
from ..search.bound.bounder import Bounder
from ..space.build import build_space
from ..space.candidate import Candidate
from ..testing.checking import TARGET
from .conditions import stamp, stamp_text
from .rows import Job, Row, Table, answer, run_row, table_parser
from .writing import table

LENGTHS = (24, 48, 96, 250)
ROOT_S = 1.0  # built and at the root
DESCENT_MS = 50.0
MEMORY_MIB = 300.0
ROW_LIMIT_S = 280.0
LEVELS = 5
SMOOTHINGS = 2  # before and after a level, twice as many on each coarser one
BOTTOM = 50


@kernel
def scale(x: types.ndarray(), y: types.ndarray()) -> None:
    for i in range(x.shape[0]):
        y[i] = 0.5 * x[i] + 1.0


@kernel
def diffuse(x: types.ndarray(), y: types.ndarray()) -> None:
    for i, j, k in ndrange((1, x.shape[0] - 1), (1, x.shape[1] - 1), (1, x.shape[2] - 1)):
        y[i, j, k] = 0.125 * (
            x[i - 1, j, k] + x[i + 1, j, k] + x[i, j - 1, k] + x[i, j + 1, k]
        ) + 0.25 * (x[i, j, k - 1] + x[i, j, k + 1])


@kernel
def smooth_red(z: types.ndarray(), r: types.ndarray()) -> None:
    for i, j in ndrange((1, z.shape[0] - 1), (1, z.shape[1] - 1)):
        if (i + j) % 2 == 0:
            z[i, j] = 0.25 * (r[i, j] + z[i - 1, j] + z[i + 1, j] + z[i, j - 1] + z[i, j + 1])


@kernel
def smooth_black(z: types.ndarray(), r: types.ndarray()) -> None:
    for i, j in ndrange((1, z.shape[0] - 1), (1, z.shape[1] - 1)):
        if (i + j) % 2 == 1:
            z[i, j] = 0.25 * (r[i, j] + z[i - 1, j] + z[i + 1, j] + z[i, j - 1] + z[i, j + 1])


@kernel
def clear(x: types.ndarray()) -> None:
    for i, j in ndrange(x.shape[0], x.shape[1]):
        x[i, j] = 0.0


@kernel
def restrict(z: types.ndarray(), r: types.ndarray(), coarse: types.ndarray()) -> None:
    for i, j in ndrange((1, coarse.shape[0] - 1), (1, coarse.shape[1] - 1)):
        coarse[i, j] = (
            r[2 * i, 2 * j]
            - 4.0 * z[2 * i, 2 * j]
            + (z[2 * i - 1, 2 * j] + z[2 * i + 1, 2 * j])
            + (z[2 * i, 2 * j - 1] + z[2 * i, 2 * j + 1])
        )


@kernel
def prolongate(coarse: types.ndarray(), z: types.ndarray()) -> None:
    for i, j in ndrange((1, z.shape[0] - 1), (1, z.shape[1] - 1)):
        z[i, j] += coarse[i // 2, j // 2]


@kernel
def apply(p: types.ndarray(), q: types.ndarray()) -> None:
    for i, j in ndrange((1, p.shape[0] - 1), (1, p.shape[1] - 1)):
        q[i, j] = 4.0 * p[i, j] - p[i - 1, j] - p[i + 1, j] - p[i, j - 1] - p[i, j + 1]


@kernel
def dot(x: types.ndarray(), y: types.ndarray(), s: types.ndarray()) -> None:
    for i, j in ndrange(x.shape[0], x.shape[1]):
        s[0] += x[i, j] * y[i, j]


@kernel
def divide(a: types.ndarray(), b: types.ndarray(), ratio: types.ndarray()) -> None:
    for i in range(a.shape[0]):
        ratio[i] = a[i] / b[i]


@kernel
def add_scaled(x: types.ndarray(), p: types.ndarray(), step: types.ndarray()) -> None:
    for i, j in ndrange(x.shape[0], x.shape[1]):
        x[i, j] += step[0] * p[i, j]


@kernel
def subtract_scaled(r: types.ndarray(), q: types.ndarray(), step: types.ndarray()) -> None:
    for i, j in ndrange(r.shape[0], r.shape[1]):
        r[i, j] -= step[0] * q[i, j]


@kernel
def next_direction(z: types.ndarray(), p: types.ndarray(), step: types.ndarray()) -> None:
    for i, j in ndrange(p.shape[0], p.shape[1]):
        p[i, j] = z[i, j] + step[0] * p[i, j]


def chain(step: Callable[..., None], shape: tuple[int, ...], n_tasks: int) -> Recording:
    """A kernel again and again, from one array to another and back, each call a task."""

    def sequence(x: Any, y: Any) -> None:
        for t in range(n_tasks):
            step(*((x, y) if t % 2 == 0 else (y, x)))

    arrays = [np.zeros(shape, np.float32) for _ in range(2)]
    return record_sequence(sequence, arrays, "chain").unrolled()


def multigrid() -> Recording:
    """One iteration of conjugate gradients with a multigrid cycle for a preconditioner, on five dense levels."""
    levels = [(512 >> k) + 2 for k in range(LEVELS)]
    fields = [np.zeros((n, n), np.float32) for n in levels for _ in range(2)]
    fine = [np.zeros((levels[0], levels[0]), np.float32) for _ in range(3)]
    scalars = [np.zeros(1, np.float32) for _ in range(6)]

    def sequence(*given: Any) -> None:
        z, r = given[: 2 * LEVELS : 2], given[1 : 2 * LEVELS : 2]
        x, p, q = given[2 * LEVELS : 2 * LEVELS + 3]
        pq, rr, zr, old, alpha, beta = given[2 * LEVELS + 3 :]
        apply(p, q)
        dot(p, q, pq)
        divide(old, pq, alpha)
        add_scaled(x, p, alpha)
        subtract_scaled(r[0], q, alpha)
        dot(r[0], r[0], rr)
        clear(z[0])
        for k in range(LEVELS - 1):
            for _ in range(SMOOTHINGS << k):
                smooth_red(z[k], r[k])
                smooth_black(z[k], r[k])
            clear(z[k + 1])
            clear(r[k + 1])
            restrict(z[k], r[k], r[k + 1])
        for _ in range(BOTTOM):
            smooth_red(z[-1], r[-1])
            smooth_black(z[-1], r[-1])
        for k in reversed(range(LEVELS - 1)):
            prolongate(z[k + 1], z[k])
            for _ in range(SMOOTHINGS << k):
                smooth_black(z[k], r[k])
                smooth_red(z[k], r[k])
        dot(z[0], r[0], zr)
        divide(zr, old, beta)
        next_direction(z[0], p, beta)

    return record_sequence(sequence, [*fields, *fine, *scalars], "multigrid")


SEQUENCES: dict[str, Callable[[int], Recording]] = {
    "maps": lambda n: chain(scale, (1 << 20,), n),
    "stencils": lambda n: chain(diffuse, (64, 64, 64), n),
    "multigrid": lambda n: multigrid(),
}
JOBS = (
    *(Job(name, {"tasks": n}) for name in ("maps", "stencils") for n in LENGTHS),
    Job("multigrid", {"tasks": 246}),
)


@dataclass(frozen=True)
class Options:
    seed: int
    descents: int


def make_row(job: Job, options: Options) -> Row:
    """What was found for one sequence; what is compiled on first use has been called before."""
    _once(SEQUENCES["maps"](3), options)
    before = _peak_mib()
    return _once(SEQUENCES[job.name](job.sizes["tasks"]), options) | {
        "memory_mib": _peak_mib(),
        "memory_before_mib": before,
    }


def _once(recording: Recording, options: Options) -> Row:
    problem = normalise(recording)
    distinct = {(call.ir.name, call.arrays) for call in recording.calls}
    started_s = time.perf_counter()
    space = build_space(problem, TARGET)
    built_s = time.perf_counter()
    root = space.root()
    rooted_s = time.perf_counter()
    assert isinstance(root, Candidate)
    rng = np.random.default_rng(options.seed)
    descents, n_dead = [], 0
    for _ in range(options.descents):
        at_s = time.perf_counter()
        made = root.random_completion(rng)
        descents.append(time.perf_counter() - at_s)
        n_dead += not isinstance(made, Candidate)
    bounder = Bounder(space)
    bounder.ns(root)
    at_s = time.perf_counter()
    bounder.ns(root)
    return {
        "bound_us": 1e6 * (time.perf_counter() - at_s),
        "n_calls": len(recording.calls),
        "n_distinct": len(distinct),
        "n_tasks": len(problem.tasks),
        "n_components": len(space.backbone.components),
        "n_choices": space.n_choices,
        "n_open": len(root.open_choices()),
        "n_constraints": len(space.model.declarations),
        "build_s": built_s - started_s,
        "root_s": rooted_s - built_s,
        "descent_ms": 1e3 * median(descents),
        "n_descents": options.descents,
        "n_dead": n_dead,
    }


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def failures(rows: Sequence[Row]) -> list[str]:
    """What the multigrid iteration misses, one sentence each."""
    found = []
    for r in (r for r in rows if r["name"] == "multigrid" and r["status"] == "ok"):
        if r["build_s"] + r["root_s"] >= ROOT_S:
            found.append(f"built and at the root after {r['build_s'] + r['root_s']:.2f} s")
        if r["descent_ms"] >= DESCENT_MS:
            found.append(f"a descent takes {r['descent_ms']:.0f} ms")
        if r["memory_mib"] >= MEMORY_MIB:
            found.append(f"{r['memory_mib']:.0f} MiB")
    return found


def report(made: dict[str, Any]) -> str:
    """The rows as Markdown."""
    heads = [
        *("sequence", "calls", "distinct", "tasks", "components", "choices", "open at the root"),
        *("constraints", "build s", "root s", "descent ms", "dead", "bound us", "MiB"),
    ]
    body = [
        [
            r["name"],
            *(str(r[k]) for k in ("n_calls", "n_distinct", "n_tasks", "n_components")),
            *(str(r[k]) for k in ("n_choices", "n_open", "n_constraints")),
            f"{r['build_s']:.2f}",
            f"{r['root_s']:.2f}",
            f"{r['descent_ms']:.1f}",
            f"{r['n_dead']} of {r['n_descents']}",
            f"{r['bound_us']:.0f}",
            f"{r['memory_mib']:.0f}",
        ]
        for r in made["rows"]
        if r["status"] == "ok"
    ]
    missed = failures(made["rows"])
    return "\n".join(
        [
            "# How the space grows with the sequence",
            "",
            stamp_text(made["stamp"]),
            "",
            "Chains of one-loop maps and of three-loop stencils, and one iteration of conjugate gradients",
            "with a multigrid cycle on five dense levels. Each row in a process of its own, compiled code warm.",
            "A descent is random decisions from the root to an implementation, by propagation alone: the median.",
            "MiB are the most that the process had, Python and numba included; before the sequence it had"
            f" {max((r['memory_before_mib'] for r in made['rows'] if r['status'] == 'ok'), default=0):.0f}.",
            "",
            table(heads, body),
            "",
            f"Goals for the multigrid iteration: built and at the root within {ROOT_S:g} s, a descent"
            f" within {DESCENT_MS:g} ms,",
            f"below {MEMORY_MIB:g} MiB: " + ("; ".join(missed) if missed else "all met."),
            "",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = table_parser(__doc__, "rows, as maps-48 or multigrid-246 (default: all)")
    parser.add_argument("--descents", type=int, default=20)
    given = parser.parse_args(arguments)
    if given.child is not None:
        return answer(given.child, Options, make_row)
    by_name = {f"{job.name}-{job.sizes['tasks']}": job for job in JOBS}
    unknown = [name for name in given.only if name not in by_name]
    if unknown:
        parser.error(f"there is no row {unknown[0]}: there are {', '.join(by_name)}")
    options = Options(given.seed, given.descents)
    rows = Table("space_growth", JOBS, report, given.results)
    wanted = [by_name[name] for name in given.only] or list(JOBS)
    made = rows.make(
        rows.missing(wanted, given.again),
        lambda job: run_row("space_growth", job, options, ROW_LIMIT_S),
        lambda r: f"build {r['build_s']:.2f} s, root {r['root_s']:.2f} s, {r['n_constraints']}",
        stamp=stamp(),
    )
    return 1 if failures(made["rows"]) else 0


if __name__ == "__main__":
    sys.exit(main())
