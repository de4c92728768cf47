"""How fast are sequences of kernels whose bodies share work when they are fused, beside Taichi and quadrants?

    python -m kernelscape.experiments.fused_bodies [--taichi PYTHON] [--quadrants PYTHON] [--rounds 3] [--search 30] [--only NAME]

PYTHON is the interpreter of an environment that has the library. Ours is searched first, for --search seconds a program. Then all
take turns: in each round every one of them runs each program, unchanged, in a process of its own. A round takes half a minute.
Rows are kept, so it may be run again until it says that none is left; --again forgets them. Writes
experiments/results/fused_bodies.md.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .conditions import moment, stamp, stamp_text
from .turns import pythons_of, run_text, turns_parser
from .writing import read_results, table, time_text, write_results

FILE = "fused_bodies"
LIMIT_S = 200.0  # of one process
WHO = ("ours", "taichi", "quadrants")

_OPENING = """
import json, sys, time
import numpy as np
import {module} as t
rng = np.random.default_rng(0)
nd = t.types.ndarray
"""
# Each calls `step` on `given`: in a library as it is, or as it was found.
_ENDING = """
for _ in range(2):
    step(*given)
sync()
samples = []
for _ in range(25):
    began = time.perf_counter()
    step(*given)
    sync()
    samples.append(time.perf_counter() - began)
checksum = float(np.mean([np.abs(x.astype(np.float64)).mean() for x in given]))
print(json.dumps({"seconds": min(samples), "checksum": checksum}))
"""
_PEER = "t.init(arch=t.cpu, log_level='error', offline_cache=False)\nsync = t.sync\n"
_FOUND = """
step, sync = t.load({folder!r}).compile(), lambda: None
"""
_SEARCH = """
run = t.explore(step, *given, time_limit={seconds}, max_evals={most}, directory={folder!r})
if run.best is None:
    sys.exit(f"nothing was found: {{run.status}}")
found = {{"status": run.status, "closed": str(run.non_affine), "launches": 0}}
found["bound_s"] = (run.bound_ns or 0.0) * 1e-9
found["default_s"] = (run.ended.baseline_ns or 0.0) * 1e-9
while f"static void launch_{{found['launches']}}(" in run.best.source:
    found["launches"] += 1
print(json.dumps(found))
"""

_STEPS = """
@t.kernel
def increment(x: nd(dtype=t.i32, ndim=1)):
    for i in range(x.shape[0]):
        x[i] = x[i] + 1

@t.kernel
def fill(x: nd(dtype=t.f32, ndim=1)):
    for i in range(x.shape[0]):
        x[i] = 1.0

@t.kernel
def add_to(x: nd(dtype=t.i32, ndim=1), y: nd(dtype=t.i32, ndim=1), c: t.i32):
    for i in range(x.shape[0]):
        y[i] = x[i] + c

N = 2 * 1024 * 1024
"""
_ADVECTION_2D = """
N = 256

@t.func
def sample(q: t.template(), x, y):
    x0 = t.min(t.max(x, 0.0), q.shape[0] - 1.001)
    y0 = t.min(t.max(y, 0.0), q.shape[1] - 1.001)
    i, j = t.cast(x0, t.i32), t.cast(y0, t.i32)
    fx, fy = x0 - i, y0 - j
    a = q[i, j] * (1.0 - fx) + q[i + 1, j] * fx
    b = q[i, j + 1] * (1.0 - fx) + q[i + 1, j + 1] * fx
    return a * (1.0 - fy) + b * fy

M = nd(dtype=t.f32, ndim=2)

@t.kernel
def advect(q: M, new: M, u: M, v: M, dt: t.f32):
    for i, j in t.ndrange(q.shape[0], q.shape[1]):
        u1, v1 = u[i, j], v[i, j]
        x, y = i - 0.5 * dt * u1, j - 0.5 * dt * v1
        u2, v2 = sample(u, x, y), sample(v, x, y)
        x, y = i - 0.75 * dt * u2, j - 0.75 * dt * v2
        u3, v3 = sample(u, x, y), sample(v, x, y)
        x = i - dt * (2.0 / 9.0 * u1 + 1.0 / 3.0 * u2 + 4.0 / 9.0 * u3)
        y = j - dt * (2.0 / 9.0 * v1 + 1.0 / 3.0 * v2 + 4.0 / 9.0 * v3)
        new[i, j] = sample(q, x, y)

def step(a, b, c, new_a, new_b, new_c, u, v):
    advect(a, new_a, u, v, 1.5)
    advect(b, new_b, u, v, 1.5)
    advect(c, new_c, u, v, 1.5)

given = [rng.standard_normal((N, N)).astype(np.float32) for _ in range(8)]
"""
_ADVECTION_3D = """
N = 128
A = nd(dtype=t.f32, ndim=3)

@t.func
def plane(q: t.template(), i, j, k, fx, fy):
    a = q[i, j, k] * (1.0 - fx) + q[i + 1, j, k] * fx
    b = q[i, j + 1, k] * (1.0 - fx) + q[i + 1, j + 1, k] * fx
    return a * (1.0 - fy) + b * fy

@t.func
def sample(q: t.template(), x, y, z):
    x0 = t.min(t.max(x, 0.0), q.shape[0] - 1.001)
    y0 = t.min(t.max(y, 0.0), q.shape[1] - 1.001)
    z0 = t.min(t.max(z, 0.0), q.shape[2] - 1.001)
    i, j, k = t.cast(x0, t.i32), t.cast(y0, t.i32), t.cast(z0, t.i32)
    fx, fy, fz = x0 - i, y0 - j, z0 - k
    return plane(q, i, j, k, fx, fy) * (1.0 - fz) + plane(q, i, j, k + 1, fx, fy) * fz

@t.kernel
def advect(q: A, new: A, u: A, v: A, w: A, dt: t.f32):
    for i, j, k in t.ndrange(q.shape[0], q.shape[1], q.shape[2]):
        u1, v1, w1 = u[i, j, k], v[i, j, k], w[i, j, k]
        x, y, z = i - 0.5 * dt * u1, j - 0.5 * dt * v1, k - 0.5 * dt * w1
        u2, v2, w2 = sample(u, x, y, z), sample(v, x, y, z), sample(w, x, y, z)
        x, y, z = i - 0.75 * dt * u2, j - 0.75 * dt * v2, k - 0.75 * dt * w2
        u3, v3, w3 = sample(u, x, y, z), sample(v, x, y, z), sample(w, x, y, z)
        x = i - dt * (2.0 / 9.0 * u1 + 1.0 / 3.0 * u2 + 4.0 / 9.0 * u3)
        y = j - dt * (2.0 / 9.0 * v1 + 1.0 / 3.0 * v2 + 4.0 / 9.0 * v3)
        z = k - dt * (2.0 / 9.0 * w1 + 1.0 / 3.0 * w2 + 4.0 / 9.0 * w3)
        new[i, j, k] = sample(q, x, y, z)

def step(a, b, c, new_a, new_b, new_c, u, v, w):
    advect(a, new_a, u, v, w, 1.5)
    advect(b, new_b, u, v, w, 1.5)
    advect(c, new_c, u, v, w, 1.5)

given = [rng.standard_normal((N, N, N)).astype(np.float32) for _ in range(9)]
"""
_TEXTURE = """
N = 1024
A = nd(dtype=t.f32, ndim=3)

@t.kernel
def pattern(out: A):
    for i, j in t.ndrange(out.shape[0], out.shape[1]):
        x, y = i * (16.0 / N), j * (16.0 / N)
        r = t.sqrt((x - 8.0) * (x - 8.0) + (y - 8.0) * (y - 8.0))
        out[i, j, 0] = 0.5 + 0.5 * t.sin(3.0 * r)
        out[i, j, 1] = x - t.floor(x)
        out[i, j, 2] = y - t.floor(y)

@t.func
def resample(q: t.template(), out: t.template(), i, j, x, y):
    x0 = t.min(t.max(x, 0.0), q.shape[0] - 1.001)
    y0 = t.min(t.max(y, 0.0), q.shape[1] - 1.001)
    k, m = t.cast(x0, t.i32), t.cast(y0, t.i32)
    fx, fy = x0 - k, y0 - m
    for c in t.static(range(3)):
        a = q[k, m, c] * (1.0 - fx) + q[k + 1, m, c] * fx
        b = q[k, m + 1, c] * (1.0 - fx) + q[k + 1, m + 1, c] * fx
        out[i, j, c] = a * (1.0 - fy) + b * fy

@t.kernel
def rotate(q: A, out: A, cosine: t.f32, sine: t.f32):
    for i, j in t.ndrange(q.shape[0], q.shape[1]):
        x, y = i - 0.5 * N, j - 0.5 * N
        resample(q, out, i, j, cosine * x - sine * y + 0.5 * N, sine * x + cosine * y + 0.5 * N)

@t.kernel
def scale(q: A, out: A, factor: t.f32):
    for i, j in t.ndrange(q.shape[0], q.shape[1]):
        resample(q, out, i, j, factor * i, factor * j)

@t.kernel
def blend(a: A, b: A, out: A, alpha: t.f32):
    for i, j in t.ndrange(a.shape[0], a.shape[1]):
        for c in t.static(range(3)):
            out[i, j, c] = alpha * a[i, j, c] + (1.0 - alpha) * b[i, j, c]

def step(source, turned, larger, out):
    pattern(source)
    rotate(source, turned, 0.8, 0.6)
    scale(source, larger, 0.7)
    blend(turned, larger, out, 0.4)

given = [np.zeros((N, N, 3), np.float32) for _ in range(4)]
"""
PROGRAMS = {
    "increments 2 M": _STEPS
    + """
def step(x):
    for _ in range(10):
        increment(x)

given = [np.zeros(N, np.int32)]
""",
    "fill_array 2 M": _STEPS
    + """
def step(x):
    for _ in range(10):
        fill(x)

given = [np.zeros(N, np.float32)]
""",
    "chain_copy 2 M": _STEPS
    + """
def step(x, y, z):
    add_to(x, y, 1)
    add_to(y, z, 4)

given = [np.arange(N, dtype=np.int32), np.zeros(N, np.int32), np.zeros(N, np.int32)]
""",
    "advection 256^2": _ADVECTION_2D,
    "advection 128^3": _ADVECTION_3D,
    "texture 1024^2 RGB": _TEXTURE,
}


def search(name: str, seconds: float, folder: Path, most: int | None = None) -> dict[str, Any]:
    """Explores a program, with `most` evaluations at most; the run is in `folder`/run. How it ended."""
    text = _OPENING.format(module="kernelscape") + PROGRAMS[name]
    text += _SEARCH.format(seconds=seconds, most=most, folder=str(folder / "run"))
    store = str(folder / "data")  # of this search alone
    return run_text(sys.executable, text, folder, LIMIT_S, XDG_DATA_HOME=store)


def make_row(name: str, who: str, python: str, folder: Path) -> dict[str, Any]:
    """Seconds of a call and a checksum of what it leaves; `folder` has what was found of ours."""
    module = "kernelscape" if who == "ours" else who
    text = _OPENING.format(module=module)
    if who == "ours":
        text += PROGRAMS[name] + _FOUND.format(folder=str(folder / "run"))
    else:
        text += _PEER + PROGRAMS[name]
    try:
        found = run_text(python, text + _ENDING, folder, LIMIT_S)
    except RuntimeError as e:
        found = {"why": str(e)}
    return {"name": name, "who": who, **moment(), **found}


def seconds_of(rows: Sequence[Mapping[str, Any]], name: str, who: str) -> list[float]:
    """Of a call, one a process."""
    return [r["seconds"] for r in rows if (r["name"], r["who"]) == (name, who) and "seconds" in r]


def report(values: dict[str, Any]) -> str:
    """The results as Markdown."""
    rows, found = values["rows"], values["found"]
    body = []
    for name in PROGRAMS:
        times = {who: seconds_of(rows, name, who) for who in WHO}
        if not times["ours"]:
            continue
        ours = min(times["ours"])
        cells = [time_text(min(x) * 1e9) if (x := times[who]) else "–" for who in WHO]
        cells += [f"{min(x) / ours:.2f}" if (x := times[who]) else "–" for who in WHO[1:]]
        sums = [r["checksum"] for r in rows if r["name"] == name and "checksum" in r]
        apart = max(abs(s / sums[0] - 1) if sums[0] else abs(s) for s in sums)
        ended = found.get(name, {})
        one_by_one = time_text(ended["default_s"] * 1e9) if ended.get("default_s") else "–"
        bound = time_text(ended["bound_s"] * 1e9) if ended.get("bound_s") else "–"
        launches = str(ended.get("launches", "–"))
        body.append([name, *cells, f"{apart:.0e}", one_by_one, bound, launches])
    heads = ["program", *WHO, *(f"{x} over ours" for x in WHO[1:]), "sums differ by"]
    others = ", ".join(f"{name} {version}" for name, version in values["versions"].items())
    loads = sorted(r["load_1min"] for r in rows) or [0.0]
    return "\n".join(
        [
            "# Bodies that share work",
            "",
            stamp_text(values["stamp"]),
            f"- beside {others or 'nobody'}; load from {loads[0]:.1f} to {loads[-1]:.1f}",
            "- A call of the whole sequence on arrays of NumPy, all cores; the least of 25 in all rounds.",
            "- Ten steps in place, ten times the same value, two steps in a chain; three channels carried by one velocity,"
            " traced back in three steps (RK3);",
            "  a pattern, turned and enlarged bilinearly, both blended.",
            "- default: our first candidate, a launch a kernel, as the search measured it.",
            "",
            table([*heads, "default", "bound", "launches"], body),
            "",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = turns_parser(__doc__, 3, list(PROGRAMS), WHO[1:])
    parser.add_argument("--search", type=float, default=30.0, help="seconds of each search")
    parser.add_argument("--again", action="store_true", help="forget rows that are there")
    given = parser.parse_args(arguments)
    if given.rounds < 1 or given.search <= 0:
        parser.error("--rounds and --search must be positive")
    asked = {"taichi": given.taichi, "quadrants": given.quadrants}
    pythons, versions = pythons_of(parser, asked, "ours")
    values = {"rows": [], "found": {}} | ({} if given.again else read_results(FILE, given.results))
    values |= {"stamp": stamp(), "versions": versions}
    for name in given.only or PROGRAMS:
        done = Counter(r["who"] for r in values["rows"] if r["name"] == name and "seconds" in r)
        left = [who for k in range(given.rounds) for who in pythons if done[who] <= k]
        if not left:
            continue
        with tempfile.TemporaryDirectory(prefix="kernelscape-fused-") as scratch:
            folder = Path(scratch)
            if "ours" in left:
                values["found"][name] = search(name, given.search, folder)
            for who in left:
                values["rows"].append(make_row(name, who, pythons[who], folder))
                row = values["rows"][-1]
                said = time_text(row["seconds"] * 1e9) if "seconds" in row else row["why"]
                print(f"{name} {who}: {said}", flush=True)
        write_results(FILE, report, values, given.results)
    return 1 if any("why" in r for r in values["rows"]) else 0


if __name__ == "__main__":
    sys.exit(main())
