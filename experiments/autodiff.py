"""Nodal forces from energy gradients: the AutoDiff benchmark of Hu et al., AsyncTaichi (2020), written anew.

    python -m kernelscape.experiments.autodiff [--peer NAME=PYTHON ...] [--seconds 120] [--rounds 3] [--shrink 1]

A hyper-elastic mesh of 158,000 triangles moves through a grid of 640 x 640 nodes. A substep has clears, the forward kernel of the
energy, its adjoint, and transfers of particles to the grid and back, as one sequence; nobody reads the energy. Without `--seconds`
launches and stores of the energy are counted, of the first eight candidates, and nothing is timed.
Writes experiments/results/autodiff.md.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .conditions import stamp, stamp_text
from .sparse_sequences import HEAD, measure
from .turns import pythons_of, run_text, turns_parser
from .writing import table, write_results

FILE = "autodiff"
LIMIT_S = 600.0

PROGRAM = """
n, n_grid = 282 // shrink, 640 // shrink
n_elements, dx, dt = 2 * (n - 1) ** 2, 1.0 / n_grid, 1e-5
E, bound = 25000.0, 3
x = ti.Vector.field(2, ti.f32, shape=n * n, needs_grad=True)
v = ti.Vector.field(2, ti.f32, shape=n * n)
C = ti.Matrix.field(2, 2, ti.f32, shape=n * n)
rest = ti.Matrix.field(2, 2, ti.f32, shape=n_elements)
vertices = ti.field(ti.i32, shape=(n_elements, 3))
grid_v = ti.Vector.field(2, ti.f32, shape=(n_grid, n_grid))
grid_m = ti.field(ti.f32, shape=(n_grid, n_grid))
total_energy = ti.field(ti.f32, shape=(), needs_grad=True)
unseen = ("total_energy",)

@ti.func
def edges(e):
    a, b, c = vertices[e, 0], vertices[e, 1], vertices[e, 2]
    return ti.Matrix.cols([x[b] - x[a], x[c] - x[a]])

@ti.kernel
def initialise():
    for i, j in ti.ndrange(n, n):
        x[i * n + j] = [0.3 + 0.5 * dx * i, 0.6 + 0.5 * dx * j]
        v[i * n + j] = [0.0, -3.0]
        C[i * n + j] = ti.Matrix.zero(ti.f32, 2, 2)
    for i, j in ti.ndrange(n - 1, n - 1):
        corner, e = i * n + j, 2 * (i * (n - 1) + j)
        vertices[e, 0], vertices[e, 1], vertices[e, 2] = corner, corner + n, corner + 1
        vertices[e + 1, 0], vertices[e + 1, 1], vertices[e + 1, 2] = corner + n + 1, corner + 1, corner + n
    for e in range(n_elements):
        rest[e] = edges(e).inverse()

@ti.kernel
def energy():
    for e in range(n_elements):
        f = edges(e) @ rest[e]
        log_j = ti.log(f.determinant())
        square = (f @ f.transpose()).trace()
        total_energy[None] += E * dx * dx * (0.5 * (square - 2.0) - log_j + 0.5 * log_j**2)

@ti.kernel
def clear():
    for i, j in grid_m:
        grid_v[i, j] = [0.0, 0.0]
        grid_m[i, j] = 0.0

@ti.kernel
def p2g():
    for p in x:
        base = ti.cast(x[p] * n_grid - 0.5, ti.i32)
        f = x[p] * n_grid - ti.cast(base, ti.f32)
        w = [0.5 * (1.5 - f) ** 2, 0.75 - (f - 1.0) ** 2, 0.5 * (f - 0.5) ** 2]
        for i, j in ti.static(ti.ndrange(3, 3)):
            at = ti.Vector([i, j])
            d = (ti.cast(at, ti.f32) - f) * dx
            weight = w[i][0] * w[j][1]
            grid_v[base + at] += weight * (v[p] - dt * x.grad[p] + C[p] @ d)
            grid_m[base + at] += weight

@ti.kernel
def grid_op():
    for i, j in grid_m:
        if grid_m[i, j] > 0.0:
            u = grid_v[i, j] / grid_m[i, j]
            u[1] -= dt * 9.8
            if i < bound and u[0] < 0.0 or i > n_grid - bound and u[0] > 0.0:
                u[0] = 0.0
            if j < bound and u[1] < 0.0 or j > n_grid - bound and u[1] > 0.0:
                u[1] = 0.0
            grid_v[i, j] = u

@ti.kernel
def g2p():
    for p in x:
        base = ti.cast(x[p] * n_grid - 0.5, ti.i32)
        f = x[p] * n_grid - ti.cast(base, ti.f32)
        w = [0.5 * (1.5 - f) ** 2, 0.75 - (f - 1.0) ** 2, 0.5 * (f - 0.5) ** 2]
        new_v, new_c = ti.Vector.zero(ti.f32, 2), ti.Matrix.zero(ti.f32, 2, 2)
        for i, j in ti.static(ti.ndrange(3, 3)):
            at = ti.Vector([i, j])
            weight, u = w[i][0] * w[j][1], grid_v[base + at]
            new_v += weight * u
            new_c += 4.0 * n_grid * weight * u.outer_product(ti.cast(at, ti.f32) - f)
        v[p], C[p] = new_v, new_c
        x[p] += dt * new_v

initialise()

def step():
    clear()
    with ti.ad.Tape(total_energy):
        energy()
    p2g()
    grid_op()
    g2p()

def again():
    pass

def result():
    initialise()
    for _ in range(20):
        step()
    return float(x.to_numpy().astype(float).sum())
"""
_COUNT = """
import re
from kernelscape.explorer.workload import Options, make_workload, space_for
from kernelscape.runtime.device import open_device
from kernelscape.search.starts.complete import sketched_candidates
from kernelscape.testing.checking import source_of

found = {}
for names in ((), unseen):
    made = make_workload(step, (), sequence="autodiff:step", name="step", unseen=names)
    space = space_for(made.problem, open_device("cpu").machine.facts(), Options())
    texts = [source_of(c).text for _, c in sketched_candidates(space, limit=8)]
    launches = [len(re.findall(r"void launch_[0-9]+\\(", t)) for t in texts]
    stores = [sum(t.count(f"{unseen[0]}[0] {op}") for op in ("=", "+=")) for t in texts]
    found["unseen" if names else "seen"] = {
        "tasks": len(made.problem.tasks), "first": launches[0], "fewest": min(launches), "stores": min(stores),
    }
print(json.dumps(found))
"""


def counted(shrink: int, folder: Path) -> dict[str, Any]:
    """Launches of a substep, and statements that store the energy, where it is seen and where it is not."""
    given = ("explore", str(shrink), str(folder), "0")
    return run_text(sys.executable, HEAD + PROGRAM + _COUNT, folder, LIMIT_S, *given)


def report(values: dict[str, Any]) -> str:
    """The page of one machine."""
    counts = [[f"energy {k}", *map(str, x.values())] for k, x in values["counts"].items()]
    blocks = ["# AutoDiff", stamp_text(values["stamp"])]
    head = ["a substep", "tasks", "launches of the first candidate", "fewest of eight", "stores"]
    blocks.append(table(head, counts))
    if values["runs"]:
        rows = [
            [way, f"{min(x['cpu_us'] for x in runs):.0f}", f"{runs[-1]['result']:.6g}"]
            for way, runs in values["runs"].items()
        ]
        blocks.append(table(["way", "CPU time of a substep, us", "sum of positions"], rows))
    return "\n\n".join(blocks)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = turns_parser(__doc__, 3, libraries=())
    parser.add_argument("--peer", metavar="NAME=PYTHON", action="append", default=[])
    parser.add_argument("--seconds", type=float, default=0.0, help="of exploring; 0: only counts")
    parser.add_argument("--shrink", type=int, default=1, help="so many times fewer nodes a side")
    given = parser.parse_args(arguments)
    if given.rounds < 1 or given.shrink < 1 or not all("=" in p for p in given.peer):
        parser.error("--rounds and --shrink must be positive, and --peer a name=python")
    peers = dict(p.split("=", 1) for p in given.peer)
    pythons_of(parser, peers)
    runs: Mapping[str, Any] = {}
    conditions = stamp()
    with TemporaryDirectory() as folder:
        counts = counted(given.shrink, Path(folder))
        if given.seconds > 0:
            options = (given.shrink, Path(folder), given.seconds)
            runs = measure(peers, FILE, PROGRAM, given.rounds, options)["runs"]
    values = {"stamp": conditions, "counts": counts, "runs": runs}
    print(write_results(FILE, report, values, given.results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
