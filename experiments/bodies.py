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
from ..codegen.plan.candidates import plan_of
from ..kernels.frontend.kernel import kernel, types
from ..runtime.api.outcome import FINAL
from . import row
from .conditions import stamp
from .expert import body_source
from .measuring import built, median
from .question import Question, asked
from .row import Program
from .rows import Columns, Job, Row, page, title
from .writing import time_text

PROTOCOL = """Each search has a limit of time and finds its best by itself. Its best, its default and C by hand on as many threads
(experiments/expert/bodies) are then timed in turn, each in a process of its own (median of five rounds);
the results of all are verified on the same inputs."""
ROUNDS = 5

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


def _program(sequence: Callable[..., None], n_arrays: int) -> Program:
    """A sequence on so many arrays of n x n."""

    def arguments(job: Job, seed: int) -> Sequence[Any]:
        rng = np.random.default_rng(seed)
        shape = (job.sizes["n"], job.sizes["n"])
        return [rng.standard_normal(shape).astype(job.numpy) for _ in range(n_arrays)]

    return Program(sequence, arguments)


SEQUENCES = {
    "red_black": _program(red_black, 2),
    "game_of_life": _program(game_of_life, 2),
    "upwind": _program(upwind, 3),
}
JOBS = tuple(Job(name, {"n": n}) for name in SEQUENCES for n in (512, 509, 2048))


@dataclass(frozen=True)
class BodyOptions:
    """Options of one row."""

    seconds: float = asked(30.0, "of each search")
    seed: int = asked(1, least=0)


def make_row(job: Job, options: BodyOptions) -> Row:
    """What is found for a row. Raises RuntimeError where nothing was found, or something is wrong."""
    device = row.cpu()
    workload = SEQUENCES[job.name].workload(job, options.seed)
    searched = row.with_one_compiler(device, options.seconds, options.seed)
    run, best = row.best_found(workload, device, searched)
    default = row.sketched(best.space)
    programs = {"best": best} | ({} if default is None else {"default": default})
    sources = {name: row.text_of(c, device) for name, c in programs.items()}
    with contextlib.suppress(KeyError):  # nobody has written one
        cores = device.machine.facts().cores
        sources["by hand"] = body_source(workload.recording, job.sizes["n"], cores)
    artifacts = {name: built(device, s) for name, s in sources.items()}
    inputs = row.inputs_of(workload, options.seed)
    protocol = replace(FINAL, budget_ns=3e8)
    times, memory = row.each_alone(device, artifacts, inputs, protocol, ROUNDS)
    return {
        "times_ns": {name: median(found) for name, found in times.items()},
        "bound_ns": run.bound_ns,
        "found": run.status,
        "closed": str(run.non_affine),
        "guards": list(phrases(plan_of(best), "branches")),
        "stamp": stamp(device, memory[-1]),
    }


def _time(name: str) -> Callable[[Row], str]:
    return lambda r: time_text(r["times_ns"].get(name))


def _over_hand(r: Row) -> str:
    hand = r["times_ns"].get("by hand")
    return f"{r['times_ns']['best'] / hand:.2f}" if hand else "–"


COLUMNS: Columns = {
    "sequence": lambda r: title(r | {"sizes": {"m": r["sizes"]["n"], "n": r["sizes"]["n"]}}),
    "type": lambda r: r["dtype"],
    "found": _time("best"),
    "by hand": _time("by hand"),
    "found / by hand": _over_hand,
    "default": _time("default"),
    "bound": lambda r: time_text(r["bound_ns"]),
    "ended": lambda r: r["found"],
    "how": lambda r: r["closed"] or "; ".join(r["guards"]) or "selects",
}


def report(made: dict[str, Any]) -> str:
    """The table as Markdown."""
    return page("Branches", PROTOCOL, COLUMNS, made["rows"])


QUESTION = Question(
    file="bodies",
    doc=__doc__,
    order=JOBS,
    options=BodyOptions,
    make=make_row,
    report=report,
    say=lambda r: ", ".join(f"{name} {time_text(ns)}" for name, ns in r["times_ns"].items()),
    dtypes=("f32", "f64"),
    works=SEQUENCES,
)
main = QUESTION.main

if __name__ == "__main__":
    sys.exit(main())
