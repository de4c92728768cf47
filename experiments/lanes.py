"""How fast are bodies with branches and while loops when iterations run in lanes, beside one at a time and Taichi?

    python -m kernelscape.experiments.lanes [--taichi PYTHON] [--rounds 5] [--only NAME]

PYTHON is the interpreter of an environment that has Taichi. All take turns: in each round every one of them runs each program in a
process of its own. Writes experiments/results/lanes.md; a minute a round. "one at a time" is our code with no loop in lanes.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .conditions import moment, stamp, stamp_text
from .turns import Found, by_turns, pythons_of, run_text, turns_parser
from .writing import ratio_text, table, time_text, write_results

FILE = "lanes"
LIMIT_S = 180.0  # of one process
SCALAR = "one at a time"

# Words that both have; names are of the module `t`. Each defines `run` and `result`.
_OPENING = """
import json, time
import numpy as np
import {module} as t
t.init(arch=t.cpu, **{settings})
"""
_ENDING = """
run()
t.sync()
samples = []
for _ in range(9):
    began = time.perf_counter()
    run()
    t.sync()
    samples.append(time.perf_counter() - began)
found = result().astype(np.float64)
print(json.dumps({"seconds": sorted(samples)[2], "checksum": float(np.abs(found).mean())}))
"""
PROGRAMS = {
    "mandelbrot": """
N = 1024
pixels = t.field(t.f32, (N, N))

@t.kernel
def run():
    for i, j in pixels:
        cx, cy = 2.0 * i / N - 1.5, 2.0 * j / N - 1.0
        x, y, k = 0.0, 0.0, 0
        while x * x + y * y < 4.0 and k < 256:
            x, y = x * x - y * y + cx, 2.0 * x * y + cy
            k += 1
        pixels[i, j] = k * 1.0

result = pixels.to_numpy
""",
    "nbody": """
N = 4096
place = t.Vector.field(3, t.f32, N)
force = t.Vector.field(3, t.f32, N)
place.from_numpy(np.random.default_rng(0).uniform(0, 1, (N, 3)).astype(np.float32))

@t.kernel
def run():
    for i in range(N):
        total = t.Vector([0.0, 0.0, 0.0])
        for j in range(N):
            if i != j:
                d = place[j] - place[i]
                r = t.sqrt(d.dot(d) + 1e-6)
                total += d / (r * r * r)
        force[i] = total

result = force.to_numpy
""",
    "SDF marcher": """
W, H = 640, 360
image = t.field(t.f32, (W, H))

@t.func
def distance(p):
    ball = (p - t.Vector([0.0, 0.5, 0.0])).norm() - 0.5
    ring = t.sqrt((t.sqrt(p[0] * p[0] + p[2] * p[2]) - 0.9) ** 2 + (p[1] - 0.2) ** 2) - 0.15
    q = t.Vector([abs(p[0] - 1.6) - 0.3, abs(p[1] - 0.3) - 0.3, abs(p[2] - 0.2) - 0.3])
    outside = t.Vector([t.max(q[0], 0.0), t.max(q[1], 0.0), t.max(q[2], 0.0)]).norm()
    box = outside + t.min(t.max(q[0], t.max(q[1], q[2])), 0.0)
    return t.min(t.min(ball, ring), t.min(box, p[1]))

@t.func
def march(origin, d):
    s, k = 0.0, 0
    h = distance(origin)
    while k < 100 and h > 1e-4 and s < 20.0:
        s += h
        h = distance(origin + s * d)
        k += 1
    return s

@t.kernel
def run():
    for u, v in image:
        d = t.Vector([(u - 320) / 360.0, (v - 150) / 360.0, -1.5]).normalized()
        eye = t.Vector([0.3, 0.8, 3.5])
        s = march(eye, d)
        shade = 0.1
        if s < 20.0:
            p = eye + s * d
            e = 1e-3
            h = distance(p)
            n = t.Vector([distance(p + t.Vector([e, 0.0, 0.0])) - h,
                          distance(p + t.Vector([0.0, e, 0.0])) - h,
                          distance(p + t.Vector([0.0, 0.0, e])) - h]).normalized()
            light = t.Vector([0.5, 0.7, 0.5]).normalized()
            shade += t.max(n.dot(light), 0.0)
            if march(p + 0.01 * n, light) < 20.0:
                shade *= 0.4
        image[u, v] = shade

result = image.to_numpy
""",
    "G2P with SVD": """
n, side, dt = 200000, 64, 1e-4
per = float(side)
x = t.Vector.field(3, t.f32, n)
v = t.Vector.field(3, t.f32, n)
C = t.Matrix.field(3, 3, t.f32, n)
F = t.Matrix.field(3, 3, t.f32, n)
grid_v = t.Vector.field(3, t.f32, (side, side, side))
rng = np.random.default_rng(0)
x.from_numpy(rng.uniform(0.1, 0.9, (n, 3)).astype(np.float32))
F.from_numpy((np.eye(3) + rng.normal(0, 0.01, (n, 3, 3))).astype(np.float32))
grid_v.from_numpy(rng.uniform(-1, 1, (side, side, side, 3)).astype(np.float32))

@t.kernel
def run():
    for p in x:
        base = t.cast(x[p] * per - 0.5, t.i32)
        fx = x[p] * per - t.cast(base, t.f32)
        w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1.0) ** 2, 0.5 * (fx - 0.5) ** 2]
        new_v = t.Vector.zero(t.f32, 3)
        new_C = t.Matrix.zero(t.f32, 3, 3)
        for i, j, k in t.static(t.ndrange(3, 3, 3)):
            weight = w[i][0] * w[j][1] * w[k][2]
            g = grid_v[base + t.Vector([i, j, k])]
            new_v += weight * g
            new_C += 4.0 * per * weight * g.outer_product(t.Vector([i, j, k]) - fx)
        v[p] = new_v
        C[p] = new_C
        U, sig, V = t.svd((t.Matrix.identity(t.f32, 3) + dt * new_C) @ F[p])
        for d in t.static(range(3)):
            sig[d, d] = t.min(t.max(sig[d, d], 0.975), 1.0045)
        F[p] = U @ sig @ V.transpose()

result = F.to_numpy
""",
    "P2G with SVD": """
n, side, dt = 200000, 64, 1e-4
per, mu, la = float(side), 416.67, 277.78
volume = (0.5 / side) ** 3
x = t.Vector.field(3, t.f32, n)
v = t.Vector.field(3, t.f32, n)
C = t.Matrix.field(3, 3, t.f32, n)
F = t.Matrix.field(3, 3, t.f32, n)
grid_v = t.Vector.field(3, t.f32, (side, side, side))
grid_m = t.field(t.f32, (side, side, side))
rng = np.random.default_rng(0)
x.from_numpy(rng.uniform(0.1, 0.9, (n, 3)).astype(np.float32))
v.from_numpy(rng.uniform(-1, 1, (n, 3)).astype(np.float32))
C.from_numpy(rng.normal(0, 1, (n, 3, 3)).astype(np.float32))
F.from_numpy((np.eye(3) + rng.normal(0, 0.01, (n, 3, 3))).astype(np.float32))

@t.kernel
def run():
    for p in x:
        base = t.cast(x[p] * per - 0.5, t.i32)
        fx = x[p] * per - t.cast(base, t.f32)
        w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1.0) ** 2, 0.5 * (fx - 0.5) ** 2]
        one = t.Matrix.identity(t.f32, 3)
        G = (one + dt * C[p]) @ F[p]
        U, sig, V = t.svd(G)
        J = sig[0, 0] * sig[1, 1] * sig[2, 2]
        stress = 2 * mu * (G - U @ V.transpose()) @ G.transpose() + one * (la * J * (J - 1))
        affine = C[p] - (dt * volume * 4.0 * per * per) * stress
        for i, j, k in t.static(t.ndrange(3, 3, 3)):
            weight = w[i][0] * w[j][1] * w[k][2]
            distance = (t.Vector([i, j, k]) - fx) / per
            grid_v[base + t.Vector([i, j, k])] += weight * (v[p] + affine @ distance)
            grid_m[base + t.Vector([i, j, k])] += weight

result = grid_v.to_numpy
""",
}


def run_one(library: str, python: str, program: str, folder: Path) -> dict[str, float]:
    """Seconds a call and a checksum of the result. Raises RuntimeError."""
    module = "taichi" if library == "taichi" else "kernelscape"
    settings = {"log_level": "error", "offline_cache": False} if module == "taichi" else {}
    text = _OPENING.format(module=module, settings=settings)
    if library == SCALAR:
        text += "from kernelscape.runtime.engine import building\n"
        text += "building.vector_bytes = lambda: 0\n"
    text += PROGRAMS[program] + _ENDING
    return run_text(python, text, folder, LIMIT_S, XDG_CACHE_HOME=str(folder / "cache"))


def measure(pythons: Mapping[str, str], names: Sequence[str], rounds: int) -> Found:
    """What each way found, by program."""

    def once(way: str, python: str, name: str) -> dict[str, float]:
        with tempfile.TemporaryDirectory(prefix="kernelscape-lanes-") as folder:
            return run_one(way, python, name, Path(folder))

    return by_turns(pythons, names, rounds, once)


def report(values: dict[str, Any]) -> str:
    """The results as Markdown."""
    libraries = values["libraries"]
    body = []
    for name, ways in values["found"].items():
        cells, times = [], dict[str, list[float]]()
        for library in libraries:
            times[library] = [x["seconds"] for x in ways[library]]
            cells.append(_with_spread(times[library]))
        for other in libraries[1:]:
            pairs = zip(times[other], times[libraries[0]], strict=True)
            ratios = [theirs / ours for theirs, ours in pairs]
            cells.append(ratio_text(statistics.median(ratios), _spread(ratios)))
        sums = [ways[library][-1]["checksum"] for library in libraries]
        cells.append(f"{max(abs(s / sums[0] - 1) for s in sums):.1e}")
        body.append([name, *cells])
    heads = [*libraries, *(f"against {x}" for x in libraries[1:]), "sums differ by"]
    others = ", ".join(f"{name} {version}" for name, version in values["versions"].items())
    return "\n".join(
        [
            "# Iterations in lanes",
            "",
            stamp_text(values["stamp"]),
            f"- beside {others or 'nobody'}; ended {values['ended']['taken']},"
            f" load {values['ended']['load_1min']:.1f} at that moment",
            f"- A call; medians of {values['rounds']} rounds, half of their range, all in turn. f32, all cores.",
            "- mandelbrot 1024 x 1024, 256 passes at most; nbody of 4,096; a scene of four shapes with shadows, 640 x 360;",
            "  the steps of MLS-MPM from the grid to particles and back, each with a 3 x 3 SVD, 200,000 particles, 64^3.",
            "  P2G adds to a grid that particles share: ours by copies of threads, theirs atomically.",
            "- Sums are the mean sizes of results: passes near the edge of a set are decided by rounding.",
            "",
            table(["program", *heads], body),
            "",
        ]
    )


def _spread(values: Sequence[float]) -> float:
    return (max(values) - min(values)) / 2 / statistics.median(values)


def _with_spread(seconds: Sequence[float]) -> str:
    return f"{time_text(statistics.median(seconds) * 1e9)} +- {100 * _spread(seconds):.0f} %"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = turns_parser(__doc__, 5, list(PROGRAMS))
    given = parser.parse_args(arguments)
    pythons, versions = pythons_of(parser, {"taichi": given.taichi}, "in lanes", SCALAR)
    values = {
        "stamp": stamp(),
        "versions": versions,
        "libraries": list(pythons),
        "rounds": given.rounds,
        "found": measure(pythons, given.only or list(PROGRAMS), given.rounds),
        "ended": moment(),
    }
    print(write_results(FILE, report, values, given.results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
