"""What is exploring sequences of kernels on sparse fields worth, beside the same kernels one by one, and Taichi?

    python -m kernelscape.experiments.sparse_sequences [--peer NAME=PYTHON ...] [--seconds 60] [--rounds 3] [--only NAME ...]

Four micro-benchmarks of Hu et al., AsyncTaichi (2020), written anew. PYTHON is the interpreter of an environment with a peer that
has Taichi's language. Each way runs each program in a process of its own, in turn, on one thread; CPU time counts. Exploring
takes `--seconds` a program. Writes experiments/results/sparse_sequences.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .conditions import moment, stamp, stamp_text
from .turns import by_turns, pythons_of, run_text, turns_parser
from .writing import table, write_results

FILE = "sparse_sequences"
LIMIT_S = 300.0
PLAIN, EXPLORED = "kernelscape", "explored"

HEAD = """
import json, sys, time
way, shrink, folder, seconds = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
arch = (*sys.argv[5:], "cpu")[0]
threads = {"cpu_max_num_threads": 1} if arch == "cpu" else {}
unseen = ()  # fields whose values nobody reads
if way in ("kernelscape", "explored", "explore"):
    import kernelscape.compat.taichi as ti
    import kernelscape as ks
    ours = "cpu" if way == "explore" else arch
    ks.init(arch=getattr(ks, ours), **threads, **({"decisions": folder} if way == "explored" else {}))
elif way == "quadrants":
    import quadrants as ti
    ti.init(arch=getattr(ti, arch), **threads)
else:
    import taichi as ti
    ti.init(arch=getattr(ti, arch), **threads)
"""
TAIL = """
for _ in range(2):
    step()
if way == "explore":
    run = ks.explore(step, time_limit=seconds, directory=folder, unseen=unseen, target=arch)
    best, ended = run.best, run.ended
    n = len(run.frame().get("status", []))
    found = {"status": run.status, "evaluations": n, "tasks": None if best is None else n_tasks(best)}
    found |= {"best_ns": ended.best_ns, "default_ns": ended.baseline_ns, "failures": ended.failures, "alarms": ended.alarms}
else:
    ti.sync()
    n, samples = 1, []
    while len(samples) < 7:
        again()
        begin, wall = time.process_time(), time.perf_counter()
        for _ in range(n):
            step()
        ti.sync()
        cpu, wall = time.process_time() - begin, time.perf_counter() - wall
        if wall < 0.02 and n < 1000:
            n *= 2
            continue
        samples.append((cpu / n, wall / n))
    found = {"cpu_us": min(c for c, _ in samples) * 1e6, "wall_us": min(w for _, w in samples) * 1e6, "result": result()}
print(json.dumps(found))
"""
TASKS = """
def n_tasks(best):
    from kernelscape.kernels.tasks.pipeline import normalise
    tasks = normalise(best.file.stored.recorded()).tasks
    loops = [t for t in tasks if t.loops]
    return {"loops": len(loops), "lists": sum("_list" in t.target.array for t in tasks)}
"""

PROGRAMS: Mapping[str, str] = {
    "sparse_saxpy": """
a, b = ti.field(ti.f32), ti.field(ti.f32)
n = 128 // shrink
block = ti.root.pointer(ti.ij, 4)
block.dense(ti.ij, n // 4).place(a, b)

@ti.kernel
def initialise():
    for i, j in ti.ndrange(n // 2, n // 2):
        a[i, j] = 0.01 * i + 0.02 * j

@ti.kernel
def saxpy(x: ti.template(), y: ti.template(), alpha: ti.f32):
    for i, j in y:
        x[i, j] = alpha * x[i, j] + y[i, j]

def step():
    initialise()
    saxpy(b, a, 0.2)
    saxpy(a, b, 0.1)
    saxpy(b, a, 0.1)
    saxpy(b, a, 0.1)
    saxpy(a, b, 0.1)
    saxpy(b, a, 0.2)

def again():
    a.fill(0.0)
    b.fill(0.0)

def result():
    again()
    step()
    return float(a.to_numpy().sum())
""",
    "stencil_reduction": """
a, b, total = ti.field(ti.f32), ti.field(ti.f32), ti.field(ti.f32, shape=())
n = 1024 // shrink
block = ti.root.pointer(ti.i, 128)
block.dense(ti.i, n).place(a)
block.dense(ti.i, n).place(b)

@ti.kernel
def initialise():
    for i in range(n, n * 64):
        a[i] = 0.001 * i

@ti.kernel
def stencil():
    for i in a:
        b[i] = a[i - 1] + a[i] + a[i + 1]

@ti.kernel
def reduce():
    for i in a:
        total[None] += b[i]

@ti.kernel
def clear():
    for i in a:
        b[i] = 0.0

def step():
    initialise()
    for _ in range(3):
        stencil()
        reduce()
        clear()

def again():
    total[None] = 0.0

def result():
    total[None] = 0.0
    step()
    return float(total[None])
""",
    "multires": """
levels, n = 4, (1 << 18) // shrink
x = [ti.field(ti.f32) for _ in range(levels)]
for k in range(levels):
    ti.root.pointer(ti.i, (n >> k) // 256).pointer(ti.i, 16).dense(ti.i, 16).place(x[k])

@ti.kernel
def initialise():
    for i in range(n):
        x[0][i] = 0.001 * i

@ti.kernel
def downsample(fine: ti.template(), coarse: ti.template()):
    for i in fine:
        if i % 2 == 0:
            coarse[i // 2] = fine[i]

initialise()

def step():
    for k in range(levels - 1):
        downsample(x[k], x[k + 1])

def again():
    pass

def result():
    return float(x[levels - 1].to_numpy().sum())
""",
    "deep_hierarchy": """
x = ti.field(ti.f32)
node, n = ti.root, 4**8 * 8
for _ in range(8):
    node = node.pointer(ti.i, 4)
node.dense(ti.i, 8).place(x)

@ti.kernel
def initialise():
    for i in range(n // shrink):
        x[i] = 0.001 * (i % 10)

@ti.kernel
def jitter():
    for i in x:
        if i % 2 == 0:
            x[i] += x[i + 1]

initialise()

def step():
    for _ in range(5):
        jitter()

def again():
    x.fill(0.0)

def result():
    x.fill(1.0)
    step()
    return float(x.to_numpy().sum())
""",
}


def measure(
    peers: Mapping[str, str],
    name: str,
    program: str,
    rounds: int,
    given: tuple[int, Path, float],
    arch: str = "cpu",
) -> dict[str, Any]:
    """The text of a program in each way, in turn. What is found for a GPU is not replayed: its time is that of the search."""
    shrink, folder, seconds = given
    text, told = HEAD + program + TASKS + TAIL, (str(shrink), str(folder / name))

    def once(way: str, python: str, _: str = name) -> dict[str, Any]:
        limit_s = LIMIT_S + seconds
        store = str(folder / f"{name}.data")  # of these searches alone
        return run_text(
            python, text, folder, limit_s, way, *told, str(seconds), arch, XDG_DATA_HOME=store
        )

    ways = {PLAIN: sys.executable, **peers}
    explored = None
    if seconds > 0:
        explored = once("explore", sys.executable)
        if explored["tasks"] and arch == "cpu":  # else nothing ran in time
            ways |= {EXPLORED: sys.executable}
    return {"runs": by_turns(ways, [name], rounds, once)[name], "explored": explored}


def report(values: dict[str, Any]) -> str:
    """The results as Markdown."""
    body = []
    for name, found in values["found"].items():
        least = {way: min(x["cpu_us"] for x in runs) for way, runs in found["runs"].items() if runs}
        ours = least.get(EXPLORED, least[PLAIN])
        results = [runs[-1]["result"] for runs in found["runs"].values()]
        unlike = max(abs(r / results[0] - 1) if results[0] else abs(r) for r in results)
        tasks = (found["explored"] or {}).get("tasks") or {"loops": "", "lists": ""}
        cells = [
            f"{least[way]:.0f} ({least[way] / ours:.1f}x)" if way in least else ""
            for way in values["ways"]
        ]
        body.append([name, str(tasks["loops"]), str(tasks["lists"]), *cells, f"{unlike:.1e}"])
    return "\n".join(
        [
            "# Sequences of kernels on sparse fields",
            "",
            stamp_text(values["stamp"]),
            f"- ended {values['ended']['taken']}, load {values['ended']['load_1min']:.1f} at that moment",
            f"- Microseconds of CPU time a period, the least of {values['rounds']} rounds of seven; f32, one thread.",
            "- In brackets: how often the time of the explored sequence, or of ours where none was explored.",
            "- Loops and lists: what is left to run in a period, lists only where cells have changed.",
            "",
            table(["program", "loops", "lists", *values["ways"], "results differ by"], body),
            "",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = turns_parser(__doc__, 3, list(PROGRAMS), libraries=())
    parser.add_argument("--peer", metavar="NAME=PYTHON", action="append", default=[])
    parser.add_argument("--seconds", type=float, default=60.0, help="of exploring; 0: none")
    parser.add_argument("--shrink", type=int, default=1, help="so many times fewer cells")
    given = parser.parse_args(arguments)
    if given.rounds < 1 or given.shrink < 1 or not all("=" in p for p in given.peer):
        parser.error("--rounds and --shrink must be positive, and --peer a name=python")
    peers = dict(p.split("=", 1) for p in given.peer)
    _, versions = pythons_of(parser, peers)
    found = {}
    with TemporaryDirectory() as folder:
        for name in given.only or PROGRAMS:
            options = (given.shrink, Path(folder), given.seconds)
            found[name] = measure(peers, name, PROGRAMS[name], given.rounds, options)
            print(name, json.dumps(found[name]), file=sys.stderr, flush=True)
    values = {
        "stamp": stamp(),
        "versions": versions,
        "ways": [*([EXPLORED] if given.seconds > 0 else []), PLAIN, *peers],
        "rounds": given.rounds,
        "found": found,
        "ended": moment(),
    }
    print(write_results(FILE, report, values, given.results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
